"""The older HTTP+SSE transport, against the SDK's server and against raw ones."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Connection, Raw, RequestOptions
from portico.upstream.backends.http import SseBackend
from portico.upstream.transports.sse_transport import resolve_endpoint_url
from tests.upstream.loopback_server import (
    TEST_TIMEOUT_S,
    Caller,
    RecordingListener,
    advance_clock,
    get_soon,
    serve,
)
from tests.upstream.raw_server import HELLO, event, open_stream, stream


class Answer(BaseModel):
    colour: str


@asynccontextmanager
async def connected(
    app: Any, listener: RecordingListener | None = None, **options: Any
) -> AsyncGenerator[tuple[Connection, SseBackend], None]:
    async with serve(app) as base:
        backend = SseBackend("old", f"{base}/sse", **options)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            connection = await backend.connect(listener or RecordingListener())
        try:
            yield connection, backend
        finally:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.close()


async def refused(app: Any, **options: Any) -> BackendUnavailable:
    async with serve(app) as base:
        with pytest.raises(BackendUnavailable) as caught:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await SseBackend("old", f"{base}/sse", **options).connect(RecordingListener())
    return caught.value


class OldServer:
    """A raw HTTP+SSE server: `speak` is what it says to each frame it is sent."""

    def __init__(
        self, speak: Callable[[Raw], list[bytes]], endpoint: str = "/messages?session=1"
    ) -> None:
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.seen: asyncio.Queue[Raw] = asyncio.Queue()
        self.status = 202
        self._speak = speak
        self._endpoint = endpoint
        self.app = Starlette(
            routes=[
                Route("/sse", self._stream),
                Route("/messages", self._message, methods=["POST"]),
            ]
        )

    async def _stream(self, request: Request) -> Response:
        self.pieces.put_nowait(f"event: endpoint\ndata: {self._endpoint}\n\n".encode())
        return open_stream(self.pieces)

    async def _message(self, request: Request) -> Response:
        frame: Raw = orjson.loads(await request.body())
        self.seen.put_nowait(frame)
        if frame.get("method") == "initialize":
            self.pieces.put_nowait(event({"jsonrpc": "2.0", "id": frame["id"], "result": HELLO}))
        for piece in self._speak(frame):
            self.pieces.put_nowait(piece)
        return Response(status_code=self.status)


async def test_it_lists_calls_relays_and_cancels():
    server = MCPServer("old", instructions="Mind the stream.")
    started: asyncio.Queue[str] = asyncio.Queue()
    ended: asyncio.Queue[str] = asyncio.Queue()

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        reply = await ctx.elicit("Which colour?", Answer)
        return reply.data.colour if reply.action == "accept" else reply.action

    @server.tool()
    async def hang() -> str:
        started.put_nowait("hang")
        try:
            await asyncio.Event().wait()
        finally:
            ended.put_nowait("hang")
        return ""

    async with connected(server.sse_app()) as (connection, backend):
        assert (connection.initialize_info.era, connection.initialize_info.instructions) == (
            "legacy",
            "Mind the stream.",
        )
        assert {tool["name"] for tool in (await connection.request("tools/list"))["tools"]} == {
            "echo",
            "work",
            "hang",
        }
        calls = [
            connection.request("tools/call", {"name": "echo", "arguments": {"text": str(n)}})
            for n in range(20)
        ]
        assert [result["content"][0]["text"] for result in await asyncio.gather(*calls)] == list(
            map(str, range(20))
        )
        with pytest.raises(RemoteError) as caught:
            await connection.request("no/such/method")
        assert caught.value.code == -32601

        caller = Caller({"elicitation/create": {"action": "accept", "content": {"colour": "red"}}})
        params: Raw = {"name": "work", "arguments": {}, "_meta": {"progressToken": "mine"}}
        result = await connection.request("tools/call", params, RequestOptions(relay=caller))
        assert result["content"][0]["text"] == "red"
        assert [said["progressToken"] for _, said in caller.notifications] == ["mine"]

        hanging = asyncio.create_task(
            connection.request(
                "tools/call", {"name": "hang", "arguments": {}}, RequestOptions(timeout=60)
            )
        )
        await get_soon(started)
        advance_clock(60)
        with pytest.raises(BackendTimeout):
            await hanging
        assert await get_soon(ended) == "hang"
        assert backend.diagnostics()["requests"] > 20
        assert backend.diagnostics()["url"].endswith("/sse")


async def test_a_server_asks_and_announces_outside_any_call():
    server = OldServer(lambda frame: [])
    listener = RecordingListener()
    root: Raw = {"uri": "file:///tmp", "name": "tmp"}
    async with connected(server.app, listener, roots=(root,)):
        for number, method in enumerate(("ping", "roots/list", "log")):
            server.pieces.put_nowait(event({"jsonrpc": "2.0", "id": number, "method": method}))
        server.pieces.put_nowait(
            event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        )
        answers: dict[int, Raw] = {}
        while len(answers) < 3:
            frame = await get_soon(server.seen)
            if "method" not in frame:
                answers[frame["id"]] = frame
        assert await get_soon(listener.notifications) == ("notifications/tools/list_changed", {})
    assert answers[0]["result"] == {}
    assert answers[1]["result"] == {"roots": [root]}
    assert answers[2]["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (b"", "ended its event stream"),
        (event("{oops"), "not JSON"),
        (event('"' + "x" * 200_000 + '"'), "over 100000 bytes"),
    ],
)
async def test_a_broken_stream_ends_the_conversation_and_every_call_in_it(last: bytes, reason: str):
    server = OldServer(lambda frame: [last] if frame.get("method") == "tools/call" else [])
    listener = RecordingListener()
    async with connected(server.app, listener, max_message_bytes=100_000) as (connection, backend):
        with pytest.raises(BackendUnavailable, match=reason):
            await connection.request(
                "tools/call", {"name": "x"}, RequestOptions(timeout=TEST_TIMEOUT_S)
            )
        assert reason in await get_soon(listener.losses)
        assert reason in backend.diagnostics()["last_error"]
        with pytest.raises(BackendUnavailable):
            await connection.request("tools/list")


async def test_a_forgotten_session_ends_the_conversation():
    server = OldServer(lambda frame: [])
    listener = RecordingListener()
    async with connected(server.app, listener) as (connection, _):
        server.status = 404
        with pytest.raises(BackendUnavailable, match="HTTP 404"):
            await connection.request("tools/list")
        assert "HTTP 404" in await get_soon(listener.losses)


async def test_messages_are_not_sent_to_another_server():
    error = await refused(
        OldServer(lambda frame: [], "http://localhost:9/messages").app, headers={"X-Key": "secret"}
    )
    assert "another server (http://localhost:9/messages)" in error.message
    assert error.retryable is False


@pytest.mark.parametrize(
    ("stream_url", "named", "target"),
    [
        ("http://h/sse", "/messages?s=1", "http://h/messages?s=1"),
        ("http://h/a/sse", "messages", "http://h/a/messages"),
        ("http://h/sse", "http://h:80/m", "http://h:80/m"),
        ("http://u:p@h/sse", "/m", "http://u:p@h/m"),
        ("http://u:p@h/sse", "http://h/m", "http://u:p@h/m"),
    ],
)
def test_where_messages_go(stream_url: str, named: str, target: str):
    assert resolve_endpoint_url("old", stream_url, named) == target


@pytest.mark.parametrize("named", ["https://h/m", "http://h:81/m", "//evil/m", "http://h@evil/m"])
def test_where_messages_never_go(named: str):
    with pytest.raises(BackendUnavailable):
        resolve_endpoint_url("old", "http://h/sse", named)


async def test_a_stream_without_an_address_is_an_error():
    async def silent(request: Request) -> Response:
        return stream(b": hello\n\n")

    error = await refused(Starlette(routes=[Route("/sse", silent)]))
    assert "ended its event stream" in error.message


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (Response("no", 401), "HTTP 401"),
        (Response("not here", 404), "HTTP 404: not here"),
        (Response("hello", media_type="text/plain"), "streams nothing"),
    ],
)
async def test_a_url_that_is_no_event_stream_is_an_error(response: Response, said: str):
    async def handler(request: Request) -> Response:
        return response

    assert said in (await refused(Starlette(routes=[Route("/sse", handler)]))).message


async def test_nobody_there():
    with pytest.raises(BackendUnavailable, match="connection refused"):
        await SseBackend("old", "http://127.0.0.1:1/sse").connect(RecordingListener())
