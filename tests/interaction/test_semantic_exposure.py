"""Exposure `semantic`, and a `query` in the params of `tools/list`: the few tools that serve a
purpose, listed."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.catalog.entries import build_documents
from portico.config import Budgets, Config, Profile
from portico.events import EmbeddingsComputed
from portico.gateway import GatewayRuntime
from portico.rendering import cursor
from portico.search import Index
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era
from tests.gateways import wait_until_encoded
from tests.interaction.fake_servers import fake, text, tool
from tests.interaction.raw_clients import Message, RawClient, call, raw_http, raw_lines, result

TIMEOUT_S = 240
KEY = "portico/relevant"
INTENT = "send mail to people"
UNSAID = "write a letter to a friend"
"""No tool says a word of it; some mean it."""
ERAS_AND_WIRES = [("legacy", "stdio"), ("legacy", "http"), ("modern", "stdio"), ("modern", "http")]


def servers() -> dict[str, FakeBackend]:
    mail = FakeBackend(
        [
            tool("send_mail", "Send an e-mail to somebody.", to="string"),
            tool("find_mail", "Find e-mails by their sender.", sender="string"),
        ]
    )
    mail.on_call("send_mail", lambda arguments: text(f"sent to {arguments['to']}"))
    mail.on_call("find_mail", lambda arguments: text("found"))
    weather = FakeBackend(
        [
            tool("forecast", "Tell tomorrow's weather in a city.", city="string"),
            tool("tides", "Tides."),
        ]
    )
    weather.on_call("forecast", lambda arguments: text("sunny"))
    return {"post": mail, "weather": weather}


def make_config(**more: Any) -> Config:
    profiles = {
        "full": Profile(exposure="full"),
        "code": Profile(exposure="code"),
        "meta": Profile(exposure="meta"),
        "dry": Profile(exposure="meta", servers=("weather",)),
        "quiet": Profile(exposure="meta", metatools={"call_tool": False}),
    }
    return Config(exposure="semantic", intent=INTENT, top_k=2, profiles=profiles, **more)


@asynccontextmanager
async def semantic_gateway(
    backends: dict[str, FakeBackend] | None = None, **more: Any
) -> AsyncGenerator[GatewayRuntime]:
    async with gateway_over(backends or servers(), make_config(**more)) as gateway:
        await wait_until_encoded(gateway)
        yield gateway


@asynccontextmanager
async def open_client(
    gateway: GatewayRuntime, era: Era, wire: str, profile: str | None = None
) -> AsyncGenerator[RawClient]:
    if wire == "stdio":
        async with raw_lines(gateway.get_endpoint(profile), era) as client:
            yield client
    else:
        async with (
            serve_http(gateway) as url,
            raw_http(f"{url}/p/{profile}" if profile else url, era) as client,
        ):
            yield client


def upstream_names(listed: Message) -> list[str]:
    return [tool["name"] for tool in listed["tools"] if "__" in tool["name"]]


def get_text(answer: Message) -> str:
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(("era", "wire"), ERAS_AND_WIRES)
async def test_the_tools_for_the_intent_are_listed_whole_beside_the_meta_tools_and_can_be_called(
    era: Era, wire: str
) -> None:
    async with semantic_gateway() as gateway, open_client(gateway, era, wire) as client:
        listed = await result(client, "tools/list")
        names = [tool["name"] for tool in listed["tools"]]
        meta = [tool["name"] for tool in gateway.get_view("meta")._tools.build_definitions()]  # pyright: ignore[reportPrivateUsage]
        assert names[: len(meta)] == meta
        assert names[len(meta)] == "post__send_mail", "the best first"
        assert len(names) == len(meta) + 2
        sending = listed["tools"][len(meta)]
        assert sending["inputSchema"]["properties"] == {"to": {"type": "string"}}
        assert listed["_meta"][KEY] == {"listed": 2, "of": 4}
        assert get_text(await call(client, "post__send_mail", to="Ann")) == "sent to Ann"
        assert (
            get_text(
                await call(client, "call_tool", name="weather.forecast", arguments={"city": "Oslo"})
            )
            == "sunny"
        )
        wrong = await call(client, "post__send_mail", to={"name": "Ann"})
        assert wrong["result"]["isError"]
        assert "to" in get_text(wrong)
        assert json.dumps(await result(client, "tools/list")) == json.dumps(listed), "byte for byte"


@pytest.mark.parametrize(("era", "wire"), ERAS_AND_WIRES)
async def test_a_query_lists_what_serves_it_and_a_plain_list_stays_as_it_was(
    era: Era, wire: str
) -> None:
    async with semantic_gateway() as gateway:
        for profile in ("meta", "code", "full", None):
            async with open_client(gateway, era, wire, profile) as client:
                await serves_a_query(client, ours=profile != "full")


async def serves_a_query(client: RawClient, *, ours: bool) -> None:
    before = json.dumps(await result(client, "tools/list"))
    listed = await result(client, "tools/list", {"query": "tomorrow's weather"})
    found = upstream_names(listed)
    assert found[0] == "weather__forecast"
    assert listed["_meta"][KEY] == {"listed": len(found), "of": 4}
    assert (len(listed["tools"]) > len(found)) is ours
    assert get_text(await call(client, "weather__forecast", city="Oslo")) == "sunny"
    assert json.dumps(await result(client, "tools/list")) == before
    assert json.dumps(await result(client, "tools/list", {"query": " "})) == before, (
        "nothing is asked for"
    )


async def test_a_query_that_is_no_text_is_refused() -> None:
    async with (
        gateway_over(servers(), make_config()) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        refused = (await client.request("tools/list", {"query": ["mail"]}))["error"]
        assert refused["code"] == -32602
        assert "is text" in refused["message"]


async def test_a_query_and_a_flat_name_reach_no_further_than_the_profile() -> None:
    async with (
        gateway_over(servers(), make_config()) as gateway,
        raw_lines(gateway.get_endpoint("dry"), "modern") as client,
    ):
        listed = await result(client, "tools/list", {"query": INTENT})
        assert not [name for name in upstream_names(listed) if name.startswith("post__")]
        assert listed["_meta"][KEY]["of"] == 2
        assert "error" in await call(client, "post__send_mail", to="Ann")


async def test_where_calling_was_taken_away_a_query_gives_nothing_to_call() -> None:
    async with (
        gateway_over(servers(), make_config()) as gateway,
        raw_lines(gateway.get_endpoint("quiet"), "modern") as client,
    ):
        listed = await result(client, "tools/list", {"query": INTENT})
        assert upstream_names(listed) == []
        assert "error" in await call(client, "post__send_mail", to="Ann")


async def test_a_cursor_of_another_query_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "PAGE_SIZE", 1)
    async with (
        gateway_over(servers(), make_config()) as gateway,
        raw_lines(gateway.get_endpoint("full"), "modern") as client,
    ):
        first = await result(client, "tools/list", {"query": INTENT})
        again = {"cursor": first["nextCursor"]}
        assert upstream_names(
            await result(client, "tools/list", {"query": INTENT, **again})
        ) != upstream_names(first)
        for params in (again, {"query": "weather", **again}):
            refused = (await client.request("tools/list", params))["error"]
            assert "another question" in refused["message"]


async def test_definitions_beyond_the_budget_are_left_out_and_named() -> None:
    backends = servers()
    backends["post"].listing["tools"][0]["description"] = "Send mail to people. " * 400
    config = make_config(budgets=Budgets(listing=300))
    async with (
        gateway_over(backends, config) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        listed = await result(client, "tools/list")
        assert "post__send_mail" not in upstream_names(listed)
        assert listed["_meta"][KEY]["left_out"] == ["post__send_mail"]
        assert "budgets.listing" in listed["_meta"][KEY]["why"]
        assert get_text(await call(client, "post__send_mail", to="Ann")) == "sent to Ann"


async def test_use_does_not_change_the_list_and_the_catalog_does() -> None:
    backends = servers()
    async with (
        semantic_gateway(backends) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        before = await result(client, "tools/list")
        for _ in range(5):
            await call(client, "search_tools", query="weather")
            await call(client, "call_tool", name="weather.forecast", arguments={"city": "Oslo"})
        assert await result(client, "tools/list") == before
        backends["weather"].change(
            [tool("send_mail_to_people", "Send mail to people.", to="string")]
        )
        await client.wait_for(
            lambda message: message.get("method") == "notifications/tools/list_changed"
        )
        assert "weather__send_mail_to_people" in upstream_names(await result(client, "tools/list"))


async def test_a_change_that_brings_no_other_tools_is_not_reported() -> None:
    backends = {**servers(), "far": fake("unrelated")}
    async with (
        semantic_gateway(backends) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        before = upstream_names(await result(client, "tools/list"))
        view = gateway.get_view()
        backends["far"].change([tool("unrelated"), tool("as_unrelated_as_before")])
        await gateway.refresh(["far"])
        await wait_until_encoded(gateway)
        assert not view.has_changed_tool_list()
        assert upstream_names(await result(client, "tools/list")) == before


async def test_until_vectors_exist_words_choose_and_then_the_client_is_notified() -> None:
    async with gateway_over(
        servers(), Config(exposure="semantic", intent=UNSAID, top_k=1)
    ) as gateway:
        await wait_until_encoded(gateway)
        known = gateway.catalog.snapshot
        unread = Index.build(
            (it for entry in known.servers.values() for it in build_documents(entry)),
            encoder=known.index.encoder,
        )
        gateway.catalog.snapshot = known.with_index(unread)
        async with raw_lines(gateway.get_endpoint(), "legacy") as client:
            by_words = await result(client, "tools/list")
            assert upstream_names(by_words) != ["post__send_mail"]
            gateway.catalog.snapshot = known
            gateway.bus.publish(EmbeddingsComputed())
            await client.wait_for(
                lambda message: message.get("method") == "notifications/tools/list_changed"
            )
            assert upstream_names(await result(client, "tools/list")) == ["post__send_mail"]
