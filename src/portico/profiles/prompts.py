"""The gateway's own prompts: how to discover tools, the tool for a task, and server status."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from portico.calls.pipeline import CallContext
from portico.catalog.visible_text import sanitize_text
from portico.errors import INVALID_PARAMS, RemoteError
from portico.meta_tools.instructions import META_TOOL_STEPS, THIRD_PARTY_NOTICE
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.profiles.namespace import SCHEME
from portico.profiles.profile_state import ProfileState
from portico.profiles.resources import GatewayResources
from portico.rendering.budget import pack
from portico.rendering.lines import (
    ServerState,
    compute_remaining_tokens,
    format_count,
    to_short_line,
)
from portico.rendering.tool_result import make_annotations, make_text_block
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.statistics import Statistics

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


class GatewayPrompts:
    """The prompts of one view."""

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
        search_options = (
            state.get_server_states(),
            state.settings.discovery_budget,
            state.settings.enabled_meta_tools,
        )
        found = await self._search_service.search(
            state.snapshot, request, context.caller, *search_options
        )
        if state.settings.enabled_meta_tools:
            note = ""
        else:
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
            if entry.is_listed:
                tools = format_count(len(entry.tools), "tool")
            else:
                tools = "not listed yet"
            if state.state in TROUBLED_STATES and state.reason:
                reason = f" ({to_short_line(state.reason, 40)})"
            else:
                reason = ""
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
        left_out = len(names) - len(lines)
        if left_out:
            foot = [f"… and {left_out:,} more: {SCHEME}backends"]
        else:
            foot = []
        return [make_text_block("\n".join([head, *lines, *foot]))]


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
