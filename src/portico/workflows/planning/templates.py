"""Converts plans to templates without user text, and templates back to plans. Pure.

Kept are the tools, the joins between their results, and values from the tools' own definitions (an
enumeration's, a default, true and false). Every other text and number becomes an input: it may be
private, and will differ next time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.schema_outline import SchemaParameter, build_outline
from portico.catalog.schema_references import ABSENT
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.workflows.planning.argument_values import NOTHING, StepWording, find_stated_value
from portico.workflows.planning.name_parts import is_control, parse_name, split_name
from portico.workflows.planning.step_builder import (
    PlanInput,
    make_step_id,
    to_plain_name,
    to_plan_input,
)

LEAST_STEPS = 2
_WAY = r"(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:\d+|\*|)\])*"
_PLAIN = re.compile(
    rf"\$\{{(?P<function>to_string\()?(?P<name>[A-Za-z_][\w-]*)(?P<way>{_WAY})\)?\}}", re.ASCII
)
"""References that hold nothing but names and numbers: a condition may compare with what is
somebody's."""
_INPUT = re.compile(r"\$\{inputs\.(?P<name>\w+)\}", re.ASCII)
_ANY = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True)
class PlanTemplate:
    """A plan that can be kept."""

    steps: tuple[dict[str, Any], ...]
    tools: Mapping[str, str]
    """The address of each tool → its hash."""


def make_template(steps: Sequence[Mapping[str, Any]], snapshot: Snapshot) -> PlanTemplate | None:
    """Return the steps of a run without user text; None if there is nothing worth keeping."""
    if len(steps) < LEAST_STEPS:
        return None
    known: list[tuple[Mapping[str, Any], Tool]] = []
    for step in steps:
        address = snapshot.resolver.resolve(str(step.get("tool", "")))
        known.append((step, snapshot.tools[address]))
    names: dict[str, str] = {}
    for step, tool in known:
        names[str(step.get("id", ""))] = make_step_id(tool, set(names.values()))
    keeping = _TemplateBuilder(names)
    made = [keeping.build_step(step, tool) for step, tool in known]
    if any(step is None for step in made):
        return None
    return PlanTemplate(
        tuple(step for step in made if step is not None),
        {tool.address: tool.hash for _, tool in known},
    )


@dataclass
class _TemplateBuilder:
    names: Mapping[str, str]
    """The ids that the steps had → those they are kept with: an id may be somebody's word too."""
    inputs: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """A parameter and what it was given → its input: the same thing is asked for once."""

    def build_step(self, step: Mapping[str, Any], tool: Tool) -> dict[str, Any] | None:
        given = step.get("arguments", {})
        if not isinstance(given, dict):
            return None
        id_ = self.names[str(step.get("id", ""))]
        arguments = self._build_object(
            cast("dict[str, Any]", given), build_outline(tool.input_schema).parameters
        )
        kept: dict[str, Any] = {"id": id_, "tool": tool.address, "arguments": arguments}
        waits = [
            self.names[one] for one in _list_texts(step.get("depends_on")) if one in self.names
        ]
        if waits:
            kept["depends_on"] = waits
        for key in ("for_each", "if"):
            if key in step:
                reference = self._build_reference(step[key])
                if not reference:
                    return None
                kept[key] = reference
        if isinstance(step.get("retry"), int | dict):
            kept["retry"] = step["retry"]
        return kept

    def _build_object(
        self, given: Mapping[str, Any], params: Sequence[SchemaParameter]
    ) -> dict[str, Any]:
        by_name = {param.name: param for param in params}
        found = (
            (name, self._build_value(value, by_name.get(name), name))
            for name, value in given.items()
        )
        return {name: value for name, value in found if value is not NOTHING}

    def _build_value(self, value: Any, param: SchemaParameter | None, name: str) -> Any:
        if isinstance(value, str) and (reference := self._build_reference(value)):
            return reference
        if isinstance(value, str) and "${" in value and not _INPUT.fullmatch(value):
            # Of a text around references, the references: the words are somebody's.
            parts = [self._build_reference(part) for part in _ANY.findall(value)]
            if parts and all(parts):
                return "\n".join(parts)
        if (
            value is None
            or isinstance(value, bool)
            or (param is not None and _is_defined_value(value, param))
        ):
            return value
        if isinstance(value, dict) and param is not None and param.children:
            return self._build_object(cast("dict[str, Any]", value), param.children)
        if isinstance(value, list) and value:
            references = [self._build_reference(item) for item in cast("list[Any]", value)]
            if all(references):
                return references
        if (
            param is not None
            and not param.required
            and (is_control(parse_name(name)) or param.type in _NUMBERS)
        ):
            return NOTHING
        return f"${{inputs.{self._name_input(name, repr(value))}}}"

    def _build_reference(self, value: Any) -> str:
        """A reference that can be kept, with the ids that are kept; empty for anything else."""
        if isinstance(value, str):
            found = _PLAIN.fullmatch(value)
        else:
            found = None
        if found is None or (
            found["name"] not in self.names and found["name"] not in ("item", "index")
        ):
            return ""
        name = self.names.get(found["name"], found["name"])
        if found["function"]:
            return f"${{to_string({name}{found['way']})}}"
        return f"${{{name}{found['way']}}}"

    def _name_input(self, name: str, given: str) -> str:
        if (name, given) not in self.inputs:
            wanted = free = to_plain_name(name)
            number = 2
            while free in self.inputs.values():
                free = f"{wanted}_{number}"
                number = number + 1
            self.inputs[name, given] = free
        return self.inputs[name, given]


_NUMBERS = ("integer", "number")


def _is_defined_value(value: Any, param: SchemaParameter) -> bool:
    """Whether the tool's definition itself names this value."""
    return value in param.enum or (param.default is not ABSENT and value == param.default)


def is_applicable(kept: PlanTemplate, snapshot: Snapshot) -> bool:
    """Whether every tool is still there, and still takes what the plan gives it."""
    for step in kept.steps:
        tool = snapshot.tools.get(step["tool"])
        if tool is None:
            return False
        if tool.hash == kept.tools.get(tool.address):
            continue
        params = build_outline(tool.input_schema).parameters
        given = step["arguments"]
        if not given.keys() <= {param.name for param in params}:
            return False
        if any(param.required and param.name not in given for param in params):
            return False
    return True


def restore_plan(
    kept: PlanTemplate, intent: str, snapshot: Snapshot, fresh: Sequence[Mapping[str, Any]]
) -> tuple[tuple[dict[str, Any], ...], dict[str, PlanInput]]:
    """The steps with what this intent says, and what is still to be said; `fresh` is a new plan for
    the same intent."""
    told: dict[str, Any] = {}
    for step in fresh:
        for name, value in step["arguments"].items():
            if not (isinstance(value, str) and value.startswith("${")):
                told[f"{step['tool']} {name}"] = value
    inputs: dict[str, PlanInput] = {}
    steps: list[dict[str, Any]] = []
    for step in kept.steps:
        tool = snapshot.tools[step["tool"]]
        params = build_outline(tool.input_schema).parameters
        words = frozenset(word for name in (tool.name, tool.server) for word in split_name(name))
        said = StepWording(intent, intent, words, params)
        by_name = {param.name: param for param in params}
        arguments: dict[str, Any] = {}
        for name, value in step["arguments"].items():
            param = by_name.get(name, SchemaParameter(name))
            if isinstance(value, str) and _INPUT.fullmatch(value):
                now = told.get(f"{tool.address} {name}", NOTHING)
                if now is NOTHING:
                    value = find_stated_value(param, said)
                else:
                    value = now
                if value is NOTHING:
                    value = step["arguments"][name]
                else:
                    value = value
            arguments[name] = value
            for open_ in _iter_inputs(value):
                inputs[open_] = to_plan_input(param, f"{step['id']}.{name}")
        steps.append({**step, "arguments": arguments})
    return tuple(steps), inputs


def _iter_inputs(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (found["name"] for found in _INPUT.finditer(value))
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iter_inputs(item)


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, list):
        items = cast("list[Any]", value)
    else:
        items = [value]
    return [item for item in items if isinstance(item, str)]
