"""MCP Apps through the gateway: addresses, what hosts list, and what an app's own calls reach."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client, advertise
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent, TextResourceContents

from portico.config import Config
from portico.testing import FakeBackend, Transport
from portico.upstream.backend import Era, Raw, RequestOptions
from portico.upstream.protocol.extensions import UI_EXTENSION, UI_MIME_TYPE
from tests.gateways import GatewayUnderTest, open_gateway

HOST = {"extensions": [advertise(UI_EXTENSION, {"mimeTypes": [UI_MIME_TYPE]})]}
CSP = {"csp": {"connectDomains": ["https://api.example.org"]}, "permissions": {"camera": {}}}


def make_tool(name: str, uri: str = "", visibility: list[str] | None = None) -> Raw:
    tool: Raw = {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}}
    ui: Raw = {"resourceUri": uri} if uri else {}
    if visibility is not None:
        ui["visibility"] = visibility
    if ui:
        flat = {"ui/resourceUri": uri} if uri else {}
        tool["_meta"] = {"ui": ui, "vendor/key": 1, **flat}
    return tool


def make_server(
    name: str, uri: str = "ui://clock/app.html", *, listed: bool = True, era: Era = "legacy"
) -> FakeBackend:
    """A server with an app whose tools answer with the server's own name."""
    tools = [
        make_tool("show", uri),
        make_tool("poll", visibility=["app"]),
        make_tool("plan", visibility=["model"]),
        make_tool("plain"),
    ]
    app: Raw = {"uri": uri, "name": "app", "mimeType": UI_MIME_TYPE, "_meta": {"ui": CSP}}
    data: Raw = {"uri": f"data://{name}", "name": "data"}
    server = FakeBackend(
        tools,
        resources=[app, data] if listed else [data],
        templates=[{"uriTemplate": "rows://{number}", "name": "rows"}],
        era=era,
    )
    for tool in tools:
        server.on_call(tool["name"], lambda arguments: make_text(f"{name} {arguments}"))

    def read(params: Raw, _: RequestOptions) -> Raw:
        content = {"uri": params["uri"], "mimeType": UI_MIME_TYPE, "text": f"<p>{name}</p>"}
        return {"contents": [{**content, "_meta": {"ui": CSP}}]}

    server.on("resources/read", read)
    return server


def make_text(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}]}


def get_text(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def read(client: Client, uri: str) -> tuple[str, str]:
    """Return the address of the contents, and their text."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.meta == {"ui": CSP}
    return str(content.uri), content.text


async def list_tools(client: Client) -> dict[str, Mapping[str, Any]]:
    tools = (await client.list_tools()).tools
    return {tool.name: tool.meta or {} for tool in tools}


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture(params=["meta", "full"])
def exposure(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def open_host(
    *servers: FakeBackend, config: Mapping[str, Any] | None = None, **client: Any
) -> AsyncGenerator[GatewayUnderTest]:
    backends = dict(zip("abcdefgh", servers, strict=False))
    whole = Config.model_validate(dict(config or {}))
    options: dict[str, Any] = {**HOST, **client}
    async with open_gateway(backends, whole, **options) as gateway:
        yield gateway


@pytest.mark.parametrize("server_era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
async def test_an_app_has_its_own_address_in_lists_reads_and_results(
    era: Era, server_era: Era, transport: Transport, exposure: str
) -> None:
    server = make_server("clock", era=server_era)
    async with open_host(
        server, config={"exposure": exposure}, era=era, transport=transport
    ) as host:
        tools = await list_tools(host.client)
        uri = tools["a__show"]["ui"]["resourceUri"]
        assert uri == tools["a__show"]["ui/resourceUri"] == "ui://clock/app.html"
        assert tools["a__show"]["vendor/key"] == 1
        assert await read(host.client, uri) == (uri, "<p>clock</p>")
        listed = {str(one.uri): one for one in (await host.client.list_resources()).resources}
        assert listed[uri].meta == {"ui": CSP}
        assert get_text(await host.call("a__show", x=1)) == "clock {'x': 1}"
        capabilities = host.client.server_capabilities
        assert capabilities.extensions == {UI_EXTENSION: {}}


async def test_two_servers_with_the_same_address_are_kept_apart(exposure: str) -> None:
    async with open_host(
        make_server("one"), make_server("two"), config={"exposure": exposure}
    ) as host:
        tools = await list_tools(host.client)
        first, second = (tools[f"{name}__show"]["ui"]["resourceUri"] for name in "ab")
        assert first != second
        assert first.startswith("ui://")
        assert tools["b__show"]["ui/resourceUri"] == second
        assert await read(host.client, first) == (first, "<p>one</p>")
        assert await read(host.client, second) == (second, "<p>two</p>")
        listed = {str(one.uri) for one in (await host.client.list_resources()).resources}
        assert {first, second} <= listed
        with pytest.raises(MCPError, match="not found"):
            await host.client.read_resource("ui://clock/app.html")


async def test_no_server_gets_the_address_of_another(exposure: str) -> None:
    """Neither by naming it as its own, nor by one that looks like the gateway's, nor by a link."""
    victim = make_server("victim", "ui://bank/app")
    thief = make_server("thief", "ui://portico+a/bank/app", listed=False)
    link = {"type": "resource_link", "uri": " UI://portico+a/bank/app", "name": "x"}
    thief.on_call("plain", lambda _: {"content": [link]})
    async with open_host(victim, thief, config={"exposure": exposure}) as host:
        tools = await list_tools(host.client)
        assert tools["a__show"]["ui"]["resourceUri"] == "ui://bank/app"
        uri = tools["b__show"]["ui"]["resourceUri"]
        assert await read(host.client, uri) == (uri, "<p>thief</p>")
        assert await read(host.client, "ui://portico+a/bank/app") == (
            "ui://portico+a/bank/app",
            "<p>victim</p>",
        )
        name = "b__plain" if exposure == "full" else "call_tool"
        given: Raw = {} if exposure == "full" else {"name": "b.plain", "arguments": {}}
        (block,) = (await host.client.call_tool(name, given)).content
        followed = await read(host.client, str(block.uri))  # pyright: ignore
        assert followed[1] == "<p>thief</p>"


async def test_an_app_that_is_not_listed_as_a_resource_can_be_read() -> None:
    async with open_host(make_server("clock", listed=False)) as host:
        uri = "ui://clock/app.html"
        assert await read(host.client, uri) == (uri, "<p>clock</p>")


async def test_hosts_list_tools_with_apps_beside_the_meta_tools_and_others_do_not() -> None:
    servers = [make_server("one"), make_server("two", "ui://other")]
    async with open_host(*servers) as host:
        added = {name for name in await list_tools(host.client) if "__" in name}
    assert added == {"a__show", "a__poll", "b__show", "b__poll"}
    async with open_host(*servers, extensions=None) as host:
        assert not [name for name in await list_tools(host.client) if "__" in name]
        assert host.client.server_capabilities.extensions is None
    async with open_host(*servers, config={"apps": "always"}, extensions=None) as host:
        assert "a__show" in await list_tools(host.client)
    async with open_host(*servers, config={"apps": "off"}) as host:
        assert not [name for name in await list_tools(host.client) if "__" in name]
        assert host.client.server_capabilities.extensions is None


async def test_servers_take_turns_within_the_budget() -> None:
    many = [make_tool(f"show{number}", f"ui://many/{number}") for number in range(100)]
    for budget, least, most in ((300, 2, 8), (0, 0, 0)):
        config = {"budgets": {"apps": budget}}
        async with open_host(FakeBackend(many), make_server("b"), config=config) as host:
            names = [name for name in await list_tools(host.client) if "__show" in name]
        assert least <= len(names) <= most
        assert ("b__show" in names) == bool(budget)


async def test_a_tool_for_apps_only_is_shown_to_no_model(exposure: str) -> None:
    config = {"exposure": exposure}
    async with open_host(make_server("clock"), config=config, extensions=None) as plain:
        assert "a__poll" not in await list_tools(plain.client)
        with pytest.raises(MCPError, match="poll"):
            await plain.client.call_tool("poll", {})
    async with open_host(make_server("clock"), config={"exposure": "meta"}) as host:
        assert "a.poll" not in await host.call_text("search_tools", query="poll")
        assert "a.poll" not in await host.call_text("browse_tools", server="a")
        assert "there is no tool" in await host.call_error("call_tool", name="a.poll")
        assert "a.plain" in await host.call_text("browse_tools", server="a")


async def test_an_app_calls_and_reads_by_its_servers_own_names(era: Era, exposure: str) -> None:
    other = FakeBackend([make_tool("poll"), make_tool("plain")])
    async with open_host(
        make_server("clock"), other, config={"exposure": exposure}, era=era
    ) as host:
        await read(host.client, "ui://clock/app.html")
        assert get_text(await host.call("poll", since=1)) == "clock {'since': 1}"
        assert get_text(await host.call("plain")) == "clock {}"
        assert get_text(await host.call("a__poll")) == "clock {}"
        assert await read(host.client, "data://clock") == ("data://clock", "<p>clock</p>")
        if era == "legacy":
            assert await read(host.client, "rows://7") == ("rows://7", "<p>clock</p>")
        with pytest.raises(MCPError):
            await host.client.call_tool("plan" if exposure == "meta" else "b__plan", {})


async def test_of_two_apps_with_the_same_tool_the_opened_one_is_called() -> None:
    async with open_host(make_server("one"), make_server("two"), era="legacy") as host:
        assert "several servers" in str(await fail(host, "poll"))
        await host.client.read_resource("ui://portico+b/clock/app.html")
        assert get_text(await host.call("poll")) == "two {}"
        await host.client.read_resource("ui://portico+a/clock/app.html")
        assert "several servers" in str(await fail(host, "poll"))


async def fail(host: GatewayUnderTest, name: str) -> MCPError:
    with pytest.raises(MCPError) as failed:
        await host.client.call_tool(name, {})
    return failed.value


async def test_what_the_rules_deny_an_app_cannot_do() -> None:
    rules = [{"tools": ["a.poll"], "may": "deny"}, {"tools": ["a.plain"], "may": "ask"}]
    server = make_server("clock")
    async with open_host(server, config={"rules": rules}) as host:
        assert "a__poll" not in await list_tools(host.client)
        await fail(host, "poll")
        assert (await host.client.call_tool("plain", {})).is_error
        assert not [method for method, _ in server.requests if method == "tools/call"]
        assert get_text(await host.call("a__show")) == "clock {}"


async def test_a_tool_found_by_search_says_where_its_app_is(era: Era) -> None:
    config = {"budgets": {"apps": 0}}
    async with open_host(make_server("one"), make_server("two"), config=config, era=era) as host:
        result = await host.call("call_tool", name="b.show", arguments={})
        assert result.meta is not None
        uri = result.meta["ui"]["resourceUri"]
        assert result.meta["ui/resourceUri"] == uri
        assert await read(host.client, uri) == (uri, "<p>two</p>")
        assert "ui" not in ((await host.call("call_tool", name="b.plain")).meta or {})
    async with open_host(make_server("one"), era=era, extensions=None) as plain:
        assert "ui" not in ((await plain.call("call_tool", name="a.show")).meta or {})


async def test_the_app_that_a_result_names_has_the_address_that_clients_know() -> None:
    first, second = make_server("one"), make_server("two")
    meta = {"ui": {"resourceUri": "ui://clock/app.html"}, "vendor/key": 1}
    embedded = {"type": "resource", "resource": {"uri": "ui://clock/app.html", "text": "x"}}
    first.on_call("plain", lambda _: {"content": [embedded], "_meta": meta})
    async with open_host(first, second) as host:
        result = await host.call("call_tool", name="a.plain")
    assert result.meta is not None
    assert result.meta["ui"] == {"resourceUri": "ui://portico+a/clock/app.html"}
    assert result.meta["vendor/key"] == 1
    assert str(result.content[0].resource.uri) == "ui://portico+a/clock/app.html"  # pyright: ignore


async def test_a_transparent_view_changes_nothing() -> None:
    config = {"exposure": "full", "prefix": "never"}
    async with open_host(make_server("clock"), config=config, extensions=None) as host:
        tools = await list_tools(host.client)
        assert tools["show"]["ui"]["resourceUri"] == "ui://clock/app.html"
        assert tools["poll"]["ui"] == {"visibility": ["app"]}
        assert await read(host.client, "ui://clock/app.html") == (
            "ui://clock/app.html",
            "<p>clock</p>",
        )
