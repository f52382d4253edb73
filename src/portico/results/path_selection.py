"""JMESPath over a large result, mostly without building all of it in memory. Pure and bounded.

Most paths descend by name and then iterate over a list: these are followed through the stream of
parts, one item at a time, and everything before and after is skipped. Other steps run on the part
they apply to.

The path comes from a caller and is treated as hostile: `path_interpreter` charges each step for its
output in advance.
"""

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from portico.catalog.tool import quote_text
from portico.errors import InvalidArguments
from portico.json_text.part_stream import JsonPart, build_value, dismantle, to_parts

if TYPE_CHECKING:
    from portico.results.path_interpreter import PathBudget

MAX_PATH_CHARS = 1_000
"""Maximum length of a path."""
MAX_CREATED = 10_000_000
"""Items (of 8 bytes) and characters that all steps of a path may create."""
PATH_TIMEOUT_S = 5.0

_CHAINED_STEPS = frozenset(
    {"subexpression", "index_expression", "pipe", "flatten"}
    | {"projection", "value_projection", "filter_projection"}
)
"""Steps whose first child is the preceding step."""

_DEPTH_CHANGE = {"open": 1, "close": -1, "item": 0}

PathNode = Mapping[str, Any]


class PathSelection:
    """The value that a path selects. Call `close` after reading it."""

    def __init__(self, value: Any, built: list[Any], budget: "PathBudget | None" = None) -> None:
        self.value = value
        self._built = built
        self._budget = budget

    def close(self) -> None:
        """Free everything that was built, in small portions."""
        self.value = None
        if self._budget is not None:
            self._budget.release()
        dismantle(self._built)


def select_path(
    stream: Iterable[JsonPart], path: str, *, member: str | None = None, owns_stream: bool = False
) -> PathSelection:
    """Evaluate a JMESPath expression on a stream of parts; raises InvalidArguments.

    What is built from the stream is freed by `close`, and with `owns_stream` also if the path
    fails. With `member` the stream is the value of that one field, and a path that does not begin
    with it selects nothing.
    """
    # Imported here, because jmespath is only needed for paths.
    from portico.results.path_interpreter import PathBudget

    if len(path) > MAX_PATH_CHARS:
        raise InvalidArguments(
            f"path has more than {MAX_PATH_CHARS} characters", advice="Ask for less at a time."
        )
    budget = PathBudget(MAX_CREATED, PATH_TIMEOUT_S)
    follower = _PathFollower(budget)
    with _explain_errors(path):
        try:
            parsed = parse_path(path)
            if member is not None and (parsed := _strip_member(parsed, member)) is None:
                return PathSelection(None, [])
            return PathSelection(follower.evaluate(parsed, iter(stream)), follower.built, budget)
        except BaseException:
            PathSelection(None, follower.built if owns_stream else [], budget).close()
            raise


def evaluate_path(path: str, value: Any, max_items: int) -> Any:
    """Evaluate a JMESPath expression on a value, creating at most `max_items`; raises
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
    """Parse a path; raises JMESPathError, ValueError, TypeError and RecursionError."""
    from portico.results.path_interpreter import PathParser

    return cast("PathNode", PathParser().parse(path).parsed)


@contextlib.contextmanager
def _explain_errors(path: str) -> Generator[None]:
    """Turn errors of a path into InvalidArguments, without the value, which may be large."""
    from jmespath.exceptions import JMESPathError, JMESPathTypeError

    from portico.results.path_interpreter import get_type_name

    try:
        yield
    except JMESPathTypeError as error:
        wanted = ", ".join(map(str, error.expected_types))
        actual = get_type_name(error.current_value)
        raise _build_path_error(
            path, f"{error.function_name}() takes {wanted}, not {actual}"
        ) from None
    except (JMESPathError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise _build_path_error(path, " ".join(str(error).split())[:300]) from None
    except RecursionError:
        raise InvalidArguments(
            "the path goes too deep", advice="Take fewer steps at a time."
        ) from None


def _build_path_error(path: str, reason: str) -> InvalidArguments:
    return InvalidArguments(
        f"the path {quote_text(path)} cannot be used: {reason}",
        advice="It is JMESPath: items[0:10].name, "
        "items[?state=='open'].{id: id, title: title}, keys(@).",
    )


def is_field_path(path: str, name: str) -> bool:
    """Return whether a path is only the name of this field, bare or as a JSON string."""
    try:
        return path.strip() == name or json.loads(path[:MAX_PATH_CHARS]) == name
    except (ValueError, RecursionError):
        return False


def _strip_member(node: PathNode, member: str) -> PathNode | None:
    """Return a path without its first step if that is this field, else None."""
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
    def __init__(self, budget: "PathBudget") -> None:
        from portico.results.path_interpreter import BoundedInterpreter

        self._budget = budget
        self._visitor = BoundedInterpreter(budget)
        self.built: list[Any] = []

    def evaluate(self, node: PathNode, stream: Iterator[JsonPart]) -> Any:
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
        return self._visitor.visit(node, self._build_value(stream))

    def _evaluate_chain(self, steps: list[PathNode], stream: Iterator[JsonPart]) -> Any:
        index = 0
        rest: Iterator[JsonPart] | None = stream
        while index < len(steps) - 1 and _is_navigation(steps[index]):
            rest = _navigate(steps[index], rest)
            index += 1
        if rest is None:
            return self._apply_steps(steps[index:], None)
        return self._apply_steps(steps[index + 1 :], self.evaluate(steps[index], rest))

    def _apply_steps(self, steps: list[PathNode], value: Any) -> Any:
        for step in steps:
            value = self._visitor.visit(step, value)
        return value

    def _project(
        self, items: Iterator[Any], step: PathNode, condition: PathNode | None = None
    ) -> list[Any]:
        found = self._budget.create_list()
        for item in items:
            if condition is not None and not self._visitor.is_truthy(
                self._visitor.visit(condition, item)
            ):
                continue
            selected = self._visitor.visit(step, item)
            if selected is not None:
                found.append(selected)
                self._budget.spend(1)
                if selected is item:
                    self.built.append(item)
        return found

    def _build_value(self, stream: Iterator[JsonPart] | None) -> Any:
        if stream is None:
            return None
        value = build_value(stream)
        self.built.append(value)
        return value


def _find_streamed_list(node: PathNode) -> tuple[PathNode, tuple[Any, ...]] | None:
    """Return the list that a projection iterates over and its slice; None if it needs the whole
    list."""
    bounds: tuple[Any, ...] = (None,)
    if node["type"] == "index_expression" and node["children"][-1]["type"] == "slice":
        *before, last = node["children"]
        node = {"type": "subexpression", "children": before}
        bounds = tuple(last["children"])
    forward = all(bound is None or bound >= 0 for bound in bounds) and bounds[2:] != (0,)
    return (node, bounds) if forward and _is_navigation(node) else None


def _is_navigation(node: PathNode) -> bool:
    """Return whether a step only descends to a part of the value."""
    kind = node["type"]
    if kind == "subexpression" or kind == "index_expression":
        return all(map(_is_navigation, node["children"]))
    return kind in ("identity", "current", "field") or (kind == "index" and node["value"] >= 0)


def _navigate(node: PathNode, stream: Iterator[JsonPart] | None) -> Iterator[JsonPart] | None:
    """Return the parts that a step descends to; None if there are none."""
    if stream is None or node["type"] in ("identity", "current"):
        return stream
    if node["type"] == "field" or node["type"] == "index":
        return _find_child(stream, node["value"])
    for step in node["children"]:
        stream = _navigate(step, stream)
    return stream


def _find_child(stream: Iterator[JsonPart], key: str | int) -> Iterator[JsonPart] | None:
    """Return the parts of one child by name or index; None if it is missing."""
    kind, _, value = next(stream)
    if kind == "item":
        if isinstance(value, list) and isinstance(key, int) and key < len(value):
            return to_parts(value[key])
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
    """Yield the parts of the child that begins with `first`."""
    yield first[0], None, first[2]
    depth = _DEPTH_CHANGE[first[0]]
    while depth:
        part = next(stream)
        depth += _DEPTH_CHANGE[part[0]]
        yield part


def _open_array(stream: Iterator[JsonPart] | None) -> Iterator[Any] | None:
    """Return the items of an array, each built whole; None for any other value."""
    if stream is None:
        return None
    kind, _, value = next(stream)
    if kind == "item":
        return iter(value) if isinstance(value, list) else None
    return _iter_array_items(stream) if value == "[" else None


def _iter_array_items(stream: Iterator[JsonPart]) -> Iterator[Any]:
    for part in stream:
        if part[0] == "close":
            return
        yield part[2] if part[0] == "item" else build_value(_iter_child_parts(part, stream))
