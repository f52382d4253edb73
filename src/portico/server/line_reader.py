"""Lines of bounded length from a client, and a timer for clients that do not read."""

import asyncio
import json
import re
from dataclasses import dataclass

_ID_AT_START = re.compile(rb'\A\s*\{"jsonrpc":\s*"2\.0",\s*"id":\s*(\d{1,18}|"[^"\\]{1,200}")\s*,')
_ID_AT_END = re.compile(rb'"jsonrpc":\s*"2\.0",\s*"id":\s*(\d{1,18}|"[^"\\]{1,200}")\s*\}\s*\Z')
"""Positions where SDKs write the id of a request: all that can be read of one that is too long."""
_ID_SEARCH_BYTES = 300


@dataclass(frozen=True)
class OversizedMessage:
    """The id of a line that is too large to be decoded, and why it is refused."""

    reason: str
    id: int | str | None


async def read_line(reader: asyncio.StreamReader, limit: int) -> bytes | OversizedMessage:
    """Return the next line; empty at the end of the stream."""
    start = end = b""
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as cut:
            line = cut.partial
        except asyncio.LimitOverrunError as over:
            part = await reader.readexactly(over.consumed)
            start = start or part[:_ID_SEARCH_BYTES]
            end = part[-_ID_SEARCH_BYTES:]
            continue
        if not start:
            return line
        reason = f"is longer than the {limit} bytes that are read (limits.max_request_bytes)"
        return OversizedMessage(reason, _find_id(start, (end + line)[-_ID_SEARCH_BYTES:]))


def find_id(line: bytes) -> int | str | None:
    """Return the id of a message without decoding it; None if it is not where SDKs write it."""
    return _find_id(line[:_ID_SEARCH_BYTES], line[-_ID_SEARCH_BYTES:])


def _find_id(start: bytes, end: bytes) -> int | str | None:
    match = _ID_AT_START.search(start) or _ID_AT_END.search(end)
    if match:
        return json.loads(match[1])
    return None


class ReadStallTimer:
    """Measures how long a client has read nothing of its pending bytes.

    Only a drop of at least `min_bytes`, or an empty buffer, counts as progress.
    """

    __slots__ = ("_least", "_left", "_since")

    def __init__(self, waiting: int, now: float, min_bytes: int = 1) -> None:
        self._left = waiting
        self._since = now
        self._least = min_bytes

    def measure(self, waiting: int, now: float) -> float:
        """Return the seconds since the last progress; `waiting` is the number of unread bytes."""
        if waiting <= self._left - self._least or waiting == 0:
            self._left = waiting
            self._since = now
        elif waiting > self._left:
            # The buffer grew, which does not show that the client read anything.
            self._left = waiting
        return now - self._since
