"""Middleware that buffers request bodies and refuses those that are too large or too many.

Refusing here costs a fraction of decoding a request, so an overloaded gateway still answers every
client, most of them with a time to retry. `server/admission.py` refuses requests that have
been decoded, by caller. A client that disconnects in the middle of its body is not an error: the
application never sees that request.
"""

import asyncio
from collections.abc import Mapping

from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.json_text.json_codec import has_more_values
from portico.server.http.auth import CallerQuota, identify_caller
from portico.server.http.large_values import SdkSender

LONG_LIVED_KEY = "portico.long_lived"
"""Key in the ASGI scope of a stream that lasts as long as its client wants."""
MAX_GET_BODY_BYTES = 64 * 2**10
"""Maximum body of a GET request, which is not counted as in flight."""
LARGE_BODY_BYTES = 128 * 2**10
"""Bodies from this size on are scanned in a thread: that takes up to 8 ms for each MiB."""
_LISTEN_HEADER = (b"mcp-method", b"subscriptions/listen")
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
        headers = scope["headers"]
        # Only with a modern version header: in the handshake era `mcp-method` is not validated.
        is_listen = _LISTEN_HEADER in headers and not _MODERN_VERSION_HEADERS.isdisjoint(headers)
        if scope["method"] == "GET" or is_listen:
            scope[LONG_LIVED_KEY] = True
            max_bytes = self._max_bytes
            if scope["method"] == "GET":
                max_bytes = min(MAX_GET_BODY_BYTES, max_bytes)
            await self._read_and_forward(scope, receive, send, max_bytes)
        elif not in_flight.try_acquire(caller := identify_caller(scope)):
            detail = f"the gateway is busy: {in_flight.count:,} requests are under way"
            advice = "Nothing was begun. Try again in a second, or ask for less at once."
            await _make_refusal(503, detail, advice, {"Retry-After": "1"})(scope, receive, send)
        else:
            try:
                await self._read_and_forward(scope, receive, send, self._max_bytes)
            finally:
                in_flight.release(caller)

    async def _read_and_forward(
        self, scope: Scope, receive: Receive, send: Send, max_bytes: int
    ) -> None:
        for name, value in scope["headers"]:
            if name == b"content-length" and not (
                value.isdigit() and len(value) < 20 and int(value) <= max_bytes
            ):
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
            body = b"".join(pieces)
            is_too_many = has_more_values(body, self._max_values)
        else:
            body = await asyncio.to_thread(b"".join, pieces)
            is_too_many = await asyncio.to_thread(has_more_values, body, self._max_values)
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

        await self._app(scope, receive_buffered, SdkSender(scope, body, send))


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
