"""One connection over HTTP+SSE: an event stream from the server, and POSTs to its endpoint.

Handshake era only. The connection lasts as long as its stream, which cannot be resumed.
"""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin

from portico.errors import BackendUnavailable
from portico.upstream.backend import NO_OPTIONS, InitializeInfo, Listener, Raw, RequestOptions
from portico.upstream.protocol.envelope import to_legacy_params
from portico.upstream.protocol.handshake import perform_handshake
from portico.upstream.protocol.session import JsonRpcSession
from portico.upstream.transports.event_stream import EventStreamParser, EventTooLarge
from portico.upstream.transports.http_errors import HttpStatusError
from portico.upstream.transports.http_exchange import HttpExchange, ServerUnreachable
from portico.upstream.transports.http_headers import parse_address, redact_url
from portico.upstream.transports.wire import WireError, WireResponse
from portico.upstream.transports.yield_budget import YieldBudget

if TYPE_CHECKING:
    from portico.upstream.transports.sse import SseBackend

ENDPOINT_TIMEOUT_S = 10.0
"""Seconds a server has to name its message endpoint."""
MAX_CONCURRENT_RESPONSES = 16
"""Concurrent responses to a server's own requests: each uses an HTTP connection."""


class SseConnection:
    """One open stream."""

    def __init__(self, backend: "SseBackend", listener: Listener) -> None:
        self._backend = backend
        self._listener = listener
        self._session = JsonRpcSession(backend.name, self._post_frame, listener, backend.roots)
        self._stream_exchange = self._make_exchange(backend.url)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._post_exchange: HttpExchange | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._initialize_info: InitializeInfo | None = None
        self._is_lost = False
        self._response_slots = asyncio.Semaphore(MAX_CONCURRENT_RESPONSES)

    @property
    def initialize_info(self) -> InitializeInfo:
        if self._initialize_info is None:
            raise BackendUnavailable(f"{self._backend.name}: the connection was never opened")
        return self._initialize_info

    async def open(self) -> None:
        """Open the stream, wait for the endpoint, perform the handshake."""
        response = await self._stream_exchange.open_stream(None)
        self._reader_task = asyncio.create_task(self._read_events(response))
        try:
            async with asyncio.timeout(ENDPOINT_TIMEOUT_S):
                endpoint = await self._endpoint
        except TimeoutError:
            raise BackendUnavailable(
                f"{self._backend.name} ({redact_url(self._backend.url)}) "
                "did not say where to send messages",
                advice="If it is a Streamable HTTP server, set type: http.",
            ) from None
        self._post_exchange = self._make_exchange(
            resolve_endpoint_url(self._backend.name, self._backend.url, endpoint)
        )
        self._initialize_info = await perform_handshake(self, "legacy", None)

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request."""
        return await self._session.request(method, to_legacy_params(params), options)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Send a notification."""
        await self._session.notify(method, to_legacy_params(params))

    async def send_request(self, method: str, params: Raw | None) -> Raw:
        """Send a handshake request."""
        return await self._session.request(method, params)

    async def send_notification(self, method: str, params: Raw | None) -> None:
        """Send a handshake notification."""
        await self._session.notify(method, params)

    async def close(self) -> None:
        """Close the stream and all connections."""
        if self._close_task is None:
            self._close_task = asyncio.create_task(self._close())
        await asyncio.shield(self._close_task)

    async def _close(self) -> None:
        self._session.end("the connection was closed")
        await self._session.join()
        if self._reader_task is not None:
            self._reader_task.cancel()
            await asyncio.wait({self._reader_task})
        if self._endpoint.done() and not self._endpoint.cancelled():
            self._endpoint.exception()  # mark as retrieved: nobody may have awaited it
        for exchange in (self._post_exchange, self._stream_exchange):
            if exchange is not None:
                await exchange.close()

    async def _post_frame(self, frame: Raw) -> None:
        if self._post_exchange is None:
            raise BackendUnavailable(f"{self._backend.name}: the connection was never opened")
        try:
            if "method" in frame:
                await self._post_exchange.send_message(frame)
            else:
                async with self._response_slots:
                    await self._post_exchange.send_message(frame)
        except (ServerUnreachable, HttpStatusError) as error:
            if isinstance(error, ServerUnreachable) or error.status == 404:
                self._handle_lost(error.message)
            raise
        self._backend.diagnostic_data["requests"] = self._post_exchange.sent_count

    async def _read_events(self, response: WireResponse) -> None:
        events = EventStreamParser(self._backend.max_message_bytes)
        yield_budget = YieldBudget()
        reason = "the server ended its event stream"
        try:
            while chunk := await response.read_chunk():
                for event in events.feed(chunk):
                    if event.type == "endpoint" and not self._endpoint.done():
                        self._endpoint.set_result(event.data.decode("utf-8", "replace"))
                    elif event.type == "message" and event.data:
                        await yield_budget.maybe_yield()
                        for message in await self._stream_exchange.decode_messages(event.data):
                            if "error" in message:
                                message = self._stream_exchange.mask_secrets(message)
                            self._session.receive(message)
                        yield_budget.spend(len(event.data))
        except EventTooLarge:
            reason = f"the server sent a message over {self._backend.max_message_bytes} bytes"
        except (WireError, BackendUnavailable) as error:
            reason = str(error)
        finally:
            response.abort()
        self._handle_lost(reason)

    def _handle_lost(self, reason: str) -> None:
        if self._close_task is not None or self._is_lost:
            return
        self._is_lost = True
        self._backend.diagnostic_data["last_error"] = reason
        self._session.end(reason)
        if not self._endpoint.done():
            self._endpoint.set_exception(BackendUnavailable(f"{self._backend.name}: {reason}"))
        if self._initialize_info is not None:
            self._listener.on_lost(reason)

    def _make_exchange(self, url: str) -> HttpExchange:
        return HttpExchange(
            self._backend.name, url, self._backend.headers, self._backend.max_message_bytes
        )


def resolve_endpoint_url(name: str, stream_url: str, endpoint: str) -> str:
    """Return the absolute endpoint URL; raise if it is on another origin.

    Credentials are sent there, so it must be the server's own origin.
    """
    target = urljoin(stream_url, endpoint)
    stream_address = parse_address(stream_url)
    target_address = parse_address(target)
    if _get_origin(stream_address) != _get_origin(target_address):
        error = BackendUnavailable(
            f"{name} wants messages sent to another server ({redact_url(target)})",
            advice="Credentials are not sent elsewhere. "
            "Use the host in the url that the server itself uses.",
        )
        error.retryable = False
        raise error
    if stream_address.username is not None and target_address.username is None:
        return target_address._replace(netloc=stream_address.netloc).geturl()
    return target


def _get_origin(address: SplitResult) -> tuple[str, str | None, int | None]:
    return (
        address.scheme,
        address.hostname,
        address.port or {"http": 80, "https": 443}.get(address.scheme),
    )
