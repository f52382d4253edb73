"""A server made of raw answers: each method is one function from a frame to an HTTP response."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from portico.upstream.backend import Connection, Raw
from portico.upstream.backends.http import HttpBackend
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener, serve

Handler = Callable[[Request, Raw], Awaitable[Response]]

HELLO: Raw = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "raw", "version": "1"},
}
DISCOVERY: Raw = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}},
    "ttlMs": 0,
    "cacheScope": "private",
}


def answer(frame: Raw, result: Raw, **headers: str) -> Response:
    body = orjson.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result})
    return Response(body, 200, headers, "application/json")


def error(frame: Raw, code: int, message: str, status: int = 200, data: Any = None) -> Response:
    said = {"code": code, "message": message} | ({} if data is None else {"data": data})
    body = orjson.dumps({"jsonrpc": "2.0", "id": frame.get("id"), "error": said})
    return Response(body, status, media_type="application/json")


def event(message: Raw | str, event_id: str = "") -> bytes:
    data = message.encode() if isinstance(message, str) else orjson.dumps(message)
    return (f"id: {event_id}\n".encode() if event_id else b"") + b"data: " + data + b"\n\n"


def stream(*pieces: bytes) -> Response:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return StreamingResponse(body(), media_type="text/event-stream")


def open_stream(pieces: "asyncio.Queue[bytes]") -> Response:
    """A stream that says what is put in the queue, and ends at an empty piece."""

    async def body() -> AsyncIterator[bytes]:
        yield b": open\n\n"
        while piece := await pieces.get():
            yield piece

    return StreamingResponse(body(), media_type="text/event-stream")


class RawServer:
    """By default a handshake-era server with a session; every method can be answered otherwise."""

    def __init__(self, **handlers: Handler) -> None:
        self.handlers = handlers
        self.requests: list[tuple[Raw, dict[str, str]]] = []
        self.seen: asyncio.Queue[Raw] = asyncio.Queue()
        self.deleted: asyncio.Queue[str | None] = asyncio.Queue()
        self.ports: set[int] = set()
        self.get: Callable[[Request], Awaitable[Response]] | None = None
        self.app = Starlette(
            routes=[Route("/mcp", self._handle, methods=["GET", "POST", "DELETE"])]
        )

    def heard(self, method: str) -> list[tuple[Raw, dict[str, str]]]:
        return [
            (frame, headers) for frame, headers in self.requests if frame.get("method") == method
        ]

    async def _handle(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.deleted.put_nowait(request.headers.get("mcp-session-id"))
            return Response(status_code=200)
        if request.method == "GET":
            return await self.get(request) if self.get else Response(status_code=405)
        if request.client is not None:
            self.ports.add(request.client.port)
        frame: Raw = orjson.loads(await request.body())
        self.requests.append((frame, dict(request.headers)))
        self.seen.put_nowait(frame)
        method = str(frame.get("method", "answer"))
        handler = self.handlers.get(method.replace("/", "_"))
        if handler is not None:
            return await handler(request, frame)
        if method == "initialize":
            return answer(frame, HELLO, **{"mcp-session-id": "session-1"})
        if "id" not in frame or method == "answer":
            return Response(status_code=202)
        return error(frame, -32601, f"Method not found: {method}")


@asynccontextmanager
async def conversation(
    server: RawServer, listener: RecordingListener | None = None, **options: Any
) -> AsyncGenerator[tuple[Connection, HttpBackend], None]:
    async with serve(server.app) as base:
        backend = HttpBackend("raw", f"{base}/mcp", **options)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            connection = await backend.connect(listener or RecordingListener())
        try:
            yield connection, backend
        finally:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.close()
