"""Completion of the arguments of the gateway's own templates and prompts. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.errors import INVALID_PARAMS, RemoteError, UnknownName
from portico.profiles.prompts import PROMPT_NAMES as PROMPTS
from portico.profiles.resources import TEMPLATES
from portico.upstream.backend import Raw
from portico.usage.ranked_catalog import RankedCatalog

MAX_VALUES = 100
_MIN_SIMILARITY = 60
_MAX_CHARS = 200
_MAX_COMPARED = 2_000
"""Maximum number of names that a misspelt one is compared with."""
_BATCH_SIZE = 250
_OWN_TEMPLATES = frozenset(template["uriTemplate"] for template in TEMPLATES)


def complete_argument(ranked_catalog: RankedCatalog, params: Raw) -> Raw | None:
    """Answer `completion/complete` for a gateway template or prompt; None for any other.

    Raises RemoteError for an argument that the template does not have.
    """
    reference: Raw = params.get("ref") or {}
    if reference.get("type") == "ref/prompt":
        if reference.get("name") in PROMPTS:
            return _make_response([])
        return None
    if reference.get("uri") not in _OWN_TEMPLATES:
        return None
    argument: Raw = params.get("argument") or {}
    name = str(argument.get("name", ""))
    typed = str(argument.get("value", ""))
    if f"{name}}}" not in reference["uri"]:
        raise RemoteError(INVALID_PARAMS, f"{reference['uri']} has no argument {name[:80]!r}")
    arguments: Mapping[str, Any] = (params.get("context") or {}).get("arguments") or {}
    return _make_response(
        find_matches(typed, _CANDIDATES[name](ranked_catalog, arguments), unqualified=name == "uri")
    )


def find_matches(text: str, candidates: Iterable[str], *, unqualified: bool = False) -> list[str]:
    """Return candidates with a matching prefix (of the name or the part after `server.`), then
    infix.

    If none matches, similarly spelt ones. `unqualified` names have no server prefix.
    """
    names = list(candidates)
    wanted = text[:_MAX_CHARS].strip().casefold()
    groups: tuple[list[str], ...] = ([], [], [])
    for name in names:
        folded = name[:_MAX_CHARS].casefold()
        if folded.startswith(wanted):
            groups[0].append(name)
        elif not unqualified and folded.partition(".")[2].startswith(wanted):
            groups[1].append(name)
        elif wanted in folded:
            groups[2].append(name)
    found = [name for group in groups for name in group]
    return found or _find_similar(wanted, names)


def _find_similar(text: str, names: list[str]) -> list[str]:
    from rapidfuzz import fuzz, process  # only a misspelt name needs it

    found: list[tuple[float, str]] = []
    # Only prefixes of the first names, in batches: the comparison holds the interpreter lock.
    first = list(dict.fromkeys(names[:_MAX_COMPARED]))
    for start in range(0, len(first), _BATCH_SIZE):
        folded = {name: name[:_MAX_CHARS].casefold() for name in first[start : start + _BATCH_SIZE]}
        similar = process.extract(
            text, folded, scorer=fuzz.WRatio, limit=None, score_cutoff=_MIN_SIMILARITY
        )
        found += ((-score, name) for _, score, name in similar)
    return [name for _, name in sorted(found)]


def _make_response(values: list[str]) -> Raw:
    shown = values[:MAX_VALUES]
    return {
        "completion": {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}
    }


def _list_tool_candidates(
    ranked_catalog: RankedCatalog, arguments: Mapping[str, Any]
) -> Iterable[str]:
    """Return tool addresses, hot tools first, because clients show only the first hundred."""
    if server := _find_server(ranked_catalog.snapshot, arguments):
        return [tool.address for tool in ranked_catalog.list_server_tools(server)]
    if ranked_catalog.hot_list.basis != "one of each server":
        hot = [tool.address for tool in ranked_catalog.hot_list.tools]
    else:
        hot = []
    return dict.fromkeys((*hot, *ranked_catalog.snapshot.tools))


def _list_resource_uris(
    ranked_catalog: RankedCatalog, arguments: Mapping[str, Any]
) -> Iterable[str]:
    server = _find_server(ranked_catalog.snapshot, arguments)
    servers = ranked_catalog.snapshot.servers
    if server:
        return [resource["uri"] for resource in servers[server].offers.resources]
    return []


def _find_server(snapshot: Snapshot, arguments: Mapping[str, Any]) -> str | None:
    """Return the server that was filled in before, if it exists."""
    name = arguments.get("backend_name")
    try:
        if isinstance(name, str) and name:
            return snapshot.resolve_server(name).name
        return None
    except UnknownName:
        return None


_CANDIDATES: Mapping[str, Callable[[RankedCatalog, Mapping[str, Any]], Iterable[str]]] = {
    "tool_name": _list_tool_candidates,
    "backend_name": lambda ranked_catalog, _: sorted(ranked_catalog.snapshot.servers),
    "category": lambda ranked_catalog, _: ranked_catalog.categories,
    "result_id": lambda *_: (),
    "uri": _list_resource_uris,
}
