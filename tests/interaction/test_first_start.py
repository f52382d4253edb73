"""The very first start, when nothing is known of a server yet."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.errors import BackendUnavailable
from portico.events import CatalogChanged
from portico.gateway import maintenance
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw, RequestOptions
from tests.gateways import GatewayUnderTest, open_gateway

ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Echo a text.",
    "inputSchema": {"type": "object"},
}


def slow_to_list(release: asyncio.Event) -> FakeBackend:
    backend = FakeBackend(tools=[ECHO])

    async def listing(params: Raw, ask: RequestOptions) -> Raw:
        await asyncio.wait_for(release.wait(), 240)
        return {"tools": [ECHO]}

    backend.on("tools/list", listing)
    backend.on_call("echo", lambda arguments: {"content": [{"type": "text", "text": "echoed"}]})
    return backend


async def test_a_search_waits_for_a_server_that_is_just_being_listed_for_the_first_time():
    release = asyncio.Event()
    async with (
        gateway_over({"slow": slow_to_list(release)}, listed=False) as gateway,
        connect(gateway) as client,
    ):
        asking = asyncio.create_task(client.call_tool("search_tools", {"query": "echo"}))
        await asyncio.sleep(0)
        release.set()
        answer = await asyncio.wait_for(asking, 240)
    assert "slow.echo" in answer.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_a_call_to_a_known_tool_does_not_wait_for_a_neighbour_that_is_not_listed_yet():
    release = asyncio.Event()
    quick = FakeBackend(tools=[ECHO])
    quick.on_call("echo", lambda arguments: {"content": [{"type": "text", "text": "at once"}]})
    backends = {"quick": quick, "slow": slow_to_list(release)}
    async with gateway_over(backends, listed=False) as gateway, connect(gateway) as client:
        known = asyncio.Event()
        gateway.bus.subscribe(
            lambda event: known.set() if isinstance(event, CatalogChanged) else None
        )
        if not gateway.catalog.snapshot.servers["quick"].is_listed:
            await asyncio.wait_for(known.wait(), 240)
        answer = await asyncio.wait_for(
            client.call_tool("call_tool", {"name": "quick.echo", "arguments": {}}), 30
        )
        assert not release.is_set()
        assert not gateway.catalog.snapshot.servers["slow"].is_listed
        assert "at once" in answer.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        release.set()


@asynccontextmanager
async def one_listed_one_starting(
    monkeypatch: pytest.MonkeyPatch, release: asyncio.Event
) -> AsyncGenerator[GatewayUnderTest]:
    """A gateway that knows `quick`, while `slow` is on its first start and would be waited for."""
    monkeypatch.setattr(maintenance, "FIRST_LISTING_S", 600.0)
    quick = FakeBackend(tools=[ECHO])
    backends = {"quick": quick, "slow": slow_to_list(release)}
    async with gateway_over(backends, listed=False) as gateway, connect(gateway) as client:
        listed = asyncio.Event()
        gateway.bus.subscribe(lambda _: listed.set())
        while not gateway.catalog.snapshot.servers["quick"].is_listed:
            await asyncio.wait_for(listed.wait(), 240)
            listed.clear()
        yield GatewayUnderTest(gateway, client)
        release.set()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search_tools", {"query": "echo a text"}),
        ("browse_tools", {}),
        ("describe_tools", {"names": ["quick.echo"]}),
        ("run_code", {"code": "1 + 1"}),
    ],
)
async def test_what_is_known_is_answered_while_another_server_is_on_its_first_start(
    monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
):
    release = asyncio.Event()
    async with one_listed_one_starting(monkeypatch, release) as gateway:
        await gateway.call_text(tool, **arguments)
        assert not release.is_set()
        assert not gateway.runtime.catalog.snapshot.servers["slow"].is_listed


async def test_a_call_that_names_a_server_on_its_first_start_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
):
    release = asyncio.Event()
    async with one_listed_one_starting(monkeypatch, release) as gateway:
        calling = asyncio.create_task(gateway.call_text("call_tool", name="slow.echo"))
        await gateway.call_text("browse_tools")
        assert not calling.done()
        release.set()
        assert await calling == "echoed"


async def test_a_server_that_was_not_searched_is_named_once_in_a_session(
    monkeypatch: pytest.MonkeyPatch,
):
    async with one_listed_one_starting(monkeypatch, asyncio.Event()) as gateway:
        first = await gateway.call_text("search_tools", query="echo a text")
        again = await gateway.call_text("search_tools", query="echo a text")
        assert "Not searched, because not listed yet: slow (starting)" in first
        assert first.startswith(again)
        async with connect(gateway.runtime) as another:
            told = await GatewayUnderTest(gateway.runtime, another).call_text(
                "search_tools", query="echo a text"
            )
        assert told == first


async def test_with_nothing_known_a_search_does_not_wait_for_servers_that_failed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(maintenance, "FIRST_LISTING_S", 600.0)
    dead = FakeBackend()
    dead.refuses = BackendUnavailable("it has no licence")
    backends = {"dead": dead, "quick": FakeBackend(tools=[ECHO])}
    async with gateway_over(backends, listed=False) as gateway, connect(gateway) as client:
        found = await GatewayUnderTest(gateway, client).call_text("search_tools", query="echo")
    assert "quick.echo" in found
    assert "Not searched, because not listed yet: dead (down)" in found


async def test_with_nothing_known_the_first_server_that_is_listed_is_enough(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(maintenance, "FIRST_LISTING_S", 600.0)
    release = asyncio.Event()
    backends = {"quick": FakeBackend(tools=[ECHO]), "slow": slow_to_list(release)}
    async with gateway_over(backends, listed=False) as gateway, connect(gateway) as client:
        found = await GatewayUnderTest(gateway, client).call_text("search_tools", query="echo")
        assert not release.is_set()
        release.set()
    assert "quick.echo" in found
    assert "slow (starting)" in found


async def test_tools_of_a_server_that_is_down_are_marked():
    backend = FakeBackend(tools=[ECHO])
    async with open_gateway({"old": backend, "other": FakeBackend(tools=[ECHO])}) as gateway:
        assert "[down]" not in await gateway.call_text("search_tools", query="echo a text")
        backend.die("it fell over")
        backend.refuses = BackendUnavailable("it does not get up")
        await gateway.call_error("call_tool", name="old.echo")
        for tool, arguments in {
            "search_tools": {"query": "echo a text", "server": "old"},
            "browse_tools": {"server": "old"},
            "describe_tools": {"names": ["old.echo"]},
        }.items():
            text = await gateway.call_text(tool, **arguments)
            lines = [line for line in text.splitlines() if "old.echo" in line]
            assert lines[0].endswith("[down]"), text
        assert "[down]" not in await gateway.call_text("describe_tools", names=["other.echo"])
