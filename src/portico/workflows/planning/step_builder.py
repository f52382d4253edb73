"""Builds steps from chosen tools: arguments from words, from earlier steps, or left open. Pure.

Steps refer backwards only, so a plan has no cycles. Uncertain arguments become inputs, with type
and description, and with the tools that may provide them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from portico.catalog.address import to_identifier
from portico.catalog.schema_outline import SchemaParameter
from portico.catalog.tool import Tool
from portico.workflows.planning.argument_values import (
    NOTHING,
    StepWording,
    find_stated_value,
    get_defined_value,
)
from portico.workflows.planning.joins import GOOD, FieldJoin
from portico.workflows.planning.literals import find_literals_of_kind, refers_back
from portico.workflows.planning.name_parts import (
    get_tool_nouns,
    is_read_verb_name,
    parse_name,
    split_name,
    to_singular,
)
from portico.workflows.planning.output_fields import PLAIN
from portico.workflows.planning.tool_choice import ChosenTool, ToolInterfaces

MAX_STEPS = 8
MAX_ID = 48
_TAKEN = ("inputs", "item", "index")
_EACH = re.compile(r"\b(?:each|every|all)\b", re.IGNORECASE)
_NAMES = ("name", "title", "login", "username", "label", "slug")
_MESSAGES = ("body", "text", "content", "message", "markdown")
_SURE_LOOKUP = 0.9
_LOOKED_AT = 12
_MAX_SOURCE_TOOLS = 3
_SHORT = 160

ToolsOf = Callable[[str], Mapping[str, Tool]]
"""The tools of a server, by name."""


@dataclass(frozen=True, slots=True)
class PlanInput:
    """A value that the caller must provide to run the plan."""

    type: str
    description: str
    needed_by: tuple[str, ...]
    """`step.parameter`, of each that needs it."""
    source_tools: tuple[str, ...] = ()
    """Tools whose answer may tell it, by address."""


@dataclass(frozen=True)
class PlanDraft:
    """Steps, and what they lack."""

    steps: tuple[dict[str, Any], ...]
    inputs: Mapping[str, PlanInput]
    why: tuple[str, ...]
    """A line per step: for which words, and from where its arguments are."""


@dataclass
class _PlacedStep:
    id: str
    tool: Tool
    clause: str


@dataclass
class _PlanDraftState:
    intent: str
    reader: ToolInterfaces
    tools_of: ToolsOf
    read_only: Callable[[Tool], bool]
    placed: list[_PlacedStep] = field(default_factory=list[_PlacedStep])
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    inputs: dict[str, PlanInput] = field(default_factory=dict[str, PlanInput])
    owners: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Input → the server and parameter it was made for."""
    said: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])
    """Server and parameter → what the words gave an earlier step of the same server for it."""
    why: list[str] = field(default_factory=list[str])
    room: int = 0
    """Steps that may be added."""


def build_steps(
    chosen: Sequence[ChosenTool],
    intent: str,
    reader: ToolInterfaces,
    tools_of: ToolsOf,
    read_only: Callable[[Tool], bool],
) -> PlanDraft:
    """A plan of these tools, in this order."""
    work = _PlanDraftState(intent, reader, tools_of, read_only)
    wanted = chosen[:MAX_STEPS]
    work.room = MAX_STEPS - len(wanted)
    for one in wanted:
        _place_step(work, one.tool, one.clause, said=f"for “{_shorten(one.clause)}”")
    return PlanDraft(tuple(work.steps), work.inputs, tuple(work.why))


def _place_step(
    work: _PlanDraftState, tool: Tool, clause: str, *, said: str, depth: int = 0
) -> str:
    step = _PlanStepBuilder(work, tool, clause, depth)
    arguments = step.build_arguments()
    id_ = make_step_id(tool, {one.id for one in work.placed})
    made: dict[str, Any] = {"id": id_, "tool": tool.address, "arguments": arguments}
    if step.waits_for:
        made["depends_on"] = step.waits_for
    if step.each:
        made["for_each"] = step.each
    for name, (param, told_by) in step.open.items():
        before = work.inputs.get(name)
        if before:
            needed = (*before.needed_by, f"{id_}.{param.name}")
        else:
            needed = (f"{id_}.{param.name}",)
        if before is None:
            told = told_by
        else:
            told = before.source_tools or told_by
        work.inputs[name] = to_plan_input(param, *needed, source_tools=told)
        work.owners[name] = (tool.server, param.name)
    work.placed.append(_PlacedStep(id_, tool, clause))
    work.steps.append(made)
    work.why.append("; ".join((f"{id_}: {said}", *step.notes)))
    return id_


class _PlanStepBuilder:
    """One step in the making."""

    def __init__(self, work: _PlanDraftState, tool: Tool, clause: str, depth: int) -> None:
        self.work = work
        self.tool = tool
        self.clause = clause
        self.depth = depth
        self.open: dict[str, tuple[SchemaParameter, tuple[str, ...]]] = {}
        self.notes: list[str] = []
        self.waits_for: list[str] = []
        self.each = ""
        self._each_of: tuple[str, tuple[str, ...]] | None = None
        words = frozenset(word for name in (tool.name, tool.server) for word in split_name(name))
        self._words = words | frozenset(map(to_singular, words))
        self._used: list[Any] = []
        """What was filled in as it was said."""

    def build_arguments(self) -> dict[str, Any]:
        """All that can be said of them."""
        return self._build_object(self.work.reader.get_params(self.tool), 0)

    def _build_object(self, params: Sequence[SchemaParameter], depth: int) -> dict[str, Any]:
        said = StepWording(self.clause, self.work.intent, self._words, tuple(params))
        found: dict[str, Any] = {}
        used = self._used
        for param in params:
            if param.required:
                found[param.name] = value = self._fill_required(param, said, depth)
                used.append(value)
        for param in params:
            if not param.required and (param.enum or not depth):
                value = find_stated_value(param, said)
                # One thing said is meant once, unless it says of what (`owner`, `state`).
                if value is not NOTHING and (
                    param.enum or not any(value == one or value == [one] for one in used)
                ):
                    found[param.name] = value
                    used.append(value)
        if not depth and not any(
            param.required and parse_name(param.name).aspect == "text" for param in params
        ):
            found.update(self._fill_message(params, found))
        if not any(param.required for param in params) and not found:
            found.update(self._fill_optional(params))
        return found

    def _fill_message(
        self, params: Sequence[SchemaParameter], found: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """ "Email it", to a tool that would also send an empty message."""
        for param in params:
            if (
                param.name in _MESSAGES
                and param.name not in found
                and (value := self._fill_from_earlier_text(param)) is not NOTHING
            ):
                yield param.name, value
                return

    def _fill_optional(self, params: Sequence[SchemaParameter]) -> Iterator[tuple[str, Any]]:
        """Of a tool that says of nothing that it must have it, what an earlier step certainly
        offers."""
        for param in params:
            step_join = self._find_join(param)
            if step_join is not None and step_join[1].sureness >= _SURE_LOOKUP:
                yield param.name, self._build_reference(param, *step_join)

    def _fill_required(self, param: SchemaParameter, said: StepWording, depth: int) -> Any:
        value = find_stated_value(param, said)
        same = (self.tool.server, param.name)
        if value is NOTHING and parse_name(param.name).is_specific and not depth:
            value = self.work.said.get(same, NOTHING)
        if value is not NOTHING:
            self.work.said[same] = value
            self.notes.append(f"{param.name} is what you said")
            return value
        if param.type == "object" and param.children and depth < 2 and not param.variants:
            return self._build_object(
                tuple(child for child in param.children if not child.is_pattern), depth + 1
            )
        if (found := self._find_join(param)) is not None:
            return self._build_reference(param, *found)
        if (value := get_defined_value(param)) is not NOTHING:
            return value
        if (value := self._fill_from_earlier_text(param)) is not NOTHING:
            return value
        if (value := self._fill_by_lookup(param)) is not NOTHING:
            return value
        return self._add_input(param)

    def _find_join(self, param: SchemaParameter) -> tuple[_PlacedStep, FieldJoin] | None:
        best: tuple[_PlacedStep, FieldJoin] | None = None
        for one in reversed(self.work.placed):
            found = self.work.reader.find_join(one.tool, self.tool, param)
            if (
                found is not None
                and found.sureness >= GOOD
                and (best is None or found.sureness > best[1].sureness + 0.05)
            ):
                best = (one, found)
        return best

    def _build_reference(
        self, param: SchemaParameter, source: _PlacedStep, found: FieldJoin
    ) -> str:
        offer = found.offer
        self.notes.append(f"{param.name} from {source.id}")
        if offer.is_in_list and not found.many and _EACH.search(self.clause):
            at = offer.path.index("[*]")
            of = (source.id, offer.path[:at])
            if self._each_of in (None, of):
                self._each_of = of
                whole = type(offer)(offer.path[:at], offer.name, offer.about, offer.types)
                self.each = whole.to_reference(source.id, many=False)
                inner = type(offer)(offer.path[at + 1 :], offer.name, offer.about, offer.types)
                return inner.to_reference("item", many=False)
        if offer.is_in_list and not found.many:
            self.notes[-1] += " (the first of them)"
        return offer.to_reference(source.id, many=found.many)

    def _fill_from_earlier_text(self, param: SchemaParameter) -> Any:
        """A text that is to be what was found before: the whole answer, written out."""
        name = parse_name(param.name)
        if name.aspect != "text" or param.type not in ("string", "any") or not self.work.placed:
            return NOTHING
        if not (refers_back(self.clause) or self._mentions_earlier_step()):
            return NOTHING
        earlier = [
            one
            for one in self.work.placed
            if self.work.read_only(one.tool) or is_read_verb_name(one.tool.name)
        ]
        if not earlier:
            return NOTHING
        source = earlier[-1]
        self.notes.append(f"{param.name} is what {source.id} answers: write what you want of it")
        path = self.work.reader.get_output(source.tool).text_path
        if path and PLAIN.fullmatch(path[0]):
            return f"${{{source.id}.{path[0]}}}"
        return f"${{to_string({source.id})}}"

    def _mentions_earlier_step(self) -> bool:
        words = {to_singular(word) for word in split_name(self.clause)}
        return any(
            words & get_tool_nouns(one.tool.name, one.tool.server) for one in self.work.placed
        )

    def _fill_by_lookup(self, param: SchemaParameter) -> Any:
        """What a step put in front tells: a read-only tool of the same server that needs nothing
        itself.

        Of a list, only what the words name: to take the first channel there is would be to make one
        up.
        """
        work = self.work
        if self.depth or param.type == "array":
            return NOTHING
        for tool in self._find_lookup_tools(param)[:_LOOKED_AT]:
            if not work.read_only(tool) and not is_read_verb_name(tool.name):
                continue
            found = work.reader.find_join(tool, self.tool, param)
            if found is None or found.sureness < _SURE_LOOKUP:
                continue
            if found.offer.is_in_list:
                which = self._build_name_filter(tool, found)
            else:
                which = ""
            source = next((one for one in work.placed if one.tool == tool), None)
            if (found.offer.is_in_list and not which) or (
                source is None and not self._can_place(tool)
            ):
                continue
            if source is None:
                work.room -= 1
                _place_step(
                    work,
                    tool,
                    "",
                    said=f"added, because {self.tool.address} needs {param.name}",
                    depth=1,
                )
                source = work.placed[-1]
            self.notes.append(f"{param.name} from {source.id}")
            if which:
                return found.offer.to_reference(source.id, which=which)
            return found.offer.to_reference(source.id, many=False)
        return NOTHING

    def _can_place(self, tool: Tool) -> bool:
        params = self.work.reader.get_params(tool)
        return self.work.room > 0 and not any(
            one.required and get_defined_value(one) is NOTHING for one in params
        )

    def _build_name_filter(self, tool: Tool, found: FieldJoin) -> str:
        """The condition by which the words tell one item of a list from the others; empty where
        they do not."""
        said = list(find_literals_of_kind(self.clause, "channel", "person", "quoted"))
        inside = found.offer.path[:-1]
        names = [
            offer.path[-1]
            for offer in self.work.reader.get_output(tool).fields
            if offer.path[:-1] == inside and offer.path[-1] in _NAMES and "string" in offer.types
        ]
        if len(said) != 1 or not names or inside[-1:] != ("[*]",) or said[0].text in self._used:
            return ""
        return f"[?{names[0]}=='{_escape_raw_text(said[0].text)}']"

    def _find_lookup_tools(self, param: SchemaParameter) -> list[Tool]:
        """Tools of the same server that, by their names, look up what a parameter is about; the
        plainest first."""
        about = parse_name(param.name).about
        if not about:
            return []
        found: list[tuple[int, str, Tool]] = []
        for tool in self.work.tools_of(self.tool.server).values():
            if tool == self.tool or not is_read_verb_name(tool.name):
                continue
            nouns = get_tool_nouns(tool.name, tool.server)
            if about & nouns:
                lists = any(
                    word in ("list", "search", "find", "query") for word in split_name(tool.name)
                )
                found.append((len(nouns - about) * 2 - lists, tool.name, tool))
        return [tool for _, _, tool in sorted(found, key=lambda one: one[:2])]

    def _add_input(self, param: SchemaParameter) -> str:
        name = self._input_name(param)
        placed = [
            one
            for one in self.work.placed
            if not self.work.reader.get_output(one.tool).has_known_fields
        ]
        about = parse_name(param.name).about
        near = [one for one in placed if about & get_tool_nouns(one.tool.name, one.tool.server)]
        for one in near:
            if one.id not in self.waits_for:
                self.waits_for.append(one.id)
        # Whatever an earlier step may tell is told by it first.
        asked = dict.fromkeys([one.tool.address for one in near])
        if parse_name(param.name).aspect in ("id", "number", "name", "path", ""):
            asked.update(dict.fromkeys(tool.address for tool in self._find_lookup_tools(param)))
        self.open[name] = (param, tuple(asked)[:_MAX_SOURCE_TOOLS])
        return f"${{inputs.{name}}}"

    def _input_name(self, param: SchemaParameter) -> str:
        """One input for the same thing of the same server; what is different in each step has a
        name of its own."""
        wanted = to_plain_name(param.name)
        name = parse_name(param.name)
        one_thing = name.is_specific and name.aspect not in ("text", "query", "date")
        for taken, owner in self.work.owners.items():
            if owner == (self.tool.server, param.name) and one_thing and taken not in self.open:
                return taken
        number = 2
        free = wanted
        if free in self.work.inputs or free in self.open:
            free = f"{to_plain_name(self.tool.name)[:MAX_ID]}_{wanted}"
        while free in self.work.inputs or free in self.open:
            free = f"{wanted}_{number}"
            number = number + 1
        return free


def to_plan_input(
    param: SchemaParameter, *needed_by: str, source_tools: tuple[str, ...] = ()
) -> PlanInput:
    """A parameter as something that is to be said."""
    return PlanInput(
        _describe_param_type(param), _shorten(param.description), needed_by, source_tools
    )


def _describe_param_type(param: SchemaParameter) -> str:
    """A type in a word or two."""
    if param.enum:
        return "one of " + ", ".join(str(value) for value in param.enum[:8])
    if param.type == "array" and param.items is not None:
        return f"{param.items.type}[]"
    if param.variants:
        return "|".join(dict.fromkeys(one.type for one in param.variants))
    return param.type


def make_step_id(tool: Tool, taken: set[str]) -> str:
    """An id for a step, after its tool."""
    wanted = to_plain_name(tool.name)[:MAX_ID]
    name = wanted
    number = 2
    while name in taken or name in _TAKEN:
        name = f"{wanted}_{number}"
        number = number + 1
    return name


def to_plain_name(name: str) -> str:
    """A name that references can be written with, plain as it is."""
    plain = re.sub(r"\W", "_", to_identifier(name), flags=re.ASCII)
    if re.match(r"[A-Za-z_]", plain):
        return plain
    return f"_{plain}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _SHORT:
        return line
    return line[: _SHORT - 1] + "…"


def _escape_raw_text(text: str) -> str:
    """Text inside JMESPath's single quotes."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
