"""The very first start, when nothing is known of a server yet."""

import asyncio
from typing import Any

from portico.events import CatalogChanged
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw, RequestOptions

ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Echo a text.",
    "inputSchema": {"type": "object"},
}


def slow_to_list(release: asyncio.Event) -> FakeBackend:
    backend = FakeBackend(tools=[ECHO])

    async def listing(params: Raw, ask: RequestOptions) -> Raw:
        await asyncio.wait_for(release.wait(), 30)
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
        answer = await asyncio.wait_for(asking, 30)
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
            await asyncio.wait_for(known.wait(), 30)
        answer = await asyncio.wait_for(
            client.call_tool("call_tool", {"name": "quick.echo", "arguments": {}}), 30
        )
        assert not release.is_set()
        assert not gateway.catalog.snapshot.servers["slow"].is_listed
        assert "at once" in answer.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        release.set()
