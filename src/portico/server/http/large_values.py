"""Values in messages to clients: checked before the SDK fails on them, large ones sent in pieces.

A message that the SDK cannot encode is not answered at all, and the client would wait forever. And
it encodes a message in one step on the event loop, 8 ms for a megabyte: over HTTP, a large member
of a result or of params is encoded before the SDK gets it and replaced by a short placeholder,
which is substituted again where the encoded message is sent.
"""

import contextlib
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import orjson
from mcp.server.streamable_http import SSEEvent
from mcp_types import JSONRPCMessage
from sse_starlette import ServerSentEvent
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from portico.errors import INTERNAL_ERROR, INVALID_REQUEST, RemoteError
from portico.json_text import json_codec
from portico.server.http.spooled_responses import PARTS_KEY
from portico.upstream.backend import Era

MAX_DEPTH = 250
"""Levels of nesting; the libraries that encode messages fail a little above it."""
_PLACEHOLDERS = "portico.large_texts"
"""Key in the ASGI scope of a modern request: placeholders in its answer."""
_PLACEHOLDER_PATTERN = re.compile(rb'"(portico-large-[0-9a-f]{32})"')
_SDK_ERROR_MARKER = b"validation error"
_MAX_MEMBERS = 64
"""A message with more members than any of the protocol is not searched."""


class LargeValuePlaceholder(str):
    """Unique text that stands for a large value."""

    pieces: list[bytes]
    """The value as JSON; emptied when it is sent."""

    def __sizeof__(self) -> int:
        return sum(map(len, self.pieces))


Placeholders = dict[bytes, LargeValuePlaceholder]


def ensure_encodable(value: Any, *, allow_surrogates: bool) -> Any:
    """Return the value as the wire can carry it; raises RemoteError if it is nested too deep.

    `allow_surrogates` is for wires that can carry lone surrogates; elsewhere they become U+FFFD.
    """
    try:
        # The fastest check of every part: a small fraction of the cost of sending it.
        orjson.dumps(value)
    except TypeError:
        if _is_deeper_than(MAX_DEPTH, value):
            raise _make_nesting_error() from None
        if not allow_surrogates:
            return json_codec.replace_lone_surrogates(value)
    return value


def _encode_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return json_codec.dumps(ensure_encodable(value, allow_surrogates=False))


def _make_nesting_error() -> RemoteError:
    reason = f"it is nested more than {MAX_DEPTH} levels deep"
    return RemoteError(INTERNAL_ERROR, f"the server's answer cannot be passed on: {reason}")


def _is_deeper_than(limit: int, value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        children: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                children += node.values()
            elif isinstance(node, list | tuple):
                children += node
        level = [child for child in children if isinstance(child, dict | list | tuple)]
        if not level:
            return False
    return True


async def replace_large_members(
    message: Mapping[str, Any], scope: Scope | None, era: Era
) -> dict[str, Any]:
    """Encode large members of a result or of params and replace them by placeholders.

    `scope` is that of the HTTP request; without one (stdio) the message stays as it is. Raises
    RemoteError if a value is nested too deep.
    """
    if scope is None or len(message) > _MAX_MEMBERS or not json_codec.is_large(message):
        return ensure_encodable(dict(message), allow_surrogates=scope is None)
    replaced = dict(message)
    for name, value in message.items():
        if not json_codec.is_large(value):
            replaced[name] = ensure_encodable(value, allow_surrogates=False)
            continue
        replaced[name] = placeholder = LargeValuePlaceholder(f"portico-large-{uuid4().hex}")
        try:
            placeholder.pieces = await json_codec.encode(value, _encode_json)
        except json_codec.TooDeep:
            raise _make_nesting_error() from None
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


@dataclass(slots=True)
class SdkSender:
    """ASGI `send` that corrects messages of the SDK.

    Substitutes placeholders, and replaces validation errors, which lack the id of the request, by a
    plain JSON-RPC error.
    """

    _scope: Scope
    _request_body: bytes
    _send: Send
    _start: Message | None = None
    """Sent with the body, when its length is known."""

    async def __call__(self, message: Message) -> None:
        body: Any = message.get("body", b"")
        placeholders: Placeholders | None = self._scope.get(_PLACEHOLDERS)
        if message["type"] == "http.response.start":
            if placeholders or message["status"] == HTTPStatus.BAD_REQUEST:
                self._start = message
                return
            self._request_body = b""
        start = self._start
        self._start = None
        if isinstance(body, _EventBody):
            placeholders = body.placeholders
        if placeholders:
            parts = _substitute_values(body, placeholders)
            message = {**message, "body": b"", PARTS_KEY: parts}
            start = start and _set_content_length(start, sum(map(len, parts)))
        elif start is not None and _SDK_ERROR_MARKER in body:
            plain = _make_invalid_message_body(self._request_body)
            message = {**message, "body": plain}
            start = _set_content_length(start, len(plain))
        if start is not None:
            await self._send(start)
        await self._send(message)


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


def _make_invalid_message_body(body: bytes) -> bytes:
    message: Any = None
    with contextlib.suppress(ValueError):
        message = orjson.loads(body)
    request_id = None
    # Only the id of a request: that of a malformed answer is an id of ours.
    if isinstance(message, dict) and "method" in message:
        found = message.get("id")
        if isinstance(found, str | int) and not isinstance(found, bool):
            request_id = found
    error = {"code": INVALID_REQUEST, "message": "this body is not a JSON-RPC message"}
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
