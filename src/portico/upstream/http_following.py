"""Follows what a server says outside any request: the GET stream of a session, or the streams of a subscription.

Comes back after a break, later and later, for as long as the conversation lasts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RemoteError
from portico.upstream.backend import Raw
from portico.upstream.envelope import modern_params, without_subscription
from portico.upstream.http_exchange import Exchange, Hear, ServerUnreachable
from portico.upstream.http_headers import routing_headers
from portico.upstream.http_refusal import HttpRefusal, SessionGone
from portico.upstream.jsonrpc import remote_error
from portico.upstream.subscription import ACKNOWLEDGED, ACKNOWLEDGED_S, Lost, agreed_on, pause
from portico.upstream.wire import Reply

MAX_UNREACHABLE = 4
"""Attempts in a row that found nobody there before the conversation counts as lost."""

_FINAL = (401, 403, 404, 405)


async def follow_session(exchange: Exchange, hear: Hear) -> str | None:
    """Read the session's GET stream; answers why the conversation is lost, or None if there is nothing to follow."""
    return await _follow(exchange, exchange.stream, hear)


class Listens:
    """Opens subscriptions at one server."""

    def __init__(self, exchange: Exchange, hear: Hear) -> None:
        self._exchange = exchange
        self._hear = hear
        self._asked = 0
        self._opened = False
        self._unreachable = 0

    async def open(self, wanted: Raw) -> "HttpStream":
        """Ask for one; returns when the server has said what it agrees to."""
        self._asked += 1
        frame = {
            "jsonrpc": "2.0",
            "id": f"listen-{self._asked}",
            "method": "subscriptions/listen",
            "params": modern_params(wanted),
        }
        try:
            reply = await self._exchange.stream(None, frame, routing_headers("subscriptions/listen", None))
        except HttpRefusal as error:
            if self._opened and error.status not in _FINAL:
                raise
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        except ServerUnreachable as error:
            self._unreachable += 1
            if self._unreachable >= MAX_UNREACHABLE:
                raise Lost(error.message) from error
            raise
        self._opened, self._unreachable = True, 0
        stream = HttpStream(self._exchange, reply, self._hear)
        try:
            await stream.agree()
        except BaseException:
            stream.close()
            raise
        return stream


class HttpStream:
    """One open subscription."""

    def __init__(self, exchange: Exchange, reply: Reply, hear: Hear) -> None:
        self._exchange = exchange
        self._reply = reply
        self._hear = hear
        self._messages = exchange.messages(reply)
        self._acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refusal: RemoteError | None = None
        self.agreed: frozenset[str] | None = None
        self._reading = asyncio.create_task(self._read())

    @property
    def retry_ms(self) -> int | None:
        return self._messages.retry_ms

    async def agree(self) -> None:
        """Wait for what the server agrees to; raises RemoteError."""
        waiting: set[asyncio.Future[None]] = {self._reading, self._acknowledged}
        await asyncio.wait(waiting, timeout=ACKNOWLEDGED_S, return_when=asyncio.FIRST_COMPLETED)
        if self._refusal is not None:
            raise self._refusal
        if self._reading.done() and self.agreed is None:
            self.agreed = frozenset()  # over before it began

    async def ended(self) -> None:
        """Wait for its end."""
        await asyncio.wait({self._reading})

    def close(self) -> None:
        """Hang up: that says it all."""
        self._reading.cancel()
        self._reply.abort()

    async def _read(self) -> None:
        try:
            while (message := await self._messages.next()) is not None:
                if message.get("method") == ACKNOWLEDGED:
                    self.agreed = agreed_on(message)
                    self._agree()
                elif "method" not in message:
                    if isinstance(error := message.get("error"), dict) and not self._acknowledged.done():
                        self._refusal = remote_error(self._exchange.masked(cast(Raw, error)))
                    return
                else:
                    await self._hear(without_subscription(message))
        except BackendUnavailable:
            pass  # cut, or garbage: a new one is the only remedy for both
        finally:
            self._reply.abort()

    def _agree(self) -> None:
        if not self._acknowledged.done():
            self._acknowledged.set_result(None)


async def _follow(
    exchange: Exchange,
    open_stream: Callable[[str | None], Awaitable[Reply]],
    hear: Hear,
) -> str | None:
    failures, unreachable, opened = 0, 0, False
    last_id: str | None = None
    retry_ms: int | None = None
    while True:
        try:
            reply = await open_stream(last_id)
        except SessionGone as error:
            return error.message if opened else None
        except RemoteError:
            return None
        except HttpRefusal as error:
            if not opened or error.status in _FINAL:
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
            messages = exchange.messages(reply)
            try:
                while (message := await messages.next()) is not None:
                    failures = 0
                    await hear(message)
            except BackendUnavailable:
                pass  # cut, or garbage: a new stream is the only remedy for both
            finally:
                reply.abort()
            last_id = messages.last_id or last_id
            retry_ms = retry_ms if messages.retry_ms is None else messages.retry_ms
        await asyncio.sleep(pause(failures, retry_ms))
        failures += 1
