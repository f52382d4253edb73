"""Conversion between JSON values and Lua values.

A table with the keys 1 … n is a list; an empty one is an object unless it came as a list or was
marked by `array`; any other is an object, whose numeric keys become strings. An integral float
becomes an integer, since Lua's `/` always returns floats. `null` in a field of an object is nil, so
that `if issue.assignee then` works; in a list, which nil would end, it is the value `null`, which
may also be sent anywhere.
"""

import math
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
NULL_KEY = b"\0null"
MAX_SAFE_INTEGER = 2**53
LUA_INTEGERS = range(-(2**63), 2**63)
_CELL_BYTES = 40
"""Approximate memory of a table entry or string header in Lua."""


class NotJson(Exception):
    """A Lua value cannot be encoded as JSON; the text says why."""

    kind = "value"


class LuaValueTooLarge(NotJson):
    kind = "output"


def to_json(
    value: Any, is_list: Callable[[Any], Any], lua_type: Callable[[Any], str | None], max_bytes: int
) -> Any:
    """Convert a Lua value to JSON of at most about `max_bytes`; raises NotJson.

    Tables are read raw: no metamethod of the script runs. `lua_type` is lupa's function.
    """
    left = max_bytes
    too_large = LuaValueTooLarge(f"it has more than {max_bytes:,} bytes")

    def convert(value: Any, depth: int) -> Any:
        nonlocal left
        kind = type(value)
        if kind is bytes:
            left -= len(value)
            if left < 0:
                raise too_large
            return value.decode("utf-8", "replace")
        if kind is int or value is None or kind is bool:
            return value
        if kind is float:
            return _to_json_number(value)
        if lua_type(value) != "table":
            raise NotJson(f"a {lua_type(value) or kind.__name__} is no JSON value")
        if depth >= MAX_DEPTH:
            raise NotJson(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
        items = list(value.items())
        if not items:
            list_mark = is_list(value)
            if list_mark and list_mark is not True:
                raise NotJson("a call under way is no value: write :await() after it")
            return [] if list_mark else {}
        if len(items) == 1 and items[0][0] == NULL_KEY:
            return None
        left -= 2 * len(items)
        if left < 0:
            raise too_large
        if _is_sequence(items):
            return [convert(item, depth + 1) for _, item in sorted(items, key=_get_key)]
        return {_to_json_key(key): convert(item, depth + 1) for key, item in items}

    return convert(value, 0)


def _is_sequence(items: list[tuple[Any, Any]]) -> bool:
    """Return whether the keys, all distinct, are 1 … n."""
    if type(items[0][0]) is not int:
        return False
    count = len(items)
    return all(type(key) is int and 1 <= key <= count for key, _ in items)


def _get_key(item: tuple[int, Any]) -> int:
    return item[0]


def _to_json_number(value: float) -> int | float:
    if not math.isfinite(value):
        raise NotJson(f"{'NaN' if value != value else 'infinity'} is no JSON number")
    if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER:
        return int(value)
    return value


def _to_json_key(key: Any) -> str:
    if type(key) is bytes:
        return key.decode("utf-8", "replace")
    if isinstance(key, int | float) and not isinstance(key, bool):
        return str(_to_json_number(key) if isinstance(key, float) else key)
    raise NotJson("a key of a table is neither a string nor a number")


def to_lua(
    value: Any,
    table_from: Callable[[Any], Any],
    null: Any,
    array: Callable[[Any], Any],
    max_bytes: int,
) -> Any:
    """Convert a JSON value to Lua within about `max_bytes`; raises MemoryError, and NotJson if it
    is too deep."""
    left = max_bytes

    def convert(value: Any, depth: int) -> Any:
        nonlocal left
        if isinstance(value, str):
            text = value.encode("utf-8", "replace")
            left -= len(text) + _CELL_BYTES
            if left < 0:
                raise MemoryError
            return text
        if isinstance(value, dict):
            left -= _CELL_BYTES * (len(value) + 2)
        elif isinstance(value, list):
            left -= _CELL_BYTES // 2 * len(value) + 2 * _CELL_BYTES
        elif isinstance(value, int) and value not in LUA_INTEGERS:
            return float(value)
        else:
            return value
        if left < 0:
            raise MemoryError
        if depth >= 2 * MAX_DEPTH:
            raise NotJson("the answer is nested too deep for a script")
        if isinstance(value, dict):
            return table_from(
                {convert(key, depth): convert(item, depth + 1) for key, item in value.items()}
            )
        table = table_from([null if item is None else convert(item, depth + 1) for item in value])
        return table if value else array(table)

    return convert(value, 0)
