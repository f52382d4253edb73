"""Values between a Python script and the gateway as JSON text, and printed output."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import orjson

from portico.json_text.part_stream import encode_lines, estimate_size, to_parts
from portico.scripts.sandbox.script import CallFailed

FLOOD_FACTOR = 64
"""Multiple of the output limit after which a script is stopped, because reading costs the gateway
too."""
_MAX_DEPTH = 200
_LARGE_CHARS = 256 * 1024


class PrintedOutput:
    """Collects printed output up to a limit."""

    def __init__(self, max_bytes: int, on_flood: Callable[[], None]) -> None:
        self._bytes_left = max_bytes
        self._max_bytes = max_bytes
        self._on_flood = on_flood
        self._parts: list[str] = []
        self.dropped_chars = 0

    def __call__(self, stream: str, text: str) -> None:
        shown = text
        if len(text) > self._bytes_left or len(text.encode()) > self._bytes_left:
            shown = text.encode()[: self._bytes_left].decode(errors="ignore")
            self._bytes_left = 0
        else:
            self._bytes_left -= len(text.encode())
        if shown:
            self._parts.append(shown)
        self.dropped_chars += len(text) - len(shown)
        if self.dropped_chars > FLOOD_FACTOR * self._max_bytes:
            self._on_flood()

    def get_text(self) -> str:
        """Return the collected output."""
        return "".join(self._parts)


def to_json_text(value: Any) -> str:
    """Encode a JSON value as text; raises TypeError or ValueError."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # Integers beyond 64 bits and lone surrogates.
        return json.dumps(value, allow_nan=False)


async def to_json_text_off_loop(value: Any) -> str:
    """Encode a JSON value as text, a large one in a thread; raises CallFailed."""
    try:
        if estimate_size(value, _LARGE_CHARS) < _LARGE_CHARS:
            return to_json_text(value)
        return await asyncio.to_thread(lambda: "".join(encode_lines(to_parts(value))))
    except (TypeError, ValueError, RecursionError) as error:
        raise CallFailed(f"the answer is no JSON: {error}") from error


def parse_json_text(text: str) -> Any:
    """Parse JSON text; raises ValueError, also if it is nested too deeply to be encoded again.

    Integers beyond 64 bits become floats.
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
    # A C parser blocks other threads until it is done, except in Python functions that it calls.
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
