"""A JMESPath interpreter that no expression can make work long at a time, or make much. Pure.

jmespath hands whole values to single calls of Python: a sort of a million texts, `==` of two values
that hold the same value twice on every level, the JSON of such a value. Each keeps the
interpreter's lock until it is done, and `[@, @]` doubles a value for five characters. Here every
step pays for what it makes before it makes it, and no call goes over more than a few thousand items
or a quarter of a million characters.
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
"""Items that one call goes over."""
WINDOW_CHARS = 256 * 1024
"""Characters that one call goes over."""
MAX_SEARCH_CHARS = 1_000_000
"""Characters of a text that `contains` looks for."""
MAX_DIGITS = 4_300
"""Characters of a text that `to_number` reads; Python reads no longer integer."""
_OBJECT_COST = 20
_FIELD_COST = 4
_LIST_COST = 7
"""What an empty object, one field of it and an empty list cost, in items of 8 bytes."""
_CONTAINERS = (list, dict)
_STEPS_PER_CLOCK_CHECK = 256
"""Steps between two looks at the clock."""
_PIECES = 64
"""Pieces of JSON that are joined and paid for at once; most have a few characters, and none more
than a window."""
_ADVICE = "Select fewer items first: items[0:100].…"


class PathParser(Parser):
    """jmespath's parser, which keeps the last paths; these may be long, so here they are few."""

    _CACHE: ClassVar[dict[str, Any]] = {}
    _MAX_SIZE = 32


class PathBudget:
    """What one path may still make and how long it may take; holds what it has made."""

    def __init__(self, max_items: int, timeout_s: float) -> None:
        self._left = max_items
        self._steps = 0
        self._deadline = time.monotonic() + timeout_s
        self.created: list[Any] = []
        """Every list and object that a step made."""

    def spend(self, amount: int) -> None:
        """Pay for a step and the items or characters it is about to make; raises InvalidArguments."""
        self._left -= amount
        self._steps += 1
        if self._left < 0:
            raise InvalidArguments("the path yields too much", advice=_ADVICE)
        if not self._steps % _STEPS_PER_CLOCK_CHECK and time.monotonic() > self._deadline:
            raise InvalidArguments("the path takes too long", advice=_ADVICE)

    def create_list(self) -> list[Any]:
        """An empty list."""
        self.spend(_LIST_COST)
        made: list[Any] = []
        self.created.append(made)
        return made

    def create_object(self) -> dict[str, Any]:
        """An empty object."""
        self.spend(_OBJECT_COST)
        made: dict[str, Any] = {}
        self.created.append(made)
        return made

    def collect(self, items: Iterable[Any]) -> list[Any]:
        """A list of these items, taken a few thousand at a time."""
        found = self.create_list()
        rest = iter(items)
        while some := list(islice(rest, CHUNK_ITEMS)):
            self.spend(len(some))
            found += some
        return found

    def is_equal(self, one: Any, other: Any) -> bool:
        """Whether two values are equal, as Python says; pays for every pair that is looked at."""
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
            while some := list(islice(pairs, CHUNK_ITEMS)):
                self.spend(len(some))
                pending += some
        return True

    def release(self) -> None:
        """Empty all that was made, a few thousand items at a time: what it has selected is gone
        then."""
        while self.created:
            one = self.created.pop()
            if isinstance(one, list):
                while one:
                    del one[-CHUNK_ITEMS:]
            else:
                while one:
                    one.popitem()


class BoundedFunctions(Functions):
    """The functions of JMESPath, in portions; those that go over no items are jmespath's own."""

    def __init__(self, budget: PathBudget) -> None:
        self._budget = budget

    @signature({"types": ["array-number"]})
    def _func_sum(self, arg: list[Any]) -> Any:
        total: Any = 0
        for some in _split_chunks(arg):
            self._budget.spend(0)
            total = sum(some, total)
        return total

    @signature({"types": ["array-number"]})
    def _func_avg(self, arg: list[Any]) -> Any:
        if arg:
            return self._func_sum(arg) / len(arg)
        return None

    @signature({"types": []})
    def _func_to_string(self, arg: Any) -> str:
        if isinstance(arg, str):
            return arg
        texts: list[str] = []
        pieces = encode_compact(to_parts(arg), _to_json)
        while some := list(islice(pieces, _PIECES)):
            text = "".join(some)
            self._budget.spend(len(text))
            texts.append(text)
        return "".join(texts)

    @signature({"types": []})
    def _func_to_number(self, arg: Any) -> Any:
        if not isinstance(arg, str):
            if get_type_name(arg) == "number":
                return arg
            return None
        for read in (int, float) if len(arg) <= MAX_DIGITS else ():
            with contextlib.suppress(ValueError):
                return read(arg)
        return None

    @signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: Any, search: Any) -> bool:
        if isinstance(subject, list):
            return any(self._budget.is_equal(search, item) for item in cast("list[Any]", subject))
        if len(search) > MAX_SEARCH_CHARS:
            raise InvalidArguments(
                f"contains() looks for {MAX_SEARCH_CHARS:,} characters at most", advice=_ADVICE
            )
        # What begins in a window may end behind it.
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
        for some in _split_chunks(array):
            self._budget.spend(sum(map(len, some)) + len(some) * (len(separator) + 1))
            joined.append(separator.join(some))
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
        for key, value in chain.from_iterable(one.items() for one in arguments):
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
        if get_type_name(keys[0]) in ("string", "number"):
            wanted = [get_type_name(keys[0])]
        else:
            wanted = ["string", "number"]
        for key in keys:
            if get_type_name(key) not in wanted:
                raise JMESPathTypeError("sort_by", key, get_type_name(key), wanted)
        return self._budget.collect(array[number] for number in self._sort_indexes(keys))

    def _find_extreme(self, items: list[Any], is_better: Callable[[Any, Any], bool]) -> Any:
        if items:
            found = items[0]
        else:
            found = None
        for item in items:
            self._budget.spend(0)
            if is_better(item, found):
                found = item
        return found

    def _sort_indexes(self, keys: Sequence[Any]) -> Iterator[int]:
        """The numbers of these keys in their order: sorted in portions, which are then merged."""
        portions: list[list[int]] = []
        chars = WINDOW_CHARS
        for number, key in enumerate(keys):
            if isinstance(key, str):
                length = len(key)
            else:
                length = 0
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
    """Evaluates a parsed path."""

    def __init__(self, budget: PathBudget) -> None:
        super().__init__(Options(custom_functions=BoundedFunctions(budget)))
        self._budget = budget

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """What a step makes of a value."""
        self._budget.spend(0)
        return super().visit(node, *args, **kwargs)

    def is_truthy(self, value: Any) -> bool:
        """Whether a filter takes a value for true: zero is."""
        return bool(value) or get_type_name(value) == "number"

    def visit_comparator(self, node: Any, value: Any) -> Any:
        """Compare; only numbers and texts have an order."""
        if node["value"] not in ("eq", "ne"):
            return super().visit_comparator(node, value)
        one, other = (self.visit(child, value) for child in node["children"])
        both = self._budget.is_equal(one, other) and isinstance(one, bool) is isinstance(
            other, bool
        )
        return both is (node["value"] == "eq")

    def visit_projection(self, node: Any, value: Any) -> Any:
        """The same step for every item."""
        base = self.visit(node["children"][0], value)
        if isinstance(base, list):
            return self._project(node["children"][1], base)
        return None

    def visit_filter_projection(self, node: Any, value: Any) -> Any:
        """The same step for every item that a condition holds for."""
        base, (_, then, condition) = self.visit(node["children"][0], value), node["children"]
        if not isinstance(base, list):
            return None
        items = cast("list[Any]", base)
        return self._project(
            then, (item for item in items if self.is_truthy(self.visit(condition, item)))
        )

    def visit_value_projection(self, node: Any, value: Any) -> Any:
        """The same step for every value of an object."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, dict):
            return None
        return self._project(node["children"][1], cast("dict[str, Any]", base).values())

    def visit_flatten(self, node: Any, value: Any) -> Any:
        """The items of the lists in a list."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        lists = (
            cast("list[Any]", one) if isinstance(one, list) else (one,)
            for one in cast("list[Any]", base)
        )
        return self._budget.collect(chain.from_iterable(lists))

    def visit_slice(self, node: Any, value: Any) -> Any:
        """Some of the items."""
        if not isinstance(value, list):
            return None
        items = cast("list[Any]", value)
        numbers = range(*slice(*node["children"]).indices(len(items)))
        return self._budget.collect(items[number] for number in numbers)

    def visit_multi_select_list(self, node: Any, value: Any) -> Any:
        """A list of what several steps make."""
        if value is None:
            return None
        made = [self.visit(child, value) for child in node["children"]]
        return self._budget.collect(made)

    def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
        """An object of what several steps make."""
        if value is None:
            return None
        fields = {child["value"]: self.visit(child, value) for child in node["children"]}
        self._budget.spend(_FIELD_COST * len(fields))
        made = self._budget.create_object()
        made.update(fields)
        return made

    def _project(self, step: Mapping[str, Any], items: Iterable[Any]) -> list[Any]:
        found = self._budget.create_list()
        for item in items:
            made = self.visit(step, item)
            if made is not None:
                self._budget.spend(1)
                found.append(made)
        return found


def _pair_children(one: Any, other: Any) -> Iterator[tuple[Any, Any]] | None:
    """What has to be equal for two containers to be; None where they cannot be."""
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
    """The type of a value, as JMESPath names it."""
    if isinstance(value, bool):  # to Python also a number
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "unknown")


def _to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
