"""Builds steps from chosen tools and what was said for their parameters. Pure.

What the assignment leaves open comes from an earlier step's result or from the schema; else it is
an input that the caller has to pass, by the address of its parameter.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, cast

from portico.catalog.schema_outline import ABSENT
from portico.catalog.tool import Tool
from portico.workflows.planning.assignment import Encode, assign_values, find_unused
from portico.workflows.planning.joins import OutputField, ShapeLookup, find_join, list_output_fields
from portico.workflows.planning.offers import (
    Answered,
    Assignment,
    Offer,
    Place,
    StepReading,
    fit_value,
)
from portico.workflows.planning.parameters import Leaf, LeafPath, set_at, to_plain_name
from portico.workflows.planning.said_words import SaidInput, SaidWords
from portico.workflows.planning.unsure_values import find_unsure
from portico.workflows.planning.values import NOTHING, Each
from portico.workflows.references import RESERVED

MAX_ID = 48
_TEXT = frozenset(("string",))
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_DESCRIPTION_CHARS = 100


_ITEM = "${item}"
"""The item of a step that runs for each one of a list."""


@dataclass(frozen=True, slots=True)
class PlanInput:
    """A value that the caller must provide to run the plan."""

    type: str
    description: str


@dataclass
class PlanDraft:
    """The steps so far, and what they lack."""

    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    inputs: dict[str, PlanInput] = field(default_factory=dict[str, PlanInput])
    """What is missing, by `step.parameter`."""
    notes: list[str] = field(default_factory=list[str])
    """Conversions that were made."""
    unused: list[str] = field(default_factory=list[str])
    """Names of inputs that no step takes."""
    unsure: list[str] = field(default_factory=list[str])
    """Addresses of parameters whose values are guesses, or that may have been meant too."""
    unmatched: tuple[str, ...] = ()
    """Answers that are for no parameter of these steps."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the caller passed for one parameter by its address."""

    name: str
    value: Any
    step: int
    path: LeafPath


def know_no_meaning(_: str) -> None:
    """Encode nothing: names and types alone are compared."""


def build_steps(
    readings: Sequence[StepReading],
    said: SaidWords,
    shapes: ShapeLookup,
    encode: Encode = know_no_meaning,
    answers: Mapping[str, Any] | None = None,
) -> PlanDraft:
    """Build a plan of these tools, in this order. `answers` are values by `step.parameter`: they
    stand above all that was read."""
    draft = PlanDraft()
    ids = _make_step_ids(readings)
    given = [
        answer
        for name, value in (answers or {}).items()
        if (answer := _find_answered(name, value, ids, readings)) is not None
    ]
    draft.unmatched = tuple(set(answers or ()) - {answer.name for answer in given})
    answered = _close_answered(given, readings, said)
    assigned, offers = assign_values(readings, said, encode, answered)
    if not answers:
        # A caller who answers has seen them.
        draft.unused = [said.inputs[at].name for at in find_unused(said, assigned, answered)]
    unsure = find_unsure(readings, said, assigned, offers, answered, encode)
    _split_pairs(readings, assigned)
    outputs: list[tuple[str, Tool, tuple[OutputField, ...]]] = []
    for number, reading in enumerate(readings):
        tool = reading.choice.tool
        id_ = ids[number]
        arguments: dict[str, Any] = {}
        loop: dict[str, Any] = {}
        own = [answer for answer in given if answer.step == number]
        # Null leaves out what may be left out; what is required is asked for again.
        filled = [answer.path for answer in own if answer.value is not None]
        filled += [
            other.leaf.path for at, other in enumerate(reading.leaves) if (number, at) in assigned
        ]
        for at, leaf_reading in enumerate(reading.leaves):
            leaf = leaf_reading.leaf
            offer = assigned.get((number, at))
            if offer is not None:
                if isinstance(offer.value, Each):
                    loop["for_each"] = _write_list(offer.value, offer, said)
                set_at(arguments, leaf.path, _write_value(offer, said, draft))
            elif _is_needed(leaf, filled):
                set_at(arguments, leaf.path, _fill_open(leaf, tool, outputs, draft, id_))
        for answer in own:
            _write_answer(answer, reading, arguments, loop)
        _fill_empty_objects(arguments, tool)
        if any(_repeats(arguments, step, tool) for step in draft.steps):
            continue
        draft.steps.append({"id": id_, "tool": tool.address, **loop, "arguments": arguments})
        draft.unsure += [
            f"{id_}.{reading.leaves[at].leaf.plain_name}" for step, at in unsure if step == number
        ]
        outputs.append((id_, tool, list_output_fields(tool, shapes)))
    return draft


def _make_step_ids(readings: Sequence[StepReading]) -> list[str]:
    """Return an id for each step, after its tool."""
    ids: list[str] = []
    for reading in readings:
        wanted = to_plain_name(reading.choice.tool.name)[:MAX_ID]
        taken = (*ids, *RESERVED)
        numbered = (f"{wanted}_{number}" for number in count(2))
        ids.append(next(name for name in chain((wanted,), numbered) if name not in taken))
    return ids


def _find_answered(
    name: str, value: Any, ids: Sequence[str], readings: Sequence[StepReading]
) -> _Answer | None:
    """Return the parameter whose address this is, a leaf or an object at the top."""
    id_, _, rest = name.partition(".")
    if id_ not in ids:
        return None
    step = ids.index(id_)
    for leaf_reading in readings[step].leaves:
        leaf = leaf_reading.leaf
        if rest in (leaf.plain_name, leaf.name):
            return _Answer(name, value, step, leaf.path)
    if any(leaf_reading.leaf.path[0] == rest for leaf_reading in readings[step].leaves):
        return _Answer(name, value, step, (rest,))
    return None


def _close_answered(
    given: Sequence[_Answer], readings: Sequence[StepReading], said: SaidWords
) -> Answered:
    """Return the parameters that answers are for, with those within and around them."""
    places: set[Place] = set()
    inputs: set[tuple[int, int]] = set()
    for answer in given:
        for at, leaf_reading in enumerate(readings[answer.step].leaves):
            path = leaf_reading.leaf.path
            shorter = min(len(path), len(answer.path))
            if path[:shorter] == answer.path[:shorter]:
                places.add((answer.step, at))
        inputs.update(
            (answer.step, which)
            for which, one in enumerate(said.inputs)
            if one.value == answer.value
        )
    return Answered(frozenset(places), frozenset(inputs))


def _write_answer(
    answer: _Answer, reading: StepReading, arguments: dict[str, Any], loop: dict[str, Any]
) -> None:
    """Put what the caller passed for a parameter into its step; null leaves the parameter out."""
    if answer.value is None:
        return
    leaves = [leaf_reading.leaf for leaf_reading in reading.leaves]
    leaf = next((leaf for leaf in leaves if leaf.path == answer.path), None)
    value = fit_value(answer.value, leaf, leaves) if leaf is not None else answer.value
    if value is NOTHING:
        value = answer.value
    written: Any = f"${{inputs.{answer.name}}}"
    listed = value.values if isinstance(value, Each) else value
    is_plain = all(_PLAIN_NAME.fullmatch(part) for part in answer.name.split("."))
    if not is_plain or listed != answer.value or type(listed) is not type(answer.value):
        written = _escape(listed)
    if isinstance(value, Each):
        loop["for_each"] = written
        written = _ITEM
    set_at(arguments, answer.path, written)


def _split_pairs(readings: Sequence[StepReading], assigned: Assignment) -> None:
    """Give the halves of `owner/name` to two parameters where only one of two has a value."""
    for place, offer in list(assigned.items()):
        step, at = place
        parts = offer.value.split("/") if isinstance(offer.value, str) else ()
        if len(parts) != 2 or not all(parts) or " " in offer.value or "." in parts[0]:
            continue
        leaves = readings[step].leaves
        for first in (at - 1, at):
            pair = ((step, first), (step, first + 1))
            if first < 0 or first + 1 >= len(leaves) or sum(one in assigned for one in pair) != 1:
                continue
            both = [leaves[first].leaf, leaves[first + 1].leaf]
            if all(leaf.required and leaf.types == _TEXT for leaf in both):
                for one, part in zip(pair, parts, strict=True):
                    assigned[one] = replace(offer, leaf=one[1], value=part)
                break


def _is_needed(leaf: Leaf, filled: Sequence[LeafPath]) -> bool:
    """Return whether a parameter without a value has to have one: it is required, and its list was
    not given as a whole; or it is required beside others of an object that was begun."""
    if any(leaf.path[: len(path)] == path for path in filled):
        return False
    around = leaf.path[:-1]
    is_begun = bool(around) and any(path[: len(around)] == around for path in filled)
    return leaf.required or (leaf.required_beside and is_begun)


def _fill_empty_objects(arguments: dict[str, Any], tool: Tool) -> None:
    """Add the required objects of which nothing is needed."""
    schema = tool.input_schema
    required = schema.get("required")
    properties = schema.get("properties")
    if not isinstance(required, list) or not isinstance(properties, dict):
        return
    for name in cast("list[Any]", required):
        part = cast("dict[str, Any]", properties).get(name) if isinstance(name, str) else None
        if isinstance(part, dict) and cast("Any", part).get("type") == "object":
            arguments.setdefault(name, {})


def _repeats(arguments: Mapping[str, Any], step: Mapping[str, Any], tool: Tool) -> bool:
    """Return whether a step says nothing that one before does not say."""
    return step["tool"] == tool.address and _is_within(arguments, step["arguments"])


def _is_within(part: Any, whole: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(whole, dict):
        return bool(part == whole)
    known = cast("dict[str, Any]", whole)
    named = cast("dict[str, Any]", part).items()
    return all(name in known and _is_within(value, known[name]) for name, value in named)


def _write_value(offer: Offer, said: SaidWords, draft: PlanDraft) -> Any:
    """Return a value as it is written in a step: an input by reference, unless it was converted."""
    if isinstance(offer.value, Each):
        return _ITEM
    kind, which, _ = offer.source
    if kind != "input":
        return _escape(offer.value)
    given = said.inputs[which]
    if offer.value == given.value and type(offer.value) is type(given.value):
        return _refer(given) or _escape(offer.value)
    draft.notes.append(f"{given.name} is passed as {offer.value!r}")
    return _escape(offer.value)


def _write_list(each: Each, offer: Offer, said: SaidWords) -> Any:
    """Return the values that a step runs for: an input by reference, unless it was converted."""
    kind, which, _ = offer.source
    if kind == "input" and each.values == said.inputs[which].value:
        return _refer(said.inputs[which]) or _escape(each.values)
    return _escape(each.values)


def _refer(given: SaidInput) -> str:
    """Return a reference to an input; empty where its name cannot be written in one."""
    parts = given.name.split(".", 1) if given.is_part else [given.name]
    is_plain = all(_PLAIN_NAME.fullmatch(part) for part in parts)
    return f"${{inputs.{given.name}}}" if is_plain else ""


def _escape(value: Any) -> Any:
    """Return a value in which no text is taken for a reference."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_escape(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _escape(item) for key, item in items}
    return value


def _fill_open(
    leaf: Leaf,
    tool: Tool,
    outputs: Sequence[tuple[str, Tool, tuple[OutputField, ...]]],
    draft: PlanDraft,
    id_: str,
) -> Any:
    """Return a required value that was not said."""
    for earlier_id, earlier, fields in reversed(outputs):
        found = find_join(leaf, tool, earlier, fields)
        if found is not None:
            return found.to_reference(earlier_id, many="array" in leaf.types)
    for step in draft.steps:
        # What was said for one step of a server holds for the next: a project, a repository.
        value = step["arguments"].get(leaf.path[0])
        is_same_server = step["tool"].partition(".")[0] == tool.server
        is_known = isinstance(value, str | int) and value != _ITEM
        if is_same_server and len(leaf.path) == 1 and is_known:
            return value
    if leaf.schema.default is not ABSENT:
        return leaf.schema.default
    if len(leaf.options) == 1:
        return leaf.options[0]
    return _ask(leaf, draft, id_)


def _ask(leaf: Leaf, draft: PlanDraft, id_: str) -> str:
    """Return a reference to an input that the caller has to pass."""
    name = f"{id_}.{leaf.plain_name}"
    description = " ".join(leaf.schema.description.split())[:_MAX_DESCRIPTION_CHARS]
    draft.inputs[name] = PlanInput(_describe_type(leaf), description)
    return f"${{inputs.{name}}}"


def _describe_type(leaf: Leaf) -> str:
    if leaf.options and "boolean" not in leaf.types:
        return "one of " + ", ".join(str(value) for value in leaf.options[:8])
    if "array" in leaf.types:
        return f"{'|'.join(sorted(leaf.item_types)) or 'any'}[]"
    return "|".join(sorted(leaf.types))
