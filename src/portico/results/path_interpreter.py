"""A JMESPath interpreter with bounded time, output and duration of single calls. Pure.

jmespath passes whole values to single Python calls: a sort of a million texts, `==` of two values
that contain the same value twice on every level, the JSON of such a value. Each keeps the
interpreter's lock until it is done, and `[@, @]` doubles a value with five characters. Here every
step is charged for its output in advance, and no call processes more than a few thousand items or a
quarter of a million characters.
"""

import contextlib
import heapq
import json
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, cast

from jmespath.exceptions import JMESPathTypeError
from jmespath.functions import Functions, signature
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from portico.errors import InvalidArguments
from portico.json_text.part_stream import encode_compact, to_parts

CHUNK_ITEMS = 4_096
"""Items that one call processes."""
WINDOW_CHARS = 256 * 1024
"""Characters that one call processes."""
MAX_SEARCH_CHARS = 1_000_000
"""Longest text that `contains` searches for."""
MAX_DIGITS = 4_300
"""Longest text that `to_number` parses; Python parses no longer integers."""
_OBJECT_COST = 20
_FIELD_COST = 4
_LIST_COST = 7
"""Cost of an empty object, one of its fields and an empty list, in items of 8 bytes."""
_CONTAINERS = (list, dict)
_STEPS_PER_CLOCK_CHECK = 256
"""Steps between two checks of the clock."""
_PIECES = 64
"""Pieces of JSON that are joined and charged at once; most have a few characters."""
_ADVICE = "Select fewer items first: items[0:100].…"


class PathParser(Parser):
    """jmespath's parser with a smaller cache, because paths may be long."""

    _CACHE: ClassVar[dict[str, Any]] = {}
    _MAX_SIZE = 32


class PathBudget:
    """Output and time that one path may still use; refers to everything it has created."""

    def __init__(self, max_items: int, timeout_s: float) -> None:
        self._left = max_items
        self._steps = 0
        self._deadline = time.monotonic() + timeout_s
        self.created: list[Any] = []
        """Every list and object that a step created."""

    def spend(self, amount: int) -> None:
        """Charge for a step and its output in advance; raises InvalidArguments at the limit."""
        self._left -= amount
        self._steps += 1
        if self._left < 0:
            raise InvalidArguments("the path yields too much", advice=_ADVICE)
        if not self._steps % _STEPS_PER_CLOCK_CHECK and time.monotonic() > self._deadline:
            raise InvalidArguments("the path takes too long", advice=_ADVICE)

    def create_list(self) -> list[Any]:
        self.spend(_LIST_COST)
        created: list[Any] = []
        self.created.append(created)
        return created

    def create_object(self) -> dict[str, Any]:
        self.spend(_OBJECT_COST)
        created: dict[str, Any] = {}
        self.created.append(created)
        return created

    def collect(self, items: Iterable[Any]) -> list[Any]:
        """Create a list of these items, a few thousand at a time."""
        found = self.create_list()
        rest = iter(items)
        while chunk := list(islice(rest, CHUNK_ITEMS)):
            self.spend(len(chunk))
            found += chunk
        return found

    def is_equal(self, one: Any, other: Any) -> bool:
        """Return whether two values are equal in Python; charges for every pair compared."""
        pending: list[tuple[Any, Any]] = [(one, other)]
        seen: set[tuple[int, int]] = set()
        while pending:
            one, other = pending.pop()
            self.spend(0)
            if one is other or (id(one), id(other)) in seen:
                continue
            if not (isinstance(one, _CONTAINERS) and isinstance(other, _CONTAINERS)):
                if one != other:
                    return False
                continue
            seen.add((id(one), id(other)))
            pairs = _pair_children(one, other)
            if pairs is None:
                return False
            while chunk := list(islice(pairs, CHUNK_ITEMS)):
                self.spend(len(chunk))
                pending += chunk
        return True

    def release(self) -> None:
        """Empty everything that was created, a few thousand items at a time, including the
        selection."""
        while self.created:
            container = self.created.pop()
            while container:
                if isinstance(container, list):
                    del container[-CHUNK_ITEMS:]
                else:
                    container.popitem()


class BoundedFunctions(Functions):
    """JMESPath functions in bounded portions; functions without iteration are jmespath's own."""

    def __init__(self, budget: PathBudget) -> None:
        self._budget = budget

    @signature({"types": ["array-number"]})
    def _func_sum(self, arg: list[Any]) -> Any:
        total: Any = 0
        for chunk in _split_chunks(arg):
            self._budget.spend(0)
            total = sum(chunk, total)
        return total

    @signature({"types": ["array-number"]})
    def _func_avg(self, arg: list[Any]) -> Any:
        return self._func_sum(arg) / len(arg) if arg else None

    @signature({"types": []})
    def _func_to_string(self, arg: Any) -> str:
        if isinstance(arg, str):
            return arg
        texts: list[str] = []
        pieces = encode_compact(to_parts(arg), _to_json)
        while chunk := list(islice(pieces, _PIECES)):
            text = "".join(chunk)
            self._budget.spend(len(text))
            texts.append(text)
        return "".join(texts)

    @signature({"types": []})
    def _func_to_number(self, arg: Any) -> Any:
        if not isinstance(arg, str):
            return arg if get_type_name(arg) == "number" else None
        for parse in (int, float) if len(arg) <= MAX_DIGITS else ():
            with contextlib.suppress(ValueError):
                return parse(arg)
        return None

    @signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: Any, search: Any) -> bool:
        if isinstance(subject, list):
            return any(self._budget.is_equal(search, item) for item in cast("list[Any]", subject))
        if len(search) > MAX_SEARCH_CHARS:
            raise InvalidArguments(
                f"contains() looks for {MAX_SEARCH_CHARS:,} characters at most", advice=_ADVICE
            )
        # A match that begins in a window may end behind it.
        return any(
            subject.find(search, at, at + WINDOW_CHARS + len(search)) >= 0
            for at in range(0, len(subject) or 1, WINDOW_CHARS)
        )

    @signature({"types": ["array", "string"]})
    def _func_reverse(self, arg: Any) -> Any:
        if isinstance(arg, str):
            self._budget.spend(len(arg))
            return arg[::-1]
        return self._budget.collect(reversed(arg))

    @signature({"types": ["string"]}, {"types": ["array-string"]})
    def _func_join(self, separator: str, array: list[str]) -> str:
        joined: list[str] = []
        for chunk in _split_chunks(array):
            self._budget.spend(sum(map(len, chunk)) + len(chunk) * (len(separator) + 1))
            joined.append(separator.join(chunk))
        return separator.join(joined)

    @signature({"types": ["expref"]}, {"types": ["array"]})
    def _func_map(self, expref: Any, arg: list[Any]) -> list[Any]:
        found = self._budget.create_list()
        for element in arg:
            self._budget.spend(1)
            found.append(expref.visit(expref.expression, element))
        return found

    @signature({"types": ["array-number", "array-string"]})
    def _func_max(self, arg: list[Any]) -> Any:
        return self._find_extreme(arg, operator.gt)

    @signature({"types": ["array-number", "array-string"]})
    def _func_min(self, arg: list[Any]) -> Any:
        return self._find_extreme(arg, operator.lt)

    @signature({"types": ["object"], "variadic": True})
    def _func_merge(self, *arguments: dict[str, Any]) -> dict[str, Any]:
        merged = self._budget.create_object()
        for key, value in chain.from_iterable(argument.items() for argument in arguments):
            self._budget.spend(_FIELD_COST)
            merged[key] = value
        return merged

    @signature({"types": ["array-string", "array-number"]})
    def _func_sort(self, arg: list[Any]) -> list[Any]:
        return self._budget.collect(arg[number] for number in self._sort_indexes(arg))

    @signature({"types": ["object"]})
    def _func_keys(self, arg: dict[str, Any]) -> list[Any]:
        return self._budget.collect(arg)

    @signature({"types": ["object"]})
    def _func_values(self, arg: dict[str, Any]) -> list[Any]:
        return self._budget.collect(arg.values())

    @signature({"types": ["array"]}, {"types": ["expref"]})
    def _func_sort_by(self, array: list[Any], expref: Any) -> list[Any]:
        if not array:
            return array
        keys = self._budget.collect(expref.visit(expref.expression, item) for item in array)
        wanted = [name for name in ("string", "number") if name == get_type_name(keys[0])]
        wanted = wanted or ["string", "number"]
        for key in keys:
            if get_type_name(key) not in wanted:
                raise JMESPathTypeError("sort_by", key, get_type_name(key), wanted)
        return self._budget.collect(array[number] for number in self._sort_indexes(keys))

    def _find_extreme(self, items: list[Any], is_better: Callable[[Any, Any], bool]) -> Any:
        found = items[0] if items else None
        for item in items:
            self._budget.spend(0)
            if is_better(item, found):
                found = item
        return found

    def _sort_indexes(self, keys: Sequence[Any]) -> Iterator[int]:
        """Return the indexes in the order of their keys: sorted in portions, then merged."""
        portions: list[list[int]] = []
        chars = WINDOW_CHARS
        for number, key in enumerate(keys):
            length = len(key) if isinstance(key, str) else 0
            self._budget.spend(1 + length // 8)
            chars += length
            if chars >= WINDOW_CHARS or len(portions[-1]) >= CHUNK_ITEMS:
                portions.append([])
                chars = length
            portions[-1].append(number)
        for portion in portions:
            portion.sort(key=keys.__getitem__)
        return iter(heapq.merge(*portions, key=keys.__getitem__))


class BoundedInterpreter(TreeInterpreter):
    """Evaluates a parsed path within a budget."""

    def __init__(self, budget: PathBudget) -> None:
        super().__init__(Options(custom_functions=BoundedFunctions(budget)))
        self._budget = budget

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a step on a value."""
        self._budget.spend(0)
        return super().visit(node, *args, **kwargs)

    def is_truthy(self, value: Any) -> bool:
        """Return whether a filter accepts a value; zero counts as true."""
        return bool(value) or get_type_name(value) == "number"

    def visit_comparator(self, node: Any, value: Any) -> Any:
        """Compare two values; only numbers and texts are ordered."""
        if node["value"] not in ("eq", "ne"):
            return super().visit_comparator(node, value)
        one, other = (self.visit(child, value) for child in node["children"])
        is_equal = self._budget.is_equal(one, other) and isinstance(one, bool) is isinstance(
            other, bool
        )
        return is_equal is (node["value"] == "eq")

    def visit_projection(self, node: Any, value: Any) -> Any:
        """Apply a step to every item."""
        base = self.visit(node["children"][0], value)
        if isinstance(base, list):
            return self._project(node["children"][1], base)
        return None

    def visit_filter_projection(self, node: Any, value: Any) -> Any:
        """Apply a step to every item that meets a condition."""
        source, step, condition = node["children"]
        base = self.visit(source, value)
        if not isinstance(base, list):
            return None
        items = cast("list[Any]", base)
        return self._project(
            step, (item for item in items if self.is_truthy(self.visit(condition, item)))
        )

    def visit_value_projection(self, node: Any, value: Any) -> Any:
        """Apply a step to every value of an object."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, dict):
            return None
        return self._project(node["children"][1], cast("dict[str, Any]", base).values())

    def visit_flatten(self, node: Any, value: Any) -> Any:
        """Flatten the lists in a list."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        lists = (
            cast("list[Any]", item) if isinstance(item, list) else (item,)
            for item in cast("list[Any]", base)
        )
        return self._budget.collect(chain.from_iterable(lists))

    def visit_slice(self, node: Any, value: Any) -> Any:
        if not isinstance(value, list):
            return None
        items = cast("list[Any]", value)
        numbers = range(*slice(*node["children"]).indices(len(items)))
        return self._budget.collect(items[number] for number in numbers)

    def visit_multi_select_list(self, node: Any, value: Any) -> Any:
        """Create a list from the values of several steps."""
        if value is None:
            return None
        selected = [self.visit(child, value) for child in node["children"]]
        return self._budget.collect(selected)

    def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
        """Create an object from the values of several steps."""
        if value is None:
            return None
        fields = {child["value"]: self.visit(child, value) for child in node["children"]}
        self._budget.spend(_FIELD_COST * len(fields))
        selected = self._budget.create_object()
        selected.update(fields)
        return selected

    def _project(self, step: Mapping[str, Any], items: Iterable[Any]) -> list[Any]:
        found = self._budget.create_list()
        for item in items:
            selected = self.visit(step, item)
            if selected is not None:
                self._budget.spend(1)
                found.append(selected)
        return found


def _pair_children(one: Any, other: Any) -> Iterator[tuple[Any, Any]] | None:
    """Pair the children of two containers for comparison; None if they cannot be equal."""
    if len(one) != len(other) or isinstance(one, list) is not isinstance(other, list):
        return None
    if isinstance(one, list):
        return zip(cast("list[Any]", one), other, strict=True)
    if any(key not in other for key in one):
        return None
    return ((value, other[key]) for key, value in one.items())


def _split_chunks(items: list[Any]) -> Iterator[list[Any]]:
    return (items[at : at + CHUNK_ITEMS] for at in range(0, len(items), CHUNK_ITEMS))


def get_type_name(value: Any) -> str:
    """Return the type of a value in JMESPath terms."""
    if isinstance(value, bool):  # a subclass of int
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "unknown")


def _to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
