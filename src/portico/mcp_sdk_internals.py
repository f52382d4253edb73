"""Private members of the `mcp` SDK, all of them: nothing else in Portico touches one.

They may change with any minor version, so `mcp` is pinned to one in pyproject.toml. When it is
updated, compare these with the new SDK and run `tests/server` and `tests/conformance`:

- `ServerSession._connection` (mcp/server/session.py): state and teardown of a connection.
- `StreamableHTTPServerTransport` (mcp/server/streamable_http.py):
  - `_handle_post_request`, `_handle_delete_request`, `_validate_session`: handlers that Portico
    overrides; compare with `_handle_request`, which calls them.
  - `_check_content_type`, `_validate_accept_header`, `_validate_request_headers`: checks of a POST.
  - `_read_stream_writer`, `_request_streams`, `_mint_priming_event`, `_create_session_message`,
    `_clean_up_memory_streams`: pass a request to the session and receive the messages about it;
    compare with `_handle_post_request`.
  - `_sse_stream_writers`, `_run_sse_writer`, `_create_event_data`: write messages as an event
    stream; compare with the end of `_handle_post_request`.
  - `_create_json_response`, `_create_error_response`: answers.
- `StreamableHTTPSessionManager` (mcp/server/streamable_http_manager.py): `_handle_request`,
  `_server_instances`, `_serve_opening_request`, `_discard_session`: sessions that Portico opens
  and evicts; compare with `_handle_stateful_request`.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from operator import attrgetter
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import (
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    SSEEvent,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import DEFAULT_NEGOTIATED_VERSION, JSONRPCRequest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

get_connection: Callable[[ServerRequestContext[Any, Any]], Connection] = attrgetter(
    "session._connection"
)
"""Returns the connection of a request, to which the SDK gives handlers no access."""


class SdkHttpTransport(StreamableHTTPServerTransport):
    """The SDK's transport of one session, with its handlers and steps under public names."""

    has_valid_content_type = StreamableHTTPServerTransport._check_content_type
    create_json_response = StreamableHTTPServerTransport._create_json_response
    create_refusal = StreamableHTTPServerTransport._create_error_response
    end_request = StreamableHTTPServerTransport._clean_up_memory_streams
    """Receives no more messages about a request, by the name of its stream."""

    async def handle_post(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        """Answer a POST request; to be overridden."""
        await super()._handle_post_request(scope, request, receive, send)

    def create_event(self, event_message: EventMessage) -> SSEEvent:
        """Return a message as an event; to be overridden."""
        return super()._create_event_data(event_message)

    def can_accept(self, message: JSONRPCRequest, request: Request) -> bool:
        """Return whether `start_request` can pass on a request; the SDK refuses all others."""
        return (
            self._read_stream_writer is not None
            and str(message.id) not in self._request_streams
            and self._check_content_type(request)
        )

    async def start_request(
        self, message: JSONRPCRequest, request: Request, send: Send
    ) -> tuple[SSEEvent | None, MemoryObjectReceiveStream[EventMessage]] | None:
        """Pass a request to the session.

        Returns the event by which a stream of it can be resumed, and the messages about it; None if
        its headers are not valid: then it is answered.
        """
        assert self._read_stream_writer is not None
        if not await self._validate_accept_header(
            request, request.scope, send
        ) or not await self._validate_request_headers(request, send):
            return None
        stream = str(message.id)
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        priming_event = await self._mint_priming_event(stream, version)
        streams = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[stream] = streams
        try:
            await self._read_stream_writer.send(
                self._create_session_message(message, request, stream, version)
            )
        except BaseException:
            await self.end_request(stream)
            raise
        return priming_event, streams[1]

    def register_event_writer(self, stream: str, writer: MemoryObjectSendStream[SSEEvent]) -> None:
        """Let the session close the stream of a request, unless it has closed it already; then the
        client has to reconnect."""
        if stream in self._request_streams:
            self._sse_stream_writers[stream] = writer

    async def write_events(
        self,
        stream: str,
        writer: MemoryObjectSendStream[SSEEvent],
        messages: MemoryObjectReceiveStream[EventMessage],
        first: SSEEvent | None,
    ) -> None:
        """Write the first event and all messages about a request, up to its answer."""
        await self._run_sse_writer(stream, writer, messages, first)

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the SDK call the overridden handlers."""
        super().__init_subclass__(**options)
        cls._handle_post_request = cls.handle_post
        cls._create_event_data = cls.create_event


class SdkSessionlessTransport(SdkHttpTransport):
    """The SDK's transport of requests without a session id: it refuses all but what `handle_post`
    accepts."""

    def __init__(self, security_settings: TransportSecuritySettings | None) -> None:
        super().__init__(None, security_settings=security_settings)
        # Requests are answered though no session is connected: none is passed on.
        self._read_stream_writer = cast("Any", object())

    async def _handle_delete_request(self, request: Request, send: Send) -> None:
        await self._validate_session(request, send)

    async def _validate_session(self, request: Request, send: Send) -> bool:
        refused = self.create_refusal("Bad Request: Missing session ID", HTTPStatus.BAD_REQUEST)
        await refused(request.scope, request.receive, send)
        return False


class HttpSessionManager(StreamableHTTPSessionManager):
    """The SDK's session manager, with access to its sessions."""

    @property
    def transports(self) -> Mapping[str, StreamableHTTPServerTransport]:
        return self._server_instances

    handle_request = StreamableHTTPSessionManager._handle_request
    """Answers a request whose body is already buffered and within limits; the base class would copy
    the body twice to check that."""

    async def open_session(
        self,
        session_id: str,
        transport: SdkHttpTransport,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Open a session and answer the request that opens it."""
        self._server_instances[session_id] = transport
        await self._serve_opening_request(transport, scope, receive, send)

    async def close_session(
        self, session_id: str, transport: StreamableHTTPServerTransport
    ) -> None:
        """Forget a session; whatever reaches it from now on is refused."""
        await self._discard_session(session_id, transport)
