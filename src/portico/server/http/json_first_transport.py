"""Handshake-era transport over HTTP that answers with plain JSON where no stream is needed.

The SDK opens an event stream for every request, which costs it more than the request itself. Here a
stream is opened only for a message before the answer, or after `STREAM_AFTER_S` without one. Either
way the client gets every message, in order; it has declared that it accepts both forms.

Messages are emptied once they are written: the SDK would keep them as long as the session lasts.

`RecentEvents` stores the last messages of a session's streams, so that a client can resume one. The
SDK names a stream by its request's id, which every client counts from one: hence a store a session.
All together are bounded: above that, the session that was quiet longest loses its oldest events.
"""

import asyncio
import contextlib
import itertools
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast
from weakref import ref

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
    SSEEvent,
    check_accept_headers,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from portico.json_text.chunked_decoder import LARGE_BYTES, decode_chunked
from portico.mcp_sdk_internals import SdkHttpTransport, SdkSessionlessTransport
from portico.server.http.large_values import LargeEvent, LargeResponse, find_placeholders

MAX_STREAMS = 64
MAX_EVENTS = 200
MAX_MESSAGE_BYTES = 256 * 2**10
MAX_BYTES = 2 * 2**20
MAX_TOTAL_BYTES = 32 * 2**20
"""Of all sessions: a thousand idle ones must not hold two gigabytes."""

_StoredEvent = tuple[int, JSONRPCMessage | None, int]
"""Number of the event, its message, and the memory it takes."""
STREAM_AFTER_S = 1.0
"""Seconds without an answer after which a stream is opened, which shows the client that work goes
on."""


_NOT_JSON = b"{"


class ReplayBudget:
    """Memory limit over the stores of all sessions, which it references weakly. For one event
    loop."""

    def __init__(self, max_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._stores: OrderedDict[int, tuple[ref[RecentEvents], int]] = OrderedDict()
        """Each store with its size; the most recently used one is last."""
        self._dead_stores: deque[int] = deque()
        """Collected stores: only noted, because a finalizer can run in any thread and at any
        step."""
        self._bytes = 0

    @property
    def held_bytes(self) -> int:
        """Approximate memory of all stores, in bytes."""
        self._remove_dead_stores()
        return self._bytes

    def record_use(self, store: "RecentEvents", size: int) -> None:
        """Record the size of a store that was used, and shrink the quietest ones above the
        limit."""
        if self._dead_stores:
            self._remove_dead_stores()
        key = store.number
        reference, before = self._stores.get(key) or (
            ref(store, lambda _: self._dead_stores.append(key)),
            0,
        )
        self._stores[key] = reference, size
        self._bytes += size - before
        self._stores.move_to_end(key)
        if self._bytes > self._max_bytes:
            self._shrink_quietest()

    def _shrink_quietest(self) -> None:
        for key, (reference, held) in list(self._stores.items()):
            store = reference()
            while store is not None and held and self._bytes > self._max_bytes:
                left = store.shrink()
                self._bytes += left - held
                self._stores[key] = reference, left
                held = left

    def _remove_dead_stores(self) -> None:
        while self._dead_stores:
            if (store := self._stores.pop(self._dead_stores.popleft(), None)) is not None:
                self._bytes -= store[1]


_SHARED_BUDGET = ReplayBudget()
_NUMBERS = itertools.count()


class RecentEvents(EventStore):
    """The latest events of the most recently used streams of one session."""

    def __init__(self, budget: ReplayBudget = _SHARED_BUDGET) -> None:
        self.number = next(_NUMBERS)
        """Unique among all stores of this process."""
        self._budget = budget
        self._counter = itertools.count(1)
        self._streams: OrderedDict[str, deque[_StoredEvent]] = OrderedDict()
        self._bytes = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id; a message over `MAX_MESSAGE_BYTES` is not stored."""
        number = next(self._counter)
        size = _estimate_size(message, MAX_MESSAGE_BYTES)
        if size > MAX_MESSAGE_BYTES:
            message = None
            size = 0
        stream = self._streams.setdefault(stream_id, deque())
        stream.append((number, message, size))
        self._bytes += size
        self._streams.move_to_end(stream_id)
        if len(stream) > MAX_EVENTS:
            self._bytes -= stream.popleft()[2]
        while len(self._streams) > MAX_STREAMS or self._bytes > MAX_BYTES:
            self._drop_oldest()
        self._budget.record_use(self, self._bytes)
        return f"{stream_id}/{number}"

    def has_message(self, event_id: str | None) -> bool:
        """Return whether the message of this event, the last of its stream, is stored."""
        stream = self._streams.get((event_id or "").rpartition("/")[0])
        return stream is not None and stream[-1][1] is not None

    def drop_stream(self, stream_id: str) -> None:
        """Drop a stream that was never opened, so that nobody can resume it."""
        self._bytes -= sum(size for _, _, size in self._streams.pop(stream_id, ()))
        self._budget.record_use(self, self._bytes)

    def shrink(self) -> int:
        """Drop the oldest events and return the bytes that are left."""
        if self._streams:
            self._drop_oldest()
        return self._bytes

    def _drop_oldest(self) -> None:
        stream_id, stream = next(iter(self._streams.items()))
        if len(self._streams) > 1:
            del self._streams[stream_id]
            self._bytes -= sum(size for _, _, size in stream)
        else:
            self._bytes -= stream.popleft()[2]

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send the events after `last_event_id`; return None if its stream is unknown."""
        stream_id, _, number = last_event_id.rpartition("/")
        stream = self._streams.get(stream_id)
        if stream is None or not number.isdecimal():
            return None
        for event, message, _ in list(stream):
            if event > int(number) and message is not None:
                await send_callback(EventMessage(message, f"{stream_id}/{event}"))
        return stream_id


def _estimate_size(message: JSONRPCMessage | None, limit: int) -> int:
    """Estimate the memory of a message in bytes; stops soon after the limit."""
    total = 0
    pending: list[Any] = []
    if message is not None:
        pending += vars(message).values()
    while pending and total <= limit:
        node = pending.pop()
        total += sys.getsizeof(node)
        if isinstance(node, dict):
            pending += node.keys()
            pending += node.values()
        elif isinstance(node, list):
            pending += node
        elif hasattr(node, "__dict__"):
            pending += vars(node).values()
    return total


class JsonFirstTransport(SdkHttpTransport):
    """One session of the handshake era."""

    caller = ""
    """The caller that opened it (`server/http/auth.py`)."""
    principal = ""
    """Id of the principal that opened it, and alone may use it."""
    is_initialized = False
    """Whether `initialize` was answered."""
    is_used = False
    """Whether it made a request after that."""

    def __init__(self, session_id: str, events: RecentEvents, **options: Any) -> None:
        super().__init__(session_id, event_store=events, **options)
        self._events = events

    def create_event(self, event_message: EventMessage) -> SSEEvent:
        data = super().create_event(event_message)
        message = event_message.message
        if texts := find_placeholders(message):
            data = cast("SSEEvent", LargeEvent(data, texts))
        if isinstance(message, JSONRPCResponse):
            self.is_initialized = True
            if not self._events.has_message(event_message.event_id):
                message.result = {}
        return data

    async def handle_post(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        message = await _parse_request(request)
        if message is not None and message.method == "initialize":
            message = None
        self.is_used = self.is_used or message is not None
        # The SDK handles everything but plain valid requests, and answers with its own errors.
        if message is None or not self.can_accept(message, request):
            await super().handle_post(scope, request, receive, send)
            return
        try:
            await self._answer(message, request, scope, receive, send)
        finally:
            # The session keeps a reference to its last request.
            message.params = None
            request._body = b""  # pyright: ignore[reportPrivateUsage]

    async def _answer(
        self, message: JSONRPCRequest, request: Request, scope: Scope, receive: Receive, send: Send
    ) -> None:
        stream = str(message.id)
        if (started := await self.start_request(message, request, send)) is None:
            return
        priming_event, messages = started
        first: EventMessage | None = None
        try:
            with (
                anyio.move_on_after(STREAM_AFTER_S),
                contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError),
            ):
                first = await messages.receive()
        except BaseException:
            await self.end_request(stream)
            raise
        if first is None or not isinstance(first.message, JSONRPCResponse | JSONRPCError):
            initial_events = [priming_event, first and self.create_event(first)]
            await self._respond_with_stream(stream, messages, initial_events, scope, receive, send)
            return
        await self.end_request(stream)
        self._events.drop_stream(stream)
        response = self.create_json_response(first.message)
        if texts := find_placeholders(first.message):
            response = LargeResponse(response, texts)
        if isinstance(first.message, JSONRPCResponse):
            first.message.result = {}
        await response(scope, receive, send)

    async def _respond_with_stream(
        self,
        stream: str,
        messages: MemoryObjectReceiveStream[EventMessage],
        initial_events: "list[SSEEvent | None]",
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer with a stream: the initial events, then all messages up to the answer."""
        writer, reader = anyio.create_memory_object_stream[SSEEvent](0)
        self.register_event_writer(stream, writer)
        headers = {"Cache-Control": "no-cache, no-transform", "Connection": "keep-alive"}
        if self.mcp_session_id:
            headers[MCP_SESSION_ID_HEADER] = self.mcp_session_id
        response = EventSourceResponse(
            content=reader,
            data_sender_callable=partial(
                self._write_all_events,
                stream,
                writer,
                messages,
                [event for event in initial_events if event],
            ),
            headers=headers,
        )
        try:
            await response(scope, receive, send)
        finally:
            await writer.aclose()
            await reader.aclose()
            await messages.aclose()

    async def _write_all_events(
        self,
        stream: str,
        writer: MemoryObjectSendStream[SSEEvent],
        messages: MemoryObjectReceiveStream[EventMessage],
        initial_events: "list[SSEEvent]",
    ) -> None:
        for event in initial_events[:-1]:
            await writer.send(event)
        await self.write_events(
            stream, writer, messages, initial_events[-1] if initial_events else None
        )


class NoSessionTransport(SdkSessionlessTransport):
    """Handles handshake-era requests without a session id: `initialize` opens one, others are
    refused."""

    def __init__(
        self,
        open_session: Callable[[Scope, Receive, Send], Awaitable[None]],
        security_settings: TransportSecuritySettings | None,
    ) -> None:
        super().__init__(security_settings)
        self._open_session = open_session

    async def handle_post(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        message = await _parse_request(request)
        is_acceptable = self.has_valid_content_type(request) and all(check_accept_headers(request))
        if message is None or message.method != "initialize" or not is_acceptable:
            await super().handle_post(scope, request, receive, send)
            return
        body: Message = {"type": "http.request", "body": await request.body(), "more_body": False}
        unread = [body]

        async def receive_again() -> Message:
            if unread:
                return unread.pop()
            return await receive()

        await self._open_session(scope, receive_again, send)


def _decode_large(body: bytes) -> Any:
    # Half a surrogate pair is refused; decoding in pieces would replace it.
    if b"\\" in body and (b"\\ud" in body or b"\\uD" in body):
        return from_json(body)
    return decode_chunked(body, is_counted=True)  # by the middleware that read it


async def _parse_request(request: Request) -> JSONRPCRequest | None:
    """Return the request in a body; None for anything else."""
    body = await request.body()
    try:
        if len(body) < LARGE_BYTES:
            value = from_json(body)
        else:
            value = await asyncio.to_thread(_decode_large, body)
    except ValueError:
        if len(body) >= LARGE_BYTES:
            # The SDK decodes it again to refuse it, all of it in one step.
            request._body = _NOT_JSON  # pyright: ignore[reportPrivateUsage]
        return None
    try:
        message = jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        return None
    if isinstance(message, JSONRPCRequest):
        return message
    return None
