"""Middleware that spools responses to disk while their clients do not read, within a byte limit.

What a client does not read soon is written to an unnamed temporary file and sent from there at the
pace of the client, so that the application can finish and its memory is freed. Beyond the limit,
the caller that holds most bytes loses the response that has been stalled longest: its connection is
aborted.
"""

import asyncio
import contextlib
import io
import logging
import tempfile
import threading
from collections import Counter, deque
from pathlib import Path
from typing import IO, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.server.http.auth import identify_caller

logger = logging.getLogger(__name__)

CONNECTION_KEY = "portico.connection"
"""Key in the ASGI scope: the protocol of the connection (`server/http/slow_clients.py`)."""
PARTS_KEY = "portico.parts"
"""Key in a body message: a deque of parts, each of some hundred KiB at most, consumed when sent."""
MAX_SPOOL_BYTES = 256 * 2**20
DIRECT_SEND_S = 0.5
"""Total seconds a response waits for a slow client before the rest of it is spooled."""
_PIECE_BYTES = 256 * 2**10
"""With the connection's own buffer, at most 512 KiB of a response are in memory."""


class ResponseSpool:
    """Spooled responses of all clients. For one event loop."""

    def __init__(self, max_bytes: int = MAX_SPOOL_BYTES, folder: Path | None = None) -> None:
        """`folder` holds the files; without one, or if it is unusable, the temporary folder
        does."""
        self.max_bytes = max_bytes
        self._folder = folder
        self._responses: dict[_SpooledResponse, int] = {}
        """With the bytes that each holds."""
        self._bytes = 0

    def open_file(self) -> IO[bytes]:
        """Open a file that is deleted on close; a buffer in memory without a disk. Blocks."""
        for folder in dict.fromkeys((self._folder, None)):
            with contextlib.suppress(OSError):
                return tempfile.TemporaryFile(dir=folder)
        return io.BytesIO()

    def add_bytes(self, response: "_SpooledResponse", size: int) -> None:
        """Count bytes of a response, and evict others above the limit."""
        self._responses[response] = self._responses.get(response, 0) + size
        self._bytes += size
        while self._bytes > self.max_bytes and len(self._responses) > 1:
            self._evict(response)

    def release(self, response: "_SpooledResponse") -> None:
        """Stop counting a response."""
        self._bytes -= self._responses.pop(response, 0)

    def _evict(self, newest: "_SpooledResponse") -> None:
        bytes_by_caller = Counter[str]()
        for response, size in self._responses.items():
            bytes_by_caller[response.caller] += size
        largest = max(bytes_by_caller, key=bytes_by_caller.__getitem__)
        others = [
            response
            for response in self._responses
            if response.caller == largest and response is not newest
        ]
        evicted = min(others, key=lambda response: response.last_read_at, default=newest)
        logger.warning(
            "clients have left more than %s bytes unread; one of them was disconnected",
            self.max_bytes,
        )
        self.release(evicted)
        evicted.hang_up()


class SpoolMiddleware:
    """Lets an application finish without waiting for its clients to read."""

    def __init__(self, app: ASGIApp, spool: ResponseSpool) -> None:
        self._app = app
        self._spool = spool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _SpooledResponse(self._spool, scope, send)
        try:
            await self._app(scope, receive, response.write)
            while response.sending is not None:
                await response.sending
        finally:
            response.close()


class _SpooledResponse:
    """One response, sent directly or through a file."""

    def __init__(self, spool: ResponseSpool, scope: Scope, send: Send) -> None:
        self.last_read_at = 0.0
        """When its client last read something of it."""
        self._spool = spool
        self._scope = scope
        self._connection: Any = scope.get(CONNECTION_KEY)
        self._send = send
        self._queue: deque[tuple[Message, int, int]] = deque()
        """Waiting messages, each with offset and size of its body in the file."""
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()
        """Guards the position of the file. Held in threads only."""
        self._end = 0
        self._writing = 0
        self.sending: asyncio.Task[None] | None = None
        """Sends what is spooled to the connection."""
        self._is_ended = False
        self._write_lock = asyncio.Lock()
        """Held while a message is sent in pieces, to keep messages in order."""
        self._direct_left_s = DIRECT_SEND_S

    @property
    def caller(self) -> str:
        """The caller; complete only once the request was authenticated."""
        return identify_caller(self._scope)

    async def write(self, message: Message) -> None:
        """Send a message; spool what its client does not read soon."""
        is_small = PARTS_KEY not in message and len(message.get("body", b"")) <= _PIECE_BYTES
        is_waiting = self.sending is not None or self._write_lock.locked()
        connection = self._connection
        if is_small and not is_waiting and (connection is None or not connection.flow.write_paused):
            await self._send(message)
            return
        async with self._write_lock:
            parts: deque[bytes] = message.get(PARTS_KEY) or _split_body(message.get("body", b""))
            message = {key: value for key, value in message.items() if key != PARTS_KEY}
            if self.sending is None:
                self.last_read_at = asyncio.get_running_loop().time()
                self._spool.add_bytes(self, sum(map(len, parts)))
                try:
                    await self._send_directly(message, parts)
                finally:
                    self._spool.release(self)
            if parts and not self._is_ended:
                await self._spool_parts(message, parts)

    async def _send_directly(self, message: Message, parts: deque[bytes]) -> None:
        """Send the parts of a message to the connection, as long as its client keeps up."""
        if not self._is_behind:
            self._direct_left_s = DIRECT_SEND_S
        while parts and await self._wait_until_caught_up() and not self._is_ended:
            part = parts.popleft()
            await self._send(_replace_body(message, part, more=bool(parts)))
            self.last_read_at = asyncio.get_running_loop().time()

    async def _wait_until_caught_up(self) -> bool:
        """Wait for a slow client within `DIRECT_SEND_S`; return whether it has caught up."""
        if self._is_behind and self._direct_left_s > 0:
            clock = asyncio.get_running_loop().time
            started_at = clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._direct_left_s):
                    await self._connection.flow.drain()
            self._direct_left_s -= clock() - started_at
        return not self._is_behind

    async def _spool_parts(self, message: Message, parts: deque[bytes]) -> None:
        """Write the rest of a message to the file and queue it for sending."""
        size = sum(map(len, parts))
        start = self._end
        self._end += size
        if size:
            self._spool.add_bytes(self, size)
            self._writing += 1
            try:
                await asyncio.to_thread(self._write_file, start, parts)
            except OSError as error:
                logger.warning(
                    "a response cannot be spooled, its client was disconnected: %s", error
                )
                self.hang_up()
            finally:
                self._writing -= 1
        self._queue.append(({**message, "body": b""} if size else message, start, size))
        if self.sending is None:
            self.sending = asyncio.create_task(self._send_queued(), name="send a spooled response")

    def hang_up(self) -> None:
        """Abort the connection, because its client does not read."""
        self._is_ended = True
        self._queue.clear()
        if self._connection is not None:
            self._connection.transport.abort()

    def close(self) -> None:
        """Stop sending and close the file."""
        self._is_ended = True
        if self._end:
            self._spool.release(self)
        if self.sending is not None:
            self.sending.cancel()
        if self._file is not None:
            asyncio.get_running_loop().run_in_executor(None, self._close_file)

    @property
    def _is_behind(self) -> bool:
        return self._connection is not None and self._connection.flow.write_paused

    async def _send_queued(self) -> None:
        try:
            while self._queue and not self._is_ended:
                message, start, size = self._queue.popleft()
                while size > _PIECE_BYTES and not self._is_ended:
                    await self._send_piece(message, start, _PIECE_BYTES, more=True)
                    start += _PIECE_BYTES
                    size -= _PIECE_BYTES
                if not self._is_ended:
                    await self._send_piece(
                        message, start, size, more=message.get("more_body", False)
                    )
            if not self._writing:
                self._end = 0
                self._spool.release(self)
        finally:
            self.sending = None

    async def _send_piece(self, message: Message, start: int, size: int, *, more: bool) -> None:
        if size:
            message = {
                **message,
                "body": await asyncio.to_thread(self._read_file, start, size),
                "more_body": more,
            }
        await self._send(message)
        self.last_read_at = asyncio.get_running_loop().time()

    # --- run in threads

    def _write_file(self, start: int, parts: deque[bytes]) -> None:
        with self._lock:
            if self._file is None:
                self._file = self._spool.open_file()
            self._file.seek(start)
            while parts:
                self._file.write(parts.popleft())

    def _read_file(self, start: int, size: int) -> bytes:
        with self._lock:
            assert self._file is not None
            self._file.seek(start)
            return self._file.read(size)

    def _close_file(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()


def _split_body(body: bytes) -> deque[bytes]:
    """Split a body into pieces; an empty body is one piece."""
    return deque(body[at : at + _PIECE_BYTES] for at in range(0, max(1, len(body)), _PIECE_BYTES))


def _replace_body(message: Message, body: bytes, *, more: bool) -> Message:
    if message["type"] != "http.response.body":
        return message
    return {**message, "body": body, "more_body": more or message.get("more_body", False)}
