"""JMESPath over a large result, as far as possible without having all of it in memory. Pure; bounded in time and size.

Most paths go down by name and then over a list: those are followed through the stream of parts, one item of the list at
a time, and what comes before and after is never built. What cannot be done so is done on the part it is about.

A caller writes the path, so it is taken for hostile: `path_interpreter` counts what its steps make, before they do.
"""

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from portico.catalog.visible import quoted
from portico.errors import InvalidArguments
from portico.execution.json_stream import Part, dismantle, parts, whole

if TYPE_CHECKING:
    from portico.execution.path_interpreter import PathBudget

MAX_EXPRESSION = 1_000
"""Characters of a path."""
MAX_MADE = 10_000_000
"""Items (of 8 bytes) and characters that the steps of a path may make in all."""
PATH_S = 5.0

_LEADING = frozenset(
    ("subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection", "flatten")
)
"""Steps whose first child is the step before them."""

Node = Mapping[str, Any]


class Selection:
    """What a path selects. `close` takes it apart, when it has been read."""

    def __init__(self, value: Any, built: list[Any], allowance: "PathBudget | None" = None) -> None:
        self.value = value
        self._built = built
        self._allowance = allowance

    def close(self) -> None:
        """Free what was built for it, bit by bit."""
        self.value = None
        if self._allowance is not None:
            self._allowance.release()
        dismantle(self._built)


def selected(stream: Iterable[Part], path: str, *, member: str | None = None, owned: bool = False) -> Selection:
    """What a JMESPath expression makes of the value these are the parts of; raises InvalidArguments.

    The stream is the caller's own: what is built from it is taken apart afterwards, with `owned` also where the path
    fails. With `member`, the value is taken for what that one field holds, and a path that does not begin with it finds
    nothing.
    """
    # Here, because jmespath is only read when somebody asks for a path.
    from portico.execution.path_interpreter import PathBudget

    if len(path) > MAX_EXPRESSION:
        raise InvalidArguments(f"path has more than {MAX_EXPRESSION} characters", advice="Ask for less at a time.")
    allowance = PathBudget(MAX_MADE, PATH_S)
    following = _Following(allowance)
    with _explained(path):
        try:
            parsed = parse(path)
            if member is not None and (parsed := _below(parsed, member)) is None:
                return Selection(None, [])
            return Selection(following.over(parsed, iter(stream)), following.built, allowance)
        except BaseException:
            Selection(None, following.built if owned else [], allowance).close()
            raise


def evaluate(path: str, value: Any, most: int) -> Any:
    """What a JMESPath expression makes of a value, by steps that make so much at most; raises InvalidArguments."""
    from portico.execution.path_interpreter import BoundedInterpreter, PathBudget

    allowance = PathBudget(most, PATH_S)
    with _explained(path):
        try:
            return BoundedInterpreter(allowance).visit(parse(path), value)
        except BaseException:
            allowance.release()
            raise


def parse(path: str) -> Node:
    """A path taken apart; raises JMESPathError, ValueError, TypeError and RecursionError."""
    from portico.execution.path_interpreter import PathParser

    return cast("Node", PathParser().parse(path).parsed)


@contextlib.contextmanager
def _explained(path: str) -> Generator[None]:
    """Say what is wrong with a path, but not with which value: that may be of any size, and written out larger."""
    from jmespath.exceptions import JMESPathError, JMESPathTypeError

    from portico.execution.path_interpreter import name_type

    try:
        yield
    except JMESPathTypeError as error:
        wanted = ", ".join(map(str, error.expected_types))
        given = name_type(error.current_value)
        raise _unusable(path, f"{error.function_name}() takes {wanted}, not {given}") from None
    except (JMESPathError, ValueError, TypeError, AttributeError, ZeroDivisionError, OverflowError) as error:
        raise _unusable(path, " ".join(str(error).split())[:300]) from None
    except RecursionError:
        raise InvalidArguments("the path goes too deep", advice="Take fewer steps at a time.") from None


def _unusable(path: str, why: str) -> InvalidArguments:
    return InvalidArguments(
        f"the path {quoted(path)} cannot be used: {why}",
        advice="It is JMESPath: items[0:10].name, items[?state=='open'].{id: id, title: title}, keys(@).",
    )


def is_field(path: str, name: str) -> bool:
    """Whether a path is the name of this field and no more, bare or as any JSON string for it."""
    try:
        return path.strip() == name or json.loads(path[:MAX_EXPRESSION]) == name
    except (ValueError, RecursionError):
        return False


def _below(node: Node, member: str) -> Node | None:
    """A path without its first step, if that is this field."""
    if node["type"] == "field":
        return {"type": "current", "children": []} if node["value"] == member else None
    if node["type"] not in _LEADING or (first := _below(node["children"][0], member)) is None:
        return None
    return {**node, "children": [first, *node["children"][1:]]}


class _Following:
    """Follows one path."""

    def __init__(self, allowance: "PathBudget") -> None:
        from portico.execution.path_interpreter import BoundedInterpreter

        self._allowance = allowance
        self._visitor = BoundedInterpreter(allowance)
        self.built: list[Any] = []

    def over(self, node: Node, stream: Iterator[Part]) -> Any:
        """What a step makes of a stream."""
        kind, children = node["type"], node["children"]
        if _picks(node):
            return self._all(_picked(node, stream))
        if kind == "pipe" or kind == "index_expression":
            return self._then(children[1:], self.over(children[0], stream))
        if kind == "subexpression":
            return self._in_turn(children, stream)
        if kind in ("projection", "filter_projection") and (source := _source(children[0])):
            items = _items(_picked(source[0], stream))
            return None if items is None else self._projected(islice(items, *source[1]), *children[1:])
        return self._visit(node, self._all(stream))

    def _in_turn(self, steps: list[Node], stream: Iterator[Part]) -> Any:
        at = 0
        rest: Iterator[Part] | None = stream
        while at < len(steps) - 1 and _picks(steps[at]):
            rest = _picked(steps[at], rest)
            at += 1
        if rest is None:
            return self._then(steps[at:], None)
        return self._then(steps[at + 1 :], self.over(steps[at], rest))

    def _then(self, steps: list[Node], value: Any) -> Any:
        for step in steps:
            value = self._visit(step, value)
        return value

    def _projected(self, items: Iterator[Any], then: Node, condition: Node | None = None) -> list[Any]:
        found = self._allowance.new_list()
        for item in items:
            if condition is not None and not self._visitor.holds(self._visit(condition, item)):
                continue
            made = self._visit(then, item)
            if made is not None:
                found.append(made)
                self._allowance.spend(1)
                if made is item:
                    self.built.append(item)
        return found

    def _visit(self, node: Node, value: Any) -> Any:
        return self._visitor.visit(node, value)

    def _all(self, stream: Iterator[Part] | None) -> Any:
        if stream is None:
            return None
        value = whole(stream)
        self.built.append(value)
        return value


def _source(node: Node) -> tuple[Node, tuple[Any, ...]] | None:
    """The list that a projection goes over, and from where to where; None where it must be had at once."""
    bounds: tuple[Any, ...] = (None,)
    if node["type"] == "index_expression" and node["children"][-1]["type"] == "slice":
        *before, last = node["children"]
        node, bounds = {"type": "subexpression", "children": before}, tuple(last["children"])
    forward = all(bound is None or bound >= 0 for bound in bounds) and bounds[2:] != (0,)
    return (node, bounds) if forward and _picks(node) else None


def _picks(node: Node) -> bool:
    """Whether a step only goes down to a part of what is there."""
    kind = node["type"]
    if kind == "subexpression" or kind == "index_expression":
        return all(map(_picks, node["children"]))
    return kind in ("identity", "current", "field") or (kind == "index" and node["value"] >= 0)


def _picked(node: Node, stream: Iterator[Part] | None) -> Iterator[Part] | None:
    """The parts of what a step goes down to; None where there is nothing."""
    if stream is None or node["type"] in ("identity", "current"):
        return stream
    if node["type"] == "field" or node["type"] == "index":
        return _child(stream, node["value"])
    for step in node["children"]:
        stream = _picked(step, stream)
    return stream


def _child(stream: Iterator[Part], wanted: str | int) -> Iterator[Part] | None:
    """The parts of one child, by its name or number."""
    what, _, value = next(stream)
    if what == "item":
        if isinstance(value, list) and isinstance(wanted, int):
            return parts(value[wanted]) if wanted < len(value) else None
        return parts(value[wanted]) if isinstance(value, dict) and wanted in value else None
    if (value == "{") is isinstance(wanted, int):
        return None
    number = -1
    for part in stream:
        if part[0] == "close":
            return None
        number += 1
        if (part[1] if value == "{" else number) == wanted:
            return _one(part, stream)
        for _ in _one(part, stream):
            pass
    return None


def _one(first: Part, stream: Iterator[Part]) -> Iterator[Part]:
    """The parts of the child that begins with `first`."""
    yield first[0], None, first[2]
    depth = 1 if first[0] == "open" else 0
    while depth:
        part = next(stream)
        depth += {"open": 1, "close": -1, "item": 0}[part[0]]
        yield part


def _items(stream: Iterator[Part] | None) -> Iterator[Any] | None:
    """The items of an array, each whole; None where it is none."""
    if stream is None:
        return None
    what, _, value = next(stream)
    if what == "item":
        return iter(value) if isinstance(value, list) else None
    return None if value == "{" else _each(stream)


def _each(stream: Iterator[Part]) -> Iterator[Any]:
    for part in stream:
        if part[0] == "close":
            return
        yield part[2] if part[0] == "item" else whole(_one(part, stream))
