"""Messages in a server's output: lines of stdout, and server-sent events.

A line over the limit is skipped while it is read and never held in full; if it was a response, only
its request fails.

Events follow the grammar of the HTML standard. Their data stays bytes, which the decoder takes.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from portico.errors import INTERNAL_ERROR
from portico.json_text import json_codec
from portico.json_text.chunked_decoder import TooManyValues
from portico.json_text.json_codec import has_more_values
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
YIELD_BUDGET_BYTES = 8 * 1024
"""Bytes that may be read before yielding, including the overhead of each message."""
MESSAGE_OVERHEAD_BYTES = 1024
_EDGE_BYTES = 200
# Only an id beside the result, not inside it: the first or the last member of the object.
# White space is bounded and never given back: a line of 64 MiB of spaces would take seconds.
_SPACE = rb"\s{0,1000}+"
_LONG_SPACE = re.compile(rb"(?<!\s)\s{1001}")
_HEAD_BYTES = 8 * 1024
_VERSION = rb'(?:"jsonrpc"%s:%s"2\.0"%s,%s)?' % (_SPACE, _SPACE, _SPACE, _SPACE)
_START = rb"%s\{%s%s" % (_SPACE, _SPACE, _VERSION)
_ID_FIRST = re.compile(
    rb'%s"id"%s:%s"?(\d{1,18})"?%s,%s"(?:result|error|jsonrpc)"'
    % (_START, _SPACE, _SPACE, _SPACE, _SPACE)
)
_NOT_A_RESPONSE = re.compile(
    rb'%s(?:[^\s{\[]|\{%s%s"method"%s:)' % (_SPACE, _SPACE, _VERSION, _SPACE)
)
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*"?(\d{1,18})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_ID = rb'("[ !#-\[\]-~]{1,%d}"|[0-9]{1,18})' % jsonrpc.MAX_ID_CHARS
_UNASKED = re.compile(
    rb'%s(?:"id"%s:%s%s%s,%s)?%s"method"%s:'
    % (_START, _SPACE, _SPACE, _ID, _SPACE, _SPACE, _VERSION, _SPACE)
)
_LAST_ID = re.compile(rb',\s*"id"\s*:\s*%s\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$' % _ID)
_CONTROL = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b|[\x00-\x08\x0b-\x1f\x7f]")


_BOM = b"\xef\xbb\xbf"
_LINE_OVERHEAD_BYTES = 1024
"""Bytes of a line beside its data: field name, id, comment."""


class YieldBudget:
    """Bytes that one reader has read since it last yielded to other tasks.

    Data that has already arrived is read without waiting, so the reader of a flood would never
    yield to the event loop.
    """

    __slots__ = ("_spent_bytes",)

    def __init__(self) -> None:
        self._spent_bytes = 0

    def spend(self, size: int) -> bool:
        """Count a handled message of `size` bytes; return whether it is time to yield."""
        self._spent_bytes += size + MESSAGE_OVERHEAD_BYTES
        if self._spent_bytes < YIELD_BUDGET_BYTES:
            return False
        self._spent_bytes = 0
        return True


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
    if len(line) > MAX_UNASKED_VALUES and is_excessive(line):
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

    So is one that hides what it is behind a thousand spaces.

    Call it in a thread for large lines: all values are counted.
    """
    if len(line) <= MAX_UNASKED_VALUES:
        return False
    is_unasked = _UNASKED.match(line) or _LONG_SPACE.search(line, 0, _HEAD_BYTES)
    return is_unasked is not None and has_more_values(line, MAX_UNASKED_VALUES)


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
    return _CONTROL.sub("", text)


class ServerSentEvent(NamedTuple):
    """One dispatched event; `id` is the last id that the stream had named by then."""

    type: str
    data: bytes
    id: str | None


class EventTooLarge(Exception):
    """One event exceeds the limit; the stream cannot be read further."""


class EventStreamParser:
    def __init__(self, max_event_bytes: int) -> None:
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self._limit = max_event_bytes
        self._is_started = False
        self._after_cr = False
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._type = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that this chunk completes; raise EventTooLarge above the limit."""
        if self._after_cr and chunk:
            # A CR at the end of the last chunk already ended its line; this LF belongs to it.
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._buffer_partial(chunk)
            return []
        if self._partial:
            chunk = b"".join((*self._partial, chunk))
            self._partial.clear()
            self._partial_size = 0
        if not self._is_started:
            self._is_started = True
            chunk = chunk.removeprefix(_BOM)
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()
        if chunk.endswith((b"\n", b"\r")):
            rest = b""
        else:
            rest = lines.pop()
        events: list[ServerSentEvent] = []
        for line in lines:
            if line:
                self._parse_line(line)
            elif (event := self._dispatch()) is not None:
                events.append(event)
        self._buffer_partial(rest)
        return events

    def _buffer_partial(self, piece: bytes) -> None:
        # Pieces of one long line are joined once, at its end: joining each time is quadratic.
        if piece:
            self._partial.append(piece)
            self._partial_size += len(piece)
            if self._partial_size + self._data_size > self._limit + _LINE_OVERHEAD_BYTES:
                raise EventTooLarge

    def _parse_line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            if self._data_size > self._limit + 1:
                raise EventTooLarge
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace") or None
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)

    def _dispatch(self) -> ServerSentEvent | None:
        data = self._data
        kind = self._type or "message"
        self._type = ""
        if not data:
            return None
        self._data = []
        self._data_size = 0
        return ServerSentEvent(kind, data[0] if len(data) == 1 else b"\n".join(data), self.last_id)
