"""The lines a server prints: one JSON-RPC message each, if all is well. Saves what can be saved of
the others.

A line over the limit is skipped as it comes, never held whole; if it was an answer, that request
alone fails.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from portico.errors import INTERNAL_ERROR
from portico.json_text import json_codec
from portico.json_text.chunked_decoder import TooManyValues
from portico.json_text.size import has_more_values
from portico.upstream.backend import Raw
from portico.upstream.protocol import jsonrpc

_PIECE_BYTES = 1 << 18
STREAM_BUFFER_BYTES = 1 << 20
"""Bytes of a stream that wait to be read; a server that says more meanwhile waits."""
MAX_SALVAGED_BYTES = 2**20
"""Bytes of a broken line that is read again: that is done in one step."""
MAX_UNASKED_VALUES = 25_000
"""JSON values of a notification or request of a server; one with more is not decoded."""
_JOIN_IN_THREAD_BYTES = 2**20
"""Bytes from which pieces are joined in a thread."""
_EDGE_BYTES = 200
# Only where the id stands beside the result, not inside it: first in the object, or last.
_ID_FIRST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d{1,18})"?\s*,\s*"(?:result|error|jsonrpc)"'
)
_NOT_A_RESPONSE = re.compile(
    rb'\s*(?:[^\s{\[]|\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:)'
)
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*"?(\d{1,18})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_ID = rb'("[ !#-\[\]-~]{1,%d}"|[0-9]{1,18})' % jsonrpc.MAX_ID_CHARS
_UNASKED = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*%s\s*,\s*)?'
    rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:' % _ID
)
_LAST_ID = re.compile(rb',\s*"id"\s*:\s*%s\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$' % _ID)
_CONTROL = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b|[\x00-\x08\x0b-\x1f\x7f]")

_WORDS = re.compile(r"[^\W\d_]{3}")
_ERROR = re.compile(r"\b\w*(?:error|exception|fatal)\b[\])]?:", re.I)
_TROUBLE = re.compile(r"denied|refused|not found|cannot|missing|invalid|required|fail", re.I)


class LineTooLong(Exception):
    """An answer over the limit; `answer` stands in for it where it could be told which request it
    answers."""

    def __init__(self, error_response: Raw | None) -> None:
        super().__init__()
        self.error_response = error_response


class LineReader:
    """The lines of one stream; a long one is gathered in pieces and joined once, where `readuntil`
    copies it thrice."""

    def __init__(self, reader: asyncio.StreamReader, limit: int) -> None:
        self._reader = reader
        self._limit = limit
        self._chunk = b""
        self._at = 0

    async def read_line(self) -> bytes:
        """The next line, empty at the end; raises TooLong, and the line after that one is read as
        usual.

        Of a line over the limit that is no answer only the beginning is returned, and thereby no
        JSON.
        """
        pieces: list[bytes] = []
        size = 0
        while size <= self._limit and (piece := await self._read_piece()):
            pieces.append(piece)
            size += len(piece)
            if piece.endswith(b"\n"):
                break
        if size <= self._limit + 1:
            if len(pieces) == 1:
                return pieces[0]
            # Tens of megabytes take their time even to be put together; that thread holds nobody's
            # lock.
            if size < _JOIN_IN_THREAD_BYTES:
                return b"".join(pieces)
            return await asyncio.to_thread(b"".join, pieces)
        first = pieces[0][:_EDGE_BYTES]
        last = b"".join(pieces[-2:])[-_EDGE_BYTES:]
        ended = pieces[-1].endswith(b"\n")
        pieces.clear()
        while not ended and (piece := await self._read_piece()):
            last = (last + piece)[-_EDGE_BYTES:]
            ended = piece.endswith(b"\n")
        if _NOT_A_RESPONSE.match(first):
            return first
        found = _ID_FIRST.match(first) or _ID_LAST.search(last)
        if found is None:
            raise LineTooLong(None)
        raise LineTooLong(
            _make_error_response(
                found, f"the server's answer is over {self._limit} bytes (limits.max_message_bytes)"
            )
        )

    async def _read_piece(self) -> bytes:
        """What there is up to the end of the line; empty at the end of all."""
        if self._at >= len(self._chunk):
            self._chunk = await self._reader.read(_PIECE_BYTES)
            self._at = 0
        end = self._chunk.find(b"\n", self._at) + 1 or len(self._chunk)
        piece = self._chunk[self._at : end]
        self._at = end
        return piece


def parse_message(
    line: bytes, loads: Callable[[bytes], Any] = json_codec.loads
) -> tuple[object, bool]:
    """What a line says, and whether it says only that; None if it is no JSON at all."""
    if is_excessive(line):
        return refuse_excessive(line), False
    try:
        return loads(line), True
    except TooManyValues as error:
        return _make_unreadable_response(
            line, f"the server's answer cannot be read: {error}"
        ), False
    except ValueError:
        if not line.endswith(b"\n"):
            return salvage_message(
                line
            ), False  # cut off by the server's end, which says more than that it cannot be read
        return salvage_message(line) or _make_unreadable_response(
            line, "the server's answer cannot be read as JSON"
        ), False


def is_excessive(line: bytes) -> bool:
    """Whether a line is a notification or request of a server with too many values.

    A large line belongs in a thread: all of it is counted.
    """
    if len(line) <= MAX_UNASKED_VALUES or _UNASKED.match(line) is None:
        return False
    return has_more_values(line, MAX_UNASKED_VALUES)


def refuse_excessive(line: bytes) -> Raw | None:
    """Make what stands in for a request with too many values; None for a notification."""
    first = _UNASKED.match(line)
    last = _LAST_ID.search(line[-_EDGE_BYTES - jsonrpc.MAX_ID_CHARS :])
    found = (first and first[1]) or (last and last[1])
    if not found:
        return None
    reason = f"it has more than {MAX_UNASKED_VALUES:,} JSON values"
    request = jsonrpc.make_message(jsonrpc.UNREADABLE, {"reason": reason})
    return {**request, "id": json.loads(found)}


def _make_unreadable_response(line: bytes, reason: str) -> Raw | None:
    """What stands in for an answer that cannot be read, so that only its request fails, and at
    once."""
    found = _ID_FIRST.match(line) or _ID_LAST.search(line[-_EDGE_BYTES:])
    if found is None:
        return None
    return _make_error_response(found, reason)


def _make_error_response(found: "re.Match[bytes]", reason: str) -> Raw:
    return {
        "jsonrpc": "2.0",
        "id": int(found[1]),
        "error": {"code": INTERNAL_ERROR, "message": reason},
    }


def salvage_message(line: bytes) -> Raw | None:
    """The message in a line with text before it, bytes that are not UTF-8, or half of a surrogate
    pair."""
    if len(line) > MAX_SALVAGED_BYTES:
        return None
    start = line.find(b'{"')
    if start < 0:
        return None
    try:
        found = json.loads(line[start:].decode(errors="replace"))
        if isinstance(found, dict) and "jsonrpc" in found:
            return json_codec.replace_lone_surrogates(found)
        return None
    except (ValueError, RecursionError):
        return None


def strip_control_characters(text: str) -> str:
    """Text that may be shown to anyone: without colours and other control characters."""
    return _CONTROL.sub("", text)


def pick_telling_line(lines: Sequence[str]) -> str:
    """Of what a server said last, the line that tells most: the latest error, or trouble, or words
    at all.

    What a stack trace or a dumped object ends in (`}`, `at …`) tells nobody anything.
    """
    worded = [line.strip() for line in lines if _WORDS.search(line)]
    errors, troubles = (
        [line for line in worded if sign.search(line)] for sign in (_ERROR, _TROUBLE)
    )
    return next(reversed(errors or troubles or worded), "")
