"""A profile has its own URL, and what is outside it does not exist there: not in search, not by its
exact name."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from portico.config import BackendConfig, Config, Profile, ProfileBudgets, ToolRules
from portico.errors import UnknownName
from portico.gateway import GatewayRuntime
from portico.meta_tools import tool_definitions
from portico.testing import FakeBackend, connect, gateway_over, serve_http
from portico.upstream.backend import Era
from tests.interaction.fake_servers import ask, fake, get_text, names
from tests.interaction.raw_clients import raw_http, result

CONFIG = Config(
    profiles={
        "post": Profile(servers=("mail", "letters-*")),
        "reading": Profile(tools=("mail.read*", "bank.balance")),
        "all": Profile(exposure="full"),
        "open": Profile(exposure="full", servers=("mail",)),
        "mute": Profile(metatools={"call_tool": False}),
        "brief": Profile(budgets=ProfileBudgets(discovery=200)),
    }
)
OUTSIDE = "bank.transfer"


def servers() -> dict[str, FakeBackend]:
    secret = [{"uri": "bank://vault", "name": "vault"}]
    bank = fake("balance", "transfer", resources=secret, prompts=[{"name": "pay"}])
    bank.on(
        "resources/read", lambda params, _: {"contents": [{"uri": params["uri"], "text": "gold"}]}
    )
    bank.on("prompts/get", lambda params, _: {"messages": []})
    return {
        "mail": fake(
            "read_mail",
            "read_folder",
            "send_mail",
            resources=[{"uri": "mail://inbox", "name": "inbox"}],
        ),
        "letters-fr": fake("write_letter"),
        "bank": bank,
    }


@asynccontextmanager
async def at(profile: str) -> AsyncGenerator[tuple[Client, GatewayRuntime]]:
    async with (
        gateway_over(servers(), CONFIG) as gateway,
        connect(gateway, profile=profile) as client,
    ):
        yield client, gateway


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_profile_answers_at_its_own_url(era: Era) -> None:
    async with gateway_over(servers(), CONFIG) as gateway, serve_http(gateway) as url:
        async with raw_http(f"{url}/p/all", era) as client:
            listed = [tool["name"] for tool in (await result(client, "tools/list"))["tools"]]
            assert "bank__transfer" in listed
        async with raw_http(f"{url}/p/mute", era) as client:
            listed = [tool["name"] for tool in (await result(client, "tools/list"))["tools"]]
            assert listed == ["search_tools", "browse_tools", "describe_tools"]
        async with raw_http(url, era) as client:
            assert len((await result(client, "tools/list"))["tools"]) == len(
                tool_definitions.META_TOOL_NAMES
            )
        async with httpx2.AsyncClient(timeout=240) as http:
            assert (await http.post(f"{url}/p/none", json={})).status_code == 404


async def test_a_profile_that_does_not_exist_is_refused_with_those_that_do() -> None:
    async with gateway_over(servers(), CONFIG) as gateway:
        with pytest.raises(UnknownName, match="post") as refused:
            gateway.get_endpoint("pots")
        assert "post" in refused.value.nearest


async def test_a_profile_of_servers_shows_those_servers_only() -> None:
    async with at("post") as (client, gateway):
        assert set(gateway.get_view("post").snapshot.servers) == {"mail", "letters-fr"}
        overview = await ask(client, "browse_tools")
        assert "letters-fr" in overview
        assert "bank" not in overview
        listed = json.dumps([tool.model_dump() for tool in (await client.list_tools()).tools])
        assert "bank" not in listed, "not in the capability index either"
        assert client.instructions is not None
        assert "4 tools on 2 servers" in client.instructions


async def test_a_profile_of_tools_shows_those_tools_only() -> None:
    async with at("reading") as (client, _):
        assert "balance" in await ask(client, "browse_tools", server="bank")
        assert "transfer" not in await ask(client, "browse_tools", server="bank")
        assert "send_mail" not in await ask(client, "browse_tools", server="mail")


@pytest.mark.parametrize("profile", ["post", "reading"])
async def test_search_never_finds_what_is_outside(profile: str) -> None:
    async with at(profile) as (client, _):
        for query in ("transfer", "bank transfer", OUTSIDE, "Does transfer."):
            answer = await ask(client, "search_tools", query=query)
            assert OUTSIDE not in answer.replace(f"'{query}'", "").replace(f'"{query}"', ""), answer
        narrowed = await client.call_tool("search_tools", {"query": "transfer", "server": "bank"})
        assert OUTSIDE not in get_text(narrowed)


async def test_a_server_that_is_switched_off_is_named_only_where_it_would_be_seen() -> None:
    text = BackendConfig(functions="portico.demo.text:TOOLS", tools=ToolRules(deny=("slugify",)))
    clock = BackendConfig(functions="portico.demo.clock:TOOLS")
    profiles = {"writing": Profile(servers=("text",))}
    config = Config(servers={"text": text, "clock": clock}, profiles=profiles)
    off = clock.model_copy(update={"disabled": True})
    without_clock = config.model_copy(update={"servers": {"text": text, "clock": off}})
    async with (
        gateway_over({}, config) as gateway,
        connect(gateway) as client,
        connect(gateway, profile="writing") as writer,
    ):
        await gateway.refresh()
        called = {"name": "clock.now", "arguments": {}}
        assert not (await client.call_tool("call_tool", called)).is_error
        await gateway.apply(without_clock)
        assert "clock is switched off" in get_text(await client.call_tool("call_tool", called))
        assert "there is no tool" in get_text(await writer.call_tool("call_tool", called))
        denied = {"name": "text.slugify", "arguments": {"text": "A b"}}
        answer = get_text(await client.call_tool("call_tool", denied))
        assert "there is no tool 'text.slugify'" in answer
        assert "switched off" not in answer
        await gateway.apply(config)
        assert not (await client.call_tool("call_tool", called)).is_error


@pytest.mark.parametrize("profile", ["post", "reading"])
@pytest.mark.parametrize(
    "name", [OUTSIDE, "bank__transfer", "bank::transfer", "transfer", "BANK.TRANSFER"]
)
async def test_the_exact_name_of_what_is_outside_is_not_found(profile: str, name: str) -> None:
    async with at(profile) as (client, gateway):
        described = await client.call_tool("describe_tools", {"names": [name]})
        assert described.is_error
        called = await client.call_tool("call_tool", {"name": name, "arguments": {}})
        assert called.is_error
        for answer in (described, called):
            assert "there is no tool" in get_text(answer)
            assert OUTSIDE not in get_text(answer).partition(" here")[2], "nor as the nearest name"
        bank = gateway.upstreams["bank"].backend
        assert isinstance(bank, FakeBackend)
        assert all(method != "tools/call" for method, _ in bank.requests)


async def test_browsing_a_server_outside_is_not_found() -> None:
    async with at("post") as (client, _):
        answer = await client.call_tool("browse_tools", {"server": "bank"})
        assert answer.is_error
        assert "there is no server" in get_text(answer)


async def test_resources_and_prompts_outside_are_not_found() -> None:
    async with at("post") as (client, _):
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert [uri for uri in listed if "/resource/" in uri] == [
            "portico://backend/mail/resource/mail://inbox"
        ]
        for uri in ("portico://backend/bank/resource/bank://vault", "bank://vault"):
            with pytest.raises(MCPError, match="Resource not found"):
                await client.read_resource(uri)
        assert not [one.name for one in (await client.list_prompts()).prompts if "__" in one.name]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("bank__pay")


async def test_a_full_profile_refuses_the_names_of_what_it_does_not_list() -> None:
    async with at("open") as (client, gateway):
        assert await names(client) == ["mail__read_mail", "mail__read_folder", "mail__send_mail"]
        with pytest.raises(MCPError, match="there is no tool") as refused:
            await client.call_tool("bank__transfer", {})
        assert refused.value.code == -32602
        bank = gateway.upstreams["bank"].backend
        assert isinstance(bank, FakeBackend)
        assert all(method != "tools/call" for method, _ in bank.requests)


async def test_a_profile_has_its_own_budget() -> None:
    async with gateway_over(
        {"big": fake(*(f"tool_number_{n}" for n in range(60)))}, CONFIG
    ) as gateway:
        async with connect(gateway, profile="brief") as client:
            brief = await ask(client, "browse_tools", server="big")
        async with connect(gateway) as client:
            assert len(brief) < len(await ask(client, "browse_tools", server="big"))
        assert "cursor=" in brief
