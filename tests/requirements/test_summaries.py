"""Rows A1, A3, A5, B1, C1, C2 and D1 of docs/requirements.md, to the letter: what lists and
summaries say of tools and servers."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

from portico.config import Config
from portico.demo import make_demo_servers
from portico.rendering.token_budget import get_best_counter
from portico.testing import FakeBackend
from tests.api.api_client import backend, open_api
from tests.gateways import GatewayUnderTest, open_gateway
from tests.interaction.fake_servers import fake, tool

TIMEOUT_S = 240
COUNT = get_best_counter().count
RESERVED_NAMES = {"data-server": fake("get-data", "while", "plain")}


def addresses(answer: str) -> list[str]:
    return re.findall(r"^([\w-]+\.[\w-]+)\(", answer, re.MULTILINE)


async def read(gateway: GatewayUnderTest, name: str) -> Any:
    content: Any = (await gateway.client.read_resource(f"portico://{name}")).contents[0]
    return json.loads(content.text)


async def test_a1_a_brief_description_names_every_parameter_within_300_tokens() -> None:
    names = [f"parameter_number_{number}" for number in range(25)]
    wide = FakeBackend([tool("fill_form", "Fill in a form.", **dict.fromkeys(names, "string"))])
    async with open_gateway({"forms": wide}) as gateway:
        brief = await gateway.call_text("describe_tools", names=["forms.fill_form"], detail="brief")
    assert all(f"{name}?" in brief for name in names)
    assert brief.endswith("— Fill in a form.")
    assert "\n" not in brief
    assert COUNT(brief) < 300


async def test_a1_a_tool_with_hundreds_of_parameters_is_brief_too() -> None:
    names = [f"parameter_number_{number}" for number in range(400)]
    wide = FakeBackend([tool("fill_form", "Fill in a form.", **dict.fromkeys(names, "string"))])
    async with open_gateway({"forms": wide}) as gateway:
        brief = await gateway.call_text("describe_tools", names=["forms.fill_form"], detail="brief")
    assert COUNT(brief) < 300
    left = int(re.findall(r", …\+(\d+)\)", brief)[0])
    assert brief.count("parameter_number_") == 400 - left > 20


async def test_a3_all_tools_are_listed_by_use_fifty_a_page() -> None:
    servers = {f"s{at}": FakeBackend([tool(f"t{n}") for n in range(40)]) for at in range(3)}
    servers["used"] = fake("often")
    async with open_gateway(servers) as gateway:
        for _ in range(3):
            await gateway.call("call_tool", name="used.often")
        standings = gateway.runtime.usage_data.standings
        await asyncio.wait_for(standings.recompute(), TIMEOUT_S)
        overview = await gateway.call_text("browse_tools")
        assert '(server=…; "*": all tools)' in overview
        pages = list[list[str]]()
        more: dict[str, Any] = {}
        while True:
            answer = await gateway.call_text("browse_tools", server="*", **more)
            pages.append(addresses(answer))
            found = re.search(r'browse_tools\(server="\*", cursor="([\w=-]+)"\)', answer)
            if found is None:
                break
            more["cursor"] = found[1]
        index = await read(gateway, "tools")
    assert [len(page) for page in pages] == [50, 50, 21]
    listed = [name for page in pages for name in page]
    assert len(set(listed)) == 121
    assert listed[0] == "used.often"
    assert [line.partition(":")[0] for line in index["tools"]] == listed


async def test_a5_servers_have_a_kind_and_their_own_title_and_description() -> None:
    titled = fake("t")
    reported = {"title": "The Post", "description": "Sends letters.", "version": "2"}
    titled.initialize_info = replace(titled.initialize_info, server_info=reported)
    config = Config(servers=make_demo_servers())
    async with open_gateway({"post": titled}, config) as gateway:
        cards = {card["server"]: card for card in (await read(gateway, "backends"))["servers"]}
        whole = await read(gateway, "backend/post")
        overview = await gateway.call_text("browse_tools")
    for card in (cards["post"], whole):
        assert (card["title"], card["description"]) == ("The Post", "Sends letters.")
    assert (cards["post"]["type"], cards["clock"]["type"]) == ("fake", "functions")
    assert "\npost: 1 tool — Sends letters.\n" in overview


async def test_b1_the_hot_list_has_ten_to_fifteen_tools_before_any_call() -> None:
    wordy = [
        tool(f"t{n}", "Word " * 200, **{f"name_{at}": "string" for at in range(20)})
        for n in range(12)
    ]
    for servers in ({"one": FakeBackend(wordy)}, {f"s{at}": fake("a", "b") for at in range(20)}):
        async with open_gateway(servers) as gateway:
            overview = await gateway.call_text("browse_tools")
            shown = addresses(overview.partition("\nCategories:")[0])
            resource = await read(gateway, "hot")
        assert 10 <= len(shown) <= 15
        assert [card["tool"] for card in resource["tools"]][:10] == shown[:10]


async def test_b1_pins_and_tools_of_each_server_fill_the_hot_list() -> None:
    config = Config(servers=make_demo_servers(), pins=("units.list_units",))
    async with open_gateway(config=config) as gateway:
        overview = await gateway.call_text("browse_tools")
    shown = addresses(overview.partition("\nCategories:")[0])
    assert "\nPinned tools, then some of each server:\n" in overview
    assert shown[0] == "units.list_units"
    assert 10 <= len(shown) <= 15


async def test_b1_rest_has_ten_to_fifteen_hot_tools_of_a_single_server() -> None:
    async with open_api({"one": backend(*(tool(f"t{n}") for n in range(40)))}) as api:
        assert 10 <= len((await api.get("tools/hot"))["tools"]) <= 15


async def test_c1_servers_are_listed_with_their_names_in_scripts() -> None:
    async with open_gateway(RESERVED_NAMES) as gateway:
        overview = await gateway.call_text("browse_tools")
        (card,) = (await read(gateway, "backends"))["servers"]
    assert "\ndata-server (in scripts: data_server): 3 tools" in overview
    assert card["identifier"] == "data_server"


async def test_c2_tools_of_a_server_are_listed_with_their_names_in_scripts() -> None:
    async with open_gateway(RESERVED_NAMES) as gateway:
        answer = await gateway.call_text("browse_tools", server="data_server")
        cards = (await read(gateway, "backend/data-server/tools"))["tools"]
        ran = await gateway.call_text(
            "run_code", code="result(data_server.get_data({}):await())", language="lua"
        )
    assert answer.startswith("data-server (in scripts: data_server): 3 tools")
    assert "data-server.get-data() — Does get-data. [in scripts: get_data]\n" in answer
    assert "data-server.while() — Does while. [in scripts: _while]\n" in answer
    assert "data-server.plain() — Does plain.\n" in f"{answer}\n"
    assert [card.get("identifier") for card in cards] == ["get_data", "_while", None]
    assert "get-data ran" in ran


async def test_d1_summaries_have_tags() -> None:
    config = Config(servers=make_demo_servers())
    async with open_gateway(config=config) as gateway:
        brief = await gateway.call_text(
            "describe_tools", names=["units.convert_units"], detail="brief"
        )
        cards = (await read(gateway, "backend/units/tools"))["tools"]
    assert brief.endswith(" [tags: math]")
    assert all(card["tags"] == ["math"] for card in cards)
