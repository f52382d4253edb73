"""HTTP/1.1 to one origin: pooled connections and streamed responses. Knows neither JSON nor MCP.

Uses httptools instead of a client library because every call pays for this layer, and a pooled POST
costs a fifth of the CPU this way. Follows no redirects, keeps no cookies.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import deque
from typing import cast
from urllib.parse import SplitResult

import httptools

from portico.upstream.transports.proxy import Proxy, ProxyError, connect, to_proxied_request

MAX_HEADER_BYTES = 64 * 1024
"""Bytes that may arrive without body data: a head, or trailers and chunk extensions."""
MAX_BUFFERED_BYTES = 1024 * 1024
"""Unread bytes of a response above which its connection is paused."""
MAX_IDLE = 16
IDLE_S = 30.0
STALE_CHECK_AFTER_S = 1.0
"""Seconds unused after which the server may have closed a connection unnoticed."""
DRAIN_S = 1.0
"""Seconds for reading the rest of a released response before its connection is closed."""
DRAIN_BYTES = 256 * 1024
"""Bytes of that rest before its connection is closed."""


class WireError(Exception):
    """The exchange failed below HTTP: unreachable, interrupted, or not HTTP."""


class OriginUnreachable(WireError):
    """No connection could be made."""


class StaleConnection(WireError):
    """A pooled connection was closed: the request was most likely never read."""


class ResponseTooLarge(WireError):
    """The response exceeds the limit."""


class WireResponse:
    """An HTTP response whose head has arrived; its body is streamed."""

    def __init__(self, connection: "_PooledConnection") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._error: WireError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read_chunk(self) -> bytes:
        """Return the next piece of the body; empty at its end."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._chunks.popleft()
        self._buffered -= len(piece)
        if self._buffered < MAX_BUFFERED_BYTES:
            self._connection.resume()
        return piece

    async def read_body(self, limit: int) -> bytes:
        """Return the whole body; raise ResponseTooLarge above `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read_chunk():
            size += len(piece)
            if size > limit:
                raise ResponseTooLarge(f"a reply of more than {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def release(self) -> None:
        """Discard the rest, and return the connection to the pool if that is quick."""
        self._chunks.clear()
        self._connection.release(self)

    def abort(self) -> None:
        self._connection.abort()

    def feed(self, piece: bytes) -> int:
        """Add a piece of the body; return how many bytes are unread."""
        self._chunks.append(piece)
        self._buffered += len(piece)
        self._wake()
        return self._buffered

    def finish(self, error: WireError | None = None) -> None:
        self.is_complete = error is None
        self._error = error
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        self._waiter = None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _PooledConnection(asyncio.Protocol):
    """One connection with at most one exchange at a time."""

    def __init__(self, pool: "HttpConnectionPool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._response: WireResponse | None = None
        self._head: asyncio.Future[WireResponse] | None = None
        self._bytes_without_body = 0
        self._until_eof = False
        self._is_keep_alive = False
        self._has_received = False
        self._is_paused = False
        self._drained_bytes = -1
        self._timer: asyncio.TimerHandle | None = None
        self.use_count = 0
        self.idle_since = 0.0
        self.max_idle_s = 0.0

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> WireResponse:
        """Send a rendered request; return when the response's head has arrived."""
        transport = cast(asyncio.Transport, self._transport)
        self._response = WireResponse(self)
        self._head = asyncio.get_running_loop().create_future()
        self._bytes_without_body = 0
        self._has_received = False
        self._until_eof = False
        self._drained_bytes = -1
        self.use_count += 1
        transport.write(request)
        try:
            return await self._head
        except BaseException:
            self.abort()
            raise

    def release(self, response: WireResponse) -> None:
        if response is not self._response:
            return
        if response.is_complete:
            self._return_to_pool()
        elif self.is_usable:
            self._drained_bytes = 0
            self._timer = asyncio.get_running_loop().call_later(DRAIN_S, self.abort)
            self.resume()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def _return_to_pool(self) -> None:
        self._response = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_keep_alive:
            self.abort()
        else:
            self._pool.return_connection(self)

    def _fail(self, error: WireError) -> None:
        self._propagate_error(error)
        self.abort()

    def _propagate_error(self, error: WireError) -> None:
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
        elif self._response is not None and not self._response.is_complete:
            self._response.finish(error)

    # --- asyncio.Protocol callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.abort()  # data without a request
            return
        self._has_received = True
        position = 0
        try:
            while position < len(data):
                # Counted here, because the parser buffers a header until it is complete.
                piece = data[position : position + MAX_HEADER_BYTES - self._bytes_without_body]
                if not piece:
                    self._fail(WireError(f"a head of more than {MAX_HEADER_BYTES} bytes"))
                    return
                position += len(piece)
                self._bytes_without_body += len(piece)
                self._parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(WireError(f"what came back is not HTTP/1.1 ({error})"))

    def eof_received(self) -> None:
        if self._until_eof and self._response is not None:
            self._response.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._until_eof and self._response is not None and exc is None:
            self._response.finish()
        elif self.use_count > 1 and not self._has_received:
            self._propagate_error(
                StaleConnection("the server closed the connection before it answered")
            )
        else:
            self._propagate_error(
                WireError(str(exc) if exc else "the server closed the connection in the middle")
            )

    # --- httptools callbacks

    def on_message_begin(self) -> None:
        if self._response is None or self._response.is_complete:
            raise ValueError("a reply to no request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response is not None:
            self._response.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._response is None or self._head is None:
            return
        self._bytes_without_body = 0
        self._response.status = status
        headers = self._response.headers
        self._until_eof = (
            "content-length" not in headers
            and "transfer-encoding" not in headers
            and status not in (204, 304)
        )
        # Read here, because the parser resets it at the end of the message.
        self._is_keep_alive = self._parser.should_keep_alive() and not self._until_eof
        if not self._head.done():
            self._head.set_result(self._response)

    def on_body(self, body: bytes) -> None:
        self._bytes_without_body = 0
        if self._response is None:
            return
        if self._drained_bytes >= 0:
            self._drained_bytes += len(body)
            if self._drained_bytes > DRAIN_BYTES:
                self.abort()
        elif (
            self._response.feed(body) > MAX_BUFFERED_BYTES
            and not self._is_paused
            and self._transport is not None
        ):
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._response is None:
            return
        if self._response.status == 0:
            self._response.headers.clear()  # an interim (1xx) response: the final one follows
            return
        keep_alive = self._response.headers.get("keep-alive", "")
        seconds = keep_alive.partition("timeout=")[2].partition(",")[0]
        self.max_idle_s = IDLE_S
        if seconds.isdigit():
            self.max_idle_s = min(IDLE_S, int(seconds) - 1.0)
        self._response.finish()
        if self._drained_bytes >= 0:
            self._return_to_pool()


class HttpConnectionPool:
    def __init__(self, address: SplitResult, connect_timeout: float) -> None:
        self._address = address
        self._secure = address.scheme == "https"
        self._proxy: Proxy | None = None
        self._timeout = connect_timeout
        self._idle: list[_PooledConnection] = []
        self._connections: set[_PooledConnection] = set()
        self._closed = False
        self._context: ssl.SSLContext | None = None

    async def send(self, request: bytes, *, fresh: bool = False) -> WireResponse:
        """Send a rendered request (head and body); return when the response's head has arrived."""
        connection = (None if fresh else await self._take_idle()) or await self._open_connection()
        if self._proxy is not None and not self._secure:
            request = to_proxied_request(request, self._proxy, self._address)
        return await connection.exchange(request)

    async def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            connection.abort()
        for _ in range(100):
            if not self._connections:
                break
            await asyncio.sleep(0)

    def return_connection(self, connection: _PooledConnection) -> None:
        """Take back a connection whose exchange is complete."""
        if self._closed or len(self._idle) >= MAX_IDLE or not connection.is_usable:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def discard(self, connection: _PooledConnection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _take_idle(self) -> _PooledConnection | None:
        while self._idle:
            connection = self._idle.pop()
            unused = time.monotonic() - connection.idle_since
            if unused > STALE_CHECK_AFTER_S:
                # Two loop iterations, so that a close that has arrived is noticed before writing.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            if connection.is_usable and unused < connection.max_idle_s:
                return connection
            connection.abort()
        return None

    async def _open_connection(self) -> _PooledConnection:
        if self._closed:
            raise OriginUnreachable("the connection was closed")
        connection = _PooledConnection(self)
        try:
            async with asyncio.timeout(self._timeout):
                if self._secure and self._context is None:
                    self._context = await asyncio.to_thread(_create_tls_context)
                self._proxy = await connect(self._address, connection, self._context)
        except ProxyError as error:
            raise OriginUnreachable(str(error)) from None
        except TimeoutError:
            raise OriginUnreachable(f"no connection within {self._timeout:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise OriginUnreachable(
                f"its certificate is not trusted: {error.verify_message}"
            ) from error
        except (OSError, UnicodeError) as error:
            raise OriginUnreachable(_describe_error(error)) from error
        self._connections.add(connection)
        if self._closed:
            connection.abort()
        return connection


def _describe_error(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "its host name is not known"
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__


def _create_tls_context() -> ssl.SSLContext:
    # httpx2 knows each platform's trusted certificates; imported late, because it is slow.
    import httpx2

    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
