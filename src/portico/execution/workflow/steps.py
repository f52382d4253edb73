"""Steps of a workflow as a caller writes them, read into facts; all that cannot be read is told at once. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, cast

from portico.catalog.address import nearest
from portico.catalog.visible import literal, quoted, shown
from portico.execution.workflow.references import (
    INDEX,
    ITEM,
    MAX_REFERENCES,
    MAX_SPELLED,
    RESERVED,
    BadReference,
    Reference,
    Template,
    condition,
    mentioned,
    prepared,
    references,
    spelled,
)

MAX_RETRIES = 5
MAX_DELAY_S = 60.0
MAX_ID = 64
MAX_BEFORE = 1_000
MAX_STRANGE = 5
"""Unknown keys of one step that are told: for each the nearest known one is looked for."""
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_KEYS = ("id", "tool", "arguments", "depends_on", "if", "for_each", "retry")
_RETRY_KEYS = ("attempts", "delay_s")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    step: str
    """A step's id, or its number where it has none; empty for the workflow itself."""
    message: str
    where: str = ""
    """The key or argument of the step."""

    def __str__(self) -> str:
        at = " ".join(filter(None, (f"step {self.step}" if self.step else "", self.where)))
        return f"{at}: {self.message}" if at else self.message


@dataclass(frozen=True)
class Retry:
    """How often a step is tried again, and after how long; each wait is twice the one before."""

    attempts: int = 0
    delay_s: float = 0.5


@dataclass(frozen=True)
class Step:
    """One step."""

    id: str
    tool: str
    """As it was written; what it means is decided when the step is checked."""
    arguments: Any
    """Prepared: an object, or a text that is one reference to an object."""
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """As it was written."""
    after: tuple[str, ...] = ()
    condition: "Reference | bool" = True
    each: Any = None
    """Prepared: a list, or a text that is one reference to a list; None for a step that runs once."""
    retry: Retry = field(default_factory=Retry)

    @cached_property
    def uses(self) -> tuple[Reference, ...]:
        """What its calls are made of."""
        return (*references(self.arguments), *references(self.each))

    @cached_property
    def mentions(self) -> tuple[Reference, ...]:
        """Every reference in it."""
        return (*self.uses, self.condition) if isinstance(self.condition, Reference) else self.uses

    @cached_property
    def before(self) -> frozenset[str]:
        """The steps that have to be over before it begins."""
        named = (name for reference in self.mentions for name in reference.names)
        return frozenset((*named, *self.after)) - RESERVED

    @property
    def by_item(self) -> bool:
        """Whether its condition is asked for each element."""
        found = self.condition
        return self.each is not None and isinstance(found, Reference) and not found.names.isdisjoint((ITEM, INDEX))


def read(steps: Any, most: int) -> tuple[tuple[Step, ...], tuple[Problem, ...]]:
    """The steps that can be read, and what is wrong with the others."""
    if not isinstance(steps, list) or not steps:
        return (), (Problem("", 'steps must be a list: [{"id": "a", "tool": "server.tool", "arguments": {…}}]'),)
    given = cast("list[Any]", steps)
    if len(given) > most:
        return (), (Problem("", f"there are {len(given)} steps; {most} is the most, and for_each repeats one"),)
    if (many := mentioned(given)) > MAX_REFERENCES:
        return (), (Problem("", f"there are {many:,} references; {MAX_REFERENCES:,} is the most"),)
    if spelled(given) > MAX_SPELLED:
        return (), (Problem("", f"the references have more than {MAX_SPELLED:,} characters; write shorter ones"),)
    found: list[Step] = []
    problems: list[Problem] = []
    for number, one in enumerate(given, 1):
        name = _named(one, number)
        reader = _Reader(name)
        step = reader.step(one)
        if step is not None and any(step.id == other.id for other in found):
            problems.append(Problem(name, "the id is there twice; each step needs its own", "id"))
        elif step is not None:
            found.append(step)
        problems += reader.problems
    return tuple(found), tuple(problems)


def _named(one: Any, number: int) -> str:
    name = cast("Mapping[str, Any]", one).get("id") if isinstance(one, dict) else None
    return name if isinstance(name, str) and _ID.fullmatch(name[: MAX_ID + 1]) else f"#{number}"


class _Reader:
    """Reads one step and gathers what is wrong with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []

    def step(self, one: Any) -> Step | None:
        if not isinstance(one, dict):
            return self._wrong("a step is an object with id, tool and arguments")
        given = cast("dict[str, Any]", one)
        for key in islice((key for key in given if key not in _KEYS), MAX_STRANGE):
            near = nearest(key, _KEYS, 1)
            self._wrong(f"there is no {quoted(key)} in a step" + (f"; did you mean {near[0]}?" if near else ""))
        step = Step(
            self._id(given.get("id")),
            self._tool(given.get("tool")),
            self._arguments(given.get("arguments")),
            given,
            self._after(given.get("depends_on")),
            self._condition(given.get("if")),
            self._each(given.get("for_each")),
            self._retry(given.get("retry")),
        )
        return step if step.id else None

    def _id(self, value: Any) -> str:
        if not isinstance(value, str) or len(value) > MAX_ID or not _ID.fullmatch(value):
            self._wrong(f"an id is a word of letters, digits, _ and - ({MAX_ID} at most), not {_told(value)}", "id")
            return ""
        if value in RESERVED:
            self._wrong(f"{value} means something else in references; choose another id", "id")
            return ""
        return value

    def _tool(self, value: Any) -> str:
        if isinstance(value, str) and value.strip():
            return value
        self._wrong("the name of a tool is missing", "tool")
        return ""

    def _arguments(self, value: Any) -> Any:
        found = self._prepared({} if value is None else value, "arguments")
        if isinstance(found, dict) or (isinstance(found, Template) and found.sole is not None) or found is None:
            return {} if found is None else found
        self._wrong(f"they are an object, or one reference to one, not {_told(value)}", "arguments")
        return {}

    def _after(self, value: Any) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else [] if value is None else value
        if (
            isinstance(names, list)
            and len(cast("list[Any]", names)) <= MAX_BEFORE
            and all(isinstance(name, str) for name in cast("list[Any]", names))
        ):
            return tuple(dict.fromkeys(cast("list[str]", names)))
        self._wrong(f"it is a list of step ids, not {_told(value)}", "depends_on")
        return ()

    def _condition(self, value: Any) -> Reference | bool:
        if value is None or isinstance(value, bool):
            return value is not False
        if isinstance(value, str):
            try:
                return condition(value)
            except BadReference as error:
                self._wrong(str(error), "if")
                return True
        self._wrong(f"it is an expression such as step.count > `0`, not {_told(value)}", "if")
        return True

    def _each(self, value: Any) -> Any:
        found = self._prepared(value, "for_each")
        if found is None or isinstance(found, list) or (isinstance(found, Template) and found.sole is not None):
            return cast("Any", found)
        self._wrong(f"it is a list, or one reference to a list such as ${{step.items}}, not {_told(value)}", "for_each")
        return None

    def _retry(self, value: Any) -> Retry:
        known: Mapping[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {"attempts": value}
        attempts, delay = known.get("attempts") or 0, known.get("delay_s", Retry.delay_s)
        if (
            not isinstance(attempts, bool)
            and isinstance(attempts, int)
            and 0 <= attempts <= MAX_RETRIES
            and not isinstance(delay, bool)
            and isinstance(delay, int | float)
            and 0 <= delay <= MAX_DELAY_S
            and not known.keys() - set(_RETRY_KEYS)
        ):
            return Retry(attempts, float(delay))
        most = f"0 to {MAX_RETRIES}, delay_s 0 to {MAX_DELAY_S:g}"
        self._wrong(f"it is a number, or {{attempts, delay_s}}: attempts {most}, not {_told(value)}", "retry")
        return Retry()

    def _prepared(self, value: Any, key: str) -> Any:
        try:
            return prepared(value)
        except BadReference as error:
            self._wrong(str(error), key)
            return None

    def _wrong(self, message: str, where: str = "") -> None:
        self.problems.append(Problem(self.name, message, where))


def _told(value: Any) -> str:
    text = shown(literal(value))
    return text if len(text) <= 60 else text[:59] + "…"


def cycle(steps: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Steps that wait for each other, the first again at the end; empty where there is no such circle."""
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


def ends(steps: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """The steps that no other waits for."""
    waited_for = frozenset[str]().union(*steps.values()) if steps else frozenset[str]()
    return (name for name in steps if name not in waited_for)
