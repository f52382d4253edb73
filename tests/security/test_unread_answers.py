"""Answers that clients leave unread wait on disk, so many bytes of them in all, fairly shared:
memory stays bounded."""

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Any

import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from portico.config import Config
from portico.server.http.app import make_app, make_server
from portico.server.http.slow_clients import ConnectionLimits
from portico.server.http.spooled_responses import ResponseSpool, SpoolMiddleware
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.interaction.fake_servers import fake, text
from tests.interaction.raw_clients import LEGACY, MODERN, call, envelope, hello, raw_http
from tests.upstream.loopback_server import advance_clock

TIMEOUT_S = 240.0
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
MANY = 8
SIZE = 8 * 2**20
"""Bytes of each answer."""
FULL = Config(exposure="full", prefix="always")


def large_server() -> FakeBackend:
    backend = fake("run", "large", "slow")

    async def slow(_: Any) -> Raw:
        await asyncio.sleep(1.2)  # longer than an answer is waited for before a stream is opened
        return text("x" * SIZE)

    def read(_: Raw, __: RequestOptions) -> Raw:
        return {
            "contents": [{"uri": "file:///large", "mimeType": "text/plain", "text": "x" * SIZE}]
        }

    backend.on_call("large", lambda _: text("x" * SIZE))
    backend.on_call("slow", slow)
    backend.listing["resources"] = [{"uri": "file:///large", "name": "large"}]
    backend.on("resources/read", read)
    return backend


@asynccontextmanager
async def serve(**options: Any) -> AsyncGenerator[tuple[str, int]]:
    backend = options.pop("backend", None) or large_server()
    async with (
        gateway_over({"s": backend}, FULL) as gateway,
        served_app(make_app(gateway.get_endpoints(), **options)) as port,
    ):
        yield f"http://{HERE}:{port}/mcp", port


@asynccontextmanager
async def served_app(app: Starlette) -> AsyncGenerator[int]:
    server = make_server(app, HERE, 0, ConnectionLimits())
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
                await asyncio.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait({serving}, timeout=TIMEOUT_S)


def post(frame: Raw, *about: str) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **frame}).encode()
    lines = (
        "POST /mcp HTTP/1.1",
        f"host: {HERE}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"content-length: {len(body)}",
        *about,
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def asking(method: str, name: str, session: str = "") -> bytes:
    params: Raw = {"uri": name} if method == "resources/read" else {"name": name, "arguments": {}}
    if session:
        frame = {"id": 1, "method": method, "params": params}
        return post(frame, f"mcp-session-id: {session}", f"mcp-protocol-version: {LEGACY}")
    params["_meta"] = envelope()
    about = f"mcp-protocol-version: {MODERN}", f"mcp-method: {method}", f"mcp-name: {name}"
    return post({"id": 1, "method": method, "params": params}, *about)


class Deaf:
    """A client that asks and does not read until it is asked to."""

    def __init__(self, port: int, asked: bytes, address: str = HERE) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        self._socket.bind((address, 0))
        self._socket.connect((HERE, port))
        self._socket.setblocking(False)
        self._asked = asked

    async def ask(self) -> None:
        """Ask, and take the first bytes of the answer."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, self._asked)
        assert await asyncio.wait_for(loop.sock_recv(self._socket, 64), TIMEOUT_S)

    async def read(self) -> int:
        """Return how many bytes of the answer are still to be had."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        loop, count = asyncio.get_running_loop(), 0
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while piece := await loop.sock_recv(self._socket, 2**20):
                    count += len(piece)
                    if piece.endswith((b"}", b"0\r\n\r\n")):
                        break
        except ConnectionError:
            pass
        return count

    def close(self) -> None:
        self._socket.close()


@contextmanager
def unread(port: int, asked: bytes, number: int, address: str = HERE) -> Generator[list[Deaf]]:
    them = [Deaf(port, asked, address) for _ in range(number)]
    try:
        yield them
    finally:
        for one in them:
            one.close()


async def open_session(port: int) -> str:
    reader, writer = await asyncio.open_connection(HERE, port)
    async with asyncio.timeout(TIMEOUT_S):
        writer.write(post({"id": 0, "method": "initialize", "params": hello()}))
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readuntil(b"\r\n0\r\n\r\n")
        session = head.split("mcp-session-id: ")[1].split("\r\n")[0]
        writer.write(post({"method": "notifications/initialized"}, f"mcp-session-id: {session}"))
        assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return session


async def held_bytes(settled: Callable[[int], bool]) -> int:
    """The memory that this process was given since it was measured first, once it is as wanted or
    time is over."""
    held = 0
    for _ in range(40):
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        if settled(held):
            break
        await asyncio.sleep(0.05)
    return held


async def test_an_idle_session_keeps_nothing_of_its_last_request() -> None:
    backend = large_server()
    async with serve(backend=backend) as (_, port):
        sessions = [await open_session(port) for _ in range(MANY)]
        params = {"name": "s__run", "arguments": {"padding": "x" * (SIZE // 4)}}
        about = f"mcp-protocol-version: {LEGACY}"
        tracemalloc.start()
        try:
            for session in sessions:
                reader, writer = await asyncio.open_connection(HERE, port)
                writer.write(
                    post(
                        {"id": 1, "method": "tools/call", "params": params},
                        about,
                        f"mcp-session-id: {session}",
                    )
                )
                assert b" 200 " in await asyncio.wait_for(reader.readline(), TIMEOUT_S)
                writer.close()
                backend.requests.clear()
            held = await held_bytes(lambda held: held < MANY * SIZE // 8)
        finally:
            tracemalloc.stop()
        assert held < MANY * SIZE // 8, f"{held:,} bytes are held for requests that were answered"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    ("method", "name"),
    [("tools/call", "s__large"), ("tools/call", "s__slow"), ("resources/read", "file:///large")],
    ids=["answer", "stream", "resource"],
)
async def test_unread_answers_take_no_memory_and_can_still_be_read(
    era: Era, method: str, name: str
) -> None:
    async with serve() as (_, port):
        sessions = [await open_session(port) if era == "legacy" else "" for _ in range(MANY)]
        tracemalloc.start()
        try:
            them = [Deaf(port, asking(method, name, session)) for session in sessions]
            await asyncio.gather(*(one.ask() for one in them))
            held = await held_bytes(lambda held: held < MANY * SIZE // 4)
        finally:
            tracemalloc.stop()
        assert held < MANY * SIZE // 4, (
            f"{held:,} bytes are held for {MANY * SIZE:,} that nobody reads"
        )
        assert [await one.read() > SIZE for one in them] == [True] * MANY
        for one in them:
            one.close()


async def test_what_all_leave_unread_is_bounded_and_a_client_that_reads_loses_nothing() -> None:
    async with serve(spool_bytes=7 * SIZE // 2) as (url, port), raw_http(url, "modern") as polite:
        with unread(port, asking("tools/call", "s__large"), MANY) as them:
            for one in them:
                await one.ask()
            assert len((await call(polite, "s__large"))["result"]["content"][0]["text"]) == SIZE
            whole = [await one.read() > SIZE for one in them]
        assert 1 <= whole.count(True) <= 4, (
            "there is room for three, and a kernel may have taken in one more"
        )


async def test_one_caller_leaves_unread_what_it_likes_and_another_loses_nothing() -> None:
    async with serve(spool_bytes=7 * SIZE // 2) as (_, port):
        large = asking("tools/call", "s__large")
        with unread(port, large, 1, ELSEWHERE) as (other,), unread(port, large, MANY) as them:
            await other.ask()
            for one in them:
                await one.ask()
            assert await other.read() > SIZE, (
                "it waited longest, but holds less than the one that goes on asking"
            )


class NoDisk(ResponseSpool):
    """Nothing can wait: anyone who is behind is hung up on."""

    def open_file(self) -> IO[bytes]:
        raise OSError("there is no disk")


async def test_what_a_client_reads_at_once_never_waits_on_disk() -> None:
    async def answer(_: Scope, __: Receive, send: Send) -> None:
        headers = [(b"content-length", str(SIZE).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * SIZE})

    application: Any = SpoolMiddleware(answer, NoDisk())
    async with served_app(application) as port:
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(f"GET / HTTP/1.1\r\nhost: {HERE}\r\n\r\n".encode())
        async with asyncio.timeout(TIMEOUT_S):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(SIZE) == b"x" * SIZE
        writer.close()


async def test_a_client_that_reads_slowly_gets_its_whole_answer() -> None:
    async with serve() as (_, port):
        with unread(port, asking("tools/call", "s__large"), 1) as (one,):
            await one.ask()
            assert await _read_slowly(one, ConnectionLimits().send_s) > SIZE


async def _read_slowly(one: Deaf, send_s: float) -> int:
    """Read in pieces, each soon enough, and all of them for longer than nothing may be read."""
    loop, count, steps = asyncio.get_running_loop(), 0, 0
    read: Callable[[], Awaitable[bytes]] = lambda: loop.sock_recv(one._socket, 2**16)  # noqa: E731  # pyright: ignore[reportPrivateUsage]
    while piece := await asyncio.wait_for(read(), TIMEOUT_S):
        count += len(piece)
        if piece.endswith(b"}"):
            break
        if count % 2**18 < len(piece):
            advance_clock(send_s / 8)
            steps += 1
            await asyncio.sleep(0.01)
    assert steps > 16, "it took longer than nothing may be read"
    return count
