"""Our own prompts: how to discover tools, the tool for a task, and how the servers are."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from portico.catalog.visible import shown
from portico.disclosure.answer import annotations, block
from portico.disclosure.budget import pack
from portico.disclosure.guidance import STEPS, THIRD_PARTY
from portico.disclosure.lines import ServerState, counted, one_paragraph, room
from portico.disclosure.namespace import SCHEME
from portico.disclosure.question import Question
from portico.disclosure.resources import OwnResources
from portico.disclosure.searching import Searching
from portico.disclosure.sight import Sight
from portico.errors import INVALID_PARAMS, RemoteError
from portico.execution.call import Origin
from portico.observability.statistics import Statistics
from portico.upstream.backend import Raw
from portico.upstream.status import TROUBLED

DISCOVER, FIND, STATUS = "discover", "find_tool", "backend_status"
PROMPTS: tuple[Raw, ...] = (
    {
        "name": DISCOVER,
        "title": "Discover tools",
        "description": "What is behind this gateway, and how to find and run it step by step.",
    },
    {
        "name": FIND,
        "title": "Find a tool",
        "description": "The tools for a task, and the best one with its whole schema.",
        "arguments": [{"name": "task", "description": "What is to be done, in plain words.", "required": True}],
    },
    {
        "name": STATUS,
        "title": "Server status",
        "description": "Every server's state, its number of tools and how fast it answers.",
    },
)
NAMES = frozenset(prompt["name"] for prompt in PROMPTS)
_FOUND = 5
_STATUS_TOKENS = 4_000


class OwnPrompts:
    """The prompts of one view."""

    def __init__(self, sight: Sight, resources: OwnResources, searching: Searching) -> None:
        self._sight = sight
        self._resources = resources
        self._searching = searching

    async def get(self, params: Raw, origin: Origin) -> Raw:
        """One of our prompts, filled in; raises RemoteError for a missing argument."""
        makers: Mapping[str, Callable[[Raw, Origin], Awaitable[list[Raw]]]] = {
            DISCOVER: self._discover,
            FIND: self._find,
            STATUS: self._status,
        }
        name: str = params["name"]
        blocks = await makers[name](params.get("arguments") or {}, origin)
        description = next(prompt["description"] for prompt in PROMPTS if prompt["name"] == name)
        return {"description": description, "messages": [{"role": "user", "content": content} for content in blocks]}

    async def _discover(self, arguments: Raw, origin: Origin) -> list[Raw]:
        there = self._sight.face.enabled
        steps = [step for name, step in STEPS.items() if name in there] or ["Every tool is listed as server__tool."]
        say = [
            "Find out which of the tools behind this gateway can help with what I ask, and use them.",
            *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
            f"Read {SCHEME}backends for the servers; {SCHEME}tool/{{tool_name}}, a whole schema, only when needed.",
            THIRD_PARTY,
        ]
        overview = {"uri": f"{SCHEME}overview", "mimeType": "text/markdown", "text": self._resources.overview()}
        return [block("\n".join(say)), _embedded(overview)]

    async def _find(self, arguments: Raw, origin: Origin) -> list[Raw]:
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip():
            raise RemoteError(INVALID_PARAMS, f"{FIND} needs a task: say in plain words what is to be done")
        sight = self._sight
        question = Question(task, limit=_FOUND)
        about = (sight.states(), sight.face.discovery_budget, sight.face.enabled)
        found = await self._searching.answer(sight.snapshot, question, origin.caller, *about)
        how = "" if sight.face.enabled else "\nIn your list of tools, server.tool is named server__tool."
        blocks = [block(f"Use a tool for this task: {shown(question.query)}\n\n{found.text}{how}")]
        if not found.shown or found.weak:
            return blocks
        best = sight.snapshot.tools[found.shown[0]]
        return [*blocks, *map(_embedded, self._resources.tool(best))]

    async def _status(self, arguments: Raw, origin: Origin) -> list[Raw]:
        snapshot, states = self._sight.snapshot, self._sight.states()
        used: dict[str, list[Statistics]] = {}
        for address, use in self._sight.used.items():
            used.setdefault(snapshot.tools[address].server, []).append(use)

        def state(name: str) -> ServerState:
            return states.get(name, ServerState("configured"))

        def line(name: str) -> str:
            entry, now = snapshot.servers[name], state(name)
            tools = counted(len(entry.tools), "tool") if entry.known else "not listed yet"
            why = f" ({one_paragraph(now.reason, 40)})" if now.state in TROUBLED and now.reason else ""
            return f"- {name}: {now.state}{why}, {tools}{_latency(used.get(name, []))}"

        names = sorted(snapshot.servers, key=lambda name: (state(name).state not in TROUBLED, name))
        head = f"How the {counted(len(names), 'server')} behind this gateway are; tell me what needs attention."
        rest = f"… and {len(names):,} more: {SCHEME}backends"
        lines = pack(map(line, names), room(_STATUS_TOKENS, head, rest)).texts
        left = len(names) - len(lines)
        foot = [f"… and {left:,} more: {SCHEME}backends"] if left else []
        return [block("\n".join([head, *lines, *foot]))]


def _latency(uses: list[Statistics]) -> str:
    """How fast a server's tools answered, where any did."""
    calls, successes = sum(use.calls for use in uses), sum(use.successes for use in uses)
    if not calls:
        return ""
    said = f", {counted(calls, 'call')}, {successes / calls:.0%} successful"
    if successes:
        mean = sum(use.mean_ms * use.successes for use in uses) / successes
        said += f", {mean:,.0f} ms on average, p95 up to {max(use.p95_ms for use in uses):,.0f} ms"
    return said


def _embedded(content: Mapping[str, Any]) -> Raw:
    resource = {key: value for key, value in content.items() if key != "annotations"}
    return {"type": "resource", "resource": resource, "annotations": annotations(resource["text"])}
