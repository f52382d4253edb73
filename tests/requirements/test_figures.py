"""Rows A4, A5, B1, B5 and B7 of docs/requirements.md, to the letter: annotations, filters by use,
and what the summaries, the index of tools and the caches must have."""

import json
from typing import Any

import orjson
import pytest

from portico.config import Config
from portico.demo import make_demo_servers
from portico.rendering.token_budget import get_best_counter
from portico.testing import FakeBackend
from tests.api.api_client import backend, make_tools, open_api
from tests.gateways import GatewayUnderTest, open_gateway
from tests.interaction.fake_servers import fake, text, tool

COUNT = get_best_counter().count
OUTPUT = {
    "type": "object",
    "properties": {
        "symbols": {"type": "array", "items": {"type": "object"}},
        "total": {"type": "integer"},
    },
}
FIND_SYMBOL = {**tool("find_symbol", "Find symbols.", pattern="string"), "outputSchema": OUTPUT}


async def read(gateway: GatewayUnderTest, uri: str) -> Any:
    content: Any = (await gateway.client.read_resource(f"portico://{uri}")).contents[0]
    return json.loads(content.text)


# Annotations


async def list_marks(gateway: GatewayUnderTest, name: str, /, **arguments: Any) -> list[Any]:
    content: list[Any] = (await gateway.call(name, **arguments)).content
    return [
        (block.annotations.priority, block.annotations.audience)
        for block in content
        if block.annotations
    ] + [None for block in content if not block.annotations]


NORMAL = (0.7, None)
LARGE = (0.3, ["assistant"])


async def test_a4_every_answer_of_the_gateway_and_of_a_tool_is_annotated() -> None:
    own = {"type": "text", "text": "mine", "annotations": {"priority": 1.0}}
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    post = FakeBackend([tool(name) for name in ("short", "long", "own", "mixed", "huge")])
    post.on_call("short", lambda _: text("short"))
    post.on_call("long", lambda _: text("word " * 500))
    post.on_call("own", lambda _: {"content": [own]})
    post.on_call("mixed", lambda _: {"content": [image, own, {"type": "text", "text": "x"}]})
    post.on_call("huge", lambda _: text("a line of words\n" * 20_000))
    async with open_gateway({"post": post}) as gateway:

        async def call(name: str) -> list[Any]:
            return await list_marks(gateway, "call_tool", name=f"post.{name}")

        assert await call("short") == [NORMAL]
        assert await call("long") == [LARGE]
        assert await call("own") == [(1.0, None)]
        assert await call("mixed") == [NORMAL, (1.0, None), NORMAL]
        huge = await call("huge")
        assert len(huge) >= 3
        assert None not in huge
        for name, arguments in (
            ("call_tool", {"name": "post.none"}),
            ("search_tools", {"query": "short"}),
            ("browse_tools", {}),
            ("describe_tools", {"names": ["post.short"]}),
            ("run_code", {"code": "result(post.short({}):await())", "language": "lua"}),
            ("run_workflow", {"steps": [{"id": "a", "tool": "post.short", "arguments": {}}]}),
            ("read_result", {"result_id": "none"}),
        ):
            marks = await list_marks(gateway, name, **arguments)
            assert marks, name
            assert all(mark in (NORMAL, LARGE) for mark in marks), name


# Filters by use


async def test_b5_tools_never_called_are_not_within_a_latency_and_hits_have_their_figures() -> None:
    async with open_gateway({"lint": fake("check_style", "check_types")}) as gateway:
        for _ in range(2):
            await gateway.call("call_tool", name="lint.check_style")
        for arguments in ({"max_latency_ms": 60_000}, {"min_success_rate": 0.5}):
            answer = await gateway.call_text("search_tools", query="check", **arguments)
            assert "lint.check_types" not in answer
            (line,) = [one for one in answer.splitlines() if one.startswith("lint.check_style(")]
            assert line.endswith(" ms, 100.0% of 2 calls succeeded]")
            assert "Tools that were never called have no latency or success rate" in answer
        unfiltered = await gateway.call_text("search_tools", query="check")
    assert "lint.check_types(" in unfiltered
    assert "succeeded" not in unfiltered


async def test_b5_where_no_tool_was_called_nothing_is_within_and_the_next_step_is_named() -> None:
    async with open_gateway({"lint": fake("check_style")}) as gateway:
        answer = await gateway.call_text("search_tools", query="check", max_latency_ms=100)
    assert answer.startswith("No tool within 100 ms matches 'check'.")
    assert "Search without the filters" in answer
    assert "never called" in answer


async def test_b5_over_rest_each_filtered_tool_has_latency_and_success_rate() -> None:
    async with open_api({"lint": backend(*make_tools("check", 3))}) as api:
        api.record_call("lint.check_1", ms=47)
        queries: list[dict[str, Any]] = [{}, {"query": "check"}]
        for query in queries:
            body = await api.get("tools", max_latency_ms=100, **query)
            (card,) = body["tools"]
            assert card["tool"] == "lint.check_1"
            assert card["p50_ms"] == pytest.approx(47, rel=0.2)
            assert card["success_rate"] == 1.0


# What the tiers show


async def test_b1_summaries_say_what_a_tool_returns_and_the_hot_list_does_not() -> None:
    code = FakeBackend([FIND_SYMBOL, tool("count_lines", "Count lines.")])
    code.on_call("count_lines", lambda _: {"content": [], "structuredContent": {"lines": 3}})
    async with open_gateway({"code": code}) as gateway:
        await gateway.call("call_tool", name="code.count_lines")
        cards = (await read(gateway, "backend/code/tools"))["tools"]
        hot = (await read(gateway, "hot"))["tools"]
    returns = {card["tool"]: card["returns"] for card in cards}
    assert returns["code.find_symbol"] == "{symbols: object[], total: integer}"
    assert "lines" in returns["code.count_lines"]
    assert not any("returns" in card for card in hot)


async def test_b1_summaries_over_rest_say_what_a_tool_returns() -> None:
    async with open_api({"code": backend(FIND_SYMBOL)}) as api:
        (category,) = (await api.get("tools/categories"))["categories"]
        (card,) = (await api.get(f"tools/category/{category['category']}"))["tools"]
    assert card["returns"] == "{symbols: object[], total: integer}"


async def test_b1_examples_of_the_full_tier_have_a_description() -> None:
    async with open_gateway(config=Config(servers=make_demo_servers())) as gateway:
        whole = await read(gateway, "tool/clock.add_to_date")
        full = await gateway.call_text("describe_tools", names=["clock.add_to_date"], detail="full")
    assert 1 <= len(whole["examples"]) <= 3
    for example in whole["examples"]:
        assert example["description"]
        arguments = orjson.dumps(example["arguments"]).decode()
        assert f"\nexample: {arguments} — {example['description']}\n" in full
    async with open_api({"code": backend(FIND_SYMBOL)}) as api:
        (example,) = (await api.get("tools/code/find_symbol"))["examples"]
    assert example == {"arguments": {}, "description": "without arguments"}


async def test_a5_the_index_of_tools_costs_about_twelve_tokens_each() -> None:
    words = "Return every invoice of a customer that has not been paid within the given period."
    tools = [tool(f"list_open_invoices_{n}", words) for n in range(100)]
    async with open_gateway({"billing": FakeBackend(tools)}) as gateway:
        content: Any = (await gateway.client.read_resource("portico://tools")).contents[0]
    listed = json.loads(content.text)["tools"]
    assert len(listed) == 100
    assert all(line.startswith("billing.list_open_invoices_") for line in listed)
    assert COUNT(content.text) / 100 <= 14
    assert all(": Return" in line for line in listed)


async def test_a5_a_whole_schema_of_ten_thousand_tokens_is_one_read() -> None:
    names = {f"parameter_number_{n}": "string" for n in range(1_200)}
    async with open_gateway({"forms": FakeBackend([tool("fill_form", **names)])}) as gateway:
        first = (await gateway.client.read_resource("portico://tool/forms.fill_form")).contents
        note: Any = first[-1]
        assert "portico://tool/forms.fill_form?cursor=whole" in note.text
        uri = "portico://tool/forms.fill_form?cursor=whole"
        (content,) = (await gateway.client.read_resource(uri)).contents
    body: Any = content
    assert COUNT(body.text) > 10_000
    assert len(json.loads(body.text)["definition"]["inputSchema"]["properties"]) == 1_200


async def test_b7_hits_of_the_caches_are_counted_by_tier() -> None:
    async with open_api({"code": backend(FIND_SYMBOL)}) as api:
        assert "tier_caches" not in await api.get("stats")
        for _ in range(4):
            await api.get("tools/hot")
        for _ in range(2):
            await api.get("tools/code/find_symbol")
        caches = (await api.get("stats"))["tier_caches"]
    assert caches == {
        "hot": {"requests": 4, "hits": 3, "hit_rate": 0.75},
        "tool": {"requests": 2, "hits": 1, "hit_rate": 0.5},
    }
