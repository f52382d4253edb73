"""Values between a Python script and the gateway as JSON text, and printed output."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from portico.json_text.chunked_decoder import JsonPart, build_value, iter_parts
from portico.json_text.part_stream import encode_lines, estimate_size, to_parts
from portico.scripts.sandbox.script import CallFailed

FLOOD_CHARS = 16 * 1024**2
"""Characters beyond the output limit after which a script is stopped, because reading costs the
gateway too."""
_MAX_DEPTH = 200
_DEPTH_CHANGES = {"open": 1, "close": -1, "item": 0}
_LARGE_CHARS = 256 * 1024


class PrintedOutput:
    def __init__(self, max_bytes: int, on_flood: Callable[[], None]) -> None:
        self._bytes_left = max_bytes
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
        if self.dropped_chars > FLOOD_CHARS:
            self._on_flood()

    def get_text(self) -> str:
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
        if len(text) >= _LARGE_CHARS:
            # In windows: a parser that gets all of it holds the interpreter's lock throughout.
            return build_value(_make_encodable(iter_parts(text)))
        value = orjson.loads(text)
        if text.count("[") + text.count("{") > _MAX_DEPTH:
            orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"The value is no JSON: {error}") from error
    return value


def _make_encodable(parts: Iterable[JsonPart]) -> Iterator[JsonPart]:
    """Pass parts on, integers beyond 64 bits as floats; raises what `parse_json_text` refuses."""
    depth = 0
    for kind, key, value in parts:
        depth += _DEPTH_CHANGES[kind]
        if depth > _MAX_DEPTH:
            raise ValueError("The value is nested too deeply.")
        if kind == "item":
            value = _to_encodable(value)
        yield kind, key, value


def _to_encodable(value: Any) -> Any:
    try:
        orjson.dumps(value)
        return value
    except TypeError as error:
        if "Recursion" in str(error):
            raise
        return orjson.loads(json.dumps(value))
