"""What crosses between a Python script and the gateway: values, as JSON text, and what it prints,
cut to its limit."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import orjson

from portico.json_text.part_stream import encode_lines, estimate_size, to_parts
from portico.scripts.sandbox.script import CallFailed

FLOOD_FACTOR = 64
"""Times its output limit that a script may print before it is stopped; reading all that costs the
gateway, too."""
_MAX_DEPTH = 200
_LARGE_CHARS = 256 * 1024


class PrintedOutput:
    """What a script printed, as far as it is kept."""

    def __init__(self, max_bytes: int, on_flood: Callable[[], None]) -> None:
        self._bytes_left = max_bytes
        self._max_bytes = max_bytes
        self._on_flood = on_flood
        self._parts: list[str] = []
        self.dropped_chars = 0

    def __call__(self, stream: str, text: str) -> None:
        kept = text
        if len(text) > self._bytes_left or len(text.encode()) > self._bytes_left:
            kept = text.encode()[: self._bytes_left].decode(errors="ignore")
            self._bytes_left = 0
        else:
            self._bytes_left -= len(text.encode())
        if kept:
            self._parts.append(kept)
        self.dropped_chars += len(text) - len(kept)
        if self.dropped_chars > FLOOD_FACTOR * self._max_bytes:
            self._on_flood()

    def get_text(self) -> str:
        """All that is kept."""
        return "".join(self._parts)


def to_json_text(value: Any) -> str:
    """A JSON value as text. Raises TypeError or ValueError."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return json.dumps(
            value, allow_nan=False
        )  # whole numbers beyond 64 bits, halves of characters


async def to_json_text_off_loop(value: Any) -> str:
    """A JSON value as text; a large one in a thread, which lets others run. Raises CallFailed."""
    try:
        if estimate_size(value, _LARGE_CHARS) < _LARGE_CHARS:
            return to_json_text(value)
        return await asyncio.to_thread(lambda: "".join(encode_lines(to_parts(value))))
    except (TypeError, ValueError, RecursionError) as error:
        raise CallFailed(f"the answer is no JSON: {error}") from error


def parse_json_text(text: str) -> Any:
    """The JSON value of a text. Raises ValueError, also for one nested too deep for whoever must
    write it again.

    Whole numbers beyond 64 bits become floats, as they would on the way to any client.
    """
    try:
        if len(text) < _LARGE_CHARS:
            value = orjson.loads(text)
        else:
            value = _parse_large_json(text)
        if text.count("[") + text.count("{") > _MAX_DEPTH:
            orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"The value is no JSON: {error}") from error
    return value


def _parse_large_json(text: str) -> Any:
    # A parser in C lets no other thread run before it is done, but for the Python functions that it
    # calls.
    return json.loads(
        text,
        object_hook=_return_unchanged,
        parse_int=_parse_integer,
        parse_constant=_reject_constant,
    )


def _return_unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _parse_integer(digits: str) -> int | float:
    if len(digits) < 19:
        return int(digits)
    return orjson.loads(digits)


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON.")
