"""Changes behind the gateway are sent to subscribed clients: once, in time, under known names."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from portico.catalog.listing_sync import LONGEST_DEBOUNCE_S
from portico.config import BackendConfig, Config, Exposure, Profile
from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RemoteError
from portico.events import StandingsChanged
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era, Raw
from tests.fixtures import broken_command, everything_command
from tests.interaction.fake_servers import fake, names, tool
from tests.interaction.raw_clients import call, pages, raw_lines, result

pytestmark = pytest.mark.usefixtures("line_transport")

TIMEOUT_S = 240.0
UPDATED = "notifications/resources/updated"
TOOLS, PROMPTS, RESOURCES = (
    f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
)
OUTER = "portico://backend/s/resource/"


def changing(**options: Any) -> FakeBackend:
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


def fence(backend: FakeBackend) -> None:
    """Makes a change that everybody receives; earlier notifications have then arrived."""
    prompts = backend.listing["prompts"]
    prompts.append({"name": f"fence_{len(prompts)}"})
    backend.say(PROMPTS)


class RecordingListener:
    """Records the notifications outside a client's requests."""

    def __init__(self) -> None:
        self.received: list[Raw] = []
        self._news = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if hasattr(message, "method"):
            self.take(message.model_dump(by_alias=True, mode="json", exclude_none=True))

    def take(self, message: Raw) -> None:
        self.received.append(message)
        self._news.set()

    def reported(self, method: str) -> list[Raw]:
        return [message for message in self.received if message["method"] == method]

    async def hear(self, method: str, times: int = 1) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.reported(method)) < times:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def listener(
    gateway: GatewayRuntime, transport: Transport, era: Era, profile: str | None = None
) -> AsyncGenerator[tuple[Client, RecordingListener]]:
    """A client that receives list changes in the way of its era."""
    recorder = RecordingListener()
    if era == "legacy":
        async with connect(gateway, transport, era, profile, message_handler=recorder) as client:
            yield client, recorder
        return
    async with (
        connect(gateway, transport, era, profile) as client,
        client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as events,
    ):
        kinds = {
            "ToolsListChanged": TOOLS,
            "PromptsListChanged": PROMPTS,
            "ResourcesListChanged": RESOURCES,
        }

        async def relay() -> None:
            async for event in events:
                recorder.take({"method": kinds[type(event).__name__]})

        listening = asyncio.create_task(relay())
        try:
            yield client, recorder
        finally:
            listening.cancel()
            await asyncio.wait({listening})


WAYS = [
    (era, transport) for era in ("legacy", "modern") for transport in ("memory", "stdio", "http")
]


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_a_changed_list_reaches_clients_of_both_eras(era: Era, transport: Transport) -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}, Config(exposure="full")) as gateway,
        listener(gateway, transport, era) as (client, recorder),
    ):
        assert await names(client) == ["s__run"]
        backend.change([tool("run"), tool("jump")])
        await recorder.hear(TOOLS)
        assert await names(client) == ["s__run", "s__jump"]
        await recorder.hear(RESOURCES)
        fence(backend)
        await recorder.hear(PROMPTS)
        assert [len(recorder.reported(kind)) for kind in (TOOLS, RESOURCES, PROMPTS)] == [1, 1, 1]


@pytest.mark.parametrize(("era", "transport"), [("legacy", "stdio"), ("modern", "http")])
async def test_a_burst_of_changes_is_few_notifications_and_few_listings(
    era: Era, transport: Transport
) -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}, Config(exposure="full")) as gateway,
        listener(gateway, transport, era) as (client, recorder),
    ):
        listed = sum(method == "tools/list" for method, _ in backend.requests)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(50):
            backend.change([tool("run"), tool(f"tool_{number}")])
            await asyncio.sleep(0)
        await recorder.hear(TOOLS)
        fence(backend)
        await recorder.hear(PROMPTS)
        assert await names(client) == ["s__run", "s__tool_49"]
        # A burst that a busy machine stretches is several.
        bursts = (loop.time() - began) / LONGEST_DEBOUNCE_S
        assert len(recorder.reported(TOOLS)) <= 3 + bursts
        listings = sum(method == "tools/list" for method, _ in backend.requests) - listed
        assert listings <= 4 + bursts


@pytest.mark.parametrize("name", ["list_changes", "list_changes_modern"])
async def test_a_real_server_that_grows_is_listed_again(name: str) -> None:
    command, *arguments = broken_command(name)
    config = Config(
        servers={"s": BackendConfig(command=command, args=tuple(arguments))}, exposure="full"
    )
    async with (
        gateway_over(config=config) as gateway,
        listener(gateway, "stdio", "legacy") as (client, recorder),
    ):
        before = await names(client)
        grown = (await client.call_tool("s__grow", {})).content[0]
        await recorder.hear(TOOLS)
        assert await names(client) == [*before, f"s__{getattr(grown, 'text', '')}"]


async def test_the_meta_tools_never_change_but_resources_and_prompts_are_reported() -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}) as gateway,
        listener(gateway, "memory", "legacy") as (_, recorder),
    ):
        backend.change([tool("other")])
        backend.listing["resources"].append({"uri": "r://3", "name": "three"})
        backend.say(RESOURCES)
        await recorder.hear(RESOURCES)
        fence(backend)
        await recorder.hear(PROMPTS)
        assert recorder.reported(TOOLS) == []


async def test_a_profile_is_notified_of_its_own_servers_only() -> None:
    inside, outside = changing(), changing()
    config = Config(exposure="full", profiles={"p": Profile(servers=("inside",))})
    async with (
        gateway_over({"inside": inside, "outside": outside}, config) as gateway,
        listener(gateway, "memory", "legacy", "p") as (_, narrow),
        listener(gateway, "memory", "legacy") as (_, wide),
    ):
        outside.change([tool("other")])
        await wide.hear(TOOLS)
        fence(inside)
        await narrow.hear(PROMPTS)
        assert narrow.reported(TOOLS) == []


async def test_the_loss_and_return_of_a_server_is_no_change_of_the_list() -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}, Config(exposure="full")) as gateway,
        listener(gateway, "memory", "legacy") as (client, recorder),
    ):
        backend.die()
        assert not (await client.call_tool("s__run", {})).is_error, "it was started again"
        fence(backend)
        await recorder.hear(PROMPTS)
        assert recorder.reported(TOOLS) == []


# ── what is known of them


@pytest.mark.parametrize(
    ("era", "transport"), [("legacy", "stdio"), ("modern", "http"), ("modern", "memory")]
)
@pytest.mark.parametrize("exposure", ["meta", "full"])
async def test_thirty_servers_that_come_in_a_burst_are_one_notification_of_each_kind(
    era: Era, transport: Transport, exposure: Exposure
) -> None:
    backends = {f"s{n}": changing() for n in range(30)}
    for backend in backends.values():
        backend.refuses = BackendUnavailable("not yet")
        backend.listing["prompts"].append({"name": "p"})
    async with (
        gateway_over(backends, Config(exposure=exposure)) as gateway,
        listener(gateway, transport, era) as (client, recorder),
    ):
        before = await client.list_tools()
        for backend in backends.values():
            backend.refuses = None
        await wait_out_pauses(gateway)
        await asyncio.wait_for(gateway.refresh(), TIMEOUT_S)
        for kind in (TOOLS, RESOURCES, PROMPTS):
            await recorder.hear(kind)
        fence(backends["s0"])
        await recorder.hear(PROMPTS, 2)
        assert [len(recorder.reported(kind)) for kind in (TOOLS, RESOURCES, PROMPTS)] == [1, 1, 2]
        after = await client.list_tools(cache_mode="bypass")
        assert after.tools != before.tools, (
            "a client that is notified of a changed list finds another"
        )


async def test_a_server_that_gets_known_changes_the_meta_tools_once_and_its_tools_never() -> None:
    backend, late = changing(), fake("send", capabilities={"tools": {}})
    late.refuses = BackendUnavailable("not yet")
    async with (
        gateway_over({"s": backend, "mail": late}) as gateway,
        listener(gateway, "memory", "legacy") as received,
    ):
        client, recorder = received
        before = (await client.list_tools()).tools[0].description
        backend.change([tool("other")])
        late.refuses = None
        await wait_out_pauses(gateway)
        await asyncio.wait_for(gateway.refresh(["mail"]), TIMEOUT_S)
        await recorder.hear(TOOLS)
        after = (await client.list_tools(cache_mode="bypass")).tools[0].description
        assert after != before
        backend.change([tool("another")])
        await recorder.hear(RESOURCES, 2)
        fence(backend)
        await recorder.hear(PROMPTS)
        assert len(recorder.reported(TOOLS)) == 1
        assert (await client.list_tools(cache_mode="bypass")).tools[0].description == after


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_use_standings_loss_and_a_restart_leave_the_list_as_it_is_to_the_byte(
    era: Era, tmp_path: Path
) -> None:
    def backends() -> dict[str, FakeBackend]:
        return {
            "mail": fake("send_mail", "read_mail"),
            "sql": fake("run_query"),
            "git": fake("commit", "push"),
        }

    async def listed(client: Client) -> str:
        return (await client.list_tools(cache_mode="bypass")).model_dump_json()

    config, servers, found = Config(data_dir=tmp_path), backends(), set[str]()
    async with (
        GatewayRuntime(config, backends=servers) as gateway,
        connect(gateway, "memory", era) as client,
    ):
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        found.add(await listed(client))
        await client.call_tool("call_tool", {"name": "sql.run_query"})
        await asyncio.wait_for(gateway.usage_data.standings.recompute(), TIMEOUT_S)
        gateway.bus.publish(StandingsChanged())
        found.add(await listed(client))
        servers["git"].die()
        found.add(await listed(client))
    for refused in (None, BackendUnavailable("it is down")):
        servers = backends()
        for backend in servers.values():
            backend.refuses = refused
        async with (
            GatewayRuntime(config, backends=servers) as gateway,
            connect(gateway, "memory", era) as client,
        ):
            found.add(await listed(client))
            await asyncio.wait_for(gateway.refresh(), TIMEOUT_S)
            found.add(await listed(client))
    assert len(found) == 1


async def wait_out_pauses(gateway: GatewayRuntime) -> None:
    """A server that failed is not tried again at once."""
    for upstream in gateway.upstreams.values():
        upstream._breaker.reset()  # pyright: ignore[reportPrivateUsage]


# ── our own resources


@asynccontextmanager
async def watching(
    gateway: GatewayRuntime, era: Era, *uris: str
) -> AsyncGenerator[Callable[[], Awaitable[str]]]:
    """A client that watches these of our own resources; the next URI it is notified of."""
    if era == "legacy":
        async with raw_lines(gateway.get_endpoint(), "legacy") as client:
            for uri in uris:
                assert await result(client, "resources/subscribe", {"uri": uri}) == {}

            async def reported() -> str:
                return (await client.wait_for(lambda message: message.get("method") == UPDATED))[
                    "params"
                ]["uri"]

            yield reported
        return
    async with (
        connect(gateway, "http", era) as client,
        client.listen(resource_subscriptions=list(uris)) as events,
    ):

        async def received() -> str:
            async with asyncio.timeout(TIMEOUT_S):
                event: Any = await anext(aiter(events))
                return str(event.uri)

        yield received


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_our_own_resources_are_reported_when_what_they_say_changed(era: Era) -> None:
    backend, other = changing(), fake("run", capabilities={"tools": {"listChanged": True}})
    concerned = [
        "portico://tools",
        "portico://backend/s/tools",
        "portico://tool/s.run",
        "portico://tool/S%2Erun",
    ]
    uris = [*concerned, "portico://backend/other", "portico://tool/other.run"]
    async with (
        gateway_over({"s": backend, "other": other}) as gateway,
        watching(gateway, era, *uris) as reported,
    ):
        backend.change([tool("run", "Does it otherwise.")])
        assert {await reported() for _ in concerned} == set(concerned)
        other.change([tool("run", "Also otherwise.")])
        assert {await reported() for _ in range(3)} == {"portico://tools", *uris[-2:]}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_loss_and_return_of_a_server_is_sent_to_subscribers_of_servers(era: Era) -> None:
    backend = changing()
    uris = ["portico://backends", "portico://tools", "portico://backend/s"]
    async with gateway_over({"s": backend}) as gateway, watching(gateway, era, *uris) as reported:
        for change in (backend.die, lambda: gateway.upstreams["s"].connect()):
            if (coming := change()) is not None:
                await asyncio.wait_for(coming, TIMEOUT_S)
            assert {await reported(), await reported()} == {
                "portico://backends",
                "portico://backend/s",
            }


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_hot_list_is_updated_when_the_standings_are_recomputed(era: Era) -> None:
    watched = ("portico://hot", "portico://tools")
    async with (
        gateway_over({"s": changing()}) as gateway,
        watching(gateway, era, *watched) as reported,
    ):
        gateway.bus.publish(StandingsChanged())
        assert await reported() == "portico://hot"


async def test_our_own_resources_can_be_left_again_and_only_real_ones_watched() -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        await result(client, "resources/subscribe", {"uri": "portico://tools"})
        await result(client, "resources/unsubscribe", {"uri": "portico://tools"})
        wrong = await client.request("resources/subscribe", {"uri": "portico://tool/s.rum"})
        assert wrong["error"]["code"] == -32002
        assert "portico://tool/s.run" in wrong["error"]["message"]
        backend.change([tool("other")])
        fence(backend)
        await client.wait_for(lambda message: message.get("method") == PROMPTS)
        assert not [message for message in client.unprompted if message.get("method") == UPDATED]
        assert not any(
            method.startswith("resources/") and method.endswith("subscribe")
            for method, _ in backend.requests
        )


# ── resources


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_an_updated_resource_is_sent_to_its_subscriber_alone(transport: Transport) -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}) as gateway,
        listener(gateway, transport, "legacy") as (subscriber, recorder),
        listener(gateway, transport, "legacy") as (other, others),
    ):
        await subscriber.subscribe_resource(f"{OUTER}r://1")  # pyright: ignore[reportDeprecated]
        await other.subscribe_resource(f"{OUTER}r://2")  # pyright: ignore[reportDeprecated]
        backend.say(UPDATED, {"uri": "r://1"})
        await recorder.hear(UPDATED)
        fence(backend)
        await others.hear(PROMPTS)
        assert [message["params"]["uri"] for message in recorder.reported(UPDATED)] == [
            f"{OUTER}r://1"
        ]
        assert others.reported(UPDATED) == []


async def test_a_subscriber_by_a_resources_own_uri_is_notified_under_it() -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        await result(client, "resources/subscribe", {"uri": "r://1"})
        backend.say(UPDATED, {"uri": "r://1"})
        reported = await client.wait_for(lambda message: message.get("method") == UPDATED)
        assert reported["params"] == {"uri": "r://1"}


async def test_a_shared_server_is_unsubscribed_by_the_last_subscriber_only() -> None:
    backend = changing()

    def left() -> int:
        return sum(method == "resources/unsubscribe" for method, _ in backend.requests)

    config = Config(profiles={"p": Profile()})
    async with (
        gateway_over({"s": backend}, config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as one,
        raw_lines(gateway.get_endpoint("p"), "legacy") as two,
    ):
        for client in (one, two):
            await result(client, "resources/subscribe", {"uri": f"{OUTER}r://1"})
        await result(one, "resources/unsubscribe", {"uri": f"{OUTER}r://1"})
        assert left() == 0
        backend.say(UPDATED, {"uri": "r://1"})
        await two.wait_for(lambda message: message.get("method") == UPDATED)
        fence(backend)
        await one.wait_for(lambda message: message.get("method") == PROMPTS)
        assert not [message for message in one.unprompted if message.get("method") == UPDATED]
        await result(two, "resources/unsubscribe", {"uri": f"{OUTER}r://1"})
        assert left() == 1


async def test_a_subscriber_that_left_counts_no_more() -> None:
    backend = changing()
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as one,
    ):
        async with raw_lines(gateway.get_endpoint(), "legacy") as two:
            for client in (one, two):
                await result(client, "resources/subscribe", {"uri": f"{OUTER}r://1"})
        await result(one, "resources/unsubscribe", {"uri": f"{OUTER}r://1"})
        assert backend.requests[-1][0] == "resources/unsubscribe"


async def test_a_refused_subscription_is_no_subscription() -> None:
    def refuse(*_: object) -> Raw:
        raise RemoteError(METHOD_NOT_FOUND, "I announce nothing")

    backend = changing()
    backend.on("resources/subscribe", refuse)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        refused = await client.request("resources/subscribe", {"uri": f"{OUTER}r://1"})
        assert refused["error"] == {"code": METHOD_NOT_FOUND, "message": "I announce nothing"}
        backend.say(UPDATED, {"uri": "r://1"})
        fence(backend)
        await client.wait_for(lambda message: message.get("method") == PROMPTS)
        assert not [message for message in client.unprompted if message.get("method") == UPDATED]


async def test_a_real_server_announces_to_its_subscriber_through_us() -> None:
    command, *arguments = everything_command("--stdio", "--era", "legacy")
    config = Config(servers={"s": BackendConfig(command=command, args=tuple(arguments))})
    async with (
        gateway_over(config=config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        uri = f"{OUTER}test://watched-resource"
        assert uri in [item["uri"] for item in await pages(client, "resources/list", "resources")]
        await result(client, "resources/subscribe", {"uri": uri})
        touched = await call(
            client,
            "call_tool",
            name="s.touch_resource",
            arguments={"uri": "test://watched-resource"},
        )
        assert touched["result"]["structuredContent"]["watchers"] == 1
        reported = await client.wait_for(lambda message: message.get("method") == UPDATED)
        assert reported["params"]["uri"] == uri
