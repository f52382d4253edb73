"""Clients over HTTP that drip, send without end or do not read: each is ended, and nobody else
notices."""

import asyncio
import gc
import json
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from portico.config import Config
from portico.server.http import endpoints
from portico.server.http.app import make_app, make_server
from portico.server.http.slow_clients import BoundedConnection, ConnectionLimits
from portico.server.line_reader import ReadStallTimer
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Era
from tests.interaction.fake_servers import fake, text
from tests.interaction.raw_clients import LEGACY, MODERN, call, envelope, hello, raw_http, result
from tests.upstream.loopback_server import advance_clock

PATIENCE_S = 30.0
LIMITS = ConnectionLimits()
STEP_S = 5.0
"""Seconds by which the clock is put forward at a time. Nobody is cut off because the machine is
busy."""


@asynccontextmanager
async def served(
    patience: ConnectionLimits = LIMITS,
    backend: FakeBackend | None = None,
    config: Config | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[str, int]]:
    async with gateway_over({"s": backend or fake("run")}, config) as gateway:
        await gateway.wait_until_listed()
        server = make_server(make_app(gateway.get_endpoints(), **options), "127.0.0.1", 0, patience)
        serving = asyncio.create_task(server.serve())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
                    await asyncio.sleep(0.005)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}/mcp", port
        finally:
            server.should_exit = True
            await asyncio.wait({serving}, timeout=PATIENCE_S)


@asynccontextmanager
async def plain(
    port: int, **options: Any
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drop: bytes) -> bytes:
    """Send a little again and again until the other side has had enough; what it said."""
    with suppress(OSError):
        async with asyncio.timeout(10 * PATIENCE_S):
            while not reader.at_eof():
                writer.write(drop)
                await writer.drain()
                advance_clock(STEP_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        return await reader.readuntil(b"}")
    return b""


async def sending_for_ever(writer: asyncio.StreamWriter, piece: bytes) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            writer.write(piece)
            await writer.drain()


def posting(*headers: str) -> bytes:
    lines = (
        "POST /mcp HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode()


def calling(tool: str, session: str = "") -> bytes:
    """A whole call by a client that sees every tool: of a session, or modern."""
    params = {"_meta": {} if session else envelope(), "name": tool, "arguments": {}}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    about = f"mcp-protocol-version: {MODERN}", "mcp-method: tools/call", f"mcp-name: {tool}"
    if session:
        about = f"mcp-session-id: {session}", f"mcp-protocol-version: {LEGACY}"
    return posting(f"content-length: {len(body)}", *about) + body


async def opened(port: int) -> str:
    """A session of its own, introduced; its id."""
    frame = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello()}
    body = json.dumps(frame).encode()
    async with plain(port) as (reader, writer), asyncio.timeout(PATIENCE_S):
        writer.write(posting(f"content-length: {len(body)}") + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readuntil(b"\r\n0\r\n\r\n")
        session = head.split("mcp-session-id: ")[1].split("\r\n")[0]
        frame = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        body = json.dumps(frame).encode()
        writer.write(posting(f"content-length: {len(body)}", f"mcp-session-id: {session}") + body)
        assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
    return session


@pytest.mark.parametrize(
    ("opening", "drop", "status"),
    [
        (b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"x-a: b\r\n", b"408"),
        (b"POST /mc", b"p", b"408"),
        (posting("content-length: 100000"), b" ", b"408"),
        (posting("transfer-encoding: chunked"), b"1\r\n \r\n", b"408"),
    ],
    ids=["headers", "address", "body", "chunks"],
)
async def test_a_request_that_drips_is_ended(
    opening: bytes, drop: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (url, port):
        async with plain(port) as (reader, writer):
            writer.write(opening)
            said = await drip(reader, writer, drop)
            assert said.startswith(b"HTTP/1.1 " + status), said
            async with asyncio.timeout(PATIENCE_S):
                with suppress(OSError):
                    await reader.read()
        async with raw_http(url, "legacy") as client:
            assert await result(client, "ping") == {}
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR], (
        "nobody's fault is no error of ours"
    )


async def test_the_second_request_of_a_connection_may_drip_no_more_than_the_first() -> None:
    async with served() as (_, port), plain(port) as (reader, writer):
        writer.write(posting("content-length: 2") + b"{}")
        async with asyncio.timeout(PATIENCE_S):
            assert b" 400 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}}")
        writer.write(b"GET /mcp HTTP/1.1\r\n")
        assert b" 408 " in await drip(reader, writer, b"x-a: b\r\n")


async def test_a_large_upload_on_a_slow_line_goes_through() -> None:
    async with served() as (_, port), plain(port) as (reader, writer):
        body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}' + b" " * 60_000
        writer.write(posting(f"content-length: {len(body)}"))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for start in range(0, len(body), 3_000):
            writer.write(body[start : start + 3_000])
            await writer.drain()
            advance_clock(STEP_S)
            await asyncio.sleep(0.001)
        assert loop.time() - begun > 3 * LIMITS.request_s, (
            "it took longer than a request may that brings nothing"
        )
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with served() as (_, port), plain(port) as (reader, _writer):
        ending = asyncio.create_task(reader.read())
        async with asyncio.timeout(10 * PATIENCE_S):
            while not ending.done():
                advance_clock(STEP_S)
                await asyncio.sleep(0.001)
        assert ending.result() == b""


async def test_headers_without_end_are_refused() -> None:
    async with served() as (_, port), plain(port) as (reader, writer):
        writer.write(b"GET /mcp HTTP/1.1\r\n")
        with suppress(OSError):
            for _ in range(40):
                writer.write(b"x-a: " + b"b" * 8_000 + b"\r\n")
                await writer.drain()
        with suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE_S):
                assert (await reader.read()).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("framing", ["content-length: 99999999999", "transfer-encoding: chunked"])
async def test_a_body_that_is_too_large_is_refused_before_it_has_arrived(framing: str) -> None:
    async with (
        served(LIMITS, max_request_bytes=1_000) as (_, port),
        plain(port) as (reader, writer),
    ):
        writer.write(posting(framing))
        if "chunked" in framing:
            writer.write(b"7d0\r\n" + b" " * 2_000 + b"\r\n")
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            assert "1000 bytes" in (await reader.readuntil(b"}")).decode()


async def test_a_body_without_end_is_cut_off() -> None:
    patience = ConnectionLimits(max_discarded_bytes=100_000)
    async with (
        served(patience, max_request_bytes=1_000) as (_, port),
        plain(port) as (_reader, writer),
    ):
        writer.write(posting("transfer-encoding: chunked"))
        with pytest.raises(ConnectionError):
            await sending_for_ever(writer, b"7d0\r\n" + b" " * 2_000 + b"\r\n")


async def test_a_client_that_asks_for_two_things_at_once_and_hangs_up_ends_both() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def run(_: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    backend = fake("run")
    backend.on_call("run", run)
    async with (
        served(LIMITS, backend, Config(exposure="full")) as (_, port),
        asyncio.timeout(PATIENCE_S),
    ):
        async with plain(port) as (_, writer):
            writer.write(calling("run") + calling("run"))
            await begun.wait()
        await ended.wait()


async def test_a_request_to_upgrade_is_answered_without_upgrade() -> None:
    upgrade = (
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: eA==",
    )
    # Others' may still lie about where many tests ran in this process, and looking goes through
    # every object of it.
    others = _connections()
    async with served() as (_, port), asyncio.timeout(4 * PATIENCE_S):
        for _ in range(3):
            async with plain(port) as (reader, writer):
                writer.write(posting(*upgrade).replace(b"POST", b"GET"))
                assert b" 400 " in await reader.readuntil(
                    b"\r\n\r\n"
                )  # this is no session's, as of any GET
        while _connections() - others:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.02)


def _connections() -> set[int]:
    gc.collect()
    return {id(one) for one in gc.get_objects() if isinstance(one, BoundedConnection)}


@pytest.mark.parametrize(
    ("opening", "piece"),
    [(b"0\r\n", b"x-a: b\r\n"), (b"0\r\nx-a: ", b"b"), (b"1;", b"c")],
    ids=["trailers", "one trailer", "what is said of a chunk"],
)
async def test_what_is_around_a_body_has_an_end(opening: bytes, piece: bytes) -> None:
    async with served() as (_, port), plain(port) as (_, writer):
        writer.write(posting("transfer-encoding: chunked") + opening)
        with pytest.raises(ConnectionError):
            await sending_for_ever(writer, piece * 1_000)


async def test_what_comes_after_a_body_says_nothing_of_who_it_is() -> None:
    async with (
        served(LIMITS, token="right") as (_, port),
        plain(port) as (reader, writer),
    ):
        writer.write(
            posting("transfer-encoding: chunked") + b"0\r\nauthorization: Bearer right\r\n\r\n"
        )
        async with asyncio.timeout(PATIENCE_S):
            assert b" 401 " in await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("depth", [500, 900, 100_000])
async def test_json_that_is_too_deep_is_an_answer(depth: int) -> None:
    async with served() as (url, port):
        for about in (
            (),
            (f"mcp-protocol-version: {MODERN}", "mcp-method: tools/call", "mcp-name: call_tool"),
        ):
            start = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","_meta":'  # noqa: E501
            nested = (
                b'"arguments":{"name":"s.run","arguments":{"a":'
                + b"[" * depth
                + b"]" * depth
                + b"}}}}"
            )
            body = start + json.dumps(envelope()).encode() + b"," + nested
            async with plain(port) as (reader, writer):
                writer.write(posting(f"content-length: {len(body)}", *about) + body)
                async with asyncio.timeout(PATIENCE_S):
                    status = (await reader.readline()).split()[1]
                assert status in (b"200", b"400", b"413"), (about, status)
        async with raw_http(url, "modern") as client:
            assert "result" in await call(client, "call_tool", name="s.run")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_does_not_read_is_disconnected_and_others_are_not_affected(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    backend = fake("run", "large")
    backend.on_call("large", lambda _: text("x" * 8_000_000))
    async with (
        served(backend=backend, config=Config(exposure="full", prefix="always")) as (url, port),
        raw_http(url, "modern") as other,
    ):
        session = await opened(port) if era == "legacy" else ""
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(("127.0.0.1", port))
            deaf.sendall(calling("s__large", session))
            async with asyncio.timeout(10 * PATIENCE_S):
                while "unread" not in caplog.text:
                    assert "result" in await call(other, "s__run")
                    advance_clock(STEP_S)
        assert "result" in await call(other, "s__run")
        async with plain(port) as (reader, writer), asyncio.timeout(PATIENCE_S):
            writer.write(calling("s__run", session))
            assert b"run ran" in await reader.readuntil(b"run ran"), "it can come back"


async def test_one_connection_too_many_is_refused_with_a_time_to_retry() -> None:
    async with served(ConnectionLimits(max_connections=2)) as (_, port), plain(port), plain(port):
        await asyncio.sleep(0)
        async with plain(port) as (reader, writer):
            writer.write(posting("content-length: 2") + b"{}")
            async with asyncio.timeout(PATIENCE_S):
                said = await reader.read()
            assert said.startswith(b"HTTP/1.1 503")
            assert b"retry-after: " in said


async def test_excess_requests_are_rejected_with_a_retry_time_and_discovery_still_works() -> None:
    waiting, begun = asyncio.Event(), asyncio.Event()
    backend = fake("run", "wait")

    async def wait(_: Any) -> Any:
        begun.set()
        await waiting.wait()
        return text("waited")

    backend.on_call("wait", wait)
    async with (
        served(LIMITS, backend, max_in_flight=1) as (url, port),
        raw_http(url, "modern") as client,
    ):
        first = asyncio.create_task(call(client, "call_tool", name="s.wait"))
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            async with plain(port) as (reader, writer):
                writer.write(calling("call_tool"))
                said = await reader.readuntil(b"}")
                assert said.startswith(b"HTTP/1.1 503")
                assert b"retry-after: 1" in said
            waiting.set()
            assert "result" in await first
        assert "result" in await call(client, "call_tool", name="s.run")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_false_listen_header_does_not_evade_the_request_limit(era: Era) -> None:
    lying = b"mcp-method: subscriptions/listen"
    async with (
        served(LIMITS, config=Config(exposure="full"), max_in_flight=4) as (_, port),
        AsyncExitStack() as others,
        asyncio.timeout(PATIENCE_S),
    ):
        session = await opened(port) if era == "legacy" else ""
        frame = calling("run", session).replace(b"mcp-method: tools/call", lying)
        frame = frame if lying in frame else frame.replace(b"host:", lying + b"\r\nhost:", 1)
        said = b""
        while (
            b" 503 " not in said
        ):  # all places are taken by those who have sent half of what they want
            reader, writer = await others.enter_async_context(plain(port))
            writer.write(posting("content-length: 100", "expect: 100-continue"))
            said = await reader.readuntil(b"\r\n\r\n")
        reader, writer = await others.enter_async_context(plain(port))
        writer.write(frame)
        assert (b" 503 " if era == "legacy" else b" 400 ") in await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_who_only_looks_has_no_large_body(framing: str) -> None:
    many = b"x" * 100_000
    header, body = "content-length: 100000", many
    if framing == "chunks":
        header, body = "transfer-encoding: chunked", b"186a0\r\n" + many + b"\r\n0\r\n\r\n"
    async with (
        served() as (_, port),
        plain(port) as (reader, writer),
        asyncio.timeout(PATIENCE_S),
    ):
        writer.write(posting(header).replace(b"POST", b"GET") + body)
        assert b" 413 " in await reader.readuntil(b"\r\n\r\n")


async def test_a_session_that_rests_makes_room_when_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 2)
    async with (
        served() as (url, port),
        raw_http(url, "legacy"),
        raw_http(url, "legacy") as second,
    ):
        greeting = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
        ).encode()
        async with plain(port) as (reader, writer), asyncio.timeout(PATIENCE_S):
            writer.write(posting(f"content-length: {len(greeting)}") + greeting)
            said = await reader.readuntil(b"\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 503"), said
            assert b"retry-after: 60" in said
        monkeypatch.setattr(endpoints, "SESSION_EVICTABLE_AFTER_S", 0.0)
        assert await result(second, "ping") == {}
        async with raw_http(url, "legacy") as third:
            assert await result(third, "ping") == {}
            assert await result(second, "ping") == {}, "the one that has rested longest went"


def test_taking_a_little_is_reading_and_being_sent_more_is_not() -> None:
    unread = ReadStallTimer(1_000, 0.0, min_bytes=100)
    assert unread.measure(1_000, 5.0) == 5.0
    assert unread.measure(950, 6.0) == 6.0, "less than counts"
    assert unread.measure(900, 7.0) == 0.0
    assert unread.measure(2_000, 9.0) == 2.0
    assert unread.measure(0, 10.0) == 0.0


async def test_an_idle_connection_is_kept_longer_than_clients_keep_theirs():
    config = make_server(Starlette(), "127.0.0.1", 0).config
    expiry = httpx2.Limits().keepalive_expiry
    assert expiry is not None
    assert config.timeout_keep_alive > expiry
    assert config.timeout_keep_alive > 60  # what proxies keep
