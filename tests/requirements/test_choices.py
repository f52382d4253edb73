"""Rows A7, C7, D1, D2 and E1 of docs/requirements.md, to the letter: servers that come and go, and
what the configuration can choose."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from portico.config import Config
from portico.demo import make_demo_servers
from portico.testing import connect
from portico.upstream.backend import Era
from tests.gateways import open_gateway
from tests.interaction.fake_servers import ask, fake, get_text, tool

TIMEOUT_S = 240


def addresses(answer: str) -> list[str]:
    return re.findall(r"^([\w-]+\.[\w-]+)\(", answer, re.MULTILINE)


# Servers that die


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a7_clients_hear_that_a_server_died_and_that_it_came_back(era: Era) -> None:
    post = fake("send")
    received: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if hasattr(message, "method"):
            received.put_nowait(message.method)

    async def take_two() -> set[str]:
        return {await asyncio.wait_for(received.get(), TIMEOUT_S) for _ in range(2)}

    async def die_and_come_back(call: Any) -> list[set[str]]:
        await call()
        post.die()
        died = await take_two()
        assert received.empty()
        await call()
        return [died, await take_two()]

    async with open_gateway({"post": post}) as gateway:
        await gateway.client.list_tools()
        if era == "legacy":
            options: dict[str, Any] = {"message_handler": hear}
            async with connect(gateway.runtime, "memory", "legacy", **options) as client:
                await client.list_tools()
                heard = await die_and_come_back(
                    lambda: client.call_tool("call_tool", {"name": "post.send"})
                )
            kinds = {"tools", "resources"}
            assert heard == [{f"notifications/{kind}/list_changed" for kind in kinds}] * 2
            return
        async with (
            connect(gateway.runtime, "http", "modern") as client,
            client.listen(tools_list_changed=True, resources_list_changed=True) as events,
        ):

            async def relay() -> None:
                async for event in events:
                    received.put_nowait(type(event).__name__)

            relaying = asyncio.create_task(relay())
            heard = await die_and_come_back(
                lambda: client.call_tool("call_tool", {"name": "post.send"})
            )
            relaying.cancel()
            await asyncio.wait({relaying})
    assert heard == [{"ToolsListChanged", "ResourcesListChanged"}] * 2


# Notes and references


async def test_d1_the_full_level_has_notes_and_references_of_the_configuration() -> None:
    rules = {
        "notes": {"convert_*": "Ask which units first.", "*": "Metric only."},
        "references": {"convert_units": ["https://example.com/units"]},
    }
    servers = make_demo_servers()
    servers["units"] = servers["units"].model_copy(
        update={"tools": type(servers["units"].tools).model_validate(rules)}
    )
    async with open_gateway(config=Config(servers=servers)) as gateway:

        async def describe(name: str, detail: str) -> str:
            return await gateway.call_text("describe_tools", names=[name], detail=detail)

        full = await describe("units.convert_units", "full")
        other = await describe("units.list_units", "full")
        schema = await describe("units.convert_units", "schema")
        content: Any = (
            await gateway.client.read_resource("portico://tool/units.convert_units")
        ).contents[0]
    assert '\nnotes: ["Ask which units first.","Metric only."]\n' in full
    assert '\nreferences: ["https://example.com/units"]\n' in full
    assert '\nnotes: ["Metric only."]\n' in other
    assert "references:" not in other
    assert "Metric only." not in schema
    assert "https://example.com/units" in content.text


# Ranking


def rank_longest_first(
    query: str, tools: list[str], words: "np.ndarray[Any, Any]", meaning: "np.ndarray[Any, Any]"
) -> "np.ndarray[Any, Any]":
    """A ranking of one's own: the longer the address, the better."""
    assert len(tools) == len(words) == len(meaning)
    assert query
    return np.array([len(address) / 100 for address in tools])


def rank_badly(*_: Any) -> list[float]:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("ranking", ["words", "meaning", "both"])
async def test_d2_the_ranking_can_be_chosen(ranking: str) -> None:
    config = Config.model_validate({"search": {"ranking": ranking}}).model_copy(
        update={"servers": make_demo_servers()}
    )
    async with open_gateway(config=config, encoded=ranking != "words") as gateway:
        exact = await gateway.call_text("search_tools", query="units.convert_units")
        foreign = await gateway.call_text("search_tools", query="Einheiten umrechnen", limit=3)
        explained = await gateway.call_text("search_tools", query="convert", detail="explain")
    assert addresses(exact)[0] == "units.convert_units"
    assert ("units.convert_units" in addresses(foreign)) == (ranking != "words")
    assert ("compared words only" in explained) == (ranking == "words")


async def test_d2_a_ranking_can_be_added_by_an_entry_point() -> None:
    servers = {"s": fake("a", "abc", "ab")}
    config = Config.model_validate({"search": {"ranking": f"{__name__}:rank_longest_first"}})
    async with open_gateway(servers, config) as gateway:
        answer = await gateway.call_text("search_tools", query="anything at all")
    assert addresses(answer) == ["s.abc", "s.ab", "s.a"]


@pytest.mark.parametrize("name", [f"{__name__}:rank_badly", "no_such_module:rank"])
async def test_d2_search_goes_on_where_an_added_ranking_fails(name: str) -> None:
    config = Config.model_validate({"search": {"ranking": name}})
    async with open_gateway({"s": fake("send_mail")}, config) as gateway:
        answer = await gateway.call_text("search_tools", query="send mail")
    assert addresses(answer) == ["s.send_mail"]


# Chosen tools beside the meta-tools


async def test_e1_pinned_tools_are_listed_beside_the_meta_tools_if_wanted() -> None:
    pins = ("post.send-letter", "post.later", "no.such")
    post = fake("send-letter", "keep")
    async with open_gateway({"post": post}, Config(pins=pins, list_pins=True)) as gateway:
        listed = (await gateway.client.list_tools()).tools
        assert [one.name for one in listed][7:] == ["post__send-letter"]
        assert listed[-1].description == "Does send-letter."
        assert get_text(await gateway.call("post__send-letter")) == "send-letter ran"
        changed = asyncio.Event()

        async def hear(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                changed.set()

        async with connect(gateway.runtime, "memory", "legacy", message_handler=hear) as client:
            await client.list_tools()
            post.change([tool("send-letter"), tool("later")])
            await asyncio.wait_for(changed.wait(), TIMEOUT_S)
            names = [one.name for one in (await client.list_tools(cache_mode="bypass")).tools]
    assert names[7:] == ["post__send-letter", "post__later"]


async def test_e1_pins_are_not_listed_by_default() -> None:
    async with open_gateway({"post": fake("send")}, Config(pins=("post.send",))) as gateway:
        assert len((await gateway.client.list_tools()).tools) == 7


# Isolation by default


async def test_c7_a_server_known_to_keep_a_state_has_an_instance_for_each_client(
    tmp_path: Path,
) -> None:
    program = tmp_path / "chrome-devtools-mcp"
    program.write_text(SERVER, encoding="utf-8")
    config = Config.model_validate(
        {
            "servers": {
                "browser": {"command": sys.executable, "args": [str(program)]},
                "shared": {
                    "command": sys.executable,
                    "args": [str(program)],
                    "isolation": "shared",
                },
            }
        }
    )
    async with open_gateway(config=config) as gateway:

        async def count(server: str) -> str:
            async with connect(gateway.runtime, "memory", "legacy") as client:
                await ask(client, "call_tool", name=f"{server}.count")
                return await ask(client, "call_tool", name=f"{server}.count")

        assert [await count("browser"), await count("browser")] == ["2", "2"]
        assert [await count("shared"), await count("shared")] == ["2", "4"]


@pytest.mark.parametrize(
    ("words", "is_isolated"),
    [
        ("npx -y @playwright/mcp@latest", True),
        ("npx @modelcontextprotocol/server-sequential-thinking", True),
        ("docker run -i --rm mcp/playwright:1.2", True),
        ("npx -y @modelcontextprotocol/server-github", False),
        ("uvx mcp-server-git --repository /srv/chrome-devtools", False),
    ],
)
def test_c7_known_packages_are_found_in_a_command_line(words: str, is_isolated: bool) -> None:
    command, *args = words.split()
    server = Config.model_validate({"servers": {"s": {"command": command, "args": args}}})
    assert server.servers["s"].is_isolated == is_isolated


SERVER = """
import sys, json
calls = 0
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    result = None
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "counter", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        calls += 1
        result = {"content": [{"type": "text", "text": str(calls)}]}
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        answer["error"] = {"code": -32601, "message": "no"}
    else:
        answer["result"] = result
    print(json.dumps(answer), flush=True)
"""
