"""Large parts of messages to clients over HTTP: encoded once, in a thread, and sent in pieces.

The SDK encodes a message in one step on the event loop, 8 ms for a megabyte. So a large member of a result or of params
is encoded before the SDK gets it, and a short text stands for it in the message that the SDK encodes; that text is
exchanged for the member where the message leaves.
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

from portico.server.passable import encode_passable, nested_too_deep, passable
from portico.server.unread_answers import PARTS
from portico.upstream import json_pieces
from portico.upstream.backend import Era

_TEXTS = "portico.large_texts"
"""In the scope of a request of the modern era: what stands for large parts of its answer."""
_STANDS = re.compile(rb'"(portico-large-[0-9a-f]{32})"')
_MAX_MEMBERS = 64
"""A message with more members than any that the protocol knows is not looked through."""


class LargeText(str):
    """Stands for a large value; unique."""

    pieces: list[bytes]
    """The value as JSON; emptied when it is sent."""

    def __sizeof__(self) -> int:
        return sum(map(len, self.pieces))


Texts = dict[bytes, LargeText]


async def shorten(message: Mapping[str, Any], scope: Scope | None, era: Era) -> dict[str, Any]:
    """A result, or params, that the SDK encodes quickly: large members are encoded, and a text stands for each.

    `scope` is that of the HTTP request which the message is about; on other wires there is none, and the message stays
    as it is. Raises RemoteError where it is nested too deep.
    """
    if scope is None or len(message) > _MAX_MEMBERS or not json_pieces.is_large(message):
        return passable(dict(message), escaped=scope is None)
    short = dict(message)
    for name, value in message.items():
        if not json_pieces.is_large(value):
            short[name] = passable(value, escaped=False)
            continue
        short[name] = text = LargeText(f"portico-large-{uuid4().hex}")
        try:
            text.pieces = await json_pieces.encode(value, encode_passable)
        except json_pieces.TooDeep:
            raise nested_too_deep() from None
        if era == "modern":  # the SDK makes another text of it before it can be seen in a message
            scope.setdefault(_TEXTS, {})[text.encode()] = text
    return short


def find_texts(message: JSONRPCMessage) -> Texts:
    """What stands for large members in a message of the handshake era."""
    members: Any = getattr(message, "result", None) or getattr(message, "params", None) or {}
    return {one.encode(): one for one in members.values() if isinstance(one, LargeText)}


class LargeEvent(ServerSentEvent):
    """An event with texts that stand for large members."""

    def __init__(self, event: SSEEvent, texts: Texts) -> None:
        super().__init__(**event)
        self._texts = texts

    def encode(self) -> bytes:
        body = _Body(super().encode())
        body.texts = self._texts
        return body


class LargeResponse(Response):
    """A response of JSON with texts that stand for large members."""

    def __init__(self, response: Response, texts: Texts) -> None:
        self._parts = _exchange(bytes(response.body), texts)
        headers = {**response.headers, "content-length": str(sum(map(len, self._parts)))}
        super().__init__(None, response.status_code, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b"", PARTS: self._parts})


class _Body(bytes):
    """An encoded event, with what stands in it for large members."""

    texts: Texts


class InPieces:
    """Sends messages of the SDK, with large members in the place of what stands for them."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        body: Any = message.get("body", b"")
        texts = cast("Texts | None", body.texts if isinstance(body, _Body) else self._scope.get(_TEXTS))
        if not texts:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = message  # how long the body is, is known with it
        else:
            parts = _exchange(body, texts)
            if self._start is not None:
                await self._send(_with_length(self._start, sum(map(len, parts))))
                self._start = None
            await self._send({**message, "body": b"", PARTS: parts})


def _exchange(body: bytes, texts: Texts) -> deque[bytes]:
    """An encoded message in parts; texts that were exchanged are emptied and forgotten."""
    parts: deque[bytes] = deque()
    at = 0
    for found in _STANDS.finditer(body):
        if (text := texts.pop(found[1], None)) is not None:
            parts.append(body[at : found.start()])
            parts += text.pieces
            text.pieces.clear()
            at = found.end()
    parts.append(body[at:])
    return parts


def _with_length(start: Message, length: int) -> Message:
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    if len(headers) < len(start["headers"]):
        headers.append((b"content-length", str(length).encode()))
    return {**start, "headers": headers}
