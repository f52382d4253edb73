"""Parses the steps of a workflow as a caller writes them; reports all problems at once. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, cast

from portico.catalog.address import find_nearest_names
from portico.catalog.tool import quote_text, sanitize_text, to_literal
from portico.workflows.references import (
    INDEX,
    INPUTS,
    ITEM,
    MAX_DEPTH,
    MAX_REFERENCES,
    MAX_TOTAL_EXPRESSION_CHARS,
    RESERVED,
    BadReference,
    Reference,
    TextTemplate,
    count_expressions,
    iter_references,
    parse_condition,
    parse_value,
)

MAX_RETRIES = 5
MAX_DELAY_S = 60.0
MAX_ID_CHARS = 64
MAX_DEPENDENCIES = 1_000
MAX_UNKNOWN_KEYS = 5
"""Unknown keys reported per step; a suggestion is searched for each."""
_ID_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_BRACES = re.compile(r"\{\{\s*(?P<name>[A-Za-z_][\w-]{0,63})(?P<path>[^\s{}]{0,200})\s*\}\}")
MAX_BRACES = 10_000
"""Pairs of braces in a workflow that are read as references: 10 ms."""
_KEYS = ("id", "tool", "arguments", "depends_on", "if", "for_each", "retry")


@dataclass(frozen=True)
class WorkflowProblem:
    step: str
    """A step's id, or its number if it has none; empty for the workflow itself."""
    message: str
    where: str = ""
    """The key or argument of the step."""

    def __str__(self) -> str:
        at = " ".join(filter(None, (f"step {self.step}" if self.step else "", self.where)))
        if at:
            return f"{at}: {self.message}"
        return self.message


@dataclass(frozen=True)
class StepRetry:
    """Number of retries and the first delay in seconds; the delay doubles each time."""

    attempts: int = 0
    delay_s: float = 0.5


@dataclass(frozen=True)
class WorkflowStep:
    id: str
    tool: str
    """As written; resolved during validation."""
    arguments: Any
    """Parsed: an object, or text that is one reference to an object."""
    definition: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """As written."""
    depends_on: tuple[str, ...] = ()
    condition: "Reference | bool" = True
    for_each: Any = None
    """Parsed: a list, or text that is one reference to a list; None for a step that runs once."""
    retry: StepRetry = field(default_factory=StepRetry)

    @cached_property
    def call_references(self) -> tuple[Reference, ...]:
        return (*iter_references(self.arguments), *iter_references(self.for_each))

    @cached_property
    def all_references(self) -> tuple[Reference, ...]:
        if isinstance(self.condition, Reference):
            return (*self.call_references, self.condition)
        return self.call_references

    @cached_property
    def dependencies(self) -> frozenset[str]:
        """Steps that must be finished before it starts."""
        named = (name for reference in self.all_references for name in reference.names)
        return frozenset((*named, *self.depends_on)) - RESERVED

    @property
    def has_item_condition(self) -> bool:
        condition = self.condition
        return (
            self.for_each is not None
            and isinstance(condition, Reference)
            and not condition.names.isdisjoint((ITEM, INDEX))
        )


def parse_steps(
    steps: Any, max_steps: int
) -> tuple[tuple[WorkflowStep, ...], tuple[WorkflowProblem, ...]]:
    """Parse the steps; return the valid ones and the problems of the others."""
    if problem := _find_problem_of_all(steps, max_steps):
        return (), (WorkflowProblem("", problem),)
    found: list[WorkflowStep] = []
    problems: list[WorkflowProblem] = []
    for number, definition in enumerate(complete_steps(cast("list[Any]", steps)), 1):
        name = _get_label(definition, number)
        reader = _StepParser(name)
        step = reader.parse(definition)
        if step is not None and any(step.id == other.id for other in found):
            problems.append(
                WorkflowProblem(name, "the id is there twice; each step needs its own", "id")
            )
        elif step is not None:
            found.append(step)
        problems += reader.problems
    return tuple(found), tuple(problems)


def _find_problem_of_all(steps: Any, max_steps: int) -> str:
    if not isinstance(steps, list) or not steps:
        return 'steps must be a list: [{"id": "a", "tool": "server.tool", "arguments": {…}}]'
    count = len(cast("list[Any]", steps))
    if count > max_steps:
        return f"there are {count} steps; {max_steps} is the most, and for_each repeats one"
    references, chars = count_expressions(cast("list[Any]", steps))
    if references > MAX_REFERENCES:
        return f"there are {references:,} references; {MAX_REFERENCES:,} is the most"
    if chars > MAX_TOTAL_EXPRESSION_CHARS:
        most = f"{MAX_TOTAL_EXPRESSION_CHARS:,}"
        return f"the references have more than {most} characters; write shorter ones"
    return ""


def _get_label(one: Any, number: int) -> str:
    name = cast("Mapping[str, Any]", one).get("id") if isinstance(one, dict) else None
    if _is_id(name):
        return str(name)
    return f"#{number}"


def _is_id(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= MAX_ID_CHARS
        and _ID_PATTERN.fullmatch(value) is not None
    )


def complete_steps(steps: list[Any]) -> list[Any]:
    """Return steps with what callers leave out or write otherwise.

    An id that is missing is `step_N`, `args` are the arguments, and `{{step.path}}` is a reference
    where `step` is the id of a step, or `inputs`.
    """
    completed: list[Any] = []
    for number, step in enumerate(steps, 1):
        if not isinstance(step, dict):
            completed.append(step)
            continue
        definition = dict(cast("dict[str, Any]", step))
        if "args" in definition and "arguments" not in definition:
            definition["arguments"] = definition.pop("args")
        if "id" not in definition:
            definition = {"id": f"step_{number}", **definition}
        completed.append(definition)
    names = {step["id"] for step in completed if isinstance(step, dict) and _is_id(step["id"])}
    rewriter = _BracesRewriter(names | {INPUTS})
    for step in completed:
        if isinstance(step, dict) and "arguments" in step:
            step["arguments"] = rewriter.rewrite(step["arguments"])
    return completed


class _BracesRewriter:
    """Makes references of `{{step.path}}`. Texts beyond MAX_BRACES pairs stay as they are, which is
    reported like any other form that is no reference."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._left = MAX_BRACES

    def rewrite(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str) and (count := value.count("{{")):
            self._left -= count
            if self._left < 0:
                return value
            return _BRACES.sub(lambda match: _rewrite_reference(match, self._names), value)
        if isinstance(value, dict) and depth < MAX_DEPTH:
            items = cast("dict[str, Any]", value).items()
            return {key: self.rewrite(item, depth + 1) for key, item in items}
        if isinstance(value, list) and depth < MAX_DEPTH:
            return [self.rewrite(item, depth + 1) for item in cast("list[Any]", value)]
        return value


def _rewrite_reference(match: re.Match[str], names: Collection[str]) -> str:
    name, path = match["name"], match["path"]
    if name not in names:
        return match.group()
    if path == ".result":
        return f"${{{name}.result || {name}}}"
    return f"${{{name}{path}}}"


class _StepParser:
    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[WorkflowProblem] = []

    def parse(self, one: Any) -> WorkflowStep | None:
        if not isinstance(one, dict):
            return self._add_problem("a step is an object with id, tool and arguments")
        definition = cast("dict[str, Any]", one)
        for key in islice((key for key in definition if key not in _KEYS), MAX_UNKNOWN_KEYS):
            near = find_nearest_names(key, _KEYS, 1)
            self._add_problem(
                f"there is no {quote_text(key)} in a step"
                + (f"; did you mean {near[0]}?" if near else "")
            )
        step = WorkflowStep(
            self._parse_id(definition.get("id")),
            self._parse_tool(definition.get("tool")),
            self._parse_arguments(definition.get("arguments")),
            definition,
            self._parse_depends_on(definition.get("depends_on")),
            self._parse_condition(definition.get("if")),
            self._parse_for_each(definition.get("for_each")),
            self._parse_retry(definition.get("retry")),
        )
        return step if step.id else None

    def _parse_id(self, value: Any) -> str:
        if not _is_id(value):
            self._add_problem(
                f"an id is a word of letters, digits, _ and - ({MAX_ID_CHARS} at most),"
                f" not {_preview_value(value)}",
                "id",
            )
        elif value in RESERVED:
            self._add_problem(
                f"{value} means something else in references; choose another id", "id"
            )
        else:
            return value
        return ""

    def _parse_tool(self, value: Any) -> str:
        if isinstance(value, str) and value.strip():
            return value
        self._add_problem("the name of a tool is missing", "tool")
        return ""

    def _parse_arguments(self, value: Any) -> Any:
        found = self._parse_value({} if value is None else value, "arguments")
        if found is None:
            return {}
        if isinstance(found, dict) or _is_sole_reference(found):
            return found
        self._add_problem(
            f"they are an object, or one reference to one, not {_preview_value(value)}", "arguments"
        )
        return {}

    def _parse_depends_on(self, value: Any) -> tuple[str, ...]:
        names: Any = [] if value is None else value
        if isinstance(value, str):
            names = [value]
        if (
            isinstance(names, list)
            and len(cast("list[Any]", names)) <= MAX_DEPENDENCIES
            and all(isinstance(name, str) for name in cast("list[Any]", names))
        ):
            return tuple(dict.fromkeys(cast("list[str]", names)))
        self._add_problem(f"it is a list of step ids, not {_preview_value(value)}", "depends_on")
        return ()

    def _parse_condition(self, value: Any) -> Reference | bool:
        if value is None or isinstance(value, bool):
            return value is not False
        if isinstance(value, str):
            try:
                return parse_condition(value)
            except BadReference as error:
                self._add_problem(str(error), "if")
                return True
        self._add_problem(
            f"it is an expression such as step.count > `0`, not {_preview_value(value)}", "if"
        )
        return True

    def _parse_for_each(self, value: Any) -> Any:
        found = self._parse_value(value, "for_each")
        if found is None or isinstance(found, list) or _is_sole_reference(found):
            return cast("Any", found)
        self._add_problem(
            "it is a list, or one reference to a list such as ${step.items},"
            f" not {_preview_value(value)}",
            "for_each",
        )
        return None

    def _parse_retry(self, value: Any) -> StepRetry:
        known: Mapping[str, Any] = {"attempts": value}
        if isinstance(value, dict):
            known = cast("dict[str, Any]", value)
        attempts = known.get("attempts") or 0
        delay = known.get("delay_s", StepRetry.delay_s)
        if (
            isinstance(attempts, int)
            and _is_number(attempts, MAX_RETRIES)
            and _is_number(delay, MAX_DELAY_S)
            and known.keys() <= {"attempts", "delay_s"}
        ):
            return StepRetry(attempts, float(delay))
        bounds = f"0 to {MAX_RETRIES}, delay_s 0 to {MAX_DELAY_S:g}"
        self._add_problem(
            f"it is a number, or {{attempts, delay_s}}: attempts {bounds},"
            f" not {_preview_value(value)}",
            "retry",
        )
        return StepRetry()

    def _parse_value(self, value: Any, key: str) -> Any:
        try:
            return parse_value(value)
        except BadReference as error:
            self._add_problem(str(error), key)
            return None

    def _add_problem(self, message: str, where: str = "") -> None:
        self.problems.append(WorkflowProblem(self.name, message, where))


def _is_sole_reference(value: Any) -> bool:
    return isinstance(value, TextTemplate) and value.sole_reference is not None


def _is_number(value: Any, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _preview_value(value: Any) -> str:
    text = sanitize_text(to_literal(value))
    if len(text) <= 60:
        return text
    return text[:59] + "…"


def find_cycle(steps: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Return steps that wait for each other, the first again at the end; empty without a cycle."""
    remaining = dict(steps)
    while ready := [name for name, before in remaining.items() if before.isdisjoint(remaining)]:
        for name in ready:
            del remaining[name]
    if not remaining:
        return ()
    path: list[str] = []
    at = next(iter(remaining))
    while at not in path:
        path.append(at)
        at = next(name for name in remaining if name in remaining[at])
    return (*path[path.index(at) :], at)


def find_final_steps(steps: Mapping[str, frozenset[str]]) -> Iterator[str]:
    waited_for = frozenset[str]().union(*steps.values())
    return (name for name in steps if name not in waited_for)
