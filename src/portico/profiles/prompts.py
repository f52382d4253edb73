"""The gateway's own prompts, and completion of the arguments of prompts and resource templates."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from portico.calls.pipeline import CallContext
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import sanitize_text
from portico.errors import INVALID_PARAMS, RemoteError, UnknownName
from portico.meta_tools.instructions import META_TOOL_STEPS, THIRD_PARTY_NOTICE
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.profiles.profile_state import ProfileState
from portico.profiles.resources import TEMPLATES, GatewayResources
from portico.rendering.resource_uris import SCHEME
from portico.rendering.server_lines import ServerState
from portico.rendering.token_budget import (
    compute_remaining_tokens,
    format_count,
    pack,
    to_short_line,
)
from portico.rendering.tool_result import make_annotations, make_text_block
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.statistics import Statistics
from portico.usage.tool_tiers import RankedCatalog

DISCOVER = "discover"
FIND_TOOL = "find_tool"
BACKEND_STATUS = "backend_status"
PROMPTS: tuple[Raw, ...] = (
    {
        "name": DISCOVER,
        "title": "Discover tools",
        "description": "What is behind this gateway, and how to find and run it step by step.",
    },
    {
        "name": FIND_TOOL,
        "title": "Find a tool",
        "description": "The tools for a task, and the best one with its whole schema.",
        "arguments": [
            {"name": "task", "description": "What is to be done, in plain words.", "required": True}
        ],
    },
    {
        "name": BACKEND_STATUS,
        "title": "Server status",
        "description": "Every server's state, its number of tools and how fast it answers.",
    },
)
PROMPT_NAMES = frozenset(prompt["name"] for prompt in PROMPTS)
_MAX_FOUND = 5
_MAX_STATUS_TOKENS = 4_000
MAX_VALUES = 100
_MIN_SIMILARITY = 60
_MAX_CHARS = 200
_MAX_COMPARED = 2_000
"""Maximum number of names that a misspelt one is compared with."""
_BATCH_SIZE = 250
_OWN_TEMPLATES = frozenset(template["uriTemplate"] for template in TEMPLATES)


class GatewayPrompts:
    def __init__(
        self,
        profile_state: ProfileState,
        resources: GatewayResources,
        search_service: SearchService,
    ) -> None:
        self._profile_state = profile_state
        self._resources = resources
        self._search_service = search_service

    async def get(self, params: Raw, context: CallContext) -> Raw:
        """Return a gateway prompt, filled in. Raises RemoteError for a missing argument."""
        makers: Mapping[str, Callable[[Raw, CallContext], Awaitable[list[Raw]]]] = {
            DISCOVER: self._render_discover,
            FIND_TOOL: self._render_find_tool,
            BACKEND_STATUS: self._render_backend_status,
        }
        name: str = params["name"]
        blocks = await makers[name](params.get("arguments") or {}, context)
        description = next(prompt["description"] for prompt in PROMPTS if prompt["name"] == name)
        return {
            "description": description,
            "messages": [{"role": "user", "content": content} for content in blocks],
        }

    async def _render_discover(self, arguments: Raw, context: CallContext) -> list[Raw]:
        meta_tools = self._profile_state.settings.enabled_meta_tools
        steps = [step for name, step in META_TOOL_STEPS.items() if name in meta_tools] or [
            "Every tool is listed as server__tool."
        ]
        lines = [
            "Find out which of the tools behind this gateway can help with what I ask, "
            "and use them.",
            *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
            f"Read {SCHEME}backends for the servers; {SCHEME}tool/{{tool_name}}, a whole schema, "
            "only when needed.",
            THIRD_PARTY_NOTICE,
        ]
        overview = {
            "uri": f"{SCHEME}overview",
            "mimeType": "text/markdown",
            "text": self._resources.render_overview(),
        }
        return [make_text_block("\n".join(lines)), _embed_resource(overview)]

    async def _render_find_tool(self, arguments: Raw, context: CallContext) -> list[Raw]:
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip():
            raise RemoteError(
                INVALID_PARAMS, f"{FIND_TOOL} needs a task: say in plain words what is to be done"
            )
        state = self._profile_state
        request = SearchRequest(task, limit=_MAX_FOUND)
        found = await self._search_service.search(
            state.snapshot,
            request,
            context.caller,
            state.get_server_states(),
            state.settings.discovery_budget,
            state.settings.enabled_meta_tools,
        )
        note = ""
        if not state.settings.enabled_meta_tools:
            note = "\nIn your list of tools, server.tool is named server__tool."
        blocks = [
            make_text_block(
                f"Use a tool for this task: {sanitize_text(request.query)}\n\n{found.text}{note}"
            )
        ]
        if not found.addresses or found.weak:
            return blocks
        best = state.snapshot.tools[found.addresses[0]]
        return [*blocks, *map(_embed_resource, self._resources.read_tool(best))]

    async def _render_backend_status(self, arguments: Raw, context: CallContext) -> list[Raw]:
        snapshot = self._profile_state.snapshot
        states = self._profile_state.get_server_states()
        statistics: dict[str, list[Statistics]] = {}
        for address, use in self._profile_state.statistics_by_tool.items():
            statistics.setdefault(snapshot.tools[address].server, []).append(use)

        def get_state(name: str) -> ServerState:
            return states.get(name, ServerState("configured"))

        def render_line(name: str) -> str:
            entry = snapshot.servers[name]
            state = get_state(name)
            tools = format_count(len(entry.tools), "tool") if entry.is_listed else "not listed yet"
            reason = ""
            if state.state in TROUBLED_STATES and state.reason:
                reason = f" ({to_short_line(state.reason, 40)})"
            latency = _render_latency(statistics.get(name, []))
            return f"- {name}: {state.state}{reason}, {tools}{latency}"

        names = sorted(
            snapshot.servers, key=lambda name: (get_state(name).state not in TROUBLED_STATES, name)
        )
        head = (
            f"How the {format_count(len(names), 'server')} behind this gateway are; "
            "tell me what needs attention."
        )
        rest = f"… and {len(names):,} more: {SCHEME}backends"
        lines = pack(
            map(render_line, names), compute_remaining_tokens(_MAX_STATUS_TOKENS, head, rest)
        ).texts
        lines = [head, *lines]
        if (left_out := len(names) + 1 - len(lines)) > 0:
            lines.append(f"… and {left_out:,} more: {SCHEME}backends")
        return [make_text_block("\n".join(lines))]


def _render_latency(statistics: list[Statistics]) -> str:
    """Render calls, success rate and latency of a server; empty if none of its tools was called."""
    calls = sum(use.calls for use in statistics)
    successes = sum(use.successes for use in statistics)
    if not calls:
        return ""
    text = f", {format_count(calls, 'call')}, {successes / calls:.0%} successful"
    if successes:
        mean = sum(use.mean_ms * use.successes for use in statistics) / successes
        slowest = max(use.p95_ms for use in statistics)
        text += f", {mean:,.0f} ms on average, p95 up to {slowest:,.0f} ms"
    return text


def _embed_resource(content: Mapping[str, Any]) -> Raw:
    resource = {key: value for key, value in content.items() if key != "annotations"}
    return {
        "type": "resource",
        "resource": resource,
        "annotations": make_annotations(resource["text"]),
    }


def complete_argument(ranked_catalog: RankedCatalog, params: Raw) -> Raw | None:
    """Answer `completion/complete` for a gateway template or prompt; None for any other.

    Raises RemoteError for an argument that the template does not have.
    """
    reference: Raw = params.get("ref") or {}
    if reference.get("type") == "ref/prompt":
        if reference.get("name") in PROMPT_NAMES:
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
    hot: list[str] = []
    if ranked_catalog.hot_list.basis != "some of each server":
        hot = [tool.address for tool in ranked_catalog.hot_list.tools]
    return dict.fromkeys((*hot, *ranked_catalog.snapshot.tools))


def _list_resource_uris(
    ranked_catalog: RankedCatalog, arguments: Mapping[str, Any]
) -> Iterable[str]:
    if server := _find_server(ranked_catalog.snapshot, arguments):
        offers = ranked_catalog.snapshot.servers[server].offers
        return [resource["uri"] for resource in offers.resources]
    return []


def _find_server(snapshot: Snapshot, arguments: Mapping[str, Any]) -> str | None:
    """Return the server that was filled in before, if it exists."""
    name = arguments.get("backend_name")
    if isinstance(name, str) and name:
        with suppress(UnknownName):
            return snapshot.resolve_server(name).name
    return None


_CANDIDATES: Mapping[str, Callable[[RankedCatalog, Mapping[str, Any]], Iterable[str]]] = {
    "tool_name": _list_tool_candidates,
    "backend_name": lambda ranked_catalog, _: sorted(ranked_catalog.snapshot.servers),
    "category": lambda ranked_catalog, _: ranked_catalog.categories,
    "result_id": lambda *_: (),
    "uri": _list_resource_uris,
}
