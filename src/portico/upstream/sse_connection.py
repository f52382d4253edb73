"""One conversation over HTTP+SSE: an event stream from the server, and POSTs to the address it names.

Handshake era only. The conversation lasts as long as its stream: there is nothing to resume.
"""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin

from portico.errors import BackendUnavailable
from portico.upstream.backend import NO_OPTIONS, Ask, Hello, Listener, Raw
from portico.upstream.envelope import legacy_params
from portico.upstream.eventstream import EventStream, EventTooLarge
from portico.upstream.handshake import introduce
from portico.upstream.http_exchange import Exchange, ServerUnreachable
from portico.upstream.http_headers import address_of, safe_url
from portico.upstream.http_refusal import HttpRefusal
from portico.upstream.peer import Peer
from portico.upstream.turns import Turns
from portico.upstream.wire import Reply, WireError

if TYPE_CHECKING:
    from portico.upstream.sse import SseBackend

ENDPOINT_S = 10.0
"""How long a server may take to name the address it wants messages at."""
ANSWERS = 16
"""Answers to a server's own requests that are sent at the same time: each is a connection of its own."""


class SseConnection:
    """One open stream."""

    def __init__(self, backend: "SseBackend", listener: Listener) -> None:
        self._backend = backend
        self._listener = listener
        self._peer = Peer(backend.name, self._post, listener, backend.roots)
        self._stream = self._exchange(backend.url)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._outbox: Exchange | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._hello: Hello | None = None
        self._ended = False
        self._answers = asyncio.Semaphore(ANSWERS)

    @property
    def hello(self) -> Hello:
        if self._hello is None:
            raise BackendUnavailable(f"{self._backend.name}: the connection was never opened")
        return self._hello

    async def open(self) -> None:
        """Open the stream, wait for the address, shake hands."""
        reply = await self._stream.stream(None)
        self._reading = asyncio.create_task(self._read(reply))
        try:
            async with asyncio.timeout(ENDPOINT_S):
                named = await self._endpoint
        except TimeoutError:
            raise BackendUnavailable(
                f"{self._backend.name} ({safe_url(self._backend.url)}) did not say where to send messages",
                advice="If it is a Streamable HTTP server, set type: http.",
            ) from None
        self._outbox = self._exchange(endpoint_url(self._backend.name, self._backend.url, named))
        self._hello = await introduce(self, "legacy", None)

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """Send a request."""
        return await self._peer.request(method, legacy_params(params), ask)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Send a notification."""
        await self._peer.notify(method, legacy_params(params))

    async def send_request(self, method: str, params: Raw | None) -> Raw:
        """A request of the handshake."""
        return await self._peer.request(method, params)

    async def send_notification(self, method: str, params: Raw | None) -> None:
        """A notification of the handshake."""
        await self._peer.notify(method, params)

    async def close(self) -> None:
        """Hang up."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._peer.end("the connection was closed")
        await self._peer.join()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._endpoint.done() and not self._endpoint.cancelled():
            self._endpoint.exception()  # nobody may have waited for it
        for exchange in (self._outbox, self._stream):
            if exchange is not None:
                await exchange.close()

    async def _post(self, frame: Raw) -> None:
        if self._outbox is None:
            raise BackendUnavailable(f"{self._backend.name}: the connection was never opened")
        try:
            if "method" in frame:
                await self._outbox.tell(frame)
            else:
                async with self._answers:
                    await self._outbox.tell(frame)
        except (ServerUnreachable, HttpRefusal) as error:
            if isinstance(error, ServerUnreachable) or error.status == 404:
                self._lost(error.message)
            raise
        self._backend.notes["requests"] = self._outbox.sent

    async def _read(self, reply: Reply) -> None:
        events, turns = EventStream(self._backend.max_message_bytes), Turns()
        reason = "the server ended its event stream"
        try:
            while chunk := await reply.chunk():
                for event in events.feed(chunk):
                    if event.type == "endpoint" and not self._endpoint.done():
                        self._endpoint.set_result(event.data.decode("utf-8", "replace"))
                    elif event.type == "message" and event.data:
                        await turns.taken()
                        for message in await self._stream.decoded(event.data):
                            self._peer.receive(self._stream.masked(message) if "error" in message else message)
                        turns.spend(len(event.data))
        except EventTooLarge:
            reason = f"the server sent a message over {self._backend.max_message_bytes} bytes"
        except (WireError, BackendUnavailable) as error:
            reason = str(error)
        finally:
            reply.abort()
        self._lost(reason)

    def _lost(self, reason: str) -> None:
        if self._closing is not None or self._ended:
            return
        self._ended = True
        self._backend.notes["last_error"] = reason
        self._peer.end(reason)
        if not self._endpoint.done():
            self._endpoint.set_exception(BackendUnavailable(f"{self._backend.name}: {reason}"))
        if self._hello is not None:
            self._listener.lost(reason)

    def _exchange(self, url: str) -> Exchange:
        return Exchange(self._backend.name, url, self._backend.headers, self._backend.max_message_bytes)


def endpoint_url(name: str, stream_url: str, named: str) -> str:
    """The address a server named, which must be its own: our credentials go there."""
    target = urljoin(stream_url, named)
    ours, theirs = address_of(stream_url), address_of(target)
    if _origin(ours) != _origin(theirs):
        error = BackendUnavailable(
            f"{name} wants messages sent to another server ({safe_url(target)})",
            advice="Credentials are not sent elsewhere. Use the host in the url that the server itself uses.",
        )
        error.retryable = False
        raise error
    if ours.username is not None and theirs.username is None:
        return theirs._replace(netloc=ours.netloc).geturl()
    return target


def _origin(address: SplitResult) -> tuple[str, str | None, int | None]:
    return address.scheme, address.hostname, address.port or {"http": 80, "https": 443}.get(address.scheme)
