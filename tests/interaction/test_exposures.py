"""Clients see the meta-tools (`meta`, `code`) or every tool (`full`), in a stable list."""

import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from portico.config import Config, Exposure
from portico.errors import BackendUnavailable
from portico.events import ToolsShown
from portico.meta_tools import tool_definitions
from portico.testing import FakeBackend, connect, gateway_over, serve_http
from portico.upstream.backend import Era
from tests.interaction.fake_servers import ask, fake, get_text, names, text, tool
from tests.interaction.raw_clients import call, raw_http, raw_lines, result

META = list(tool_definitions.META_TOOL_NAMES)


def servers() -> dict[str, FakeBackend]:
    return {"weather": fake("forecast", "history"), "mail": fake("send"), "empty": fake()}


async def fetch_tool_list(
    backends: dict[str, FakeBackend], era: Era = "legacy", config: Config | None = None
) -> str:
    """`tools/list` of a fresh gateway as it is on the wire."""
    async with (
        gateway_over(backends, config) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        return json.dumps(await result(client, "tools/list"))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_meta_tools_are_the_same_bytes_at_every_call_session_and_restart(
    era: Era,
) -> None:
    first = await fetch_tool_list(servers(), era)
    assert [tool["name"] for tool in json.loads(first)["tools"]] == META
    assert await fetch_tool_list(servers(), era) == first, "after a restart"
    async with gateway_over(servers()) as gateway, serve_http(gateway) as url:
        for _ in range(2):
            async with raw_http(url, era) as client:
                assert json.dumps(await result(client, "tools/list")) == first, "in another session"
                await call(client, "search_tools", query="forecast")
                await call(client, "call_tool", name="weather.forecast")
                assert json.dumps(await result(client, "tools/list")) == first, (
                    "after a search and a call"
                )


async def test_the_meta_tools_are_the_same_bytes_while_backends_come_and_go() -> None:
    backends = servers()
    backends["mail"].refuses = BackendUnavailable("mail is not there")
    async with (
        gateway_over(backends) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        first = json.dumps(await result(client, "tools/list"))

        async def now() -> str:
            return json.dumps(await result(client, "tools/list"))

        backends["weather"].change([tool("forecast"), tool("tides"), tool("moon")])
        await gateway.refresh(["weather"])
        assert "weather.moon" in str(await call(client, "search_tools", query="moon"))
        assert await now() == first, "with other tools"
        backends["weather"].die()
        assert await now() == first, "with a server that died"


async def test_before_any_server_was_listed_the_list_is_there_and_names_them() -> None:
    backends = servers()
    for backend in backends.values():
        backend.refuses = BackendUnavailable("it is not there")
    async with (
        gateway_over(backends, listed=False) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        tools = (await result(client, "tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == META
        assert all(name in tools[0]["description"] for name in backends)


async def test_the_full_list_has_one_order_whichever_server_is_listed_first() -> None:
    full = Config(exposure="full")
    one = {name: fake("b", "a", "c") for name in ("one", "two", "three")}
    other = {name: fake("b", "a", "c") for name in ("three", "two", "one")}
    async with gateway_over(one, full) as gateway, connect(gateway) as client:
        first = await names(client)
        assert first == [
            f"{server}__{name}" for server in ("one", "three", "two") for name in ("b", "a", "c")
        ]
        await gateway.refresh(["two", "one"])
        assert await names(client) == first
    async with gateway_over(other, full) as gateway, connect(gateway) as client:
        assert await names(client) == first


@pytest.mark.parametrize("exposure", ["meta", "code"])
async def test_the_instructions_say_first_that_the_list_is_partial(exposure: Exposure) -> None:
    many = {f"server_{n}": fake(f"tool_{n}") for n in range(40)}
    for backend in many.values():
        object.__setattr__(backend.initialize_info, "instructions", "Always read me whole. " * 400)
    async with gateway_over(many, Config(exposure=exposure)) as gateway:
        for era in ("legacy", "modern"):
            async with raw_lines(gateway.get_endpoint(), era) as client:
                instructions = client.introduction["instructions"]
                assert instructions.startswith("This tool list is partial: 40 tools on 40 servers")
                assert "search_tools" in instructions
                assert len(instructions.encode()) < 2_048


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_first_answer_of_a_client_is_counted_as_shown_to_its_session(
    era: Era,
) -> None:
    reported: list[ToolsShown] = []
    async with gateway_over(servers()) as gateway:
        gateway.bus.subscribe(
            lambda event: reported.append(event) if isinstance(event, ToolsShown) else None,
            ToolsShown,
        )
        async with raw_lines(gateway.get_endpoint(), era) as client:
            listed = await result(client, "tools/list")
            await call(client, "search_tools", query="forecast")
            await call(client, "call_tool", name="weather.forecast")
            instructions, listing, answer = reported
            assert (instructions.content, instructions.is_listing) == (
                client.introduction["instructions"],
                False,
            )
            assert (listing.content, listing.is_listing) == (listed["tools"], True)
            assert isinstance(answer.content, str)
            assert len({event.caller for event in reported}) == 1
            assert answer.caller.session, "a pipe is one client, in either era"


async def test_every_description_stays_under_the_length_clients_cut_at() -> None:
    many = {f"a_server_with_a_long_name_{n:03}": fake("run") for n in range(200)}
    async with gateway_over(many) as gateway, raw_lines(gateway.get_endpoint(), "legacy") as client:
        for definition in (await result(client, "tools/list"))["tools"]:
            assert len(definition["description"].encode()) < 2_048
            assert definition["_meta"] == {"anthropic/alwaysLoad": True}


async def test_reading_tools_are_marked_as_reading_and_calling_is_not() -> None:
    async with gateway_over(servers()) as gateway, connect(gateway) as client:
        tools = (await client.list_tools()).tools
        marked = {tool.name: tool.annotations.read_only_hint for tool in tools if tool.annotations}
    assert marked == dict.fromkeys(META, True) | dict.fromkeys(
        ("call_tool", "run_code", "run_workflow"), False
    )


async def test_a_meta_tool_that_is_switched_off_is_neither_listed_nor_callable() -> None:
    config = Config(metatools={"browse_tools": False, "call_tool": False})
    async with gateway_over(servers(), config) as gateway, connect(gateway) as client:
        assert await names(client) == ["search_tools", "describe_tools"]
        for name in ("browse_tools", "call_tool"):
            with pytest.raises(MCPError, match="no tool") as refused:
                await client.call_tool(name, {"name": "mail.send"})
            assert refused.value.code == -32602


async def test_who_may_call_nothing_has_no_scripts_either_unless_they_are_switched_on() -> None:
    config = Config(metatools={"call_tool": False, "run_code": True})
    async with gateway_over(servers(), config) as gateway, connect(gateway) as client:
        looking = ["search_tools", "browse_tools", "describe_tools"]
        assert await names(client) == [*looking, "run_code", "read_result"]


async def test_instructions_name_only_meta_tools_that_are_there() -> None:
    config = Config(metatools={"browse_tools": False, "call_tool": False})
    async with (
        gateway_over(servers(), config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        instructions = client.introduction["instructions"]
        assert "call_tool" not in instructions
        assert "browse_tools" not in instructions


async def test_code_shows_search_describe_and_scripts_only() -> None:
    async with (
        gateway_over(servers(), Config(exposure="code")) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == ["search_tools", "describe_tools", "run_code"]
        assert "weather.forecast" in await ask(client, "search_tools", query="forecast")
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("call_tool", {"name": "mail.send"})


async def test_full_shows_every_tool_and_no_meta_tool() -> None:
    async with (
        gateway_over(servers(), Config(exposure="full")) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == ["mail__send", "weather__forecast", "weather__history"]
        assert await ask(client, "weather__history") == "history ran"
        with pytest.raises(MCPError) as refused:
            await client.call_tool("search_tools", {"query": "x"})
        assert refused.value.code == -32602


async def test_names_in_full_are_legal_and_short_and_still_reach_their_tool() -> None:
    odd = ["dots.and/slashes", "x" * 120, "spaces in it", "ünïcode"]
    async with (
        gateway_over({"odd": fake(*odd)}, Config(exposure="full")) as gateway,
        connect(gateway) as client,
    ):
        shown = await names(client)
        assert len(set(shown)) == len(odd)
        for name, original in zip(shown, odd, strict=True):
            assert len(name) <= 64
            assert name.isascii()
            assert name.replace("_", "").replace("-", "").isalnum()
            assert await ask(client, name) == f"{original} ran"


async def test_an_upstream_tool_called_like_a_meta_tool_does_not_shadow_it() -> None:
    imposter = fake("search_tools", "call_tool")
    async with gateway_over({"imposter": imposter}) as gateway, connect(gateway) as client:
        assert await names(client) == META
        assert "imposter.call_tool" in await ask(client, "search_tools", query="call_tool")
        assert await ask(client, "call_tool", name="imposter.call_tool") == "call_tool ran"


async def test_a_direct_call_of_an_upstream_tool_in_meta_says_how_to_call_it() -> None:
    async with gateway_over(servers()) as gateway, connect(gateway) as client:
        with pytest.raises(MCPError, match="are run by call_tool"):
            await client.call_tool("weather.forecast", {})


async def test_a_server_that_is_down_is_known_but_unavailable() -> None:
    backends = servers()
    async with gateway_over(backends) as gateway, connect(gateway) as client:
        backends["mail"].refuses = BackendUnavailable("the post office is closed")
        backends["mail"].die("it crashed")
        answered = await client.call_tool("call_tool", {"name": "mail.send"})
        assert answered.is_error
        assert "known but unavailable" in get_text(answered)
        assert "mail.send" in await ask(client, "search_tools", query="send")


async def test_bad_arguments_are_answered_with_the_problem_and_the_parameters() -> None:
    backend = FakeBackend([tool("add", "Adds.", a="integer", b="integer")])
    backend.on_call("add", lambda arguments: text(str(arguments["a"] + arguments["b"])))
    async with gateway_over({"sums": backend}) as gateway, connect(gateway) as client:
        answered = await client.call_tool(
            "call_tool", {"name": "sums.add", "arguments": {"a": "one", "b": 2}}
        )
        assert answered.is_error
        assert "a: " in get_text(answered)
        assert "a?: integer" in get_text(answered)
        assert backend.requests[-1][0] != "tools/call"
        assert await ask(client, "call_tool", name="sums.add", arguments={"a": 1, "b": 2}) == "3"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "query is missing"),
        ({"query": 3}, "query must be text"),
        ({"query": "x", "colour": "red"}, "'colour' is not a parameter"),
    ],
)
async def test_a_meta_tool_says_what_is_wrong_with_its_arguments(
    arguments: dict[str, Any], problem: str
) -> None:
    async with gateway_over(servers()) as gateway, connect(gateway) as client:
        answered = await client.call_tool("search_tools", arguments)
        assert answered.is_error
        assert problem in get_text(answered)
