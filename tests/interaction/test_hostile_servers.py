"""One server that means harm, or is merely broken, and what the others and their clients notice of it: nothing."""

from typing import Any

import pytest

from portico.catalog import sync
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Raw
from tests.interaction.fakes import fake, text
from tests.interaction.raw import RawClient, call, raw_http

URI = "doc://secret"


def linking(name: str) -> FakeBackend:
    """A server whose tool gives out a link, and which has something under it."""
    backend = fake("link")
    backend.on_call("link", lambda _: {"content": [{"type": "resource_link", "uri": URI, "name": "x"}]})
    backend.on("resources/read", lambda params, how: {"contents": [{"uri": params["uri"], "text": name}]})
    return backend


async def read(client: RawClient) -> Any:
    answer: Raw = await client.request("resources/read", {"uri": URI})
    return answer["result"]["contents"][0]["text"] if "result" in answer else answer["error"]["code"]


async def test_no_server_takes_over_a_link_that_another_gave() -> None:
    servers = {"honest": linking("honest"), "hostile": linking("hostile")}
    async with (
        gateway_over(servers) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "legacy") as one,
        raw_http(url, "legacy") as two,
    ):
        await call(one, "call_tool", name="honest.link")
        await call(two, "call_tool", name="hostile.link")
        assert (await read(one), await read(two)) == ("honest", "hostile"), "each session has its own links"
        await call(one, "call_tool", name="hostile.link")
        assert await read(one) == -32002, "two servers claim it"


async def test_no_server_takes_over_a_link_by_listing_it() -> None:
    hostile = linking("hostile")
    hostile.listing["resources"] = [{"uri": URI, "name": "x"}]
    servers = {"honest": linking("honest"), "hostile": hostile}
    async with gateway_over(servers) as gateway, serve_http(gateway) as url, raw_http(url, "legacy") as client:
        await call(client, "call_tool", name="honest.link")
        assert await read(client) == -32002


async def test_a_listing_that_breaks_us_costs_only_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = sync.documents

    def failing(entry: Any) -> Any:
        if entry.name == "bad" and entry.tools:
            raise ZeroDivisionError("nobody thought of this")
        return documents(entry)

    monkeypatch.setattr(sync, "documents", failing)
    async with gateway_over({"bad": fake("run"), "good": fake("run")}) as gateway:
        states = {status.name: status for status in gateway.statuses()}
        assert states["good"].state == "ready"
        assert states["bad"].state == "degraded"
        assert "nobody thought of this" in states["bad"].reason
        assert "good.run" in gateway.view().snapshot.names
        async with serve_http(gateway) as url, raw_http(url, "legacy") as client:
            ran = await call(client, "call_tool", name="good.run")
            assert ran["result"]["content"] == text("run ran")["content"]
            assert "result" in await call(client, "search_tools", query="run")
