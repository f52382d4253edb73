"""Sessions and streams over HTTP: lost, cut, resumed, cancelled; and what a modern request looks
like on the wire."""

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import Response

from portico.errors import BackendTimeout, BackendUnavailable
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.backends.http import HttpBackend
from tests.upstream.loopback_server import (
    TEST_TIMEOUT_S,
    Caller,
    RecordingListener,
    advance_clock,
    get_soon,
    serve,
    serve_bytes,
)
from tests.upstream.raw_server import (
    DISCOVERY,
    RawServer,
    answer,
    conversation,
    error,
    event,
    open_stream,
    stream,
)

RESULT: Raw = {"content": [{"type": "text", "text": "ok"}]}


def answered(frame: Raw) -> bytes:
    return event({"jsonrpc": "2.0", "id": frame["id"], "result": RESULT})


@pytest.mark.parametrize("way", ["404", "400"])
async def test_a_forgotten_session_ends_the_conversation(way: str):
    async def forgotten(request: Request, frame: Raw) -> Response:
        if way == "404":
            return Response("Session not found", 404)
        return error({}, -32000, "Bad Request: No valid session ID provided", 400)

    listener = RecordingListener()
    async with conversation(RawServer(tools_call=forgotten), listener) as (connection, _):
        with pytest.raises(BackendUnavailable, match="no longer knows this session") as caught:
            await connection.request("tools/call", {"name": "x"})
        assert caught.value.retryable
        assert "no longer knows this session" in await get_soon(listener.losses)
        with pytest.raises(BackendUnavailable):
            await connection.request("tools/list")
        assert listener.losses.empty()


async def test_a_server_that_went_away_ends_the_conversation():
    listener = RecordingListener()
    async with serve(RawServer().app) as base:
        connection = await HttpBackend("raw", f"{base}/mcp").connect(listener)
    with pytest.raises(BackendUnavailable, match="cannot be reached: connection refused"):
        await connection.request("tools/list")
    assert "connection refused" in await get_soon(listener.losses)
    await connection.close()


async def test_a_cut_stream_is_resumed_where_it_ended():
    resumed: list[str | None] = []

    async def cut(request: Request, frame: Raw) -> Response:
        server.call = frame
        return stream(
            b"retry: 10\n",
            event("", "e1"),
            event({"jsonrpc": "2.0", "method": "notifications/x"}, "e2"),
        )

    async def get(request: Request) -> Response:
        last = request.headers.get("last-event-id")
        if last is None:
            return Response(status_code=405)
        resumed.append(last)
        # The first continuation brings only a place to come back to, as a server does that wants to
        # be polled.
        return stream(event("", "e3")) if last == "e2" else stream(answered(server.call))

    class Server(RawServer):
        call: Raw

    server = Server(tools_call=cut)
    server.get = get
    async with conversation(server) as (connection, _):
        assert (
            await connection.request(
                "tools/call", {"name": "x"}, RequestOptions(timeout=TEST_TIMEOUT_S)
            )
            == RESULT
        )
    assert resumed == ["e2", "e3"]


async def test_a_log_message_with_too_many_values_is_dropped_from_a_stream():
    async def call(request: Request, frame: Raw) -> Response:
        many = {"level": "error", "data": [[]] * 30_000}
        log = event({"jsonrpc": "2.0", "method": "notifications/message", "params": many})
        return stream(log, answered(frame))

    caller = Caller()
    async with conversation(RawServer(tools_call=call)) as (connection, _):
        options = RequestOptions(timeout=TEST_TIMEOUT_S, relay=caller)
        assert await connection.request("tools/call", {"name": "x"}, options) == RESULT
    assert not caller.notifications


async def test_a_stream_that_cannot_be_resumed_times_out():
    async def cut(request: Request, frame: Raw) -> Response:
        return stream(b"retry: 1\n", event("", "e1"))

    async with conversation(RawServer(tools_call=cut)) as (connection, _):
        with pytest.raises(BackendUnavailable, match="ended the stream before it answered"):
            await connection.request(
                "tools/call", {"name": "x"}, RequestOptions(timeout=TEST_TIMEOUT_S)
            )


async def test_a_connection_cut_in_the_middle_of_a_stream_is_an_error():
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: "
        b"chunked\r\n\r\n8\r\ndata: {}\r\n"
    )
    async with serve_bytes(lambda request: head) as base:
        with pytest.raises(BackendUnavailable, match="in the middle"):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await HttpBackend("raw", f"{base}/mcp", protocol="legacy").connect(
                    RecordingListener()
                )


async def test_a_server_that_never_answers_gets_a_cancellation():
    async def never(request: Request, frame: Raw) -> Response:
        return open_stream(asyncio.Queue())

    server = RawServer(tools_call=never)
    async with conversation(server) as (connection, _):
        asking = asyncio.create_task(
            connection.request("tools/call", {"name": "x"}, RequestOptions(timeout=60))
        )
        while (await get_soon(server.seen)).get("method") != "tools/call":
            pass
        advance_clock(60)
        with pytest.raises(BackendTimeout):
            await asking
        while (seen := await get_soon(server.seen)).get("method") != "notifications/cancelled":
            pass
        call, _ = server.heard("tools/call")[0]
        assert seen["params"] == {"requestId": call["id"], "reason": "timed out"}


async def test_progress_restarts_the_timeout():
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    told: asyncio.Queue[Raw] = asyncio.Queue()

    class Told(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            told.put_nowait(params)

    async def slow(request: Request, frame: Raw) -> Response:
        async def work() -> None:
            token = frame["params"]["_meta"]["progressToken"]
            for step in range(3):
                params = {"progressToken": token, "progress": step}
                pieces.put_nowait(
                    event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                )
                assert (await get_soon(told))["progressToken"] == 7
                advance_clock(50)
            pieces.put_nowait(answered(frame))
            pieces.put_nowait(b"")

        server.work = asyncio.create_task(work())
        return open_stream(pieces)

    class Server(RawServer):
        work: "asyncio.Task[None]"

    server = Server(tools_call=slow)
    async with conversation(server) as (connection, _):
        params: Raw = {"name": "x", "_meta": {"progressToken": 7}}
        assert (
            await connection.request("tools/call", params, RequestOptions(timeout=60, relay=Told()))
            == RESULT
        )
        await server.work


async def test_progress_does_not_stretch_a_call_over_the_longest_one_may_take():
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    class Prompting(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            await asyncio.sleep(0.01)
            progress()

    def progress() -> None:
        params = {"progressToken": tokens[0], "progress": 1}
        pieces.put_nowait(
            event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        )

    tokens: list[object] = []

    async def slow(request: Request, frame: Raw) -> Response:
        tokens.append(frame["params"]["_meta"]["progressToken"])
        progress()
        return open_stream(pieces)

    async with conversation(RawServer(tools_call=slow)) as (connection, _):
        params: Raw = {"name": "x", "_meta": {"progressToken": 7}}
        with pytest.raises(BackendTimeout, match="the longest a call may take"):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.request(
                    "tools/call",
                    params,
                    RequestOptions(2 * TEST_TIMEOUT_S, Prompting(), total_timeout=0.3),
                )


async def test_a_server_asks_outside_any_call():
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def get(request: Request) -> Response:
        return open_stream(pieces)

    server = RawServer()
    server.get = get
    listener = RecordingListener()
    root: Raw = {"uri": "file:///tmp", "name": "tmp"}
    async with conversation(server, listener, roots=(root,)):
        for number, method in enumerate(("ping", "roots/list", "sampling/createMessage")):
            pieces.put_nowait(event({"jsonrpc": "2.0", "id": f"s{number}", "method": method}))
        pieces.put_nowait(event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        answers: dict[str, Raw] = {}
        while len(answers) < 3:
            frame = await get_soon(server.seen)
            if "method" not in frame:
                answers[frame["id"]] = frame
        assert await get_soon(listener.notifications) == ("notifications/tools/list_changed", {})
    assert answers["s0"]["result"] == {}
    assert answers["s1"]["result"] == {"roots": [root]}
    assert answers["s2"]["error"]["code"] == -32601


async def test_a_server_request_that_is_cancelled_no_longer_waits_for_the_client():
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    withdrawn = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "q1"},
    }

    async def asking(request: Request, frame: Raw) -> Response:
        pieces.put_nowait(
            event({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": {}})
        )
        server.call = frame
        return open_stream(pieces)

    class Server(RawServer):
        call: Raw

    server = Server(tools_call=asking)
    caller = Caller()
    async with conversation(server) as (connection, _):
        call = asyncio.create_task(
            connection.request("tools/call", {"name": "x"}, RequestOptions(relay=caller))
        )
        assert (await get_soon(caller.requests))[0] == "elicitation/create"
        pieces.put_nowait(event(withdrawn))
        pieces.put_nowait(answered(server.call))
        pieces.put_nowait(b"")
        assert await call == RESULT
    assert [frame for frame, _ in server.requests if frame.get("id") == "q1"] == []


async def test_a_modern_request_carries_its_envelope_and_routing_headers():
    async def discover(request: Request, frame: Raw) -> Response:
        return answer(frame, DISCOVERY)

    async def call(request: Request, frame: Raw) -> Response:
        return answer(frame, RESULT)

    server = RawServer(server_discover=discover, tools_call=call)
    mine: Raw = {
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        "traceparent": "00-1-2-3",
    }
    async with conversation(server) as (connection, _):
        await connection.request(
            "tools/call",
            {"name": "größe", "arguments": {}, "_meta": mine},
            RequestOptions(headers={"Mcp-Param-Region": "eu"}),
        )
    frame, headers = server.heard("tools/call")[0]
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert headers["mcp-method"] == "tools/call"
    assert headers["mcp-name"] == "=?base64?Z3LDtsOfZQ==?="
    assert headers["mcp-param-region"] == "eu"
    assert "mcp-session-id" not in headers
    meta = frame["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["traceparent"] == "00-1-2-3"


async def test_a_legacy_server_never_sees_the_modern_envelope():
    async def call(request: Request, frame: Raw) -> Response:
        return answer(frame, RESULT)

    server = RawServer(tools_call=call)
    mine: Raw = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/logLevel": "debug",
    }
    async with conversation(server) as (connection, _):
        await connection.request("tools/call", {"name": "x", "_meta": {**mine, "traceparent": "t"}})
    assert server.heard("tools/call")[0][0]["params"] == {
        "name": "x",
        "_meta": {"traceparent": "t"},
    }


async def test_a_broken_subscription_is_renewed_and_what_it_missed_announced():
    opened: asyncio.Queue[asyncio.Queue[bytes]] = asyncio.Queue()

    async def discover(request: Request, frame: Raw) -> Response:
        return answer(frame, DISCOVERY)

    async def listen(request: Request, frame: Raw) -> Response:
        assert frame["params"]["notifications"] == {"toolsListChanged": True}
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        opened.put_nowait(pieces)
        return open_stream(pieces)

    listener = RecordingListener()
    server = RawServer(server_discover=discover, subscriptions_listen=listen)
    async with conversation(server, listener):
        first = await get_soon(opened)
        meta = {"io.modelcontextprotocol/subscriptionId": "listen-1"}
        for method in ("subscriptions/acknowledged", "tools/list_changed"):
            first.put_nowait(
                event(
                    {
                        "jsonrpc": "2.0",
                        "method": f"notifications/{method}",
                        "params": {"_meta": meta},
                    }
                )
            )
        assert await get_soon(listener.notifications) == ("notifications/tools/list_changed", {})
        first.put_nowait(b"")
        second = await get_soon(opened)
        assert await get_soon(listener.notifications) == ("notifications/tools/list_changed", {})
        second.put_nowait(b"")
