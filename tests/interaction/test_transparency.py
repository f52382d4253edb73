"""In `full` with `prefix: never`, a single server is seen as if no gateway stood before it."""

import asyncio
import json

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from portico.config import BackendConfig, Config, Profile, ToolRules
from portico.errors import RemoteError
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Era
from tests.fixtures import broken_command, everything_command
from tests.interaction.fake_servers import ask, fake, names, text, tool
from tests.interaction.raw_clients import call, pages, raw_lines, result

BARE = Config(exposure="full", prefix="never")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
ODD_NAMES = ["plain", "dots.and/slashes", "x" * 120, "spaces in it", "double__underscore"]


async def test_names_pass_as_they_are_listed_and_called() -> None:
    async with (
        gateway_over({"only": fake(*ODD_NAMES)}, BARE) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == ODD_NAMES
        for name in ODD_NAMES:
            assert await ask(client, name) == f"{name} ran"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_server_introduces_itself_through_us(era: Era) -> None:
    backend = fake(
        "run",
        capabilities={"tools": {}, "experimental": {"x": {"y": None}}},
        instructions="Read me.",
    )
    async with (
        gateway_over({"only": backend}, BARE) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        assert client.introduction["instructions"] == "Read me."
        assert client.introduction["capabilities"] == {
            "tools": {},
            "experimental": {"x": {"y": None}},
        }
        info = client.introduction.get("serverInfo") or client.introduction["_meta"][SERVER_INFO]
        assert info == {"name": "fake", "version": "1"}


async def test_two_servers_are_prefixed_whatever_the_configuration_wishes() -> None:
    async with (
        gateway_over({"a": fake("run"), "b": fake("run")}, BARE) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == ["a__run", "b__run"]


async def test_resources_prompts_and_completion_pass_under_their_own_names() -> None:
    backend = FakeBackend(
        resources=[{"uri": "own://thing", "name": "thing", "x-vendor": None}],
        templates=[{"uriTemplate": "own://{id}", "name": "any"}],
        prompts=[{"name": "a.prompt", "x-vendor": 1}],
    )
    backend.on(
        "resources/read", lambda params, _: {"contents": [{"uri": params["uri"], "text": "it"}]}
    )
    backend.on("prompts/get", lambda params, _: {"messages": [], "description": params["name"]})
    backend.on(
        "completion/complete",
        lambda params, _: {"completion": {"values": [json.dumps(params["ref"])]}},
    )
    async with (
        gateway_over({"only": backend}, BARE) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        assert await pages(client, "resources/list", "resources") == backend.listing["resources"]
        templates = await pages(client, "resources/templates/list", "resourceTemplates")
        assert templates == backend.listing["resourceTemplates"]
        assert await pages(client, "prompts/list", "prompts") == backend.listing["prompts"]
        read = await result(client, "resources/read", {"uri": "own://7"})
        assert read["contents"][0]["uri"] == "own://7"
        assert (await result(client, "prompts/get", {"name": "a.prompt"}))[
            "description"
        ] == "a.prompt"
        reference = {"type": "ref/resource", "uri": "own://{id}"}
        done = await result(
            client,
            "completion/complete",
            {"ref": reference, "argument": {"name": "id", "value": ""}},
        )
        assert json.loads(done["completion"]["values"][0]) == reference


async def test_a_method_nobody_knows_is_forwarded_with_everything_in_it() -> None:
    backend = fake("run")
    backend.on("vendor/dance", lambda params, _: {"danced": params["steps"], "null": None})

    def refuse(params: object, _: object) -> dict[str, object]:
        raise RemoteError(-31999, "no floor", None, has_data=True)

    backend.on("vendor/stumble", refuse)
    async with (
        gateway_over({"only": backend}, BARE) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        assert await result(client, "vendor/dance", {"steps": [1, None]}) == {
            "danced": [1, None],
            "null": None,
        }
        stumbled = await client.request("vendor/stumble")
        assert stumbled["error"] == {"code": -31999, "message": "no floor", "data": None}
    both = {"one": backend, "two": fake()}
    async with (
        gateway_over(both, BARE) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        assert (await client.request("vendor/dance"))["error"]["code"] == -32601


async def test_a_tool_the_server_does_not_list_is_left_to_the_server() -> None:
    backend = fake("listed")
    backend.on_call("hidden", lambda _: text("found me"))
    async with gateway_over({"only": backend}, BARE) as gateway, connect(gateway) as client:
        assert await ask(client, "hidden") == "found me"


def make_config(**rules: object) -> Config:
    command, *arguments = broken_command("healthy")
    server = BackendConfig(
        command=command, args=tuple(arguments), tools=ToolRules.model_validate(rules)
    )
    profiles = {"p": Profile(tools=("only.pid",))}
    return Config(servers={"only": server}, exposure="full", prefix="never", profiles=profiles)


async def test_a_tool_that_is_denied_cannot_be_called_by_its_name() -> None:
    async with (
        gateway_over(config=make_config(deny=["env"])) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == ["echo", "pid"]
        with pytest.raises(MCPError, match="there is no tool"):
            await client.call_tool("env", {})


async def test_a_tool_outside_the_profile_cannot_be_called_by_its_name() -> None:
    async with (
        gateway_over(config=make_config()) as gateway,
        connect(gateway, profile="p") as client,
    ):
        assert await names(client) == ["pid"]
        with pytest.raises(MCPError, match="there is no tool"):
            await client.call_tool("env", {})


async def test_a_tool_that_is_renamed_is_listed_and_called_by_its_new_name() -> None:
    async with (
        gateway_over(config=make_config(rename={"echo": "say"})) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == ["say", "pid", "env"]
        assert json.loads(await ask(client, "say", word="hello")) == {"word": "hello"}


async def test_before_the_server_was_ever_listed_the_view_is_there_and_empty() -> None:
    received = asyncio.Event()
    backend = fake("late")

    async def wait(_: object, __: object) -> dict[str, object]:
        await received.wait()
        return {"tools": [tool("late")]}

    backend.on("tools/list", wait)
    async with (
        gateway_over({"only": backend}, BARE, listed=False) as gateway,
        connect(gateway) as client,
    ):
        assert await names(client) == []
        received.set()
        await asyncio.wait_for(gateway.wait_until_listed(), 240)
        assert await names(client) == ["late"]


async def test_the_real_thing_looks_the_same_directly_and_through_us() -> None:
    command, *arguments = everything_command("--stdio", "--era", "both")
    config = Config(
        servers={"only": BackendConfig(command=command, args=tuple(arguments))},
        exposure="full",
        prefix="never",
    )
    direct = Client(StdioServerParameters(command=command, args=arguments))
    async with (
        direct as straight,
        gateway_over(config=config) as gateway,
        connect(gateway) as through,
    ):
        for one, other in [
            (await straight.list_tools(), await through.list_tools()),
            (await straight.list_resources(), await through.list_resources()),
            (await straight.list_resource_templates(), await through.list_resource_templates()),
            (await straight.list_prompts(), await through.list_prompts()),
            (
                await straight.read_resource("test://static-text"),
                await through.read_resource("test://static-text"),
            ),
            (
                await straight.get_prompt("test_simple_prompt"),
                await through.get_prompt("test_simple_prompt"),
            ),
            (
                await straight.call_tool("test_simple_text"),
                await through.call_tool("test_simple_text"),
            ),
            (
                await straight.call_tool("test_image_content"),
                await through.call_tool("test_image_content"),
            ),
        ]:
            leave = {"ttl_ms", "cache_scope"}
            assert one.model_dump(exclude=leave) == other.model_dump(exclude=leave)
        assert straight.server_capabilities == through.server_capabilities
        assert straight.server_info == through.server_info
        assert straight.instructions == through.instructions


async def test_a_server_that_grew_is_listed_again() -> None:
    backend = fake("one")
    async with (
        gateway_over({"only": backend}, BARE) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        backend.change([tool("one"), tool("two")])
        await client.wait_for(
            lambda message: message.get("method") == "notifications/tools/list_changed"
        )
        assert [tool["name"] for tool in await pages(client, "tools/list", "tools")] == [
            "one",
            "two",
        ]
        assert (await call(client, "two"))["error"]["code"] == -32601
