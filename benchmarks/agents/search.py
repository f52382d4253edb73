"""The agent that searches and calls: a script that plays it, the same for every gateway.

It searches with each clause of the intent, then once more with the person's words where a step is
left, calls the first tool that gold accepts as soon as one is named, with gold's arguments, and
gives up on a step that no search named a tool for. It reads the parameters of a tool before it
calls it, where the search did not show them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from benchmarks.agents.conversation import Conversation
from benchmarks.agents.intent import RunOutcome
from benchmarks.agents.servers import GatewayFleet
from benchmarks.agents.tasks import (
    AgentTask,
    GoldStep,
    compare_calls,
    drop_joins,
    pick_arguments,
)

_CLAUSE_END = re.compile(r"(?:,? and then |,? then |, and |; |, |\. )")
_MIN_CLAUSE_WORDS = 3
"""Shorter parts name a place (`In GitLab`), not an action: they belong to the next part."""
_REFUSAL = re.compile(r"No (?:tool|plan)\b|\[\]$|^$")
"""How an answer to a search begins that names nothing, or says that nothing fits."""


class ScriptedAgent:
    """Does tasks by search and call through one gateway."""

    def __init__(
        self,
        fleet: GatewayFleet,
        examples: Mapping[str, Any],
        search_options: Mapping[str, Any],
        is_described: Callable[[str, str], bool],
    ) -> None:
        """`examples` are plausible arguments of each tool, by address. `is_described` decides
        whether a text shows the parameters of a tool, which it is given by the gateway's name."""
        self._fleet = fleet
        self._examples = examples
        self._search_options = search_options
        self._is_described = is_described

    async def run_task(self, task: AgentTask) -> RunOutcome:
        """Search and call until every step is done or every search was tried."""
        conversation = self._fleet.start_conversation()
        self._fleet.log.take()
        left = list(task.steps)
        read = ""
        refused = True
        queries = [*split_clauses(task.intent or task.words), task.words]
        asked: list[str] = []
        for query in queries:
            if asked and (query in asked or not left):
                continue
            asked.append(query)
            arguments = {"query": query, **self._search_options}
            text = (await conversation.ask("search_tools", arguments)).text
            refused = refused and _REFUSAL.match(text.strip()) is not None
            read = f"{read}\n{text}"
            left = await self._call_named(conversation, left, read)
            if not task.steps:
                break
        done = compare_calls(drop_joins(task.steps), self._fleet.log.take())
        return RunOutcome(task, done, conversation.tokens, conversation.calls, refused, asked)

    async def _call_named(
        self, conversation: Conversation, steps: Sequence[GoldStep], read: str
    ) -> list[GoldStep]:
        """Call a tool for each step that one was named for; returns the steps that are left."""
        left: list[GoldStep] = []
        for step in steps:
            address = self._find_first_named(step, read)
            if address is None:
                left.append(step)
                continue
            name = self._fleet.names[address]
            if not self._is_described(read, name):
                read += "\n" + (await conversation.ask("describe_tools", {"names": [name]})).text
            arguments = merge(self._examples.get(address, {}), pick_arguments(step, address))
            await conversation.ask("call_tool", {"name": name, "arguments": arguments})
        return left

    def _find_first_named(self, step: GoldStep, read: str) -> str | None:
        places: dict[int, str] = {}
        for address in step.tools:
            name = re.escape(self._fleet.names.get(address, address))
            if found := re.search(rf"(?<![\w.-]){name}(?![\w-])", read):
                places[found.start()] = address
        return places[min(places)] if places else None


def split_clauses(intent: str) -> list[str]:
    """Split an intent into what it asks for, one clause each."""
    clauses: list[str] = []
    short = ""
    for part in _CLAUSE_END.split(intent.strip().rstrip(".")):
        whole = f"{short} {part}".strip()
        if len(whole.split()) < _MIN_CLAUSE_WORDS:
            short = whole
            continue
        clauses.append(whole)
        short = ""
    if short:
        clauses.append(short)
    return clauses


def has_typed_lines(text: str, name: str) -> bool:
    """Decide whether Portico's text shows the typed parameters of a tool: its name begins a line
    without a signature in brackets behind it."""
    return re.search(rf"^{re.escape(name)}(?: |$)", text, re.MULTILINE) is not None


def shows_definitions(text: str, name: str) -> bool:
    """FastMCP's search answers with whole definitions."""
    return True


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, `over` where they differ; objects are merged."""
    merged = dict(base)
    for name, value in over.items():
        before = merged.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = merge(
                cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", value)
            )
        else:
            merged[name] = value
    return merged
