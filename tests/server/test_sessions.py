"""Sessions of the handshake era over HTTP: resumed by their own client, closed to every other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psutil
import pytest

from portico.app import Gateway
from portico.config import BackendConfig, Config
from portico.server.replay import MAX_EVENTS, MAX_STREAMS, RecentEvents
from portico.testing import connect, gateway_over, serve_http
from portico.upstream.backend import Ask, Era, Raw
from tests.fixtures import broken
from tests.interaction.fakes import ask, fake, text
from tests.interaction.raw import ACCEPT, RawHttp, call, hello, messages, raw_http

PATIENCE_S = 20.0
SECRET = "what only the first client may read"


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[Gateway, str]]:
    backend = fake("secret", "run")
    backend.on_call("secret", lambda _: text(SECRET))
    async with gateway_over({"s": backend}) as gateway, serve_http(gateway) as url:
        yield gateway, url


def headers(client: RawHttp, **more: str) -> dict[str, str]:
    return {**client._headers, **more}  # pyright: ignore[reportPrivateUsage]


async def calling(client: RawHttp, tool: str) -> list[str]:
    """Calls a tool; the ids of the events its answer came in."""
    params = {"name": "call_tool", "arguments": {"name": f"s.{tool}"}}
    frame = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}
    reply = await client.http.post(client.url, json=frame, headers=headers(client))
    return [line.removeprefix("id: ") for line in reply.text.splitlines() if line.startswith("id: ")]


async def resumed(client: RawHttp, event_id: str, until: str = "") -> str:
    """What a client is sent that resumes after an event: all of it, or up to a word."""
    heard = ""
    asking = headers(client, **{"last-event-id": event_id})
    async with client.http.stream("GET", client.url, headers=asking) as reply, asyncio.timeout(PATIENCE_S):
        async for piece in reply.aiter_text():
            heard += piece
            if until and until in heard:
                break
    return heard


async def test_a_client_that_lost_its_stream_gets_its_answer_again() -> None:
    async with served() as (_, url), raw_http(url, "legacy") as client:
        first, *_ = await calling(client, "secret")
        assert SECRET in await resumed(client, first, until=SECRET)


async def test_no_session_is_resumed_from_another_ones_events() -> None:
    async with served() as (_, url), raw_http(url, "legacy") as client, raw_http(url, "legacy") as other:
        events = await calling(client, "secret")
        await calling(other, "run")
        for event in (*events, "_GET_stream/1", "77/0", "77/1", "1/0"):
            asking = headers(other, **{"last-event-id": event})
            heard = ""
            async with other.http.stream("GET", other.url, headers=asking) as reply:
                try:
                    async with asyncio.timeout(0.3):
                        async for piece in reply.aiter_text():
                            heard += piece
                except TimeoutError:
                    pass
            assert SECRET not in heard


async def test_a_store_is_bounded_and_forgets_the_oldest_first() -> None:
    store = RecentEvents()
    ids = [await store.store_event(str(stream), None) for stream in range(MAX_STREAMS + 1)]
    heard: list[Any] = []

    async def hear(event: Any) -> None:
        heard.append(event)

    assert await store.replay_events_after(ids[0], hear) is None
    assert await store.replay_events_after(ids[-1], hear) == str(MAX_STREAMS)
    for nonsense in ("", "x", "1/x", "1/", "/1", "1/-1"):
        assert await store.replay_events_after(nonsense, hear) is None
    assert heard == []
    assert MAX_EVENTS > 0


async def test_a_session_that_is_not_there_is_not_found() -> None:
    async with served() as (_, url), httpx2.AsyncClient() as http:
        frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        reply = await http.post(url, json=frame, headers={**ACCEPT, "mcp-session-id": "made-up"})
        assert reply.status_code == 404
        assert (await http.post(url, json=frame, headers=ACCEPT)).status_code == 400, "no session, and no initialize"


async def test_a_session_that_was_ended_is_over() -> None:
    async with served() as (gateway, url), raw_http(url, "legacy") as client:
        await call(client, "call_tool", name="s.run")
        assert len(gateway.door().sessions) == 1
        assert (await client.http.delete(url, headers=headers(client))).status_code == 200
        frame = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
        assert (await client.http.post(url, json=frame, headers=headers(client))).status_code == 404
        async with asyncio.timeout(PATIENCE_S):
            while len(gateway.door().sessions):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_leaves_in_the_middle_of_a_call_cancels_it(era: Era) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(params: Raw, how: Ask) -> Raw:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    backend = fake("run")
    backend.on("tools/call", forever)
    async with gateway_over({"s": backend}) as gateway, serve_http(gateway) as url, raw_http(url, era) as client:
        calling = asyncio.create_task(call(client, "call_tool", name="s.run"))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        if era == "legacy":  # a cut stream may be resumed in this era; the end of the session is the end of its calls
            await client.http.delete(url, headers=headers(client))
        calling.cancel()
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)
        await asyncio.wait({calling})


async def test_a_client_that_forgets_to_say_that_it_is_initialized_is_served() -> None:
    async with served() as (_, url), httpx2.AsyncClient() as http:
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
        opened = await http.post(url, json=frame, headers=ACCEPT)
        session = {**ACCEPT, "mcp-session-id": opened.headers["mcp-session-id"]}
        reply = await http.post(url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session)
        assert messages(reply)[-1]["result"]["tools"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_each_session_has_its_own_instance_of_an_isolated_server(transport: Any) -> None:
    command, *arguments = broken("healthy")
    server = BackendConfig(command=command, args=tuple(arguments), isolation="session")
    config = Config(servers={"own": server})
    async with gateway_over(config=config) as gateway, connect(gateway, transport, "legacy") as one:
        mine = await ask(one, "call_tool", name="own.pid")
        assert await ask(one, "call_tool", name="own.pid") == mine
        async with connect(gateway, transport, "legacy") as two:
            other = await ask(two, "call_tool", name="own.pid")
            assert other != mine
        async with asyncio.timeout(PATIENCE_S):
            while psutil.pid_exists(int(other)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await ask(one, "call_tool", name="own.pid") == mine
