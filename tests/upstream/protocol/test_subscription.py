"""A modern server is asked for one subscription, whatever is watched: a new one is agreed on before
an old one ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Connection, Raw, RequestOptions
from portico.upstream.backends.http import HttpBackend
from portico.upstream.protocol import subscription as module
from portico.upstream.protocol.subscription import Subscription, SubscriptionLost
from portico.upstream.transports.stdio import StdioBackend
from tests.fixtures import everything_command
from tests.interaction.upstreams import listening
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener, get_soon
from tests.upstream.raw_server import DISCOVERY, RawServer, answer, conversation, error, event
from tests.upstream.scripted import conversation as piped
from tests.upstream.scripted import scripted

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"


class Held:
    """A stream that is open until it is closed."""

    retry_ms = None

    def __init__(self, wanted: Raw, agreed: frozenset[str] | None) -> None:
        self.wanted: Raw = wanted["notifications"]
        self.agreed_uris = agreed
        self.over = asyncio.Event()

    async def wait_for_end(self) -> None:
        await self.over.wait()

    def close(self) -> None:
        self.over.set()


class Server:
    """Agrees, or not, to what it is asked for."""

    def __init__(self, decide: Callable[[list[str]], object] = lambda uris: None) -> None:
        self.streams: list[Held] = []
        self.opened: asyncio.Queue[Held] = asyncio.Queue()
        self.decide = decide
        self.ready = asyncio.Event()
        self.ready.set()

    async def open(self, wanted: Raw) -> Held:
        await self.ready.wait()
        outcome: Any = self.decide(wanted["notifications"].get("resourceSubscriptions", []))
        if isinstance(outcome, Exception):
            raise outcome
        stream = Held(wanted, outcome)
        self.streams.append(stream)
        self.opened.put_nowait(stream)
        return stream

    @property
    def open_now(self) -> list[Held]:
        return [stream for stream in self.streams if not stream.over.is_set()]


class Following:
    """A subscription that is followed, and what is announced of it."""

    def __init__(self, server: Server, **capabilities: Any) -> None:
        self.listener = RecordingListener()
        self.subscription = Subscription(
            "s", capabilities, server.open, self.listener.on_notification
        )
        self.task = asyncio.create_task(self.subscription.keep_open())

    async def __aenter__(self) -> "Following":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def watch(self, uri: str, timeout_s: float | None = TEST_TIMEOUT_S) -> Raw:
        return await self.subscription.request("resources/subscribe", {"uri": uri}, timeout_s)

    async def leave(self, uri: str) -> Raw:
        return await self.subscription.request(
            "resources/unsubscribe", {"uri": uri}, TEST_TIMEOUT_S
        )


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_DELAY_S", 0.01)
    monkeypatch.setattr(module, "LINGER_S", 0.02)


async def test_what_is_watched_together_is_one_new_subscription_and_the_old_one_ends_after_it() -> (
    None
):
    server = Server()
    async with Following(server, tools={"listChanged": True}) as following:
        first = await get_soon(server.opened)
        assert first.wanted == {"toolsListChanged": True}
        await asyncio.gather(*(following.watch(f"r://{n}") for n in range(50)))
        second = await get_soon(server.opened)
        assert second.wanted == {
            "toolsListChanged": True,
            "resourceSubscriptions": sorted(f"r://{n}" for n in range(50)),
        }
        await asyncio.wait_for(first.over.wait(), TEST_TIMEOUT_S)
        assert server.open_now == [second]
        await following.watch("r://1")
        assert server.opened.empty(), "it is watched already"
        for n in range(50):
            await following.leave(f"r://{n}")
        assert (await get_soon(server.opened)).wanted == {"toolsListChanged": True}


async def test_a_server_without_lists_is_asked_for_nothing_until_something_is_watched() -> None:
    server = Server()
    async with Following(server) as following:
        await following.watch("r://1")
        assert (await get_soon(server.opened)).wanted == {"resourceSubscriptions": ["r://1"]}
        await following.leave("r://1")
        await asyncio.wait_for(server.streams[0].over.wait(), TEST_TIMEOUT_S)
        assert len(server.streams) == 1
    assert server.open_now == []


async def test_what_the_server_did_not_agree_to_is_refused_and_asked_for_no_more() -> None:
    server = Server(lambda uris: frozenset(uris) - {"r://no"})
    async with Following(server) as following:
        outcomes = await asyncio.gather(
            *map(following.watch, ("r://1", "r://no", "r://2")), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [dict, RemoteError, dict]
        await following.watch("r://3")
        assert server.streams[-1].wanted["resourceSubscriptions"] == ["r://1", "r://2", "r://3"]


async def test_one_resource_that_makes_a_server_refuse_spoils_no_other() -> None:
    refusal = RemoteError(-32602, "I know no such resource")
    server = Server(lambda uris: refusal if "r://no" in uris else None)
    async with Following(server, tools={"listChanged": True}) as following:
        await following.watch("r://0")
        outcomes = await asyncio.gather(
            *map(following.watch, ("r://1", "r://no", "r://2")), return_exceptions=True
        )
        assert [outcome if isinstance(outcome, dict) else str(outcome) for outcome in outcomes] == [
            {},
            str(refusal),
            {},
        ]
        [stream] = [
            one
            for one in server.streams
            if one.wanted.get("resourceSubscriptions") == ["r://0", "r://1", "r://2"]
        ]
        assert stream.wanted["toolsListChanged"] is True


async def test_after_a_break_all_that_is_followed_is_announced_as_changed() -> None:
    server = Server()
    async with Following(server, tools={"listChanged": True}) as following:
        await following.watch("r://1")
        server.open_now[-1].close()
        assert await get_soon(following.listener.notifications) == (TOOLS, {})
        assert await get_soon(following.listener.notifications) == (UPDATED, {"uri": "r://1"})
        assert server.streams[-1].wanted["resourceSubscriptions"] == ["r://1"]


async def test_a_waiting_client_gets_the_error_and_what_was_agreed_on_stays() -> None:
    server = Server()
    async with Following(server) as following:
        await following.watch("r://1")
        server.decide = lambda uris: BackendUnavailable("not now")
        with pytest.raises(BackendUnavailable, match="not now"):
            await following.watch("r://2")
        assert server.open_now == [server.streams[0]]
        server.decide = lambda uris: None
        await following.watch("r://3")
        assert server.streams[-1].wanted["resourceSubscriptions"] == ["r://1", "r://3"]
        server.decide = lambda uris: SubscriptionLost("it is gone")
        with pytest.raises(BackendUnavailable, match="it is gone"):
            await following.watch("r://4")
        assert await asyncio.wait_for(following.task, TEST_TIMEOUT_S) == "it is gone"


async def test_nobody_waits_longer_than_they_want_to_and_nobody_watches_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    async with Following(server) as following:
        server.ready.clear()
        with pytest.raises(BackendTimeout):
            await following.watch("r://1", 0.01)
        monkeypatch.setattr(module, "MAX_RESOURCES", 0)
        with pytest.raises(RemoteError, match="watched already"):
            await following.watch("r://2")


# ── over a wire


async def subscribe(connection: Connection, uri: str) -> Raw:
    return await connection.request(
        "resources/subscribe", {"uri": uri}, RequestOptions(timeout=TEST_TIMEOUT_S)
    )


async def test_over_http_an_update_arrives_and_the_request_that_is_replaced_is_closed() -> None:
    opened: asyncio.Queue[tuple[Raw, asyncio.Queue[bytes]]] = asyncio.Queue()
    closed: asyncio.Queue[list[str]] = asyncio.Queue()

    async def discover(request: Request, frame: Raw) -> Response:
        return answer(frame, {**DISCOVERY, "capabilities": {"resources": {"subscribe": True}}})

    async def listen(request: Request, frame: Raw) -> Response:
        wanted = frame["params"]["notifications"]
        if "r://refused" in wanted["resourceSubscriptions"]:
            return error(frame, -32602, "no such resource")
        agreed = {
            "resourceSubscriptions": [
                uri for uri in wanted["resourceSubscriptions"] if uri != "r://mute"
            ]
        }
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        meta = {"io.modelcontextprotocol/subscriptionId": frame["id"]}
        params = {"notifications": agreed, "_meta": meta}
        pieces.put_nowait(
            event({"jsonrpc": "2.0", "method": module.ACKNOWLEDGED_METHOD, "params": params})
        )
        opened.put_nowait((wanted, pieces))

        async def said() -> AsyncIterator[bytes]:
            try:
                while piece := await pieces.get():
                    yield piece
            finally:
                closed.put_nowait(wanted["resourceSubscriptions"])

        return StreamingResponse(said(), media_type="text/event-stream")

    listener, server = (
        RecordingListener(),
        RawServer(server_discover=discover, subscriptions_listen=listen),
    )
    async with conversation(server, listener) as (connection, _):
        assert await subscribe(connection, "r://1") == {}
        for uri in ("r://mute", "r://refused"):
            with pytest.raises(RemoteError):
                await subscribe(connection, uri)
        assert await subscribe(connection, "r://2") == {}
        while (current := await get_soon(opened))[0]["resourceSubscriptions"] != ["r://1", "r://2"]:
            pass
        update = {
            "jsonrpc": "2.0",
            "method": UPDATED,
            "params": {"uri": "r://1", "_meta": {"a": 1}},
        }
        current[1].put_nowait(event(update))
        assert await get_soon(listener.notifications) == (
            UPDATED,
            {"uri": "r://1", "_meta": {"a": 1}},
        )
        assert not server.heard("resources/subscribe")
        assert await get_soon(closed) == ["r://1"]
        current[1].put_nowait(b"")


_LISTENS = """
listening = {}
while True:
    message = read()
    method, params = message.get("method"), message.get("params") or {}
    if method == "server/discover":
        found = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                 "capabilities": {"tools": {}, "resources": {"subscribe": True}}}
        send(id=message["id"], result=found)
    elif method == "subscriptions/listen":
        uris = params["notifications"].get("resourceSubscriptions", [])
        if "r://refused" in uris:
            send(id=message["id"], error={"code": -32602, "message": "no such resource"})
            continue
        listening[message["id"]] = uris
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        agreed = {"resourceSubscriptions": [uri for uri in uris if uri != "r://mute"]}
        send(method="notifications/subscriptions/acknowledged", params={"notifications": agreed, "_meta": meta})
    elif method == "notifications/cancelled":
        listening.pop(params["requestId"], None)
    elif method == "tools/call":
        for id, uris in listening.items():
            meta = {"io.modelcontextprotocol/subscriptionId": id}
            send(method="notifications/resources/updated", params={"uri": uris[0], "_meta": meta})
        send(id=message["id"], result={"content": [{"type": "text", "text": json.dumps(list(listening.values()))}]})
    elif "id" in message:
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
"""  # noqa: E501


async def test_over_a_pipe_an_update_arrives_and_the_request_that_is_replaced_is_cancelled() -> (
    None
):
    async with piped(scripted(_LISTENS)) as (connection, listener):
        assert await subscribe(connection, "r://1") == {}
        for uri in ("r://mute", "r://refused"):
            with pytest.raises(RemoteError):
                await subscribe(connection, uri)
        assert await subscribe(connection, "r://2") == {}
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while True:
                said = await connection.request("tools/call", {"name": "touch"})
                if said["content"][0]["text"] == '[["r://1", "r://2"]]':
                    break
        assert await get_soon(listener.notifications) == (UPDATED, {"uri": "r://1"})


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_nothing_is_lost_while_one_subscription_takes_the_place_of_another(
    transport: str,
) -> None:
    async with AsyncExitStack() as stack:
        listener = RecordingListener()
        if transport == "stdio":
            command, *args = everything_command("--stdio", "--era", "modern")
            connecting = StdioBackend("s", command, tuple(args)).connect(listener)
        else:
            url = await stack.enter_async_context(
                listening(*everything_command("--port", "0", "--era", "modern"))
            )
            connecting = HttpBackend("s", url).connect(listener)
        connection = await asyncio.wait_for(connecting, TEST_TIMEOUT_S)
        stack.push_async_callback(connection.close)
        watched = [f"r://{n}" for n in range(60)]
        await asyncio.gather(*(subscribe(connection, uri) for uri in watched))

        async def switch() -> None:
            for n in range(15):
                await subscribe(connection, f"other://{n}")

        async def touch() -> None:
            for uri in watched:
                params: Raw = {"name": "touch_resource", "arguments": {"uri": uri}}
                await connection.request(
                    "tools/call", params, RequestOptions(timeout=TEST_TIMEOUT_S)
                )

        switching = asyncio.create_task(switch())
        await touch()
        await switching
        heard: set[str] = set()
        while heard != set(watched):
            method, params = await get_soon(listener.notifications)
            assert method == UPDATED
            heard.add(params["uri"])
