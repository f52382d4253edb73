"""Tasks of people with the calls that do them, and the comparison of a call with gold.

A line of a task file is `{"id", "task", "lang", "kind": "single|multi|none", "gold"}`. `gold` is a
list of steps, a step is `{"any_of": ["server/tool", …], "args": {"server/tool": {name: value}}}`:
any of these tools does it, with these arguments. Only arguments that matter are listed. A list
means any of its values, so an array is written `[[…]]`; objects match as subsets; numbers and
strings are compared loosely. `${1}` is something that the first step answered. `kind: none` means
that no tool of the fleet does it.

A line of an input file is `{"id", "intent", "inputs"}`: the same task as an agent would pass it to
`run_workflow`, written without knowing tools or parameter names.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from portico.catalog.schema_validator import is_valid_for_schema

FOLDER = Path(__file__).parent
_INPUT_REFERENCE = re.compile(r"\$\{inputs\.([\w.]+)\}")
KINDS = ("single", "multi", "none")


@dataclass(frozen=True, slots=True)
class GoldStep:
    """One step of a task: the tools that do it, each with the arguments that matter."""

    tools: tuple[str, ...]
    """Addresses, `server.tool`."""
    arguments: Mapping[str, Mapping[str, Any]]
    """By address; a tool that is not there takes any arguments."""

    def get_arguments(self, address: str) -> Mapping[str, Any]:
        return self.arguments.get(address, {})


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One task, as a person says it and as an agent passes it on."""

    id: str
    words: str
    kind: str
    steps: tuple[GoldStep, ...]
    intent: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a plan proposes, or that a server received."""

    tool: str
    """The address, `server.tool`."""
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the calls of an agent with the gold steps of its task."""

    step_count: int
    found_count: int
    """Steps of gold whose tool was called."""
    extra_count: int
    """Calls that no step of gold asks for."""
    argument_count: int
    """Arguments that gold has for the steps that were found."""
    right_argument_count: int

    @property
    def has_right_tools(self) -> bool:
        return self.found_count == self.step_count and self.extra_count == 0

    @property
    def is_usable(self) -> bool:
        return self.has_right_tools and self.right_argument_count == self.argument_count


def load_tasks(tasks: Path, inputs: Path | None = None) -> list[AgentTask]:
    """Read tasks, with intent and inputs where the second file has them."""
    lines: dict[str, Mapping[str, Any]] = {}
    if inputs is not None:
        lines = {line["id"]: line for line in _read_lines(inputs)}
    loaded: list[AgentTask] = []
    for line in _read_lines(tasks):
        given = lines.get(line["id"], {})
        loaded.append(
            AgentTask(
                line["id"],
                line["task"],
                line["kind"],
                tuple(_parse_step(step) for step in line["gold"]),
                given.get("intent", ""),
                given.get("inputs", {}),
            )
        )
    return loaded


def compare_calls(steps: Sequence[GoldStep], calls: Sequence[ToolCall]) -> Comparison:
    """Assign calls to steps of gold, each once, the call with most right arguments first."""
    free = list(range(len(calls)))
    found = 0
    argument_count = 0
    right_count = 0
    for step in steps:
        candidates = [at for at in free if calls[at].tool in step.tools]
        if not candidates:
            continue
        best = max(candidates, key=lambda at: _rank_call(step, calls[at]))
        free.remove(best)
        found += 1
        call = calls[best]
        expected = step.get_arguments(call.tool)
        argument_count += len(expected)
        right_count += count_right_arguments(expected, call.arguments)
    return Comparison(len(steps), found, len(free), argument_count, right_count)


def _rank_call(step: GoldStep, call: ToolCall) -> float:
    """Return the share of right arguments; 1 where gold has none."""
    expected = step.get_arguments(call.tool)
    if not expected:
        return 1.0
    return count_right_arguments(expected, call.arguments) / len(expected)


def count_right_arguments(expected: Mapping[str, Any], arguments: Mapping[str, Any]) -> int:
    """Return how many arguments of gold are there with a right value."""
    return sum(
        name in arguments and matches_any(value, arguments[name])
        for name, value in expected.items()
    )


def matches_any(expected: Any, value: Any) -> bool:
    """Decide whether a value is right; a list of gold means any of its values."""
    if isinstance(expected, list):
        return any(_matches(one, value) for one in cast("list[Any]", expected))
    return _matches(expected, value)


def _matches(expected: Any, value: Any) -> bool:
    if isinstance(expected, Mapping):
        parts = cast("Mapping[str, Any]", expected)
        if not isinstance(value, Mapping):
            return False
        actual = cast("Mapping[str, Any]", value)
        return all(name in actual and matches_any(parts[name], actual[name]) for name in parts)
    if isinstance(expected, list):
        items = cast("list[Any]", expected)
        if not isinstance(value, list):
            return False
        values = cast("list[Any]", value)
        return len(items) == len(values) and all(map(_matches, items, values))
    if isinstance(value, Mapping | list):
        return False
    return _normalize_scalar(expected) == _normalize_scalar(value)


def _normalize_scalar(value: Any) -> str:
    """Write a value so that 4471, 4471.0 and "4471" are equal, and true and "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return text.lower() if text in ("True", "False") else text


def resolve_references(value: Any, inputs: Mapping[str, Any]) -> Any:
    """Replace `${inputs.x}` by the input that was passed, at any depth."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return {name: resolve_references(part, inputs) for name, part in parts.items()}
    if isinstance(value, list):
        return [resolve_references(part, inputs) for part in cast("list[Any]", value)]
    if not isinstance(value, str) or "${inputs." not in value:
        return value
    if (whole := _INPUT_REFERENCE.fullmatch(value)) is not None and whole[1] not in inputs:
        # A part of an input that is an object, as a run resolves it.
        name, _, rest = whole[1].partition(".")
        part: Any = inputs.get(name)
        for key in rest.split("."):
            if not isinstance(part, Mapping) or key not in part:
                return value
            part = cast("Mapping[str, Any]", part)[key]
        return part
    for name, given in inputs.items():
        reference = f"${{inputs.{name}}}"
        if value == reference:
            return given
        value = value.replace(reference, str(given))
    return value


def pick_arguments(step: GoldStep, address: str) -> dict[str, Any]:
    """Return arguments that gold accepts for a tool, the first of several values."""
    return {name: pick_value(value) for name, value in step.get_arguments(address).items()}


def pick_value(expected: Any) -> Any:
    """Return the first value that gold accepts."""
    if isinstance(expected, list):
        return _pick_plain(cast("list[Any]", expected)[0])
    return _pick_plain(expected)


def _pick_plain(expected: Any) -> Any:
    if isinstance(expected, Mapping):
        parts = cast("Mapping[str, Any]", expected)
        return {name: pick_value(part) for name, part in parts.items()}
    if isinstance(expected, list):
        return [_pick_plain(part) for part in cast("list[Any]", expected)]
    return expected


def find_problems(
    tasks: Sequence[AgentTask], schemas: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield what is wrong with gold: tools or parameters that do not exist, values that no schema
    takes. `schemas` are the input schemas of the fleet by address."""
    for task in tasks:
        if task.kind not in KINDS or (task.kind == "none") != (not task.steps):
            yield f"{task.id}: kind {task.kind} with {len(task.steps)} steps"
        for step in task.steps:
            for address in {*step.tools, *step.arguments}:
                schema = schemas.get(address)
                if schema is None or address not in step.tools:
                    yield f"{task.id}: there is no tool {address}"
                    continue
                for name, value in step.get_arguments(address).items():
                    yield from _find_argument_problems(task.id, address, schema, name, value)


def drop_joins(steps: Sequence[GoldStep]) -> tuple[GoldStep, ...]:
    """Return the steps without the arguments that an earlier answer gives: what servers answered
    cannot be told by the value."""
    return tuple(
        GoldStep(
            step.tools,
            {
                tool: {name: value for name, value in found.items() if not is_join(value)}
                for tool, found in step.arguments.items()
            },
        )
        for step in steps
    )


def is_join(value: Any) -> bool:
    """Decide whether a value of gold is `${1}`, the answer of a step."""
    return isinstance(value, str) and value.startswith("${") and value[2:-1].isdigit()


def _find_argument_problems(
    task_id: str, address: str, schema: Mapping[str, Any], name: str, value: Any
) -> Iterator[str]:
    parameter = schema.get("properties", {}).get(name)
    if parameter is None:
        yield f"{task_id}: {address} has no parameter {name}"
        return
    if isinstance(value, Mapping) or is_join(value):
        return
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    whole = {**parameter, **definitions}
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not any(is_valid_for_schema(whole, _pick_plain(one)) for one in values):
        yield f"{task_id}: {address} takes no such {name}: {value}"


def _parse_step(step: Mapping[str, Any]) -> GoldStep:
    tools = tuple(to_address(label) for label in step["any_of"])
    return GoldStep(tools, {to_address(label): found for label, found in step["args"].items()})


def to_address(label: str) -> str:
    """`server/tool` of a task file as an address, `server.tool`."""
    return label.replace("/", ".", 1)


def _read_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    for line in path.read_bytes().splitlines():
        if line.strip():
            yield orjson.loads(line)
