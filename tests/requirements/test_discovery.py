"""Rows A1–A9, C1–C3, D1 and D7 of docs/requirements.md: discovery as a client meets it, over eight
small
servers of real tools."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import EmbeddedResource, PromptReference, ResourceTemplateReference
from pydantic import TypeAdapter

from benchmarks import fleet
from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.config import BackendConfig, Config
from portico.demo import make_demo_servers
from portico.gateway import GatewayRuntime
from portico.meta_tools.capability_index import CAPABILITY_INDEX_TOKENS
from portico.meta_tools.tool_definitions import META_TOOL_NAMES
from portico.rendering.token_budget import get_best_counter
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era
from tests.gateways import open_gateway
from tests.interaction.fake_servers import ask, fake, tool

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
TIMEOUT_S = 240
ERAS = [("legacy", "stdio"), ("modern", "http")]
TOOLS = 21


@asynccontextmanager
async def demo_gateway(
    era: Era = "modern", transport: Transport = "memory", **more: FakeBackend
) -> AsyncGenerator[tuple[GatewayRuntime, Client]]:
    """A client of a gateway over the demo servers and some more."""
    config = Config(servers=make_demo_servers())
    async with open_gateway(more, config, transport=transport, era=era) as opened:
        yield opened.runtime, opened.client


def tokens(text: str) -> int:
    return get_best_counter().count(text)


def addresses(answer: str) -> list[str]:
    return re.findall(r"^([\w-]+\.\w+)\(", answer, re.MULTILINE)


async def read(client: Client, uri: str) -> str:
    content: Any = (await client.read_resource(uri)).contents[0]
    return content.text


# A: a gateway for many servers


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a1_a_tool_is_described_in_brief_and_in_full(era: Era, transport: Transport) -> None:
    async with demo_gateway(era, transport) as (gateway, client):
        brief = await ask(client, "describe_tools", names=["units.convert_units"], detail="brief")
        assert brief.startswith("units.convert_units(value: number, from_unit, to_unit")
        assert "\n" not in brief
        full = await ask(client, "describe_tools", names=["units.convert_units"], detail="full")
        schema = json.loads(re.findall(r"^inputSchema: (.*)$", full, re.MULTILINE)[0])
        assert schema == gateway.get_view().snapshot.tools["units.convert_units"].input_schema
        for name in gateway.get_view().snapshot.tools:
            assert tokens(await ask(client, "describe_tools", names=[name], detail="brief")) < 300


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a2_a_search_costs_less_than_100_tokens_a_result_and_has_schemas_if_asked(
    era: Era, transport: Transport
) -> None:
    async with demo_gateway(era, transport) as (_, client):
        for query in ("convert miles to kilometres", "roll two dice", "write a note", "read csv"):
            answer = await ask(client, "search_tools", query=query)
            lines = [line for line in answer.splitlines() if re.match(r"[\w-]+\.\w+\(", line)]
            assert lines
            assert all(tokens(line) < 100 for line in lines)
        typed = await ask(
            client, "search_tools", query="convert miles to kilometres", detail="schema", limit=1
        )
        assert re.search(r"^ from_unit: string", typed, re.MULTILINE)


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a3_tools_are_listed_by_cursor_fifty_a_page(era: Era, transport: Transport) -> None:
    many = FakeBackend([tool(f"t{n}", "Does.") for n in range(120)])
    async with demo_gateway(era, transport, many=many) as (_, client):
        pages, cursor = list[list[str]](), None
        while True:
            more = {"cursor": cursor} if cursor else {}
            answer = await ask(client, "browse_tools", server="many", page_size=1_000, **more)
            pages.append(addresses(answer))
            found = re.search(r'browse_tools\(server="many", cursor="([\w=-]+)"\)', answer)
            if found is None:
                break
            cursor = found[1]
        assert [len(page) for page in pages] == [50, 50, 20]
        assert [name for page in pages for name in page] == [f"many.t{n}" for n in range(120)]


async def test_a3_the_most_used_come_first() -> None:
    async with demo_gateway() as (gateway, client):
        for _ in range(3):
            await ask(client, "call_tool", name="units.list_units")
        await ask(client, "call_tool", name="notes.list_notes")
        await asyncio.wait_for(gateway.usage_data.standings.recompute(), TIMEOUT_S)
        listed = addresses(await ask(client, "browse_tools", server="units"))
        assert listed[0] == "units.list_units"
        overview = await ask(client, "browse_tools")
        assert "Most used tools, then some of each server:\nunits.list_units(" in overview


async def test_a4_large_answers_are_marked_as_material_for_the_assistant() -> None:
    many = FakeBackend(
        [
            tool(f"t{n}", "Does one thing, and says so in a sentence of some length.")
            for n in range(120)
        ]
    )
    async with demo_gateway(many=many) as (_, client):
        for arguments, long in (
            ({"server": "many"}, True),
            ({"server": "notes", "page_size": 1}, False),
        ):
            block: Any = (await client.call_tool("browse_tools", arguments)).content[0]
            assert (len(block.text) > 2_000) == long
            marks = (block.annotations.priority, block.annotations.audience)
            assert marks == ((0.3, ["assistant"]) if long else (0.7, None))


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a5_resources_and_templates_tell_of_everything(
    era: Era, transport: Transport
) -> None:
    async with demo_gateway(era, transport) as (_, client):
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        kinds = ("overview", "backends", "tools", "hot", "categories", "stats")
        assert listed == [f"portico://{name}" for name in kinds]
        assert tokens(await read(client, "portico://overview")) <= 500
        assert len(json.loads(await read(client, "portico://backends"))["servers"]) == 4
        assert len(json.loads(await read(client, "portico://tools"))["tools"]) == TOOLS
        templates = {
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        }
        for template in (
            "tool/{tool_name}",
            "backend/{backend_name}",
            "backend/{backend_name}/tools",
        ):
            assert f"portico://{template}" in templates
        whole = json.loads(await read(client, "portico://tool/notes.create_note"))
        assert "title" in whole["definition"]["inputSchema"]["properties"]
        assert json.loads(await read(client, "portico://backend/clock"))["tools"] == 6
        assert len(json.loads(await read(client, "portico://backend/clock/tools"))["tools"]) == 6
        with pytest.raises(MCPError) as refused:
            await client.read_resource("portico://backend/clok")
        assert refused.value.code == (-32002 if era == "legacy" else -32602)
        assert "portico://backend/clock" in refused.value.message


async def test_a5_lists_of_resources_are_paged() -> None:
    many = FakeBackend(
        [tool("t")], resources=[{"uri": f"r://{n}", "name": str(n)} for n in range(600)]
    )
    async with demo_gateway(many=many) as (_, client):
        found, cursor, pages = list[str](), None, 0
        while pages == 0 or cursor:
            page = await client.list_resources(cursor=cursor)
            found += [str(one.uri) for one in page.resources]
            cursor, pages = page.next_cursor, pages + 1
        assert pages == 3
        assert len(found) == len(set(found)) == 606
        assert found[0] == "portico://overview"


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a6_arguments_of_templates_are_completed(era: Era, transport: Transport) -> None:
    async with demo_gateway(era, transport) as (_, client):
        for uri, name, typed, first in (
            ("portico://tool/{tool_name}", "tool_name", "conv", "clock.convert_time"),
            ("portico://backend/{backend_name}", "backend_name", "cl", "clock"),
            ("portico://category/{category}", "category", "uti", "utilities"),
        ):
            reference = ResourceTemplateReference(uri=uri)
            found = (await client.complete(reference, {"name": name, "value": typed})).completion
            assert found.values[0] == first
            assert found.total == len(found.values)
        everything = (
            await client.complete(
                ResourceTemplateReference(uri="portico://tool/{tool_name}"),
                {"name": "tool_name", "value": ""},
            )
        ).completion
        assert (everything.total, everything.has_more) == (TOOLS, False)
        task = await client.complete(
            PromptReference(name="find_tool"), {"name": "task", "value": "x"}
        )
        assert task.completion.values == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a7_clients_hear_that_backends_and_tools_came(era: Era) -> None:
    late = fake("tow_a_car", capabilities={"tools": {"listChanged": True}})
    late.refuses = ConnectionError("not yet")
    received: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if hasattr(message, "method"):
            received.put_nowait(message.method)

    async with gateway_over({"late": late}) as gateway:

        async def come() -> set[str]:
            late.refuses = None
            async with asyncio.timeout(TIMEOUT_S):
                while not gateway.get_view().snapshot.servers["late"].is_listed:
                    await gateway.refresh(["late"])
            return {await asyncio.wait_for(received.get(), TIMEOUT_S) for _ in range(2)}

        if era == "legacy":
            async with connect(gateway, "memory", "legacy", message_handler=hear) as client:
                await client.list_tools()
                assert await come() == {
                    "notifications/tools/list_changed",
                    "notifications/resources/list_changed",
                }
            return
        async with (
            connect(gateway, "http", "modern") as client,
            client.listen(tools_list_changed=True, resources_list_changed=True) as events,
        ):
            await client.list_tools()

            async def relay() -> None:
                async for event in events:
                    received.put_nowait(type(event).__name__)

            relaying = asyncio.create_task(relay())
            assert await come() == {"ToolsListChanged", "ResourcesListChanged"}
            relaying.cancel()
            await asyncio.wait({relaying})


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a8_prompts_lead_to_tools(era: Era, transport: Transport) -> None:
    async with demo_gateway(era, transport) as (_, client):
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert names == ["discover", "find_tool", "backend_status"]
        guide: Any = (await client.get_prompt("discover")).messages[0].content
        assert "search_tools" in guide.text
        found, best = (
            await client.get_prompt("find_tool", {"task": "convert miles to kilometres"})
        ).messages
        assert "units.convert_units(" in found.content.text  # pyright: ignore
        assert isinstance(best.content, EmbeddedResource)
        assert str(best.content.resource.uri) == "portico://tool/units.convert_units"
        schema = json.loads(best.content.resource.text)["definition"]["inputSchema"]  # pyright: ignore
        assert "from_unit" in schema["properties"]
        status: Any = (await client.get_prompt("backend_status")).messages[0].content
        assert "- clock: ready, 6 tools" in status.text
        with pytest.raises(MCPError, match="needs a task"):
            await client.get_prompt("find_tool")


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_a9_the_search_tool_says_what_is_behind_it(era: Era, transport: Transport) -> None:
    async with demo_gateway(era, transport) as (_, client):
        listed = (await client.list_tools()).tools[0]
        index = (listed.description or "").partition("Servers by category: ")[2]
        assert "utilities (" in index
        assert all(re.search(rf"[(, ]{name}[,)]", index) for name in make_demo_servers())
        assert tokens(index) <= CAPABILITY_INDEX_TOKENS
        await ask(client, "search_tools", query="notes")
        await ask(client, "call_tool", name="notes.list_notes")
        assert (await client.list_tools(cache_mode="bypass")).tools[
            0
        ].description == listed.description


# C: a gateway for scripts


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_c1_servers_are_listed_with_identifier_description_version_and_instructions(
    era: Era, transport: Transport
) -> None:
    noted = FakeBackend([tool("t")], instructions="Be kind to it.")
    async with demo_gateway(era, transport, noted=noted) as (_, client):
        answer = await ask(client, "browse_tools")
        assert "\nclock: 6 tools — Dates, time zones" in answer
        assert len(re.findall(r"^\w+: \d+ tools?", answer, re.MULTILINE)) == 5
        one = await ask(client, "browse_tools", server="noted")
        assert "\nversion 1; category " in one
        assert "\nIts own notes: Be kind to it.\n" in one
        cards = {
            card["server"]: card
            for card in json.loads(await read(client, "portico://backends"))["servers"]
        }
        assert cards["clock"]["description"].startswith("Dates, time zones")
        assert cards["noted"]["version"] == "1"
        whole = json.loads(await read(client, "portico://backend/noted"))
        assert whole["instructions"] == "Be kind to it."


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_c2_a_server_s_tools_are_listed(era: Era, transport: Transport) -> None:
    async with demo_gateway(era, transport) as (gateway, client):
        for server, entry in gateway.get_view().snapshot.servers.items():
            answer = await ask(client, "browse_tools", server=server)
            assert addresses(answer) == [tool.address for tool in entry.tools.values()]


async def test_c3_a_tool_s_details_have_an_example_in_the_script_language() -> None:
    async with demo_gateway() as (_, client):
        full = await ask(client, "describe_tools", names=["units.convert_units"], detail="full")
        (lua,) = re.findall(r"^script lua: (.*)$", full, re.MULTILINE)
        assert re.fullmatch(
            r"units\.convert_units\(\{value = .*, from_unit = \".*\", to_unit = "
            r"\".*\"\}\):await\(\)",
            lua,
        )
        (python,) = re.findall(r"^script python: (.*)$", full, re.MULTILINE)
        assert python.startswith("await units.convert_units(value=")
        brief = await ask(client, "describe_tools", names=["units.convert_units"])
        assert "script" not in brief


# D: a library of meta-tools


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_d1_three_levels_of_detail_each_with_more_than_the_one_before(
    era: Era, transport: Transport
) -> None:
    async with demo_gateway(era, transport) as (_, client):
        name = "clock.add_to_date"
        brief, schema, full = [
            await ask(client, "describe_tools", names=[name], detail=detail)
            for detail in ("brief", "schema", "full")
        ]
        assert tokens(brief) < tokens(schema) < tokens(full)
        assert "months" in schema
        assert re.search(r"^ start: string", schema, re.MULTILINE)
        assert 1 <= len(re.findall(r"^example: \{", full, re.MULTILINE)) <= 3
        assert re.search(r"^resource: portico://tool/clock\.add_to_date$", full, re.MULTILINE)
        assert re.search(r"^usage: ", full, re.MULTILINE)
        assert re.search(r"^inputSchema: \{", full, re.MULTILINE)


@pytest.mark.parametrize(("era", "transport"), ERAS)
async def test_d7_tools_have_namespaces_categories_and_tags(era: Era, transport: Transport) -> None:
    twins = {"left": fake("run"), "right": fake("run")}
    async with demo_gateway(era, transport, **twins) as (_, client):
        for server in twins:
            assert await ask(client, "call_tool", name=f"{server}.run") == "run ran"
        tagged = await ask(
            client, "search_tools", query="convert a number", tags=["math"], limit=50
        )
        assert {address.partition(".")[0] for address in addresses(tagged)} <= {
            "units",
        }
        kept = await ask(
            client, "search_tools", query="convert a number", category="utilities", limit=50
        )
        assert {address.partition(".")[0] for address in addresses(kept)} <= {
            "units",
            "clock",
        }
        assert "in utilities:" in kept
        browsed = await ask(client, "browse_tools", category="notes")
        assert {address.partition(".")[0] for address in addresses(browsed)} == {"notes"}
        full = await ask(client, "describe_tools", names=["units.convert_units"], detail="full")
        assert "\ncategory: utilities\n" in full
        assert '\ntags: ["math"]\n' in full


# At the size of the recorded fleet


@pytest.mark.slow
@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
async def test_a5_a9_at_182_servers_the_first_words_stay_few_and_no_resource_is_over_its_budget(
    tmp_path: Path,
) -> None:
    config = Config(
        servers=TypeAdapter(dict[str, BackendConfig]).validate_python(
            fleet.servers(SHARED, tmp_path)
        )
    )
    async with gateway_over(config=config) as gateway, connect(gateway) as client:
        listed = (await gateway.get_view().handle("tools/list", {}, DEFAULT_CONTEXT, "modern"))[
            "tools"
        ]
        seen = [
            {key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed
        ]
        first = sum(tokens(orjson.dumps(tool).decode()) for tool in seen) + tokens(
            gateway.get_view().render_instructions()
        )
        assert first <= 1_000
        assert tokens(await read(client, "portico://overview")) <= 500
        for name in (
            "backends",
            "tools",
            "hot",
            "categories",
            "stats",
            "category/cloud",
            "backend/digitalocean/tools",
        ):
            assert tokens(await read(client, f"portico://{name}")) <= 8_000, name
        answer = await ask(client, "browse_tools")
        assert tokens(answer) <= 2_000
        assert "Categories:" in answer
        assert "Servers:" in answer


# Ranking, and what is listed


async def test_d2_tools_are_ranked_by_words_and_by_meaning() -> None:
    config = Config(servers=make_demo_servers())
    async with open_gateway(config=config, encoded=True) as gateway:
        by_words = await gateway.call_text("search_tools", query="convert units")
        by_meaning = await gateway.call_text("search_tools", query="how many miles is 5 km")
    assert addresses(by_words)[0] == "units.convert_units"
    assert "units.convert_units" in addresses(by_meaning)[:3]


async def test_e1_tools_list_shows_the_meta_tools_only() -> None:
    async with demo_gateway() as (gateway, client):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert set(listed) <= set(META_TOOL_NAMES)
        assert len(gateway.get_view().snapshot.tools) > 2 * len(listed)


INTENTS_AND_SCRIPTS = {name: name in ("run_workflow", "run_code") for name in META_TOOL_NAMES}


@pytest.mark.parametrize(
    ("settings", "listed", "limit"),
    [
        ({}, 7, 1_200),
        ({"exposure": "code"}, 3, 650),
        ({"metatools": INTENTS_AND_SCRIPTS}, 2, 500),
    ],
)
async def test_e1_the_list_costs_what_the_row_says(
    settings: dict[str, Any], listed: int, limit: int
) -> None:
    config = Config.model_validate(settings).model_copy(update={"servers": make_demo_servers()})
    async with open_gateway(config=config) as gateway:
        tools = (await gateway.client.list_tools()).tools
    assert len(tools) == listed
    seen = [[one.name, one.description, one.input_schema] for one in tools]
    assert tokens(json.dumps(seen)) <= limit
