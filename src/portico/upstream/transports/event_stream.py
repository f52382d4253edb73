"""Incremental parser of server-sent events: bytes in, events out. Pure.

Follows the event-stream grammar of the HTML standard. Data stays bytes, because the JSON decoder
takes bytes.
"""

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
_LINE_OVERHEAD_BYTES = 1024
"""Bytes of a line beside its data: field name, id, comment."""


class ServerSentEvent(NamedTuple):
    """One dispatched event; `id` is the last id that the stream had named by then."""

    type: str
    data: bytes
    id: str | None


class EventTooLarge(Exception):
    """One event exceeds the limit; the stream cannot be read further."""


class EventStreamParser:
    """Parser of one stream."""

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
