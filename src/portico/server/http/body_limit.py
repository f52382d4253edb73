"""Requests over HTTP that have arrived in full, and are not too large or too many; nothing else
reaches what is behind.

Turning one away here costs a fraction of reading it: a gateway that is asked more than it has time
to read still answers everybody, most of them with when to come again. Whom `server/admission` turns
away, it has read, and knows by name. A client that goes away in the middle of its body is no error
of ours: behind this, nobody hears of it.
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
"""Bytes of a body where none is expected: these requests are not counted."""
LARGE_BODY_BYTES = 512 * 2**10
"""Bytes of a body that is looked through in a thread: that takes a millisecond for each MiB."""
_SDK_ERROR_MARKER = b"validation error"
_MODERN_VERSION_HEADERS = frozenset(
    (b"mcp-protocol-version", version.encode()) for version in MODERN_PROTOCOL_VERSIONS
)


class BodyLimitMiddleware:
    """Reads a body before it hands the request on; more than `max_bytes` of it is refused as soon
    as that is known.

    So is one of more than `max_values`, before anything is decoded. `under_way` counts the requests
    that are being read or answered, at all doors; streams that only listen have none.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_values: int, in_flight: CallerQuota
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        under_way = self._in_flight
        if scope["method"] == "GET":
            await self._read_and_forward(
                scope, receive, send, min(MAX_GET_BODY_BYTES, self._max_bytes)
            )
        elif _is_listen_request(scope):
            await self._read_and_forward(scope, receive, send, self._max_bytes)
        elif not under_way.has_capacity(caller := identify_caller(scope)):
            wrong = f"the gateway is busy: {under_way.count:,} requests are under way"
            advice = "Nothing was begun. Try again in a second, or ask for less at once."
            await _make_refusal(503, wrong, advice, {"Retry-After": "1"})(scope, receive, send)
        else:
            under_way.acquire(caller)
            try:
                await self._read_and_forward(scope, receive, send, self._max_bytes)
            finally:
                under_way.release(caller)

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
        # Handed out once and not kept: a session refers to its last request for as long as it
        # lasts.
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_buffered() -> Message:
            if whole:
                return whole.pop()
            return await receive()

        await self._app(scope, receive_buffered, _RewriteSdkErrors(whole[0]["body"], send))

    def _join(self, pieces: list[bytes]) -> tuple[bytes, bool]:
        """A body, and whether it has more values than are taken."""
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
    """Where the SDK refuses a body in the words of its own library, and without the id, says so as
    on any wire."""

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
            kept = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            start = {**start, "headers": [*kept, (b"content-length", str(len(plain)).encode())]}
            message = {**message, "body": plain}
        await self._send(start)
        await self._send(message)


def _make_invalid_message_body(body: bytes) -> bytes:
    given: Any = None
    with contextlib.suppress(ValueError):
        given = orjson.loads(body)
    # Only a request's own id: a malformed answer to us has one too, and it means something else to
    # the client.
    if isinstance(given, dict) and "method" in given:
        found = given.get("id")
    else:
        found = None
    if isinstance(found, str | int) and not isinstance(found, bool):
        identity = found
    else:
        identity = None
    error = {"code": INVALID_REQUEST, "message": "this body is not a JSON-RPC message"}
    return orjson.dumps({"jsonrpc": "2.0", "id": identity, "error": error})


def is_long_lived(scope: Scope) -> bool:
    """Whether a request lasts for as long as its client wants: it only listens."""
    return scope["method"] == "GET" or _is_listen_request(scope)


def _is_listen_request(scope: Scope) -> bool:
    # What the handshake era says in this header, nobody checks.
    headers = scope["headers"]
    return (
        b"mcp-method",
        b"subscriptions/listen",
    ) in headers and not _MODERN_VERSION_HEADERS.isdisjoint(headers)


def _make_too_large_response(max_bytes: int) -> JSONResponse:
    wrong = f"the request has more than {max_bytes} bytes"
    advice = "limits.max_request_bytes is the largest that is taken; send less, or pass a reference to it."
    return _make_refusal(413, wrong, advice)


def _make_too_many_values_response(max_values: int) -> JSONResponse:
    wrong = f"the request has more than {max_values} JSON values"
    advice = (
        "limits.max_request_values is the most that is taken; send less at a time, or as one text."
    )
    return _make_refusal(413, wrong, advice)


def _make_refusal(
    status: int, detail: str, advice: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": detail, "advice": advice}, status, headers)
