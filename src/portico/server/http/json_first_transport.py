"""Handshake-era transport over HTTP that answers with plain JSON where no stream is needed.

The SDK opens an event stream for every request, which costs it more than the request itself. Here a
stream is opened only for a message before the answer, or after `STREAM_AFTER_S` without one. Either
way the client gets every message, in order; it has declared that it accepts both forms.

Messages are emptied once they are written: the SDK would keep them as long as the session lasts.
"""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    SSEEvent,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from portico.server.http.large_values import LargeEvent, LargeResponse, find_placeholders
from portico.server.http.replay import RecentEvents

STREAM_AFTER_S = 1.0
"""Seconds without an answer after which a stream is opened, which shows the client that work goes
on."""


class JsonFirstTransport(StreamableHTTPServerTransport):
    """One session of the handshake era."""

    caller = ""
    """The caller that opened it (`server/http/callers.py`)."""
    is_initialized = False
    """Whether `initialize` was answered."""
    is_used = False
    """Whether it made a request after that."""

    def _create_event_data(self, event_message: EventMessage) -> SSEEvent:
        data = super()._create_event_data(event_message)
        message = event_message.message
        if texts := find_placeholders(message):
            data = cast("SSEEvent", LargeEvent(data, texts))
        if isinstance(message, JSONRPCResponse):
            self.is_initialized = True
            if isinstance(self._event_store, RecentEvents) and not self._event_store.has_message(
                event_message.event_id
            ):
                _clear_response(message)
        return data

    async def _handle_post_request(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        message = await _parse_session_request(request)
        self.is_used = self.is_used or message is not None
        # The SDK handles everything but plain valid requests, and answers with its own errors.
        if (
            message is None
            or self._read_stream_writer is None
            or str(message.id) in self._request_streams
            or not self._check_content_type(request)
        ):
            await super()._handle_post_request(scope, request, receive, send)
            return
        if not await self._validate_accept_header(request, scope, send):
            return
        if not await self._validate_request_headers(request, send):
            return
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        stream = str(message.id)
        priming_event = await self._mint_priming_event(stream, version)
        streams = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[stream] = streams
        try:
            await self._read_stream_writer.send(
                self._create_session_message(message, request, stream, version)
            )
            first = await _receive_first(streams[1])
        except BaseException:
            await self._clean_up_memory_streams(stream)
            raise
        if first is not None and isinstance(first.message, JSONRPCResponse | JSONRPCError):
            await self._clean_up_memory_streams(stream)
            if isinstance(self._event_store, RecentEvents):
                self._event_store.drop_stream(stream)
            response = self._create_json_response(first.message)
            if texts := find_placeholders(first.message):
                response = LargeResponse(response, texts)
            _clear_response(first.message)
            _clear_request(message, request)
            await response(scope, receive, send)
            return
        try:
            initial_events = [priming_event, first and self._create_event_data(first)]
            await self._respond_with_stream(
                stream, streams[1], initial_events, scope, receive, send
            )
        finally:
            _clear_request(message, request)

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
        # If the stream was closed by the server meanwhile, the client has to reconnect.
        if stream in self._request_streams:
            self._sse_stream_writers[stream] = writer
        headers = {"Cache-Control": "no-cache, no-transform", "Connection": "keep-alive"}
        if self.mcp_session_id:
            headers[MCP_SESSION_ID_HEADER] = self.mcp_session_id
        response = EventSourceResponse(
            content=reader,
            data_sender_callable=partial(
                self._write_events,
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

    async def _write_events(
        self,
        stream: str,
        writer: MemoryObjectSendStream[SSEEvent],
        messages: MemoryObjectReceiveStream[EventMessage],
        initial_events: "list[SSEEvent]",
    ) -> None:
        for event in initial_events[:-1]:
            await writer.send(event)
        await self._run_sse_writer(
            stream, writer, messages, initial_events[-1] if initial_events else None
        )


class NoSessionTransport(StreamableHTTPServerTransport):
    """Handles handshake-era requests without a session id: `initialize` opens one, others are
    refused.

    Refusals are the SDK's own, without a session being opened for them.
    """

    def __init__(
        self,
        open_session: Callable[[Scope, Receive, Send], Awaitable[None]],
        security_settings: TransportSecuritySettings | None,
    ) -> None:
        super().__init__(None, security_settings=security_settings)
        self._open_session = open_session
        # The SDK checks that it is set; it is never written to, because no message is forwarded.
        self._read_stream_writer = cast("Any", object())

    async def _handle_post_request(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        message = await _parse_request(request)
        is_acceptable = self._check_content_type(request) and all(check_accept_headers(request))
        if message is None or message.method != "initialize" or not is_acceptable:
            await super()._handle_post_request(scope, request, receive, send)
            return
        body: Message = {"type": "http.request", "body": await request.body(), "more_body": False}
        unread = [body]

        async def receive_again() -> Message:
            if unread:
                return unread.pop()
            return await receive()

        await self._open_session(scope, receive_again, send)

    async def _handle_delete_request(self, request: Request, send: Send) -> None:
        await self._validate_session(request, send)

    async def _validate_session(self, request: Request, send: Send) -> bool:
        refused = self._create_error_response(
            "Bad Request: Missing session ID", HTTPStatus.BAD_REQUEST
        )
        await refused(request.scope, request.receive, send)
        return False


def _clear_response(message: JSONRPCResponse | JSONRPCError) -> None:
    """Empty an answer that has been written: the SDK keeps the last message of a session."""
    if isinstance(message, JSONRPCResponse):
        message.result = {}


def _clear_request(message: JSONRPCRequest, request: Request) -> None:
    """Empty a request that has been answered, and its body."""
    message.params = None
    request._body = b""  # pyright: ignore[reportPrivateUsage]


async def _parse_session_request(request: Request) -> JSONRPCRequest | None:
    """Return the request in a body; None for anything else and for `initialize`."""
    message = await _parse_request(request)
    if message is not None and message.method != "initialize":
        return message
    return None


async def _parse_request(request: Request) -> JSONRPCRequest | None:
    """Return the request in a body; None for anything else."""
    try:
        message = jsonrpc_message_adapter.validate_python(
            from_json(await request.body()), by_name=False
        )
    except (ValueError, ValidationError):
        return None
    if isinstance(message, JSONRPCRequest):
        return message
    return None


async def _receive_first(messages: MemoryObjectReceiveStream[EventMessage]) -> EventMessage | None:
    """Return the first message about a request; None if there is none within `STREAM_AFTER_S`."""
    with (
        anyio.move_on_after(STREAM_AFTER_S),
        contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError),
    ):
        return await messages.receive()
    return None
