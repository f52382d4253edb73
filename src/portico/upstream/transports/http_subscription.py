"""Reads messages outside any request: a session's GET stream, or subscription streams.

Reconnects with growing delays while the connection lasts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RemoteError
from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import strip_subscription_id, to_modern_params
from portico.upstream.protocol.jsonrpc import to_remote_error
from portico.upstream.protocol.subscription import (
    ACKNOWLEDGE_TIMEOUT_S,
    ACKNOWLEDGED_METHOD,
    SubscriptionLost,
    compute_retry_delay,
    parse_agreed_uris,
)
from portico.upstream.transports.http_errors import HttpStatusError, SessionExpired
from portico.upstream.transports.http_exchange import (
    HttpExchange,
    MessageHandler,
    ServerUnreachable,
)
from portico.upstream.transports.http_headers import make_routing_headers
from portico.upstream.transports.wire import WireResponse

MAX_UNREACHABLE = 4
"""Consecutive failed connection attempts after which the connection counts as lost."""

_FINAL_STATUSES = (401, 403, 404, 405)


async def follow_session(exchange: HttpExchange, on_message: MessageHandler) -> str | None:
    """Read the session's GET stream.

    Returns why the connection was lost, or None if the server has no such stream.
    """
    return await _follow_stream(exchange, exchange.open_stream, on_message)


class HttpSubscriptionOpener:
    """Opens subscriptions at one server."""

    def __init__(self, exchange: HttpExchange, on_message: MessageHandler) -> None:
        self._exchange = exchange
        self._on_message = on_message
        self._request_count = 0
        self._was_opened = False
        self._unreachable_count = 0

    async def open(self, params: Raw) -> "HttpSubscriptionStream":
        """Open a subscription; return when it is acknowledged."""
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
        try:
            await stream.wait_for_agreement()
        except BaseException:
            stream.close()
            raise
        return stream


class HttpSubscriptionStream:
    """One open subscription."""

    def __init__(
        self, exchange: HttpExchange, response: WireResponse, on_message: MessageHandler
    ) -> None:
        self._exchange = exchange
        self._response = response
        self._on_message = on_message
        self._messages = exchange.make_message_reader(response)
        self._acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refusal: RemoteError | None = None
        self.agreed_uris: frozenset[str] | None = None
        self._reader_task = asyncio.create_task(self._read_messages())

    @property
    def retry_ms(self) -> int | None:
        return self._messages.retry_ms

    async def wait_for_agreement(self) -> None:
        """Wait for the acknowledgement; raise RemoteError if the server refuses."""
        futures: set[asyncio.Future[None]] = {self._reader_task, self._acknowledged}
        await asyncio.wait(
            futures, timeout=ACKNOWLEDGE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        if self._refusal is not None:
            raise self._refusal
        if self._reader_task.done() and self.agreed_uris is None:
            self.agreed_uris = frozenset()  # it ended before the acknowledgement

    async def wait_for_end(self) -> None:
        await asyncio.wait({self._reader_task})

    def close(self) -> None:
        """Close the stream, which ends the subscription."""
        self._reader_task.cancel()
        self._response.abort()

    async def _read_messages(self) -> None:
        try:
            while (message := await self._messages.read_next()) is not None:
                if message.get("method") == ACKNOWLEDGED_METHOD:
                    self.agreed_uris = parse_agreed_uris(message)
                    self._set_acknowledged()
                elif "method" not in message:
                    if (
                        isinstance(error := message.get("error"), dict)
                        and not self._acknowledged.done()
                    ):
                        self._refusal = to_remote_error(
                            self._exchange.mask_secrets(cast(Raw, error))
                        )
                    return
                else:
                    await self._on_message(strip_subscription_id(message))
        except BackendUnavailable:
            pass  # interrupted or invalid: only a new stream helps
        finally:
            self._response.abort()

    def _set_acknowledged(self) -> None:
        if not self._acknowledged.done():
            self._acknowledged.set_result(None)


async def _follow_stream(
    exchange: HttpExchange,
    open_stream: Callable[[str | None], Awaitable[WireResponse]],
    on_message: MessageHandler,
) -> str | None:
    failures = 0
    unreachable = 0
    opened = False
    last_id: str | None = None
    retry_ms: int | None = None
    while True:
        try:
            reply = await open_stream(last_id)
        except SessionExpired as error:
            if opened:
                return error.message
            return None
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
            messages = exchange.make_message_reader(reply)
            try:
                while (message := await messages.read_next()) is not None:
                    failures = 0
                    await on_message(message)
            except BackendUnavailable:
                pass  # interrupted or invalid: only a new stream helps
            finally:
                reply.abort()
            last_id = messages.last_id or last_id
            if messages.retry_ms is not None:
                retry_ms = messages.retry_ms
        await asyncio.sleep(compute_retry_delay(failures, retry_ms))
        failures += 1
