"""Resources are watched in the client's way and in the server's, whichever eras the two speak."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from portico.catalog.listing_sync import LONGEST_DEBOUNCE_S
from portico.config import BackendConfig, Config, Profile
from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RemoteError
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw
from tests.fixtures.counter import counter
from tests.gateways import wait_until
from tests.interaction.fake_servers import fake, names, tool
from tests.interaction.raw_clients import (
    Message,
    RawHttp,
    RawLines,
    call,
    envelope,
    raw_http,
    raw_lines,
    result,
)
from tests.interaction.upstreams import CORNERS, Corner, make_backend_config

TIMEOUT_S = 240.0
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS, PROMPTS = "notifications/tools/list_changed", "notifications/prompts/list_changed"
OUTER = "portico://backend/s/resource/"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def watched_server(**options: Any) -> FakeBackend:
    capabilities = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
    }
    resources = [{"uri": "r://1", "name": "one"}, {"uri": "r://2", "name": "two"}]
    backend = fake("run", capabilities=capabilities, resources=resources, **options)
    for method in ("resources/subscribe", "resources/unsubscribe"):
        backend.on(method, lambda *_: {})
    return backend


def get_requested_uris(backend: FakeBackend, verb: str) -> list[str]:
    """The URIs a server was asked to announce, or to leave."""
    return [params["uri"] for method, params in backend.requests if method == f"resources/{verb}"]


async def watch(client: RawLines, *uris: str) -> tuple[int | None, list[str]]:
    """Watches resources in the way of the client's era: the id to leave by, and what was agreed
    on."""
    if client.era == "legacy":
        for uri in uris:
            await result(client, "resources/subscribe", {"uri": uri})
        return None, list(uris)
    wanted = {"resourceSubscriptions": list(uris), "promptsListChanged": True}
    listening = await client.ask("subscriptions/listen", {"notifications": wanted})
    agreed = await client.wait_for(lambda message: message.get("method") == ACKNOWLEDGED)
    assert agreed["params"]["_meta"][SUBSCRIPTION] == listening
    return listening, agreed["params"]["notifications"].get("resourceSubscriptions", [])


async def leave(client: RawLines, listening: int | None, *uris: str) -> None:
    if listening is not None:
        await client.send({"method": "notifications/cancelled", "params": {"requestId": listening}})
        return
    for uri in uris:
        await result(client, "resources/unsubscribe", {"uri": uri})


async def hear(client: RawLines) -> str:
    """The URI of the next resource update that a client receives."""
    return (await client.wait_for(lambda message: message.get("method") == UPDATED))["params"][
        "uri"
    ]


async def reported_none(client: RawLines, backend: FakeBackend) -> bool:
    """Decide whether nothing was sent before a change that everybody receives."""
    backend.listing["prompts"].append({"name": f"fence_{len(backend.listing['prompts'])}"})
    backend.say(PROMPTS)
    await client.wait_for(lambda message: message.get("method") == PROMPTS)
    return not any(message.get("method") == UPDATED for message in client.unprompted)


# ── both eras, both directions


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner.name)
async def test_clients_of_both_eras_watch_a_real_server_of_either(corner: Corner) -> None:
    inner = "test://watched-resource"
    uri = f"{OUTER}{inner}"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(make_backend_config(corner))
        gateway = await stack.enter_async_context(
            gateway_over(config=Config(servers={"s": server}))
        )
        old = await stack.enter_async_context(raw_lines(gateway.get_endpoint(), "legacy"))
        new = await stack.enter_async_context(raw_lines(gateway.get_endpoint(), "modern"))
        _, agreed = await watch(new, uri)
        assert agreed == [uri]
        await watch(old, uri)
        touched = await call(old, "call_tool", name="s.touch_resource", arguments={"uri": inner})
        assert touched["result"]["structuredContent"]["watchers"] == (
            1 if corner.era == "legacy" else 0
        )
        assert [await hear(old), await hear(new)] == [uri, uri]
        await leave(old, None, uri)
        touched = await call(old, "call_tool", name="s.touch_resource", arguments={"uri": inner})
        assert await hear(new) == uri
        if corner.era == "legacy":
            assert touched["result"]["structuredContent"]["watchers"] == 1


@pytest.mark.parametrize("corner", CORNERS[1::2], ids=lambda corner: corner.name)
async def test_a_client_that_looks_through_us_watches_by_the_servers_own_uri(
    corner: Corner,
) -> None:
    uri = "test://watched-resource"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(make_backend_config(corner))
        config = Config(servers={"s": server}, exposure="full", prefix="never")
        gateway = await stack.enter_async_context(gateway_over(config=config))
        clients = [
            await stack.enter_async_context(raw_lines(gateway.get_endpoint(), era))
            for era in ("legacy", "modern")
        ]
        for client in clients:
            assert client.introduction["capabilities"]["resources"]["subscribe"] is True
            assert (await watch(client, uri))[1] == [uri]
        await call(clients[0], "touch_resource", uri=uri)
        assert [await hear(client) for client in clients] == [uri, uri]


# ── who tells the server, and who learns of it


async def test_the_first_client_subscribes_and_the_last_of_either_era_unsubscribes() -> None:
    backend, config = watched_server(), Config(profiles={"p": Profile()})
    async with (
        gateway_over({"s": backend}, config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as old,
        raw_lines(gateway.get_endpoint("p"), "modern") as new,
    ):
        await watch(old, f"{OUTER}r://1")
        listening, _ = await watch(new, f"{OUTER}r://1", f"{OUTER}r://2")
        assert sorted(get_requested_uris(backend, "subscribe")) == ["r://1", "r://2"]
        await leave(old, None, f"{OUTER}r://1")
        assert get_requested_uris(backend, "unsubscribe") == []
        backend.say(UPDATED, {"uri": "r://1"})
        assert await hear(new) == f"{OUTER}r://1"
        assert await reported_none(old, backend)
        await leave(new, listening)
        await wait_until(
            lambda: sorted(get_requested_uris(backend, "unsubscribe")) == ["r://1", "r://2"]
        )


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_disconnects_is_no_longer_subscribed(era: Era) -> None:
    backend = watched_server()
    async with gateway_over({"s": backend}) as gateway:
        async with raw_lines(gateway.get_endpoint(), era) as client:
            await watch(client, f"{OUTER}r://1")
            assert get_requested_uris(backend, "unsubscribe") == []
        await wait_until(lambda: get_requested_uris(backend, "unsubscribe") == ["r://1"])
        async with connect(gateway, "http", "modern") as client:
            async with client.listen(resource_subscriptions=[f"{OUTER}r://2"]) as received:
                backend.say(UPDATED, {"uri": "r://2"})
                event: Any = await asyncio.wait_for(anext(aiter(received)), TIMEOUT_S)
                assert event.uri == f"{OUTER}r://2"
            await wait_until(
                lambda: get_requested_uris(backend, "unsubscribe") == ["r://1", "r://2"]
            )


async def test_two_subscriptions_of_one_client_end_each_for_itself() -> None:
    backend = watched_server()
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        first, _ = await watch(client, f"{OUTER}r://1")
        second, _ = await watch(client, f"{OUTER}r://1")
        await leave(client, first)
        backend.say(UPDATED, {"uri": "r://1"})
        received = await client.wait_for(
            lambda message: (
                message.get("method") == UPDATED
                and message["params"]["_meta"][SUBSCRIPTION] == second
            )
        )
        assert received["params"]["uri"] == f"{OUTER}r://1"
        assert get_requested_uris(backend, "unsubscribe") == []
        await leave(client, second)
        await wait_until(lambda: get_requested_uris(backend, "unsubscribe") == ["r://1"])


async def test_a_modern_client_is_notified_under_each_uri_it_subscribed_by_and_no_other() -> None:
    backend = watched_server()
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
        raw_lines(gateway.get_endpoint(), "modern") as other,
    ):
        assert (await watch(client, "r://1", f"{OUTER}r://1"))[1] == ["r://1", f"{OUTER}r://1"]
        await watch(other, f"{OUTER}r://2")
        backend.say(UPDATED, {"uri": "r://1"})
        assert {await hear(client), await hear(client)} == {"r://1", f"{OUTER}r://1"}
        assert await reported_none(other, backend)
        assert get_requested_uris(backend, "subscribe") == ["r://1", "r://2"]


async def test_a_modern_client_is_informed_of_what_it_will_not_receive() -> None:
    def picky(params: Raw, *_: object) -> Raw:
        if params["uri"] == "r://2":
            raise RemoteError(METHOD_NOT_FOUND, "I announce nothing of it")
        return {}

    backend, mute, away = watched_server(), fake("run"), watched_server()
    backend.on("resources/subscribe", picky)
    async with gateway_over({"s": backend, "mute": mute, "away": away}) as gateway:
        away.die()
        away.refuses = BackendUnavailable("it is away")
        async with raw_lines(gateway.get_endpoint(), "modern") as client:
            wrong = [
                f"{OUTER}r://2",
                "portico://backend/mute/resource/x://1",
                "portico://backend/away/resource/r://1",
                "portico://backend/nobody/resource/x://1",
                "portico://tool/s.rum",
                "unknown://",
            ]
            _, agreed = await watch(client, f"{OUTER}r://1", "portico://tools", *wrong)
            assert agreed == [f"{OUTER}r://1", "portico://tools"]
            backend.say(UPDATED, {"uri": "r://2"})
            assert await reported_none(client, backend)


async def test_a_server_that_never_agrees_holds_up_no_client_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> Raw:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr("portico.server.subscriptions.SUBSCRIBE_TIMEOUT_S", 0.2)
    backend, slow = watched_server(), watched_server()
    slow.on("resources/subscribe", never)
    async with (
        gateway_over({"s": backend, "slow": slow}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        _, agreed = await watch(client, "portico://backend/slow/resource/r://1", f"{OUTER}r://1")
        assert agreed == [f"{OUTER}r://1"]
        await wait_until(lambda: get_requested_uris(slow, "unsubscribe") == ["r://1"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_restarted_server_gets_its_subscriptions_again(era: Era) -> None:
    backend = watched_server()
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        await watch(client, f"{OUTER}r://1")
        backend.die()
        await result(client, "tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}})
        await wait_until(lambda: get_requested_uris(backend, "subscribe") == ["r://1", "r://1"])
        assert gateway.upstreams["s"].get_connection("") is not None
        backend.say(UPDATED, {"uri": "r://1"})
        assert await hear(client) == f"{OUTER}r://1"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_watching_starts_a_server_and_keeps_it_up(era: Era) -> None:
    backend = watched_server()
    async with gateway_over({"s": backend}) as gateway:
        upstream = gateway.upstreams["s"]
        await asyncio.wait_for(upstream.stop_if_idle(0.0), TIMEOUT_S)
        assert upstream.get_connection("") is None
        watchers = gateway.subscription_registry
        async with raw_lines(gateway.get_endpoint(), era) as client:
            await watch(client, f"{OUTER}r://1")
            assert get_requested_uris(backend, "subscribe") == ["r://1"], (
                "once, though it was started for it"
            )
            await asyncio.wait_for(
                upstream.stop_if_idle(0.0, watchers.list_session_ids("s")), TIMEOUT_S
            )
            assert upstream.get_connection("") is not None
        await wait_until(lambda: get_requested_uris(backend, "unsubscribe") == ["r://1"])
        await asyncio.wait_for(
            upstream.stop_if_idle(0.0, watchers.list_session_ids("s")), TIMEOUT_S
        )
        assert upstream.get_connection("") is None
        assert not watchers.list_subscriptions("s")


async def test_a_subscription_during_the_last_unsubscription_is_sent_after_it() -> None:
    leaving, released = asyncio.Event(), asyncio.Event()

    async def slowly(*_: object) -> Raw:
        leaving.set()
        await released.wait()
        return {}

    backend = watched_server()
    backend.on("resources/unsubscribe", slowly)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as old,
        raw_lines(gateway.get_endpoint(), "modern") as new,
    ):
        await watch(old, f"{OUTER}r://1")
        going = asyncio.create_task(leave(old, None, f"{OUTER}r://1"))
        await asyncio.wait_for(leaving.wait(), TIMEOUT_S)
        coming = asyncio.create_task(watch(new, f"{OUTER}r://1"))
        async with raw_lines(
            gateway.get_endpoint(), "legacy"
        ) as other:  # by now it has been asked for
            await result(other, "tools/list")
        released.set()
        await asyncio.wait_for(asyncio.gather(going, coming), TIMEOUT_S)
        said = [method for method, _ in backend.requests if method.endswith("subscribe")]
        assert said == ["resources/subscribe", "resources/unsubscribe", "resources/subscribe"]
        backend.say(UPDATED, {"uri": "r://1"})
        assert await hear(new) == f"{OUTER}r://1"


# ── servers that keep a state for each client

COUNTED = "portico://backend/own/resource/count://now"


@asynccontextmanager
async def counting() -> AsyncGenerator[GatewayRuntime]:
    command, *arguments = counter()
    server = BackendConfig(
        command=command, args=tuple(arguments), isolation="session", protocol="legacy"
    )
    async with gateway_over(
        config=Config(servers={"own": server}, profiles={"p": Profile()})
    ) as gateway:
        yield gateway


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_own_instance_tells_its_own_client_alone(era: Era) -> None:
    async with (
        counting() as gateway,
        raw_lines(gateway.get_endpoint(), era) as one,
        raw_lines(gateway.get_endpoint(), era) as two,
    ):
        for client in (one, two):
            assert (await watch(client, COUNTED))[1] == [COUNTED]
        for client, other in ((one, two), (two, one)):
            await call(client, "call_tool", name="own.count")
            assert await hear(client) == COUNTED
            await call(other, "call_tool", name="own.nothing")
            assert not any(message.get("method") == UPDATED for message in other.unprompted)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_was_taken_away_is_forgotten_with_the_last_who_watched_it(
    era: Era,
) -> None:
    async with counting() as gateway:
        async with raw_lines(gateway.get_endpoint(), era) as client:
            assert (await watch(client, COUNTED))[1] == [COUNTED]
            kept = weakref.ref(gateway.upstreams["own"])
            await gateway.apply(gateway.config.model_copy(update={"servers": {}}))

        def forgotten() -> bool:
            gc.collect()
            return kept() is None

        await wait_until(forgotten)


async def listen_once(client: RawHttp, **meta: str) -> Message:
    """The first message in answer to a subscription, which is given up then."""
    params = {
        "notifications": {"resourceSubscriptions": [COUNTED]},
        "_meta": {**envelope(), **meta},
    }
    frame = {"jsonrpc": "2.0", "id": 77, "method": "subscriptions/listen", "params": params}
    headers = {**client._headers, "mcp-method": "subscriptions/listen"}  # pyright: ignore[reportPrivateUsage]
    async with client.http.stream("POST", client.url, json=frame, headers=headers) as reply:
        async with asyncio.timeout(TIMEOUT_S):
            async for line in reply.aiter_lines():
                if (said := line.removeprefix("data: ")).startswith("{"):
                    return json.loads(said)
    raise AssertionError("nothing came")


async def test_an_unidentified_client_subscribes_to_an_instance_by_its_handle_only() -> None:
    handle, token = "portico/session", "a token that nobody guesses"

    async with counting() as gateway:
        async with serve_http(gateway) as url, raw_http(url, "modern") as client:
            begun = await call(client, "call_tool", name="own.count")
            mine = begun["result"]["_meta"][handle]
            assert (
                "resourceSubscriptions"
                not in (await listen_once(client))["params"]["notifications"]
            )
            agreed = (await listen_once(client, **{handle: mine}))["params"]["notifications"]
            assert agreed["resourceSubscriptions"] == [COUNTED]
            refused = await listen_once(client, **{handle: "made up"})
            assert "no such session" in refused["error"]["message"]
        async with (
            serve_http(gateway, token=token) as url,
            raw_http(url, "modern", token=token) as client,
        ):
            agreed = (await listen_once(client))["params"]["notifications"]
            assert "resourceSubscriptions" not in agreed, "a token is not one client's alone"
            refused = await listen_once(client, **{handle: mine})
            assert "no such session" in refused["error"]["message"], "it is the local user's"
            begun = await call(client, "call_tool", name="own.count")
            mine = begun["result"]["_meta"][handle]
            agreed = (await listen_once(client, **{handle: mine}))["params"]["notifications"]
            assert agreed["resourceSubscriptions"] == [COUNTED]


# ── lists


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_storm_of_list_changes_is_few_listings_and_few_notifications_and_ends_with_the_last(
    era: Era,
) -> None:
    backend = watched_server()
    async with (
        gateway_over({"s": backend}, Config(exposure="full")) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
        connect(gateway, "memory", era) as looking,
    ):
        if era == "modern":
            await client.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await client.wait_for(lambda message: message.get("method") == ACKNOWLEDGED)
        listed = sum(method == "tools/list" for method, _ in backend.requests)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(1_000):
            backend.change([tool("run"), tool(f"tool_{number}")])
            await asyncio.sleep(0.001)
        received = 0
        while await names(looking) != ["s__run", "s__tool_999"]:
            await client.wait_for(lambda message: message.get("method") == TOOLS)
            received += 1
        backend.change([tool("run")])
        while await names(looking) != ["s__run"]:
            await client.wait_for(lambda message: message.get("method") == TOOLS)
            received += 1
        listings = sum(method == "tools/list" for method, _ in backend.requests) - listed
        assert listings <= 6 + (loop.time() - began) / LONGEST_DEBOUNCE_S
        assert received <= listings


async def test_a_server_that_is_slow_to_list_keeps_no_others_news_back() -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def slowly(*_: object) -> Raw:
        asked.set()
        await released.wait()
        return {"tools": [tool("late")]}

    slow, quick = watched_server(), watched_server()
    async with (
        gateway_over({"slow": slow, "quick": quick}, Config(exposure="full")) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
        connect(gateway, "memory") as looking,
    ):
        slow.on("tools/list", slowly)
        slow.say(TOOLS)
        await asyncio.wait_for(asked.wait(), TIMEOUT_S)
        quick.change([tool("news")])
        await client.wait_for(lambda message: message.get("method") == TOOLS)
        assert await names(looking) == ["quick__news", "slow__run"]
        released.set()
        await client.wait_for(lambda message: message.get("method") == TOOLS)
        assert await names(looking) == ["quick__news", "slow__late"]
