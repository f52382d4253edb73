"""JSON as it is: orjson for speed, the standard library where orjson would change or refuse a
number.

orjson reads an integer beyond 64 bits as a float and does not write one at all; a relay may do
neither.
"""

import json
import re
from typing import Any, cast

import orjson

LONG_DIGITS = 19
"""Digits of the shortest integer that may pass 64 bits (a negative one)."""
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_DIGIT = re.compile(rb"[0-9]")
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % LONG_DIGITS)


def loads(text: bytes) -> Any:
    """Decode; raises ValueError on anything that is not JSON, or is nested too deeply to be passed
    on."""
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
    """Encode, compact; raises ValueError, TypeError or RecursionError on what JSON cannot say."""
    try:
        return orjson.dumps(value)
    except TypeError:  # integers over 64 bits and lone surrogates are legal JSON
        return json.dumps(value, separators=(",", ":")).encode()


def replace_lone_surrogates(value: Any) -> Any:
    """The same with U+FFFD for half surrogate pairs, which cannot be sent on."""
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
    # Whatever run of that length there is, it covers a place that the stride looks at.
    return any(
        _LONG_NUMBER.search(text, max(0, at - LONG_DIGITS + 1), at + LONG_DIGITS)
        for at in (found.start() * LONG_DIGITS for found in _DIGIT.finditer(text[::LONG_DIGITS]))
    )
