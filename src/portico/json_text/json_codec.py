"""JSON codec: orjson, and the standard library where orjson would change or refuse a number.

orjson reads an integer beyond 64 bits as a float and cannot write one; a gateway must pass it
unchanged.
"""

import json
import re
from typing import Any, cast

import orjson

LONG_DIGITS = 19
"""Digits of the shortest integer (a negative one) that may exceed 64 bits."""
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_DIGIT = re.compile(rb"[0-9]")
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % LONG_DIGITS)


def loads(text: bytes) -> Any:
    """Decode JSON; raises ValueError if it is invalid or nested too deeply."""
    if not _has_long_number(text):
        return orjson.loads(text)
    try:
        value = json.loads(text)
        if b"\\ud" in text.lower():
            return replace_lone_surrogates(value)
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: Any) -> bytes:
    """Encode as compact JSON; raises ValueError, TypeError or RecursionError."""
    try:
        return orjson.dumps(value)
    except TypeError:  # integers over 64 bits and lone surrogates are legal JSON
        return json.dumps(value, separators=(",", ":")).encode()


def replace_lone_surrogates(value: Any) -> Any:
    """Return the value with U+FFFD for lone surrogates, which cannot be encoded."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", _PAIR.sub(_join_pair, value))
    if isinstance(value, list):
        return [replace_lone_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            replace_lone_surrogates(key): replace_lone_surrogates(item)
            for key, item in cast("dict[str, Any]", value).items()
        }
    return value


def _join_pair(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _has_long_number(text: bytes) -> bool:
    # A run of that many digits always covers a position that the stride visits.
    return any(
        _LONG_NUMBER.search(text, max(0, at - LONG_DIGITS + 1), at + LONG_DIGITS)
        for at in (found.start() * LONG_DIGITS for found in _DIGIT.finditer(text[::LONG_DIGITS]))
    )
