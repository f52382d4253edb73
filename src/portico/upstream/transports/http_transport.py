"""Streamable HTTP, in the era that the server speaks.

handshake era  session, cancellation by notification, server requests, an extra GET stream
modern era     no session, cancellation by closing the stream, an extra subscription

Both extra streams reconnect with growing delays while the connection lasts.
"""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, cast

from portico.errors import (
    METHOD_NOT_FOUND,
    BackendUnavailable,
    PorticoError,
    RemoteError,
    SignInNeeded,
)
from portico.upstream.backend import Era, Listener, Raw
from portico.upstream.protocol.handshake import ProbeFailed, ProtocolSetting, perform_handshake
from portico.upstream.protocol.jsonrpc import PendingCall
from portico.upstream.protocol.server_requests import MAX_SERVER_REQUESTS
from portico.upstream.protocol.session import CANCELLATION_TIMEOUT_S, JsonRpcSession
from portico.upstream.transports.http_errors import (
    HttpStatusError,
    ServerUnreachable,
    SessionExpired,
)
from portico.upstream.transports.http_exchange import HttpExchange
from portico.upstream.transports.http_headers import (
    SESSION_HEADER,
    get_negotiated_version,
    make_handshake_headers,
    make_routing_headers,
)

if TYPE_CHECKING:
    from portico.upstream.backends.http import HttpBackend
from portico.upstream.protocol.envelope import strip_subscription_id, to_modern_params
from portico.upstream.protocol.jsonrpc import to_remote_error
from portico.upstream.protocol.subscription import (
    ACKNOWLEDGED_METHOD,
    SubscriptionLost,
    TaskStream,
    compute_retry_delay,
)
from portico.upstream.transports.http_exchange import MessageHandler, MessageReader
from portico.upstream.transports.wire import WireResponse

MAX_UNREACHABLE = 4
"""Consecutive failed connection attempts after which the connection counts as lost."""

_FINAL_STATUSES = (401, 403, 404, 405)


class HttpSubscriptionOpener:
    def __init__(self, exchange: HttpExchange, on_message: MessageHandler) -> None:
        self._exchange = exchange
        self._on_message = on_message
        self._request_count = 0
        self._was_opened = False
        self._unreachable_count = 0

    async def open(self, params: Raw) -> "HttpSubscriptionStream":
        self._request_count += 1
        frame = {
            "jsonrpc": "2.0",
            "id": f"listen-{self._request_count}",
            "method": "subscriptions/listen",
            "params": to_modern_params(params),
        }
        try:
            reply = await self._exchange.open_stream(
                None, frame, make_routing_headers("subscriptions/listen", None)
            )
        except HttpStatusError as error:
            if self._was_opened and error.status not in _FINAL_STATUSES:
                raise
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        except ServerUnreachable as error:
            self._unreachable_count += 1
            if self._unreachable_count >= MAX_UNREACHABLE:
                raise SubscriptionLost(error.message) from error
            raise
        self._was_opened = True
        self._unreachable_count = 0
        stream = HttpSubscriptionStream(self._exchange, reply, self._on_message)
        await stream.wait_for_agreement()
        return stream


class HttpSubscriptionStream(TaskStream):
    """One open subscription; closing its stream ends it."""

    def __init__(
        self, exchange: HttpExchange, response: WireResponse, on_message: MessageHandler
    ) -> None:
        super().__init__(self._read_messages(exchange, response, on_message))
        self._response = response

    def close(self) -> None:
        super().close()
        self._response.abort()

    async def _read_messages(
        self, exchange: HttpExchange, response: WireResponse, on_message: MessageHandler
    ) -> None:
        messages = MessageReader(exchange, response)
        try:
            while (message := await messages.read_next()) is not None:
                self.retry_ms = messages.events.retry_ms
                if message.get("method") == ACKNOWLEDGED_METHOD:
                    self.acknowledge(message)
                elif "method" in message:
                    on_message(strip_subscription_id(message))
                else:
                    if isinstance(error := message.get("error"), dict):
                        raise to_remote_error(exchange.mask_secrets(cast(Raw, error)))
                    return
        except BackendUnavailable:
            pass  # interrupted or invalid: only a new stream helps
        finally:
            self.retry_ms = messages.events.retry_ms
            response.abort()


async def follow_session(exchange: HttpExchange, on_message: MessageHandler) -> str | None:
    """Read the session's GET stream.

    Returns why the connection was lost, or None if the server has no such stream.
    """
    failures = 0
    unreachable = 0
    opened = False
    last_id: str | None = None
    retry_ms: int | None = None
    while True:
        try:
            reply = await exchange.open_stream(last_id)
        except SessionExpired as error:
            return error.message if opened else None
        except RemoteError:
            return None
        except HttpStatusError as error:
            if not opened or error.status in _FINAL_STATUSES:
                return None
        except ServerUnreachable as error:
            unreachable += 1
            if unreachable >= MAX_UNREACHABLE:
                return error.message
        except BackendUnavailable:
            pass
        else:
            unreachable = 0
            opened = True
            messages = MessageReader(exchange, reply)
            try:
                while (message := await messages.read_next()) is not None:
                    failures = 0
                    on_message(message)
            except BackendUnavailable:
                pass  # interrupted or invalid: only a new stream helps
            finally:
                reply.abort()
            last_id = messages.events.last_id or last_id
            if messages.events.retry_ms is not None:
                retry_ms = messages.events.retry_ms
        await asyncio.sleep(compute_retry_delay(failures, retry_ms))
        failures += 1


MAX_REQUESTS = 100
"""Concurrent requests; more are queued. Responses and cancellations never wait."""
MAX_SERVER_REQUEST_BURST = 500
"""Requests of the server that are answered without a rate limit."""
SERVER_REQUESTS_PER_S = 50.0
"""Rate of answered server requests after the burst: each response is an HTTP request."""
RESPONSE_TIMEOUT_S = 30.0
DELETE_TIMEOUT_S = 2.0
_SEND_TIMEOUTS = {None: RESPONSE_TIMEOUT_S, "notifications/cancelled": CANCELLATION_TIMEOUT_S}
"""Seconds for sending a response, or a notification of this method."""


class TokenBucket:
    """Allows a burst of `capacity`, then a steady rate."""

    __slots__ = ("_capacity", "_rate", "_tokens", "_updated_at")

    def __init__(self, capacity: int, rate_per_s: float) -> None:
        self._capacity = capacity
        self._rate = rate_per_s
        self._tokens = float(capacity)
        self._updated_at = time.monotonic()

    def try_acquire(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._capacity, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class HttpTransport:
    """Carries the messages of one session, each as an HTTP request of its own."""

    max_tasks = 2 * MAX_SERVER_REQUESTS

    def __init__(self, backend: "HttpBackend", listener: Listener) -> None:
        self.session = JsonRpcSession(backend.name, self, listener, backend.roots)
        self.exchange = HttpExchange(
            backend.name,
            backend.url,
            backend.headers,
            backend.max_message_bytes,
            backend.credentials,
        )
        self.session_id: str | None = None
        self._request_slots = asyncio.Semaphore(MAX_REQUESTS)
        self._server_request_bucket = TokenBucket(MAX_SERVER_REQUEST_BURST, SERVER_REQUESTS_PER_S)

    @property
    def sends_cancellation(self) -> bool:
        """In the modern era, closing its stream has cancelled the request."""
        return not self.session.is_modern

    async def open(self, protocol: ProtocolSetting, known_era: Era | None) -> None:
        """Detect the era, perform the handshake, and follow the server's own messages."""
        session = self.session
        try:
            try:
                info = await perform_handshake(session, protocol, known_era)
            except (RemoteError, HttpStatusError) as error:
                is_final = isinstance(error, HttpStatusError) and error.final
                if protocol != "auto" or known_era != "legacy" or is_final:
                    raise
                info = await perform_handshake(session, "auto", None)
        except ProbeFailed as error:
            raise error.__cause__ or error from None
        self.exchange.is_initialized = True
        if info.era == "modern":
            self.exchange.set_session_headers({})
        session.start(info, HttpSubscriptionOpener(self.exchange, self._receive).open)
        if info.era == "legacy":
            session.follow(follow_session(self.exchange, self._receive))

    async def send_request(self, call: PendingCall) -> None:
        if not self.session.is_open:
            self.session.resolve(call, await self._send_handshake(call.message))
            return
        headers = call.options.headers
        is_modern = self.session.is_modern
        if is_modern:
            message = call.message
            routing = make_routing_headers(message["method"], message.get("params"))
            headers = {**routing, **headers}

        def receive(message: Raw) -> None:
            self._receive(message, call)

        async with self._request_slots:
            call.was_sent = True
            try:
                response, _ = await self.exchange.send_request(
                    call.message,
                    receive,
                    headers=headers,
                    is_resumable=not is_modern,
                    relay=call.relay,
                )
            except (SessionExpired, ServerUnreachable) as error:
                self.session.lose(error.message)
                raise
        self.session.resolve(call, response)

    async def send(self, message: Raw) -> None:
        method = message.get("method")
        if method == "notifications/initialized":
            # Some servers refuse it and work all the same.
            with contextlib.suppress(RemoteError, HttpStatusError):
                await self.exchange.send_message(message)
            return
        headers = None
        if self.session.is_modern and method is not None:
            headers = make_routing_headers(method, None)
        async with asyncio.timeout(_SEND_TIMEOUTS.get(method)):
            await self.exchange.send_message(message, headers)

    async def close(self, was_open: bool) -> None:
        if self.session_id is not None and was_open:
            with contextlib.suppress(PorticoError, TimeoutError):
                async with asyncio.timeout(DELETE_TIMEOUT_S):
                    await self.exchange.delete_session()
        await self.exchange.close()

    async def _send_handshake(self, message: Raw) -> Raw:
        """Send a request of the handshake; what the server sends before its answer is dropped."""
        method = message["method"]
        if method != "server/discover":
            response, headers = await self.exchange.send_request(message, _drop_message)
            if isinstance(result := response.get("result"), dict):
                self.session_id = headers.get(SESSION_HEADER)
                version = get_negotiated_version(cast(Raw, result))
                self.exchange.set_session_headers(make_handshake_headers(version, self.session_id))
            return response
        routing = make_routing_headers(method, message.get("params"))
        try:
            response, _ = await self.exchange.send_request(message, _drop_message, headers=routing)
        except (ServerUnreachable, SignInNeeded):
            raise
        except BackendUnavailable as error:
            if isinstance(error, HttpStatusError) and error.final:
                raise
            # Handshake-era servers answer an unknown method with 400, 404, 405, 500 …
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        return response

    def _receive(self, message: Raw, call: PendingCall | None = None) -> None:
        if "method" in message and message.get("id") is not None:
            # A modern server sends no requests; more than the rate allows are a flood.
            if self.session.is_modern or not self._server_request_bucket.try_acquire():
                return
        elif "method" not in message:
            return  # a response to no request
        self.session.receive(message, call)


def _drop_message(message: Raw) -> None:
    pass
