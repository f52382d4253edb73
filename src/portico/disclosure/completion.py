"""Completion of the arguments of our own templates and prompts. Pure: what was typed in, what it may become out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.disclosure.prompts import NAMES as PROMPTS
from portico.disclosure.resources import TEMPLATES
from portico.disclosure.shelves import Shelves
from portico.errors import INVALID_PARAMS, RemoteError, UnknownName
from portico.upstream.backend import Raw

MAX_VALUES = 100
_LEAST_ALIKE = 60
_LONGEST = 200
_COMPARED = 2_000
"""Names that a misspelt one is compared with."""
_AT_ONCE = 250
_OURS = frozenset(template["uriTemplate"] for template in TEMPLATES)


def complete(shelves: Shelves, params: Raw) -> Raw | None:
    """The answer to `completion/complete` about one of our templates or prompts; None for any other's."""
    reference: Raw = params.get("ref") or {}
    if reference.get("type") == "ref/prompt":
        return _answer([]) if reference.get("name") in PROMPTS else None
    if reference.get("uri") not in _OURS:
        return None
    argument: Raw = params.get("argument") or {}
    name, typed = str(argument.get("name", "")), str(argument.get("value", ""))
    if f"{name}}}" not in reference["uri"]:
        raise RemoteError(INVALID_PARAMS, f"{reference['uri']} has no argument {name[:80]!r}")
    given: Mapping[str, Any] = (params.get("context") or {}).get("arguments") or {}
    return _answer(matching(typed, _CANDIDATES[name](shelves, given), whole=name == "uri"))


def matching(typed: str, candidates: Iterable[str], *, whole: bool = False) -> list[str]:
    """Those that begin with what was typed (as a name after its server, too), then those that contain it.

    Where none does, those that are spelt alike. `whole` names have no server before them.
    """
    names = list(candidates)
    wanted = typed[:_LONGEST].strip().casefold()
    places: tuple[list[str], ...] = ([], [], [])
    for name in names:
        folded = name[:_LONGEST].casefold()
        if folded.startswith(wanted):
            places[0].append(name)
        elif not whole and folded.partition(".")[2].startswith(wanted):
            places[1].append(name)
        elif wanted in folded:
            places[2].append(name)
    found = [name for place in places for name in place]
    return found or _alike(wanted, names)


def _alike(wanted: str, names: list[str]) -> list[str]:
    from rapidfuzz import fuzz, process  # only a misspelt name needs it

    found: list[tuple[float, str]] = []
    # The beginnings of the first, some at a time: while they are compared, no other thread runs.
    first = list(dict.fromkeys(names[:_COMPARED]))
    for start in range(0, len(first), _AT_ONCE):
        folded = {name: name[:_LONGEST].casefold() for name in first[start : start + _AT_ONCE]}
        alike = process.extract(wanted, folded, scorer=fuzz.WRatio, limit=None, score_cutoff=_LEAST_ALIKE)
        found += ((-points, name) for _, points, name in alike)
    return [name for _, name in sorted(found)]


def _answer(values: list[str]) -> Raw:
    shown = values[:MAX_VALUES]
    return {"completion": {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}}


def _tools(shelves: Shelves, given: Mapping[str, Any]) -> Iterable[str]:
    """Hot tools first: nobody reads a hundred names."""
    if server := _server(shelves.snapshot, given):
        return [tool.address for tool in shelves.server(server)]
    hot = [tool.address for tool in shelves.hot.tools] if shelves.hot.grounds != "one of each server" else []
    return dict.fromkeys((*hot, *shelves.snapshot.tools))


def _resource_uris(shelves: Shelves, given: Mapping[str, Any]) -> Iterable[str]:
    server, servers = _server(shelves.snapshot, given), shelves.snapshot.servers
    return [resource["uri"] for resource in servers[server].offers.resources] if server else []


def _server(snapshot: Snapshot, given: Mapping[str, Any]) -> str | None:
    """The server that was filled in before."""
    name = given.get("backend_name")
    try:
        return snapshot.server(name).name if isinstance(name, str) and name else None
    except UnknownName:
        return None


_CANDIDATES: Mapping[str, Callable[[Shelves, Mapping[str, Any]], Iterable[str]]] = {
    "tool_name": _tools,
    "backend_name": lambda shelves, given: sorted(shelves.snapshot.servers),
    "category": lambda shelves, given: shelves.categories,
    "result_id": lambda shelves, given: (),
    "uri": _resource_uris,
}
