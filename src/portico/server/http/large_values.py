"""Large parts of messages to clients over HTTP: encoded once, in a thread, and sent in pieces.

The SDK encodes a message in one step on the event loop, 8 ms for a megabyte. So a large member of a
result or of params is encoded before the SDK gets it, and a short text stands for it in the message
that the SDK encodes; that text is exchanged for the member where the message leaves.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, cast
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
"""In the scope of a request of the modern era: what stands for large parts of its answer."""
_PLACEHOLDER_PATTERN = re.compile(rb'"(portico-large-[0-9a-f]{32})"')
_MAX_MEMBERS = 64
"""A message with more members than any that the protocol knows is not looked through."""


class LargeValuePlaceholder(str):
    """Stands for a large value; unique."""

    pieces: list[bytes]
    """The value as JSON; emptied when it is sent."""

    def __sizeof__(self) -> int:
        return sum(map(len, self.pieces))


Placeholders = dict[bytes, LargeValuePlaceholder]


async def replace_large_members(
    message: Mapping[str, Any], scope: Scope | None, era: Era
) -> dict[str, Any]:
    """A result, or params, that the SDK encodes quickly: large members are encoded, and a text
    stands for each.

    `scope` is that of the HTTP request which the message is about; on other wires there is none, and the message stays
    as it is. Raises RemoteError where it is nested too deep.
    """
    if scope is None or len(message) > _MAX_MEMBERS or not chunked_encoder.is_large(message):
        return ensure_encodable(dict(message), allow_surrogates=scope is None)
    short = dict(message)
    for name, value in message.items():
        if not chunked_encoder.is_large(value):
            short[name] = ensure_encodable(value, allow_surrogates=False)
            continue
        short[name] = text = LargeValuePlaceholder(f"portico-large-{uuid4().hex}")
        try:
            text.pieces = await chunked_encoder.encode(value, encode_json)
        except chunked_encoder.TooDeep:
            raise make_nesting_error() from None
        if era == "modern":  # the SDK makes another text of it before it can be seen in a message
            scope.setdefault(_PLACEHOLDERS, {})[text.encode()] = text
    return short


def find_placeholders(message: JSONRPCMessage) -> Placeholders:
    """What stands for large members in a message of the handshake era."""
    members: Any = getattr(message, "result", None) or getattr(message, "params", None) or {}
    return {one.encode(): one for one in members.values() if isinstance(one, LargeValuePlaceholder)}


class LargeEvent(ServerSentEvent):
    """An event with texts that stand for large members."""

    def __init__(self, event: SSEEvent, placeholders: Placeholders) -> None:
        super().__init__(**event)
        self._placeholders = placeholders

    def encode(self) -> bytes:
        body = _EventBody(super().encode())
        body.placeholders = self._placeholders
        return body


class LargeResponse(Response):
    """A response of JSON with texts that stand for large members."""

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
    """An encoded event, with what stands in it for large members."""

    placeholders: Placeholders


class PieceSender:
    """Sends messages of the SDK, with large members in the place of what stands for them."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        body: Any = message.get("body", b"")
        texts = cast(
            "Placeholders | None",
            body.placeholders if isinstance(body, _EventBody) else self._scope.get(_PLACEHOLDERS),
        )
        if not texts:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = message  # how long the body is, is known with it
        else:
            parts = _substitute_values(body, texts)
            if self._start is not None:
                await self._send(_set_content_length(self._start, sum(map(len, parts))))
                self._start = None
            await self._send({**message, "body": b"", PARTS_KEY: parts})


def _substitute_values(body: bytes, placeholders: Placeholders) -> deque[bytes]:
    """An encoded message in parts; texts that were exchanged are emptied and forgotten."""
    parts: deque[bytes] = deque()
    at = 0
    for found in _PLACEHOLDER_PATTERN.finditer(body):
        if (text := placeholders.pop(found[1], None)) is not None:
            parts.append(body[at : found.start()])
            parts += text.pieces
            text.pieces.clear()
            at = found.end()
    parts.append(body[at:])
    return parts


def _set_content_length(start: Message, length: int) -> Message:
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    if len(headers) < len(start["headers"]):
        headers.append((b"content-length", str(length).encode()))
    return {**start, "headers": headers}
