"""Plans without what anybody wrote in them: steps become a template, and a template becomes a plan again. Pure.

Kept are the tools, how their answers are joined, and values that the tools' own definitions name (an enumeration's, a
default, true and false). Every other text and number is an input: it may be somebody's, and next time it is another.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.references import ABSENT
from portico.catalog.schema import Param, outline
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.execution.workflow.planning.arranging import Input, input_of, new_id, plain_name
from portico.execution.workflow.planning.filling import NOTHING, Said, filled
from portico.execution.workflow.planning.nouns import is_control, read_name, split_name

LEAST_STEPS = 2
_WAY = r"(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:\d+|\*|)\])*"
_PLAIN = re.compile(rf"\$\{{(?P<function>to_string\()?(?P<name>[A-Za-z_][\w-]*)(?P<way>{_WAY})\)?\}}", re.ASCII)
"""References that hold nothing but names and numbers: a condition may compare with what is somebody's."""
_INPUT = re.compile(r"\$\{inputs\.(?P<name>\w+)\}", re.ASCII)
_ANY = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True)
class Template:
    """A plan that can be kept."""

    steps: tuple[dict[str, Any], ...]
    tools: Mapping[str, str]
    """The address of each tool → its hash."""


def template(steps: Sequence[Mapping[str, Any]], snapshot: Snapshot) -> Template | None:
    """The steps of a run without what was said in them; None where there is nothing worth keeping."""
    if len(steps) < LEAST_STEPS:
        return None
    known: list[tuple[Mapping[str, Any], Tool]] = []
    for step in steps:
        address = snapshot.resolver.resolve(str(step.get("tool", "")))
        known.append((step, snapshot.tools[address]))
    names: dict[str, str] = {}
    for step, tool in known:
        names[str(step.get("id", ""))] = new_id(tool, set(names.values()))
    keeping = _Keeping(names)
    made = [keeping.step(step, tool) for step, tool in known]
    if any(step is None for step in made):
        return None
    return Template(tuple(step for step in made if step is not None), {tool.address: tool.hash for _, tool in known})


@dataclass
class _Keeping:
    names: Mapping[str, str]
    """The ids that the steps had → those they are kept with: an id may be somebody's word too."""
    inputs: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """A parameter and what it was given → its input: the same thing is asked for once."""

    def step(self, step: Mapping[str, Any], tool: Tool) -> dict[str, Any] | None:
        given = step.get("arguments", {})
        if not isinstance(given, dict):
            return None
        id_ = self.names[str(step.get("id", ""))]
        arguments = self._object(cast("dict[str, Any]", given), outline(tool.input_schema).params)
        kept: dict[str, Any] = {"id": id_, "tool": tool.address, "arguments": arguments}
        waits = [self.names[one] for one in _texts(step.get("depends_on")) if one in self.names]
        if waits:
            kept["depends_on"] = waits
        for key in ("for_each", "if"):
            if key in step:
                reference = self._reference(step[key])
                if not reference:
                    return None
                kept[key] = reference
        if isinstance(step.get("retry"), int | dict):
            kept["retry"] = step["retry"]
        return kept

    def _object(self, given: Mapping[str, Any], params: Sequence[Param]) -> dict[str, Any]:
        by_name = {param.name: param for param in params}
        found = ((name, self._value(value, by_name.get(name), name)) for name, value in given.items())
        return {name: value for name, value in found if value is not NOTHING}

    def _value(self, value: Any, param: Param | None, name: str) -> Any:
        if isinstance(value, str) and (reference := self._reference(value)):
            return reference
        if isinstance(value, str) and "${" in value and not _INPUT.fullmatch(value):
            # Of a text around references, the references: the words are somebody's.
            parts = [self._reference(part) for part in _ANY.findall(value)]
            if parts and all(parts):
                return "\n".join(parts)
        if value is None or isinstance(value, bool) or (param is not None and _is_its_own(value, param)):
            return value
        if isinstance(value, dict) and param is not None and param.children:
            return self._object(cast("dict[str, Any]", value), param.children)
        if isinstance(value, list) and value:
            references = [self._reference(item) for item in cast("list[Any]", value)]
            if all(references):
                return references
        if param is not None and not param.required and (is_control(read_name(name)) or param.type in _NUMBERS):
            return NOTHING
        return f"${{inputs.{self._input(name, repr(value))}}}"

    def _reference(self, value: Any) -> str:
        """A reference that can be kept, with the ids that are kept; empty for anything else."""
        found = _PLAIN.fullmatch(value) if isinstance(value, str) else None
        if found is None or (found["name"] not in self.names and found["name"] not in ("item", "index")):
            return ""
        name = self.names.get(found["name"], found["name"])
        return f"${{to_string({name}{found['way']})}}" if found["function"] else f"${{{name}{found['way']}}}"

    def _input(self, name: str, given: str) -> str:
        if (name, given) not in self.inputs:
            wanted = free = plain_name(name)
            number = 2
            while free in self.inputs.values():
                free, number = f"{wanted}_{number}", number + 1
            self.inputs[name, given] = free
        return self.inputs[name, given]


_NUMBERS = ("integer", "number")


def _is_its_own(value: Any, param: Param) -> bool:
    """Whether the tool's definition itself names this value."""
    return value in param.enum or (param.default is not ABSENT and value == param.default)


def fits(kept: Template, snapshot: Snapshot) -> bool:
    """Whether every tool is still there, and still takes what the plan gives it."""
    for step in kept.steps:
        tool = snapshot.tools.get(step["tool"])
        if tool is None:
            return False
        if tool.hash == kept.tools.get(tool.address):
            continue
        params = outline(tool.input_schema).params
        given = step["arguments"]
        if not given.keys() <= {param.name for param in params}:
            return False
        if any(param.required and param.name not in given for param in params):
            return False
    return True


def restored(
    kept: Template, intent: str, snapshot: Snapshot, fresh: Sequence[Mapping[str, Any]]
) -> tuple[tuple[dict[str, Any], ...], dict[str, Input]]:
    """The steps with what this intent says, and what is still to be said; `fresh` is a new plan for the same intent."""
    told: dict[str, Any] = {}
    for step in fresh:
        for name, value in step["arguments"].items():
            if not (isinstance(value, str) and value.startswith("${")):
                told[f"{step['tool']} {name}"] = value
    inputs: dict[str, Input] = {}
    steps: list[dict[str, Any]] = []
    for step in kept.steps:
        tool = snapshot.tools[step["tool"]]
        params = outline(tool.input_schema).params
        words = frozenset(word for name in (tool.name, tool.server) for word in split_name(name))
        said = Said(intent, intent, words, params)
        by_name = {param.name: param for param in params}
        arguments: dict[str, Any] = {}
        for name, value in step["arguments"].items():
            param = by_name.get(name, Param(name))
            if isinstance(value, str) and _INPUT.fullmatch(value):
                now = told.get(f"{tool.address} {name}", NOTHING)
                value = filled(param, said) if now is NOTHING else now
                value = step["arguments"][name] if value is NOTHING else value
            arguments[name] = value
            for open_ in _inputs_in(value):
                inputs[open_] = input_of(param, f"{step['id']}.{name}")
        steps.append({**step, "arguments": arguments})
    return tuple(steps), inputs


def _inputs_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (found["name"] for found in _INPUT.finditer(value))
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inputs_in(item)


def _texts(value: Any) -> list[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]
