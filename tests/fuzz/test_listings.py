"""Any listing is salvaged tool by tool, and every way to the tools answers."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client

from portico.catalog.tool import Tool, encode_json
from portico.config import Config, Profile
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Era, Raw
from tests.fuzz import noise
from tests.fuzz.answer_checks import check_answer, plain, tool_result
from tests.fuzz.definitions import FLEET, listings
from tests.fuzz.loop_thread import Running, examples, running
from tests.interaction.fake_servers import get_text, text, tool
from tests.interaction.raw_clients import RawLines, pages, raw_lines

SOURCES = [
    "embedded",
    pytest.param(
        "fleet",
        marks=pytest.mark.skipif(
            not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}"
        ),
    ),
]
CONFIG = Config(
    profiles={
        "all": Profile(exposure="full"),
        "some": Profile(exposure="semantic", intent="do the fine thing with a number", top_k=20),
    }
)
ERAS: tuple[Era, Era] = ("legacy", "modern")
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def loop() -> Iterator[Running]:
    with running() as loop:
        yield loop


def backend(listed: list[Any]) -> FakeBackend:
    """A server that lists these between two sound tools, and answers calls of whatever it
    listed."""
    made = FakeBackend(
        [tool("fine", "Does the fine thing."), *listed, tool("fine_too", "Does it too.")]
    )
    made.on("tools/call", lambda params, _: text(f"{params['name']!r} ran"))
    return made


def nameable(listed: list[Any]) -> list[str]:
    """The names that a listing has, in order, each once."""
    names = [
        item["name"]
        for item in listed
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    ]
    found: list[str] = []
    for name in dict.fromkeys(names):
        try:
            encode_json(name)
        except ValueError:
            continue
        if name.strip():
            found.append(name)
    return found


async def call(client: RawLines, name: str, /, **arguments: Any) -> Raw | None:
    """A meta-tool's result, or None where an error came back."""
    return tool_result(await client.request("tools/call", {"name": name, "arguments": arguments}))


async def check_discovery(client: RawLines, tools: list[Tool]) -> None:
    """Every way to find and read them answers."""
    for query in ("the fine thing", tools[len(tools) // 2].name, tools[-2].description[:80] or "x"):
        assert await call(client, "search_tools", query=query, detail="schema")
    assert await call(client, "search_tools", query="thing", detail="explain")
    assert await call(client, "browse_tools")
    assert await call(client, "browse_tools", server="s")
    for detail in ("brief", "schema", "full"):
        described = await call(
            client, "describe_tools", names=[one.address for one in tools][:10], detail=detail
        )
        assert described
        assert not described.get("isError"), described
    for uri in ("overview", "tools", "backend/s", "backend/s/tools", "categories"):
        assert "result" in check_answer(
            await client.request("resources/read", {"uri": f"portico://{uri}"})
        ), uri


async def check_calls(client: RawLines, tools: list[Tool], arguments: Any) -> None:
    """Every tool can be called, and says what is wrong where it cannot."""
    for one in tools:
        await call(client, "call_tool", name=one.address, arguments=arguments)
        answer = await call(client, "call_tool", name=one.address, arguments={})
        assert answer is not None, one.address
        if one.name in ("fine", "fine_too"):
            assert answer["content"][0]["text"] == f"{one.name!r} ran", answer


async def listed_in_full(gateway: GatewayRuntime, tools: list[Tool], era: Era) -> None:
    """A strict client lists every tool, each by a name of its own that it can call."""
    async with connect(gateway, era=era, profile="all") as client:
        names = await strictly(client)
        assert len(names) == len(set(names)) == len(tools), names
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names), names
        assert get_text(await client.call_tool("s__fine", {})) == "'fine' ran"
    async with raw_lines(gateway.get_endpoint("all"), era) as raw:
        listed = await pages(raw, "tools/list", "tools")
        plain(json.dumps(listed))
        for name in names:
            check_answer(await raw.request("tools/call", {"name": name, "arguments": {}}))


async def strictly(client: Client) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += [one.name for one in page.tools]
        if (cursor := page.next_cursor) is None:
            return found


async def looked_at(server: FakeBackend, arguments: Any, era: Era) -> list[Tool]:
    """The server's tools as the catalog has them, after everything has been asked about them."""
    async with gateway_over({"s": server, "other": backend([])}, CONFIG) as gateway:
        snapshot = gateway.get_view().snapshot
        mine, all_of_them = (
            list(snapshot.servers["s"].tools.values()),
            list(snapshot.tools.values()),
        )
        if mine:
            async with raw_lines(gateway.get_endpoint(), era) as client:
                await check_discovery(client, mine)
                await check_calls(client, all_of_them, arguments)
            await listed_in_full(gateway, all_of_them, era)
            async with raw_lines(gateway.get_endpoint("some"), era) as client:
                assert "result" in check_answer(await client.request("tools/list", {}))
                assert "result" in check_answer(
                    await client.request("tools/list", {"query": "the fine thing"})
                )
        async with raw_lines(gateway.get_endpoint(), "modern") as client:
            assert await call(client, "call_tool", name="other.fine", arguments={})
        return mine


@pytest.mark.parametrize("source", SOURCES)
@examples(22, shrink=False)
@given(data=st.data(), arguments=noise.OBJECTS, era=st.sampled_from(ERAS))
def test_a_listing_of_nearly_anything_loses_no_sibling(
    loop: Running, source: str, data: st.DataObject, arguments: Any, era: Era
) -> None:
    listed = data.draw(listings(source), label="listed")
    mine = loop.do(asyncio.wait_for(looked_at(backend(listed), arguments, era), TIMEOUT_S))
    expected = dict.fromkeys(["fine", *nameable(listed), "fine_too"])
    assert [one.upstream_name for one in mine] == [*expected]
    assert loop.complaints.taken() == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"required": {}},
        {"required": [3]},
        {"properties": []},
        {"properties": {"n": [3]}},
        {"$schema": 4},
    ],
    ids=json.dumps,
)
def test_a_promise_of_output_that_is_no_schema_does_not_cost_a_strict_client_the_list(
    loop: Running, wrong: Raw, era: Era
) -> None:
    odd = {**tool("odd"), "outputSchema": {"type": "object", **wrong}}
    mine = loop.do(asyncio.wait_for(looked_at(backend([odd]), {}, era), TIMEOUT_S))
    assert [one.name for one in mine] == ["fine", "odd", "fine_too"]
    assert loop.complaints.taken() == []


PAGE = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "tools": noise.VALUES,
            "nextCursor": st.one_of(st.just("again"), noise.VALUES),
            "_meta": noise.VALUES,
        },
    ),
    noise.OBJECTS,
)
FIELDS = ("title", "description", "arguments", "mimeType", "size", "annotations", "icons", "_meta")
INNER = st.one_of(
    st.lists(
        st.fixed_dictionaries({"name": noise.SCALARS}, optional={"required": noise.SCALARS}),
        max_size=2,
    ),
    st.dictionaries(
        st.sampled_from(["audience", "priority", "lastModified"]), noise.SCALARS | st.just(["user"])
    ),
)
LESSER = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("name", "uri", "uriTemplate", *FIELDS), noise.VALUES)
        ),
        st.fixed_dictionaries(
            {"name": noise.TEXT, "uri": noise.TEXT, "uriTemplate": noise.TEXT},
            optional=dict.fromkeys(FIELDS, noise.VALUES | INNER),
        ),
        st.fixed_dictionaries({"uri": st.just("x:1"), "uriTemplate": st.just("x:{a}")}),
        noise.VALUES,
    ),
    max_size=4,
)


async def looked_through(server: FakeBackend, era: Era) -> None:
    async with gateway_over({"s": server, "other": backend([])}, CONFIG) as gateway:
        async with raw_lines(gateway.get_endpoint(), era) as client:
            for method, key, asked, identity in (
                ("resources/list", "resources", "resources/read", "uri"),
                ("prompts/list", "prompts", "prompts/get", "name"),
                ("resources/templates/list", "resourceTemplates", "", ""),
            ):
                for item in await pages(client, method, key):
                    if asked:
                        check_answer(await client.request(asked, {identity: item[identity]}))
            assert "result" in check_answer(
                await client.request("resources/read", {"uri": "portico://backend/s"})
            )
            assert await call(client, "call_tool", name="other.fine", arguments={})
        async with connect(gateway, era=era) as strict:
            await strict.list_resources(cache_mode="bypass")
            await strict.list_resource_templates(cache_mode="bypass")
            await strict.list_prompts(cache_mode="bypass")


@examples(30, shrink=False)
@given(page=PAGE, resources=LESSER, templates=LESSER, prompts=LESSER, era=st.sampled_from(ERAS))
def test_pages_and_lesser_lists_of_anything_cost_nobody_else(
    loop: Running,
    page: Any,
    resources: list[Any],
    templates: list[Any],
    prompts: list[Any],
    era: Era,
) -> None:
    server = FakeBackend(resources=resources, templates=templates, prompts=prompts)
    server.on("tools/list", lambda *_: page)
    loop.do(asyncio.wait_for(looked_through(server, era), TIMEOUT_S))
    assert loop.complaints.taken() == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"arguments": [{}]},
        {"arguments": [{"name": "a", "required": "yes"}]},
        {"title": 3},
        {"size": "big"},
        {"annotations": {"audience": ["everybody"], "priority": 7, "lastModified": 3}},
        {"icons": [None]},
        {"_meta": []},
        {"mimeType": []},
        {"name": None},
    ],
    ids=json.dumps,
)
async def test_one_wrong_field_of_an_offer_does_not_cost_a_strict_client_the_list(
    wrong: Raw, era: Era
) -> None:
    odd = {"uri": "x:odd", "uriTemplate": "x:{odd}", "name": "odd", **wrong}
    fine = {"uri": "x:fine", "uriTemplate": "x:{fine}", "name": "fine"}
    server = FakeBackend(
        resources=[odd, fine], templates=[odd, fine], prompts=[{**odd, "name": "odd"}, fine]
    )
    async with gateway_over({"s": server}) as gateway, connect(gateway, era=era) as client:
        resources = [str(one.uri) for one in (await client.list_resources()).resources]
        assert {"portico://backend/s/resource/x:odd", "portico://backend/s/resource/x:fine"} <= set(
            resources
        )
        templates = [
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        ]
        assert {f"portico://backend/s/resource/x:{{{name}}}" for name in ("odd", "fine")} <= set(
            templates
        )
        prompts = [one.name for one in (await client.list_prompts()).prompts]
        assert {"s__odd", "s__fine"} <= set(prompts)
