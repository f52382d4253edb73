"""Sessions of the handshake era over HTTP: resumed by their own client, closed to every other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psutil
import pytest
from mcp.server.connection import Connection
from mcp_types import JSONRPCResponse

from portico.config import BackendConfig, Config
from portico.events import ResourceUpdated
from portico.gateway import GatewayRuntime
from portico.server import sessions as sessions_module
from portico.server.http.json_first_transport import (
    MAX_BYTES,
    MAX_EVENTS,
    MAX_MESSAGE_BYTES,
    MAX_STREAMS,
    RecentEvents,
    ReplayBudget,
)
from portico.server.sessions import Session, SessionRegistry
from portico.testing import connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw, RequestOptions
from portico.visibility import MAX_URI_CHARS
from tests.fixtures import broken_command
from tests.interaction.fake_servers import ask, fake, text
from tests.interaction.raw_clients import ACCEPT, RawHttp, call, hello, messages, raw_http

PATIENCE_S = 60.0
SECRET = "what only the first client may read"


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[GatewayRuntime, str]]:
    async def run(given: Raw, how: RequestOptions) -> Raw:
        # Something is said before the answer: only then is there a stream that can be lost.
        if how.relay is not None and "progressToken" in given.get("_meta", {}):
            token = given["_meta"]["progressToken"]
            await how.relay.notify(
                "notifications/progress", {"progressToken": token, "progress": 1}
            )
        return text(SECRET if given["name"] == "secret" else "ran")

    backend = fake("secret", "run")
    backend.on("tools/call", run)
    async with gateway_over({"s": backend}) as gateway, serve_http(gateway) as url:
        yield gateway, url


def headers(client: RawHttp, **more: str) -> dict[str, str]:
    return {**client._headers, **more}  # pyright: ignore[reportPrivateUsage]


async def calling(client: RawHttp, tool: str) -> list[str]:
    """Calls a tool; the ids of the events its answer came in."""
    params = {
        "name": "call_tool",
        "arguments": {"name": f"s.{tool}"},
        "_meta": {"progressToken": 7},
    }
    frame = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}
    reply = await client.http.post(client.url, json=frame, headers=headers(client))
    return [
        line.removeprefix("id: ") for line in reply.text.splitlines() if line.startswith("id: ")
    ]


async def resumed(client: RawHttp, event_id: str, until: str = "") -> str:
    """What a client is sent that resumes after an event: all of it, or up to a word."""
    heard = ""
    asking = headers(client, **{"last-event-id": event_id})
    async with (
        client.http.stream("GET", client.url, headers=asking) as reply,
        asyncio.timeout(PATIENCE_S),
    ):
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
    async with (
        served() as (_, url),
        raw_http(url, "legacy") as client,
        raw_http(url, "legacy") as other,
    ):
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
    async with served() as (_, url), httpx2.AsyncClient(timeout=240) as http:
        frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        reply = await http.post(url, json=frame, headers={**ACCEPT, "mcp-session-id": "made-up"})
        assert reply.status_code == 404
        assert (await http.post(url, json=frame, headers=ACCEPT)).status_code == 400, (
            "no session, and no initialize"
        )


async def test_a_session_that_was_ended_is_over() -> None:
    async with served() as (gateway, url), raw_http(url, "legacy") as client:
        await call(client, "call_tool", name="s.run")
        assert len(gateway.get_endpoint().sessions) == 1
        assert (await client.http.delete(url, headers=headers(client))).status_code == 200
        frame = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
        assert (await client.http.post(url, json=frame, headers=headers(client))).status_code == 404
        async with asyncio.timeout(PATIENCE_S):
            while len(gateway.get_endpoint().sessions):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_leaves_in_the_middle_of_a_call_cancels_it(era: Era) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(params: Raw, how: RequestOptions) -> Raw:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    backend = fake("run")
    backend.on("tools/call", forever)
    async with (
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, era) as client,
    ):
        calling = asyncio.create_task(call(client, "call_tool", name="s.run"))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        if (
            era == "legacy"
            # a cut stream may be resumed in this era; the end of the session is the end of its
            # calls
        ):
            await client.http.delete(url, headers=headers(client))
        calling.cancel()
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)
        await asyncio.wait({calling})


async def test_a_client_that_forgets_to_say_that_it_is_initialized_is_served() -> None:
    async with served() as (_, url), httpx2.AsyncClient(timeout=240) as http:
        frame: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": hello(),
        }
        opened = await http.post(url, json=frame, headers=ACCEPT)
        session = {**ACCEPT, "mcp-session-id": opened.headers["mcp-session-id"]}
        reply = await http.post(
            url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session
        )
        assert messages(reply)[-1]["result"]["tools"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_each_session_has_its_own_instance_of_an_isolated_server(transport: Any) -> None:
    command, *arguments = broken_command("healthy")
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


async def test_a_store_keeps_no_large_message_and_few_bytes_in_all() -> None:
    store = RecentEvents()
    heard: list[Any] = []

    async def hear(event: Any) -> None:
        heard.append(event)

    def answer(size: int) -> JSONRPCResponse:
        return JSONRPCResponse(jsonrpc="2.0", id=1, result=text("x" * size))

    first = await store.store_event("s", None)
    await store.store_event("s", answer(MAX_MESSAGE_BYTES + 1))
    await store.store_event("s", answer(1_000))
    assert await store.replay_events_after(first, hear) == "s"
    assert [len(event.message.result["content"][0]["text"]) for event in heard] == [1_000]
    for stream in ("s", "t"):
        heard.clear()
        first = await store.store_event(stream, None)
        for _ in range(50):
            await store.store_event(stream, answer(200_000))
        assert await store.replay_events_after("s/0" if stream == "s" else "t/0", hear) == stream
        assert 10 <= len(heard) <= MAX_BYTES // 200_000
    assert await store.replay_events_after("s/0", hear) is None, (
        "the stream used last is kept longest"
    )


async def test_what_all_sessions_keep_is_bounded_and_goes_with_them() -> None:
    together, heard = ReplayBudget(1_000_000), list[Any]()

    async def hear(event: Any) -> None:
        heard.append(event)

    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result=text("x" * 100_000))
    stores = [RecentEvents(together) for _ in range(20)]
    for number in range(20):
        for stream in ("1", "2"):
            await stores[number].store_event(stream, answer)
        assert together.held_bytes <= 1_000_000
    assert together.held_bytes > 700_000
    assert await stores[0].replay_events_after("1/0", hear) is None, (
        "the session that was quiet for longest"
    )
    assert heard == []
    assert await stores[-1].replay_events_after("2/0", hear) == "2"
    assert len(heard) == 1
    heard.clear()
    stores.clear()
    assert together.held_bytes == 0
    alone = RecentEvents(ReplayBudget(1_000))
    await alone.store_event("1", answer)
    assert await alone.replay_events_after("1/0", hear) in (None, "1")
    assert heard == [], "one that is larger than all may be is not kept"


class Deaf:
    """The outer side of a connection whose client does not read, or does."""

    def __init__(self, *, reads: bool) -> None:
        self.reads, self.heard = reads, asyncio.Event()
        self.received: list[tuple[str, Any]] = []

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        return {}

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        self.received.append((method, params))
        self.heard.set()
        if not self.reads:
            await asyncio.Event().wait()


async def test_a_client_that_does_not_read_keeps_no_other_from_hearing() -> None:
    sessions, deaf, other = SessionRegistry(), Deaf(reads=False), Deaf(reads=True)
    for outbound in (deaf, other):
        sessions.add(Connection.for_loop(outbound), Session())
    for round in range(3):
        other.heard.clear()
        sessions.notify_list_changed("tools")
        await asyncio.wait_for(other.heard.wait(), PATIENCE_S)
        assert len(other.received) == round + 1
    assert len(deaf.received) == 1
    await sessions.close()


async def test_only_watched_resources_are_notified() -> None:
    sessions, one, two = SessionRegistry(), Deaf(reads=True), Deaf(reads=True)
    mine = Session(subscriptions={"outer": {"inner"}})
    sessions.add(Connection.for_loop(one), mine)
    sessions.add(
        Connection.for_loop(two), Session(subscriptions={"outer": {"inner"}, "own": {"own"}})
    )
    for number in range(10_000):
        sessions.notify_resource_updated(f"nobody's {number}")
    sessions.notify_resource_updated("outer", mine.id)
    sessions.notify_resource_updated("own")
    await asyncio.wait_for(asyncio.gather(one.heard.wait(), two.heard.wait()), PATIENCE_S)
    assert one.received == [("notifications/resources/updated", {"uri": "inner"})]
    assert two.received == [("notifications/resources/updated", {"uri": "own"})]
    await sessions.close()


async def test_a_client_can_subscribe_to_so_many_resources_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SUBSCRIPTIONS", 1)
    resources = [{"uri": uri, "name": uri} for uri in ("a://1", "a://2")]
    backend = fake("run", resources=resources)
    backend.on("resources/subscribe", lambda params, how: {})
    async with (
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "legacy") as client,
    ):
        assert "result" in await client.request("resources/subscribe", {"uri": "a://1"})
        for uri in ("a://2", "a://" + "x" * MAX_URI_CHARS):
            assert (await client.request("resources/subscribe", {"uri": uri}))["error"][
                "code"
            ] == -32602


async def test_an_own_instance_tells_only_its_own_session() -> None:
    backend = fake("run")
    own = asyncio.Queue[ResourceUpdated]()
    async with gateway_over({"s": backend}) as gateway:
        gateway.upstreams["s"].isolated = True
        gateway.bus.subscribe(
            lambda event: own.put_nowait(event) if isinstance(event, ResourceUpdated) else None
        )
        await gateway.upstreams["s"].request("tools/call", {"name": "run"}, session="mine")
        backend.say("notifications/resources/updated", {"uri": "a://1"})
        assert {own.get_nowait().session, own.get_nowait().session} == {"", "mine"}
