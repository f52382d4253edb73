"""Middleware that buffers request bodies and refuses those that are too large or too many.

Refusing here costs a fraction of decoding a request, so an overloaded gateway still answers every
client, most of them with a time to retry. `server/requests/admission.py` refuses requests that have
been decoded, by caller. A client that disconnects in the middle of its body is not an error: the
application never sees that request.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.errors import INVALID_REQUEST
from portico.json_text.size import has_more_values
from portico.server.http.callers import CallerQuota, identify_caller

MAX_GET_BODY_BYTES = 64 * 2**10
"""Maximum body of a GET request, which is not counted as in flight."""
LARGE_BODY_BYTES = 512 * 2**10
"""Bodies from this size on are scanned in a thread: that takes about 1 ms for each MiB."""
_SDK_ERROR_MARKER = b"validation error"
_MODERN_VERSION_HEADERS = frozenset(
    (b"mcp-protocol-version", version.encode()) for version in MODERN_PROTOCOL_VERSIONS
)


class BodyLimitMiddleware:
    """Buffers a body before it calls the application; one over `max_bytes` is refused early.

    So is one with more than `max_values` JSON values, before it is decoded. `in_flight` counts the
    requests that are being read or answered, at all endpoints; long-lived streams are not counted.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_values: int, in_flight: CallerQuota
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        in_flight = self._in_flight
        if scope["method"] == "GET":
            await self._read_and_forward(
                scope, receive, send, min(MAX_GET_BODY_BYTES, self._max_bytes)
            )
        elif _is_listen_request(scope):
            await self._read_and_forward(scope, receive, send, self._max_bytes)
        elif not in_flight.has_capacity(caller := identify_caller(scope)):
            detail = f"the gateway is busy: {in_flight.count:,} requests are under way"
            advice = "Nothing was begun. Try again in a second, or ask for less at once."
            await _make_refusal(503, detail, advice, {"Retry-After": "1"})(scope, receive, send)
        else:
            in_flight.acquire(caller)
            try:
                await self._read_and_forward(scope, receive, send, self._max_bytes)
            finally:
                in_flight.release(caller)

    async def _read_and_forward(
        self, scope: Scope, receive: Receive, send: Send, max_bytes: int
    ) -> None:
        if self._get_declared_length(scope) > max_bytes:
            await _make_too_large_response(max_bytes)(scope, receive, send)
            return
        message = await receive()
        pieces: list[bytes] = [message.get("body", b"")]
        size = len(pieces[0])
        while message.get("more_body", False) and size <= max_bytes:
            message = await receive()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
        if message["type"] != "http.request":
            return
        if size > max_bytes:
            await _make_too_large_response(max_bytes)(scope, receive, send)
            return
        if size < LARGE_BODY_BYTES:
            body, is_too_many = self._join(pieces)
        else:
            body, is_too_many = await asyncio.to_thread(self._join, pieces)
        pieces.clear()
        if is_too_many:
            await _make_too_many_values_response(self._max_values)(scope, receive, send)
            return
        # Removed when it is received: a session keeps a reference to its last request.
        buffered: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_buffered() -> Message:
            if buffered:
                return buffered.pop()
            return await receive()

        await self._app(scope, receive_buffered, _RewriteSdkErrors(buffered[0]["body"], send))

    def _join(self, pieces: list[bytes]) -> tuple[bytes, bool]:
        """Return the body, and whether it has more than `max_values` values."""
        body = b"".join(pieces)
        return body, has_more_values(body, self._max_values)

    def _get_declared_length(self, scope: Scope) -> int:
        for name, value in scope["headers"]:
            if name == b"content-length":
                if value.isdigit() and len(value) < 20:
                    return int(value)
                return self._max_bytes + 1
        return 0


class _RewriteSdkErrors:
    """Replaces the SDK's validation errors, which lack the request id, by a plain JSON-RPC
    error."""

    def __init__(self, body: bytes, send: Send) -> None:
        self._body = body
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.BAD_REQUEST:
            self._start = message
            return
        if self._start is None:
            self._body = b""
            await self._send(message)
            return
        start = self._start
        self._start = None
        if _SDK_ERROR_MARKER in message.get("body", b""):
            plain = _make_invalid_message_body(self._body)
            headers = [
                (name, value) for name, value in start["headers"] if name != b"content-length"
            ]
            start = {**start, "headers": [*headers, (b"content-length", str(len(plain)).encode())]}
            message = {**message, "body": plain}
        await self._send(start)
        await self._send(message)


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


def is_long_lived(scope: Scope) -> bool:
    """Return whether a request is a stream that lasts as long as its client wants."""
    return scope["method"] == "GET" or _is_listen_request(scope)


def _is_listen_request(scope: Scope) -> bool:
    # Only with a modern version header: in the handshake era `mcp-method` is not validated.
    headers = scope["headers"]
    is_listen = (b"mcp-method", b"subscriptions/listen") in headers
    return is_listen and not _MODERN_VERSION_HEADERS.isdisjoint(headers)


def _make_too_large_response(max_bytes: int) -> JSONResponse:
    detail = f"the request has more than {max_bytes} bytes"
    advice = (
        "limits.max_request_bytes is the largest that is taken; "
        "send less, or pass a reference to it."
    )
    return _make_refusal(413, detail, advice)


def _make_too_many_values_response(max_values: int) -> JSONResponse:
    detail = f"the request has more than {max_values} JSON values"
    advice = (
        "limits.max_request_values is the most that is taken; send less at a time, or as one text."
    )
    return _make_refusal(413, detail, advice)


def _make_refusal(
    status: int, detail: str, advice: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": detail, "advice": advice}, status, headers)
