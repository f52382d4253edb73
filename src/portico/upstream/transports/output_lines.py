"""Lines of a server's stdout: one JSON-RPC message each; salvages messages from broken lines.

A line over the limit is skipped while it is read and never held in full; if it was a response, only
its request fails.
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
"""Unread bytes of a stream; a server that writes more has to wait."""
MAX_SALVAGED_BYTES = 2**20
"""Longest broken line that is parsed a second time, because that blocks the event loop."""
MAX_UNASKED_VALUES = 25_000
"""JSON values in a server's notification or request; one with more is not decoded."""
_JOIN_IN_THREAD_BYTES = 2**20
"""Bytes from which pieces are joined in a thread."""
_EDGE_BYTES = 200
# Only an id beside the result, not inside it: the first or the last member of the object.
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
    """A response over the limit; `error_response` replaces it if its request is known."""

    def __init__(self, error_response: Raw | None) -> None:
        super().__init__()
        self.error_response = error_response


class LineReader:
    """Reads the lines of one stream; long ones are joined once, where `readuntil` copies thrice."""

    def __init__(self, reader: asyncio.StreamReader, limit: int) -> None:
        self._reader = reader
        self._limit = limit
        self._chunk = b""
        self._at = 0

    async def read_line(self) -> bytes:
        """Return the next line, empty at the end; raise LineTooLong for a response over the limit.

        Reading can go on after LineTooLong. Of another line over the limit only the beginning is
        returned, which is not valid JSON.
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
            # Joining tens of megabytes takes a while; in a thread the event loop goes on.
            if size < _JOIN_IN_THREAD_BYTES:
                return b"".join(pieces)
            return await asyncio.to_thread(b"".join, pieces)
        first = pieces[0][:_EDGE_BYTES]
        last = b"".join(pieces[-2:])[-_EDGE_BYTES:]
        line_ended = pieces[-1].endswith(b"\n")
        pieces.clear()
        while not line_ended and (piece := await self._read_piece()):
            last = (last + piece)[-_EDGE_BYTES:]
            line_ended = piece.endswith(b"\n")
        if _NOT_A_RESPONSE.match(first):
            return first
        id_match = _ID_FIRST.match(first) or _ID_LAST.search(last)
        if id_match is None:
            raise LineTooLong(None)
        raise LineTooLong(
            _make_error_response(
                id_match,
                f"the server's answer is over {self._limit} bytes (limits.max_message_bytes)",
            )
        )

    async def _read_piece(self) -> bytes:
        """Return what is available of the current line; empty at the end of the stream."""
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
    """Parse a line; return its message, or None if it has none, and whether the line was clean."""
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
            # Cut off by the server's exit, which is reported as the error instead.
            return salvage_message(line), False
        message = salvage_message(line) or _make_unreadable_response(
            line, "the server's answer cannot be read as JSON"
        )
        return message, False


def is_excessive(line: bytes) -> bool:
    """Return whether a line is a server's notification or request with too many values.

    Call it in a thread for large lines: all values are counted.
    """
    if len(line) <= MAX_UNASKED_VALUES or _UNASKED.match(line) is None:
        return False
    return has_more_values(line, MAX_UNASKED_VALUES)


def refuse_excessive(line: bytes) -> Raw | None:
    """Return a placeholder for a request with too many values; None for a notification."""
    first = _UNASKED.match(line)
    last = _LAST_ID.search(line[-_EDGE_BYTES - jsonrpc.MAX_ID_CHARS :])
    request_id = (first and first[1]) or (last and last[1])
    if not request_id:
        return None
    reason = f"it has more than {MAX_UNASKED_VALUES:,} JSON values"
    request = jsonrpc.make_message(jsonrpc.UNREADABLE, {"reason": reason})
    return {**request, "id": json.loads(request_id)}


def _make_unreadable_response(line: bytes, reason: str) -> Raw | None:
    """Return an error response for an unreadable response, so that its request fails at once."""
    id_match = _ID_FIRST.match(line) or _ID_LAST.search(line[-_EDGE_BYTES:])
    if id_match is None:
        return None
    return _make_error_response(id_match, reason)


def _make_error_response(found: "re.Match[bytes]", reason: str) -> Raw:
    return {
        "jsonrpc": "2.0",
        "id": int(found[1]),
        "error": {"code": INTERNAL_ERROR, "message": reason},
    }


def salvage_message(line: bytes) -> Raw | None:
    """Return the message in a line with leading text, invalid UTF-8 or lone surrogates."""
    if len(line) > MAX_SALVAGED_BYTES:
        return None
    start = line.find(b'{"')
    if start < 0:
        return None
    try:
        message = json.loads(line[start:].decode(errors="replace"))
        if isinstance(message, dict) and "jsonrpc" in message:
            return json_codec.replace_lone_surrogates(message)
        return None
    except (ValueError, RecursionError):
        return None


def strip_control_characters(text: str) -> str:
    """Return text without colours and other control characters."""
    return _CONTROL.sub("", text)


def pick_telling_line(lines: Sequence[str]) -> str:
    """Return the most informative line: the latest error, else trouble, else any words.

    The end of a stack trace or a dumped object (`}`, `at …`) is not informative.
    """
    worded = [line.strip() for line in lines if _WORDS.search(line)]
    errors = [line for line in worded if _ERROR.search(line)]
    troubles = [line for line in worded if _TROUBLE.search(line)]
    return next(reversed(errors or troubles or worded), "")
