"""Large values in messages to HTTP clients: encoded once, in a thread, and sent in pieces.

The SDK encodes a message in one step on the event loop, 8 ms for a megabyte. So a large member of a
result or of params is encoded before the SDK gets it and replaced by a short placeholder, which is
substituted again where the encoded message is sent.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from mcp.server.streamable_http import SSEEvent
from mcp_types import JSONRPCMessage
from sse_starlette import ServerSentEvent
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from portico.json_text import chunked_encoder
from portico.server.http.spooled_responses import PARTS_KEY
from portico.server.requests.wire_json import encode_json, ensure_encodable, make_nesting_error
from portico.upstream.backend import Era

_PLACEHOLDERS = "portico.large_texts"
"""Key in the ASGI scope of a modern request: placeholders in its answer."""
_PLACEHOLDER_PATTERN = re.compile(rb'"(portico-large-[0-9a-f]{32})"')
_MAX_MEMBERS = 64
"""A message with more members than any of the protocol is not searched."""


class LargeValuePlaceholder(str):
    """Unique text that stands for a large value."""

    pieces: list[bytes]
    """The value as JSON; emptied when it is sent."""

    def __sizeof__(self) -> int:
        return sum(map(len, self.pieces))


Placeholders = dict[bytes, LargeValuePlaceholder]


async def replace_large_members(
    message: Mapping[str, Any], scope: Scope | None, era: Era
) -> dict[str, Any]:
    """Encode large members of a result or of params and replace them by placeholders.

    `scope` is that of the HTTP request; without one (stdio) the message stays as it is. Raises
    RemoteError if a value is nested too deep.
    """
    if scope is None or len(message) > _MAX_MEMBERS or not chunked_encoder.is_large(message):
        return ensure_encodable(dict(message), allow_surrogates=scope is None)
    replaced = dict(message)
    for name, value in message.items():
        if not chunked_encoder.is_large(value):
            replaced[name] = ensure_encodable(value, allow_surrogates=False)
            continue
        replaced[name] = placeholder = LargeValuePlaceholder(f"portico-large-{uuid4().hex}")
        try:
            placeholder.pieces = await chunked_encoder.encode(value, encode_json)
        except chunked_encoder.TooDeep:
            raise make_nesting_error() from None
        # In the modern era the SDK copies the text, so that the message loses its type.
        if era == "modern":
            scope.setdefault(_PLACEHOLDERS, {})[placeholder.encode()] = placeholder
    return replaced


def find_placeholders(message: JSONRPCMessage) -> Placeholders:
    """Return the placeholders in a message of the handshake era."""
    members: Any = getattr(message, "result", None) or getattr(message, "params", None) or {}
    return {
        value.encode(): value
        for value in members.values()
        if isinstance(value, LargeValuePlaceholder)
    }


class LargeEvent(ServerSentEvent):
    """A server-sent event with placeholders."""

    def __init__(self, event: SSEEvent, placeholders: Placeholders) -> None:
        super().__init__(**event)
        self._placeholders = placeholders

    def encode(self) -> bytes:
        body = _EventBody(super().encode())
        body.placeholders = self._placeholders
        return body


class LargeResponse(Response):
    """A JSON response with placeholders."""

    def __init__(self, response: Response, placeholders: Placeholders) -> None:
        self._parts = _substitute_values(bytes(response.body), placeholders)
        headers = {**response.headers, "content-length": str(sum(map(len, self._parts)))}
        super().__init__(None, response.status_code, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": b"", PARTS_KEY: self._parts})


class _EventBody(bytes):
    """An encoded event with its placeholders."""

    placeholders: Placeholders


class PieceSender:
    """ASGI `send` that substitutes placeholders in messages of the SDK."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        body: Any = message.get("body", b"")
        placeholders: Placeholders | None = self._scope.get(_PLACEHOLDERS)
        if isinstance(body, _EventBody):
            placeholders = body.placeholders
        if not placeholders:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = message  # sent with the body, when its length is known
        else:
            parts = _substitute_values(body, placeholders)
            if self._start is not None:
                await self._send(_set_content_length(self._start, sum(map(len, parts))))
                self._start = None
            await self._send({**message, "body": b"", PARTS_KEY: parts})


def _substitute_values(body: bytes, placeholders: Placeholders) -> deque[bytes]:
    """Split an encoded message into parts; substituted placeholders are emptied and removed."""
    parts: deque[bytes] = deque()
    at = 0
    for match in _PLACEHOLDER_PATTERN.finditer(body):
        if (placeholder := placeholders.pop(match[1], None)) is not None:
            parts.append(body[at : match.start()])
            parts += placeholder.pieces
            placeholder.pieces.clear()
            at = match.end()
    parts.append(body[at:])
    return parts


def _set_content_length(start: Message, length: int) -> Message:
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    if len(headers) < len(start["headers"]):
        headers.append((b"content-length", str(length).encode()))
    return {**start, "headers": headers}
