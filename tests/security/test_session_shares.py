"""Sessions, listening streams, connections and places are shared by caller: nobody shuts another
address out."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from portico.server import sessions
from portico.server.http import endpoints
from portico.server.http.app import make_app, make_server
from portico.server.http.slow_clients import ConnectionLimits
from portico.testing import gateway_over, serve_http
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import ACCEPT, LEGACY, MODERN, RawHttp, envelope, hello, result

TIMEOUT_S = 240.0
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"


@asynccontextmanager
async def serve(**options: Any) -> AsyncGenerator[str]:
    async with gateway_over({"s": fake("run")}) as gateway, serve_http(gateway, **options) as url:
        yield url


@asynccontextmanager
async def client_at(address: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client whose connections come from an address of this machine."""
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    async with httpx2.AsyncClient(transport=transport, timeout=TIMEOUT_S) as http:
        yield http


async def open_session(http: httpx2.AsyncClient, url: str) -> RawHttp:
    client = RawHttp(http, url, "legacy", {})
    await client.introduce()
    return client


def initialize(**params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params or hello()}


async def is_alive(client: RawHttp) -> bool:
    frame = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    reply = await client.http.post(client.url, json=frame, headers=client._headers)  # pyright: ignore[reportPrivateUsage]
    return reply.status_code == 200


async def test_an_address_that_holds_all_sessions_gives_way_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 4)
    async with serve() as url, client_at(HERE) as crowd, client_at(ELSEWHERE) as other:
        many = [await open_session(crowd, url) for _ in range(4)]
        for one in many:
            assert await result(one, "ping") == {}
        newcomer = await open_session(other, url)
        assert await result(newcomer, "ping") == {}
        assert [await is_alive(one) for one in many] == [False, True, True, True], (
            "its longest idle one went"
        )


async def test_a_flood_of_sessions_ends_none_of_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 4)
    monkeypatch.setattr(endpoints, "SESSION_EVICTABLE_AFTER_S", 0.0)
    async with serve() as url, client_at(HERE) as crowd, client_at(ELSEWHERE) as other:
        idle = await open_session(other, url)
        assert await result(idle, "ping") == {}
        for _ in range(12):
            await result(await open_session(crowd, url), "ping")
        assert await is_alive(idle)


async def test_sessions_that_were_never_used_go_before_those_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 4)
    monkeypatch.setattr(endpoints, "SESSION_EVICTABLE_AFTER_S", 0.0)
    monkeypatch.setattr(endpoints, "SESSION_UNUSED_S", 0.0, raising=False)
    async with serve() as url, client_at(HERE) as http:
        used = await open_session(http, url)
        assert await result(used, "ping") == {}
        for _ in range(12):
            await open_session(http, url)
        assert await is_alive(used)


async def test_a_caller_cannot_take_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 4)
    monkeypatch.setattr(endpoints, "MAX_CALLER_SESSIONS", 3, raising=False)
    async with serve() as url, client_at(HERE) as crowd:
        for _ in range(3):
            await result(await open_session(crowd, url), "ping")
        refused = await crowd.post(url, json=initialize(), headers=ACCEPT)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "OPTIONS"},
        {"method": "GET"},
        {"method": "DELETE"},
        {"method": "PUT", "json": initialize()},
        {"method": "POST", "content": b"{"},
        {"method": "POST", "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
        {"method": "POST", "json": {"jsonrpc": "2.0", "method": "notifications/initialized"}},
        {"method": "POST", "json": initialize(), "headers": {**ACCEPT, "accept": "text/html"}},
        {
            "method": "POST",
            "json": initialize(),
            "headers": {**ACCEPT, "content-type": "text/plain"},
        },
        {
            "method": "POST",
            "json": initialize(),
            "headers": {**ACCEPT, "origin": "https://evil.example"},
        },
        {"method": "GET", "headers": {**ACCEPT, "mcp-protocol-version": LEGACY}},
    ],
    ids=lambda asked: (
        f"{asked['method']} {str(asked.get('json') or asked.get('content', ''))[:40]}"
    ),
)
async def test_only_what_initialises_opens_a_session_or_ends_another(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 2)
    monkeypatch.setattr(endpoints, "SESSION_EVICTABLE_AFTER_S", 0.0)
    async with serve() as url, client_at(HERE) as http:
        both = [await open_session(http, url), await open_session(http, url)]
        for one in both:
            assert await result(one, "ping") == {}
        for _ in range(3):
            request: dict[str, Any] = {"headers": ACCEPT, **asked}
            refused = await http.request(url=url, **request)
            assert 400 <= refused.status_code < 500
            assert "mcp-session-id" not in refused.headers
        assert [await is_alive(one) for one in both] == [True, True]


async def test_an_introduction_that_fails_leaves_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 2)
    async with serve() as url, client_at(HERE) as http:
        first = await open_session(http, url)
        assert await result(first, "ping") == {}
        for _ in range(3):
            failed = await http.post(url, json=initialize(protocolVersion=7), headers=ACCEPT)
            assert "error" in failed.text
        second = await open_session(http, url)
        assert [await is_alive(one) for one in (first, second)] == [True, True]


# --- listening streams


def listening(number: int) -> dict[str, Any]:
    params = {"_meta": envelope(), "notifications": {"toolsListChanged": True}}
    frame = {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}
    headers = {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    return {"content": json.dumps(frame), "headers": headers}


@asynccontextmanager
async def listen(
    http: httpx2.AsyncClient, url: str, number: int
) -> AsyncGenerator[tuple[Any, dict[str, Any]]]:
    """The lines of a stream, and the first message on it."""
    async with http.stream("POST", url, **listening(number)) as reply, asyncio.timeout(TIMEOUT_S):
        lines = reply.aiter_lines()
        yield lines, await next_message(lines)


async def next_message(lines: Any) -> dict[str, Any]:
    async for line in lines:
        if line.strip().startswith(("data:", "{")):
            return json.loads(line.removeprefix("data:"))
    raise AssertionError("the stream ended without a message")


async def test_an_address_that_holds_all_listening_streams_gives_way_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MAX_LISTENERS", 4)
    async with (
        serve() as url,
        client_at(HERE) as crowd,
        client_at(ELSEWHERE) as other,
        AsyncExitStack() as open_,
    ):
        many = [await open_.enter_async_context(listen(crowd, url, number)) for number in range(4)]
        assert all("acknowledged" in first["method"] for _, first in many)
        _, first = await open_.enter_async_context(listen(other, url, 9))
        assert "acknowledged" in first.get("method", ""), first
        ended = await next_message(many[0][0])
        assert "another client" in ended["error"]["message"], "its oldest one ended, and says why"
        async with listen(crowd, url, 10) as (_, refused):
            assert "error" in refused, "it holds most, so that it is the one that waits"


async def test_a_caller_cannot_take_every_listening_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_LISTENERS", 4)
    monkeypatch.setattr(sessions, "MAX_CALLER_LISTENERS", 3, raising=False)
    async with serve() as url, client_at(HERE) as crowd, AsyncExitStack() as open_:
        for number in range(3):
            _, first = await open_.enter_async_context(listen(crowd, url, number))
            assert "acknowledged" in first["method"]
        async with listen(crowd, url, 9) as (_, refused):
            assert "error" in refused


# --- connections and requests that are being read


async def test_an_address_that_opens_every_connection_leaves_some_for_others() -> None:
    async with gateway_over({"s": fake("run")}) as gateway:
        server = make_server(
            make_app(gateway.get_endpoints()), HERE, 0, ConnectionLimits(max_connections=16)
        )
        serving = asyncio.create_task(server.serve())
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                AsyncExitStack() as held,
                client_at(ELSEWHERE) as other,
            ):
                while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
                    await asyncio.sleep(0.005)
                port = server.servers[0].sockets[0].getsockname()[1]
                for _ in range(16):
                    _, writer = await asyncio.open_connection(HERE, port, local_addr=(HERE, 0))
                    held.callback(writer.close)
                reply = await other.post(
                    f"http://{HERE}:{port}/mcp", json=initialize(), headers=ACCEPT
                )
                assert reply.status_code == 200
        finally:
            server.should_exit = True
            await asyncio.wait({serving}, timeout=TIMEOUT_S)


async def test_an_address_that_has_every_request_under_way_leaves_some_for_others() -> None:
    async with (
        serve(max_in_flight=8) as url,
        AsyncExitStack() as held,
        client_at(ELSEWHERE) as other,
    ):
        address = httpx2.URL(url)
        said = b""
        async with asyncio.timeout(TIMEOUT_S):
            while b" 503 " not in said:
                reader, writer = await asyncio.open_connection(
                    HERE, address.port, local_addr=(HERE, 0)
                )
                held.callback(writer.close)
                head = (
                    "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\nexpect: "
                    "100-continue\r\n\r\n"
                )
                writer.write(head.encode())
                said = await reader.readuntil(b"\r\n\r\n")
        assert (await other.post(url, json=initialize(), headers=ACCEPT)).status_code == 200
