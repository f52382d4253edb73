"""HTTP+SSE: an event stream from the server, and POSTs to the endpoint that it names.

Handshake era only. The connection lasts as long as its stream, which cannot be resumed.
"""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from portico.errors import BackendUnavailable
from portico.upstream.backend import Era, Listener, Raw
from portico.upstream.protocol.handshake import ProtocolSetting, perform_handshake
from portico.upstream.protocol.jsonrpc import PendingCall
from portico.upstream.protocol.server_requests import MAX_TASKS
from portico.upstream.protocol.session import JsonRpcSession
from portico.upstream.transports.http_errors import HttpStatusError, ServerUnreachable
from portico.upstream.transports.http_exchange import HttpExchange
from portico.upstream.transports.http_headers import parse_address, parse_origin, redact_url
from portico.upstream.transports.message_streams import (
    EventStreamParser,
    EventTooLarge,
    YieldBudget,
)
from portico.upstream.transports.wire import WireError, WireResponse

if TYPE_CHECKING:
    from portico.upstream.backends.http import SseBackend

ENDPOINT_TIMEOUT_S = 10.0
"""Seconds a server has to name its message endpoint."""
MAX_CONCURRENT_RESPONSES = 16
"""Concurrent responses to a server's own requests: each uses an HTTP connection."""


class SseTransport:
    max_tasks = MAX_TASKS
    sends_cancellation = True
    session_id = None

    def __init__(self, backend: "SseBackend", listener: Listener) -> None:
        self.session = JsonRpcSession(backend.name, self, listener, backend.roots)
        self._backend = backend
        self._stream_exchange = self._make_exchange(backend.url)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.exchange = self._stream_exchange
        """Where messages are sent; known once the server has named its endpoint."""
        self._reader_task: asyncio.Task[None] | None = None
        self._response_slots = asyncio.Semaphore(MAX_CONCURRENT_RESPONSES)

    async def open(self, protocol: ProtocolSetting, known_era: Era | None) -> None:
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
        self.exchange = self._make_exchange(
            resolve_endpoint_url(self._backend.name, self._backend.url, endpoint)
        )
        self.session.start(await perform_handshake(self.session, "legacy", None))

    async def send_request(self, call: PendingCall) -> None:
        call.was_sent = True
        await self.send(call.message)

    async def send(self, message: Raw) -> None:
        try:
            if "method" in message:
                await self.exchange.send_message(message)
            else:
                async with self._response_slots:
                    await self.exchange.send_message(message)
        except (ServerUnreachable, HttpStatusError) as error:
            if isinstance(error, ServerUnreachable) or error.status == 404:
                self._handle_lost(error.message)
            raise

    async def close(self, was_open: bool) -> None:
        if self._reader_task is not None:
            self._reader_task.cancel()
            await asyncio.wait({self._reader_task})
        if self._endpoint.done() and not self._endpoint.cancelled():
            self._endpoint.exception()  # mark as retrieved: nobody may have awaited it
        await self.exchange.close()
        await self._stream_exchange.close()

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
                        for message in await self._stream_exchange.decode_messages(event.data):
                            if "error" in message:
                                message = self._stream_exchange.mask_secrets(message)
                            self.session.receive(message)
                        if yield_budget.spend(len(event.data)):
                            await asyncio.sleep(0)
        except EventTooLarge:
            reason = f"the server sent a message over {self._backend.max_message_bytes} bytes"
        except (WireError, BackendUnavailable) as error:
            reason = str(error)
        finally:
            response.abort()
        self._handle_lost(reason)

    def _handle_lost(self, reason: str) -> None:
        if self.session.is_closing:
            return
        self.session.lose(reason)
        self.session.end(reason)
        if not self._endpoint.done():
            self._endpoint.set_exception(BackendUnavailable(f"{self._backend.name}: {reason}"))

    def _make_exchange(self, url: str) -> HttpExchange:
        return HttpExchange(
            self._backend.name,
            url,
            self._backend.headers,
            self._backend.max_message_bytes,
            self._backend.credentials,
        )


def resolve_endpoint_url(name: str, stream_url: str, endpoint: str) -> str:
    """Return the absolute endpoint URL; raise if it is on another origin.

    Credentials are sent there, so it must be the server's own origin.
    """
    target = urljoin(stream_url, endpoint)
    stream_address = parse_address(stream_url)
    target_address = parse_address(target)
    if parse_origin(stream_url) != parse_origin(target):
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
