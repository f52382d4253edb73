"""What crosses between a Python script and the gateway: values, as JSON text, and what it prints, cut to its limit."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import orjson

from portico.execution.json_stream import lines, parts, weight
from portico.execution.sandbox.script import CallFailed

FLOOD = 64
"""Times its output limit that a script may print before it is stopped; reading all that costs the gateway, too."""
_DEEPEST = 200
_LARGE = 256 * 1024


class Printed:
    """What a script printed, as far as it is kept."""

    def __init__(self, most: int, flooded: Callable[[], None]) -> None:
        self._left = most
        self._most = most
        self._flooded = flooded
        self._parts: list[str] = []
        self.dropped = 0

    def __call__(self, stream: str, text: str) -> None:
        kept = text
        if len(text) > self._left or len(text.encode()) > self._left:
            kept = text.encode()[: self._left].decode(errors="ignore")
            self._left = 0
        else:
            self._left -= len(text.encode())
        if kept:
            self._parts.append(kept)
        self.dropped += len(text) - len(kept)
        if self.dropped > FLOOD * self._most:
            self._flooded()

    def text(self) -> str:
        """All that is kept."""
        return "".join(self._parts)


def text_of(value: Any) -> str:
    """A JSON value as text. Raises TypeError or ValueError."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return json.dumps(value, allow_nan=False)  # whole numbers beyond 64 bits, halves of characters


async def text_in_steps(value: Any) -> str:
    """A JSON value as text; a large one in a thread, which lets others run. Raises CallFailed."""
    try:
        if weight(value, _LARGE) < _LARGE:
            return text_of(value)
        return await asyncio.to_thread(lambda: "".join(lines(parts(value))))
    except (TypeError, ValueError, RecursionError) as error:
        raise CallFailed(f"the answer is no JSON: {error}") from error


def value_of(text: str) -> Any:
    """The JSON value of a text. Raises ValueError, also for one nested too deep for whoever must write it again.

    Whole numbers beyond 64 bits become floats, as they would on the way to any client.
    """
    try:
        value = orjson.loads(text) if len(text) < _LARGE else _read_in_steps(text)
        if text.count("[") + text.count("{") > _DEEPEST:
            orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"The value is no JSON: {error}") from error
    return value


def _read_in_steps(text: str) -> Any:
    # A parser in C lets no other thread run before it is done, but for the Python functions that it calls.
    return json.loads(text, object_hook=_same, parse_int=_whole, parse_constant=_refused)


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 19 else orjson.loads(digits)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON.")
