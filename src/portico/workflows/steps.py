"""Steps of a workflow as a caller writes them, read into facts; all that cannot be read is told at
once. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, cast

from portico.catalog.address import find_nearest_names
from portico.catalog.visible_text import quote_text, sanitize_text, to_literal
from portico.workflows.references import (
    INDEX,
    ITEM,
    MAX_REFERENCES,
    MAX_TOTAL_EXPRESSION_CHARS,
    RESERVED,
    BadReference,
    Reference,
    TextTemplate,
    count_expression_chars,
    count_references,
    iter_references,
    parse_condition,
    parse_value,
)

MAX_RETRIES = 5
MAX_DELAY_S = 60.0
MAX_ID_CHARS = 64
MAX_DEPENDENCIES = 1_000
MAX_UNKNOWN_KEYS = 5
"""Unknown keys of one step that are told: for each the nearest known one is looked for."""
_ID_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_KEYS = ("id", "tool", "arguments", "depends_on", "if", "for_each", "retry")
_RETRY_KEYS = ("attempts", "delay_s")


@dataclass(frozen=True)
class WorkflowProblem:
    """One thing that is wrong, and where."""

    step: str
    """A step's id, or its number where it has none; empty for the workflow itself."""
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
    """How often a step is tried again, and after how long; each wait is twice the one before."""

    attempts: int = 0
    delay_s: float = 0.5


@dataclass(frozen=True)
class WorkflowStep:
    """One step."""

    id: str
    tool: str
    """As it was written; what it means is decided when the step is checked."""
    arguments: Any
    """Prepared: an object, or a text that is one reference to an object."""
    definition: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """As it was written."""
    depends_on: tuple[str, ...] = ()
    condition: "Reference | bool" = True
    for_each: Any = None
    """Prepared: a list, or a text that is one reference to a list; None for a step that runs once.
    """
    retry: StepRetry = field(default_factory=StepRetry)

    @cached_property
    def call_references(self) -> tuple[Reference, ...]:
        """What its calls are made of."""
        return (*iter_references(self.arguments), *iter_references(self.for_each))

    @cached_property
    def all_references(self) -> tuple[Reference, ...]:
        """Every reference in it."""
        if isinstance(self.condition, Reference):
            return (*self.call_references, self.condition)
        return self.call_references

    @cached_property
    def dependencies(self) -> frozenset[str]:
        """The steps that have to be over before it begins."""
        named = (name for reference in self.all_references for name in reference.names)
        return frozenset((*named, *self.depends_on)) - RESERVED

    @property
    def has_item_condition(self) -> bool:
        """Whether its condition is asked for each element."""
        found = self.condition
        return (
            self.for_each is not None
            and isinstance(found, Reference)
            and not found.names.isdisjoint((ITEM, INDEX))
        )


def parse_steps(
    steps: Any, max_steps: int
) -> tuple[tuple[WorkflowStep, ...], tuple[WorkflowProblem, ...]]:
    """The steps that can be read, and what is wrong with the others."""
    if not isinstance(steps, list) or not steps:
        return (), (
            WorkflowProblem(
                "", 'steps must be a list: [{"id": "a", "tool": "server.tool", "arguments": {…}}]'
            ),
        )
    given = cast("list[Any]", steps)
    if len(given) > max_steps:
        return (), (
            WorkflowProblem(
                "",
                f"there are {len(given)} steps; {max_steps} is the most, and for_each repeats one",
            ),
        )
    if (many := count_references(given)) > MAX_REFERENCES:
        return (), (
            WorkflowProblem("", f"there are {many:,} references; {MAX_REFERENCES:,} is the most"),
        )
    if count_expression_chars(given) > MAX_TOTAL_EXPRESSION_CHARS:
        return (), (
            WorkflowProblem(
                "",
                f"the references have more than {MAX_TOTAL_EXPRESSION_CHARS:,} characters; write shorter ones",
            ),
        )
    found: list[WorkflowStep] = []
    problems: list[WorkflowProblem] = []
    for number, one in enumerate(given, 1):
        name = _get_label(one, number)
        reader = _StepParser(name)
        step = reader.parse(one)
        if step is not None and any(step.id == other.id for other in found):
            problems.append(
                WorkflowProblem(name, "the id is there twice; each step needs its own", "id")
            )
        elif step is not None:
            found.append(step)
        problems += reader.problems
    return tuple(found), tuple(problems)


def _get_label(one: Any, number: int) -> str:
    if isinstance(one, dict):
        name = cast("Mapping[str, Any]", one).get("id")
    else:
        name = None
    if isinstance(name, str) and _ID_PATTERN.fullmatch(name[: MAX_ID_CHARS + 1]):
        return name
    return f"#{number}"


class _StepParser:
    """Reads one step and gathers what is wrong with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[WorkflowProblem] = []

    def parse(self, one: Any) -> WorkflowStep | None:
        if not isinstance(one, dict):
            return self._add_problem("a step is an object with id, tool and arguments")
        given = cast("dict[str, Any]", one)
        for key in islice((key for key in given if key not in _KEYS), MAX_UNKNOWN_KEYS):
            near = find_nearest_names(key, _KEYS, 1)
            self._add_problem(
                f"there is no {quote_text(key)} in a step"
                + (f"; did you mean {near[0]}?" if near else "")
            )
        step = WorkflowStep(
            self._parse_id(given.get("id")),
            self._parse_tool(given.get("tool")),
            self._parse_arguments(given.get("arguments")),
            given,
            self._parse_depends_on(given.get("depends_on")),
            self._parse_condition(given.get("if")),
            self._parse_for_each(given.get("for_each")),
            self._parse_retry(given.get("retry")),
        )
        if step.id:
            return step
        return None

    def _parse_id(self, value: Any) -> str:
        if (
            not isinstance(value, str)
            or len(value) > MAX_ID_CHARS
            or not _ID_PATTERN.fullmatch(value)
        ):
            self._add_problem(
                f"an id is a word of letters, digits, _ and - ({MAX_ID_CHARS} at most), not {_preview_value(value)}",
                "id",
            )
            return ""
        if value in RESERVED:
            self._add_problem(
                f"{value} means something else in references; choose another id", "id"
            )
            return ""
        return value

    def _parse_tool(self, value: Any) -> str:
        if isinstance(value, str) and value.strip():
            return value
        self._add_problem("the name of a tool is missing", "tool")
        return ""

    def _parse_arguments(self, value: Any) -> Any:
        found = self._parse_value({} if value is None else value, "arguments")
        if (
            isinstance(found, dict)
            or (isinstance(found, TextTemplate) and found.sole_reference is not None)
            or found is None
        ):
            if found is None:
                return {}
            return found
        self._add_problem(
            f"they are an object, or one reference to one, not {_preview_value(value)}", "arguments"
        )
        return {}

    def _parse_depends_on(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            names = [value]
        elif value is None:
            names = []
        else:
            names = value
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
        if (
            found is None
            or isinstance(found, list)
            or (isinstance(found, TextTemplate) and found.sole_reference is not None)
        ):
            return cast("Any", found)
        self._add_problem(
            f"it is a list, or one reference to a list such as ${{step.items}}, not {_preview_value(value)}",
            "for_each",
        )
        return None

    def _parse_retry(self, value: Any) -> StepRetry:
        if isinstance(value, dict):
            known: Mapping[str, Any] = cast("dict[str, Any]", value)
        else:
            known = {"attempts": value}
        attempts = known.get("attempts") or 0
        delay = known.get("delay_s", StepRetry.delay_s)
        if (
            not isinstance(attempts, bool)
            and isinstance(attempts, int)
            and 0 <= attempts <= MAX_RETRIES
            and not isinstance(delay, bool)
            and isinstance(delay, int | float)
            and 0 <= delay <= MAX_DELAY_S
            and not known.keys() - set(_RETRY_KEYS)
        ):
            return StepRetry(attempts, float(delay))
        most = f"0 to {MAX_RETRIES}, delay_s 0 to {MAX_DELAY_S:g}"
        self._add_problem(
            f"it is a number, or {{attempts, delay_s}}: attempts {most}, not {_preview_value(value)}",
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


def _preview_value(value: Any) -> str:
    text = sanitize_text(to_literal(value))
    if len(text) <= 60:
        return text
    return text[:59] + "…"


def find_cycle(steps: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Steps that wait for each other, the first again at the end; empty where there is no such
    circle."""
    left = dict(steps)
    while ready := [name for name, before in left.items() if before.isdisjoint(left)]:
        for name in ready:
            del left[name]
    if not left:
        return ()
    path: list[str] = []
    at = next(iter(left))
    while at not in path:
        path.append(at)
        at = next(name for name in left if name in left[at])
    return (*path[path.index(at) :], at)


def find_final_steps(steps: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """The steps that no other waits for."""
    if steps:
        waited_for = frozenset[str]().union(*steps.values())
    else:
        waited_for = frozenset[str]()
    return (name for name in steps if name not in waited_for)
