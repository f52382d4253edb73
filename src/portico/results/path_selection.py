"""JMESPath over a large result, as far as possible without having all of it in memory. Pure;
bounded in time and size.

Most paths go down by name and then over a list: those are followed through the stream of parts, one
item of the list at a time, and what comes before and after is never built. What cannot be done so
is done on the part it is about.

A caller writes the path, so it is taken for hostile: `path_interpreter` counts what its steps make,
before they do.
"""

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from portico.catalog.visible_text import quote_text
from portico.errors import InvalidArguments
from portico.json_text.part_stream import JsonPart, build_value, dismantle, to_parts

if TYPE_CHECKING:
    from portico.results.path_interpreter import PathBudget

MAX_PATH_CHARS = 1_000
"""Characters of a path."""
MAX_CREATED = 10_000_000
"""Items (of 8 bytes) and characters that the steps of a path may make in all."""
PATH_TIMEOUT_S = 5.0

_CHAINED_STEPS = frozenset(
    (
        "subexpression",
        "index_expression",
        "pipe",
        "projection",
        "value_projection",
        "filter_projection",
        "flatten",
    )
)
"""Steps whose first child is the step before them."""

PathNode = Mapping[str, Any]


class PathSelection:
    """What a path selects. `close` takes it apart, when it has been read."""

    def __init__(self, value: Any, built: list[Any], budget: "PathBudget | None" = None) -> None:
        self.value = value
        self._built = built
        self._budget = budget

    def close(self) -> None:
        """Free what was built for it, bit by bit."""
        self.value = None
        if self._budget is not None:
            self._budget.release()
        dismantle(self._built)


def select_path(
    stream: Iterable[JsonPart], path: str, *, member: str | None = None, owns_stream: bool = False
) -> PathSelection:
    """What a JMESPath expression makes of the value these are the parts of; raises
    InvalidArguments.

    The stream is the caller's own: what is built from it is taken apart afterwards, with `owned`
    also where the path fails. With `member`, the value is taken for what that one field holds, and
    a path that does not begin with it finds nothing.
    """
    # Here, because jmespath is only read when somebody asks for a path.
    from portico.results.path_interpreter import PathBudget

    if len(path) > MAX_PATH_CHARS:
        raise InvalidArguments(
            f"path has more than {MAX_PATH_CHARS} characters", advice="Ask for less at a time."
        )
    allowance = PathBudget(MAX_CREATED, PATH_TIMEOUT_S)
    following = _PathFollower(allowance)
    with _explain_errors(path):
        try:
            parsed = parse_path(path)
            if member is not None and (parsed := _strip_member(parsed, member)) is None:
                return PathSelection(None, [])
            return PathSelection(
                following.evaluate(parsed, iter(stream)), following.built, allowance
            )
        except BaseException:
            PathSelection(None, following.built if owns_stream else [], allowance).close()
            raise


def evaluate_path(path: str, value: Any, max_items: int) -> Any:
    """What a JMESPath expression makes of a value, by steps that make so much at most; raises
    InvalidArguments."""
    from portico.results.path_interpreter import BoundedInterpreter, PathBudget

    budget = PathBudget(max_items, PATH_TIMEOUT_S)
    with _explain_errors(path):
        try:
            return BoundedInterpreter(budget).visit(parse_path(path), value)
        except BaseException:
            budget.release()
            raise


def parse_path(path: str) -> PathNode:
    """A path taken apart; raises JMESPathError, ValueError, TypeError and RecursionError."""
    from portico.results.path_interpreter import PathParser

    return cast("PathNode", PathParser().parse(path).parsed)


@contextlib.contextmanager
def _explain_errors(path: str) -> Generator[None]:
    """Say what is wrong with a path, but not with which value: that may be of any size, and written
    out larger."""
    from jmespath.exceptions import JMESPathError, JMESPathTypeError

    from portico.results.path_interpreter import get_type_name

    try:
        yield
    except JMESPathTypeError as error:
        wanted = ", ".join(map(str, error.expected_types))
        given = get_type_name(error.current_value)
        raise _build_path_error(
            path, f"{error.function_name}() takes {wanted}, not {given}"
        ) from None
    except (
        JMESPathError,
        ValueError,
        TypeError,
        AttributeError,
        ZeroDivisionError,
        OverflowError,
    ) as error:
        raise _build_path_error(path, " ".join(str(error).split())[:300]) from None
    except RecursionError:
        raise InvalidArguments(
            "the path goes too deep", advice="Take fewer steps at a time."
        ) from None


def _build_path_error(path: str, reason: str) -> InvalidArguments:
    return InvalidArguments(
        f"the path {quote_text(path)} cannot be used: {reason}",
        advice="It is JMESPath: items[0:10].name, items[?state=='open'].{id: id, title: title}, keys(@).",
    )


def is_field_path(path: str, name: str) -> bool:
    """Whether a path is the name of this field and no more, bare or as any JSON string for it."""
    try:
        return path.strip() == name or json.loads(path[:MAX_PATH_CHARS]) == name
    except (ValueError, RecursionError):
        return False


def _strip_member(node: PathNode, member: str) -> PathNode | None:
    """A path without its first step, if that is this field."""
    if node["type"] == "field":
        if node["value"] == member:
            return {"type": "current", "children": []}
        return None
    if (
        node["type"] not in _CHAINED_STEPS
        or (first := _strip_member(node["children"][0], member)) is None
    ):
        return None
    return {**node, "children": [first, *node["children"][1:]]}


class _PathFollower:
    """Follows one path."""

    def __init__(self, budget: "PathBudget") -> None:
        from portico.results.path_interpreter import BoundedInterpreter

        self._budget = budget
        self._visitor = BoundedInterpreter(budget)
        self.built: list[Any] = []

    def evaluate(self, node: PathNode, stream: Iterator[JsonPart]) -> Any:
        """What a step makes of a stream."""
        kind = node["type"]
        children = node["children"]
        if _is_navigation(node):
            return self._build_value(_navigate(node, stream))
        if kind == "pipe" or kind == "index_expression":
            return self._apply_steps(children[1:], self.evaluate(children[0], stream))
        if kind == "subexpression":
            return self._evaluate_chain(children, stream)
        if kind in ("projection", "filter_projection") and (
            source := _find_streamed_list(children[0])
        ):
            items = _open_array(_navigate(source[0], stream))
            if items is None:
                return None
            return self._project(islice(items, *source[1]), *children[1:])
        return self._visit(node, self._build_value(stream))

    def _evaluate_chain(self, steps: list[PathNode], stream: Iterator[JsonPart]) -> Any:
        at = 0
        rest: Iterator[JsonPart] | None = stream
        while at < len(steps) - 1 and _is_navigation(steps[at]):
            rest = _navigate(steps[at], rest)
            at += 1
        if rest is None:
            return self._apply_steps(steps[at:], None)
        return self._apply_steps(steps[at + 1 :], self.evaluate(steps[at], rest))

    def _apply_steps(self, steps: list[PathNode], value: Any) -> Any:
        for step in steps:
            value = self._visit(step, value)
        return value

    def _project(
        self, items: Iterator[Any], step: PathNode, condition: PathNode | None = None
    ) -> list[Any]:
        found = self._budget.create_list()
        for item in items:
            if condition is not None and not self._visitor.is_truthy(self._visit(condition, item)):
                continue
            made = self._visit(step, item)
            if made is not None:
                found.append(made)
                self._budget.spend(1)
                if made is item:
                    self.built.append(item)
        return found

    def _visit(self, node: PathNode, value: Any) -> Any:
        return self._visitor.visit(node, value)

    def _build_value(self, stream: Iterator[JsonPart] | None) -> Any:
        if stream is None:
            return None
        value = build_value(stream)
        self.built.append(value)
        return value


def _find_streamed_list(node: PathNode) -> tuple[PathNode, tuple[Any, ...]] | None:
    """The list that a projection goes over, and from where to where; None where it must be had at
    once."""
    bounds: tuple[Any, ...] = (None,)
    if node["type"] == "index_expression" and node["children"][-1]["type"] == "slice":
        *before, last = node["children"]
        node = {"type": "subexpression", "children": before}
        bounds = tuple(last["children"])
    forward = all(bound is None or bound >= 0 for bound in bounds) and bounds[2:] != (0,)
    if forward and _is_navigation(node):
        return (node, bounds)
    return None


def _is_navigation(node: PathNode) -> bool:
    """Whether a step only goes down to a part of what is there."""
    kind = node["type"]
    if kind == "subexpression" or kind == "index_expression":
        return all(map(_is_navigation, node["children"]))
    return kind in ("identity", "current", "field") or (kind == "index" and node["value"] >= 0)


def _navigate(node: PathNode, stream: Iterator[JsonPart] | None) -> Iterator[JsonPart] | None:
    """The parts of what a step goes down to; None where there is nothing."""
    if stream is None or node["type"] in ("identity", "current"):
        return stream
    if node["type"] == "field" or node["type"] == "index":
        return _find_child(stream, node["value"])
    for step in node["children"]:
        stream = _navigate(step, stream)
    return stream


def _find_child(stream: Iterator[JsonPart], key: str | int) -> Iterator[JsonPart] | None:
    """The parts of one child, by its name or number."""
    what, _, value = next(stream)
    if what == "item":
        if isinstance(value, list) and isinstance(key, int):
            if key < len(value):
                return to_parts(value[key])
            return None
        if isinstance(value, dict) and key in value:
            return to_parts(value[key])
        return None
    if (value == "{") is isinstance(key, int):
        return None
    number = -1
    for part in stream:
        if part[0] == "close":
            return None
        number += 1
        if (part[1] if value == "{" else number) == key:
            return _iter_child_parts(part, stream)
        for _ in _iter_child_parts(part, stream):
            pass
    return None


def _iter_child_parts(first: JsonPart, stream: Iterator[JsonPart]) -> Iterator[JsonPart]:
    """The parts of the child that begins with `first`."""
    yield first[0], None, first[2]
    if first[0] == "open":
        depth = 1
    else:
        depth = 0
    while depth:
        part = next(stream)
        depth += {"open": 1, "close": -1, "item": 0}[part[0]]
        yield part


def _open_array(stream: Iterator[JsonPart] | None) -> Iterator[Any] | None:
    """The items of an array, each whole; None where it is none."""
    if stream is None:
        return None
    what, _, value = next(stream)
    if what == "item":
        if isinstance(value, list):
            return iter(value)
        return None
    if value == "{":
        return None
    return _iter_array_items(stream)


def _iter_array_items(stream: Iterator[JsonPart]) -> Iterator[Any]:
    for part in stream:
        if part[0] == "close":
            return
        yield part[2] if part[0] == "item" else build_value(_iter_child_parts(part, stream))
