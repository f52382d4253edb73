"""Searching as a client meets it: filters, verdicts, tools that share a place, explanations, and no
model."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config
from portico.demo import make_demo_servers
from portico.gateway import INDEX_FILE, VECTOR_FILE, GatewayRuntime, maintenance
from portico.search.dense import encoder as encoder_module
from portico.search.dense.encoder import get_shipped_encoder
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era
from tests.gateways import run_gateway
from tests.interaction.fake_servers import ask, get_text, text, tool

TIMEOUT_S = 240
UNSERVED = (
    "book a flight to Paris for two",
    "amputate the left leg of a patient",
    "order a pizza with extra cheese",
    "tow my broken car to the garage",
    "buy shares of a company on the stock exchange",
    "turn off the lights in the kitchen",
)


@asynccontextmanager
async def encoded_gateway(
    backends: dict[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[GatewayRuntime]:
    """A gateway that has listed and encoded everything; without backends, over the demo servers."""
    config = Config(servers={} if backends else make_demo_servers(), **settings)
    async with run_gateway(backends, config, encoded=True) as gateway:
        yield gateway


def addresses(answer: str) -> list[str]:
    return re.findall(r"^(?:\d+\. )?([\w-]+\.\w+)[(:]", answer, re.MULTILINE)


def under_way(name: str) -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name() == name}


async def wait_for_task(name: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*under_way(name))


@pytest.fixture
def fresh_encoder() -> Iterator[None]:
    """The process's encoder as it is before anybody has asked it."""
    get_shipped_encoder.cache_clear()
    yield
    get_shipped_encoder.cache_clear()


# Filters


async def test_a_search_can_be_kept_to_tags() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        answer = await ask(
            client, "search_tools", query="convert a number", tags=["math"], limit=50
        )
        assert {address.split(".")[0] for address in addresses(answer)} <= {"units"}
        assert "tagged math" in answer
        one = await ask(client, "search_tools", query="convert a number", tags="MATH", limit=50)
        assert addresses(one) == addresses(answer)


async def test_a_wrong_tag_is_answered_with_the_known_ones() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        result = await client.call_tool("search_tools", {"query": "convert", "tags": ["maths"]})
        assert result.is_error
        assert get_text(result).startswith(
            "unknown_name: there is no tag 'maths' here\nTags here: math, "
        )


async def test_tools_that_failed_or_were_slow_can_be_left_out() -> None:
    fake = FakeBackend(
        [
            tool("send_a", "Send a letter."),
            tool("send_b", "Send a letter."),
            tool("send_c", "A letter."),
        ]
    )
    fake.on_call("send_a", lambda _: {**text("no"), "isError": True})
    fake.on_call("send_b", lambda _: text("sent"))
    async with encoded_gateway({"post": fake}) as gateway, connect(gateway) as client:
        for name in ("post.send_a", "post.send_b"):
            await client.call_tool("call_tool", {"name": name})
        sound = await ask(client, "search_tools", query="send a letter", min_success_rate=0.5)
        assert addresses(sound) == ["post.send_b"]
        quick = await ask(client, "search_tools", query="send a letter", max_latency_ms=0)
        assert "Search without the filters" in quick
        wrong = await client.call_tool("search_tools", {"query": "x", "min_success_rate": 95})
        assert "min_success_rate must be between 0 and 1" in get_text(wrong)


async def test_filters_that_know_of_no_call_say_so() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        answer = await ask(client, "search_tools", query="convert units", max_latency_ms=100)
        assert answer.startswith("No tool within 100 ms matches 'convert units'.")
        assert "never called" in answer


async def test_the_list_offers_no_filter_by_what_no_tool_has() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        listed = (await client.list_tools()).tools[0]
        assert list(listed.input_schema["properties"]) == [
            "query",
            "server",
            "category",
            "tags",
            "max_latency_ms",
            "min_success_rate",
            "limit",
            "detail",
            "cursor",
        ]


# Nothing fits


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
async def test_what_no_tool_does_is_said_before_the_few_that_are_nearest(
    transport: Transport, era: Era
) -> None:
    async with encoded_gateway() as gateway, connect(gateway, transport, era) as client:
        answers = [(query, await ask(client, "search_tools", query=query)) for query in UNSERVED]
        weak = [
            (query, answer)
            for query, answer in answers
            if answer.startswith("No tool here seems to do")
        ]
        assert len(weak) >= len(UNSERVED) / 2
        for query, answer in weak:
            assert answer.startswith(f"No tool here seems to do {query!r}.\nNearest server")
            assert 1 <= len(addresses(answer.partition("Unlikely, but the nearest tools:")[2])) <= 3
            assert "(tags: " in answer
            assert 'browse_tools(server="' in answer


async def test_what_a_tool_does_is_not_denied() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        for query, tool_ in (
            ("convert miles to kilometres", "units.convert_units"),
            ("count working days", "clock.count_business_days"),
            ("write down a note", "notes.create_note"),
            ("slugify", "text.slugify"),
        ):
            answer = await ask(client, "search_tools", query=query)
            assert "seems to do" not in answer
            assert tool_ in addresses(answer)


async def test_an_action_that_a_product_lacks_is_said() -> None:
    slack = FakeBackend(
        [
            tool("post_message", "Post a message to a channel."),
            tool("get_channel_history", "Get the recent messages of a channel."),
        ]
    )
    mail = FakeBackend([tool("delete_message", "Delete a message for ever.")])
    async with (
        encoded_gateway({"slack": slack, "mail": mail}) as gateway,
        connect(gateway) as client,
    ):
        query = "delete a Slack message"
        for detail in ("brief", "schema"):
            answer = await ask(client, "search_tools", query=query, detail=detail)
            assert answer.startswith(
                f"No tool here seems to do {query!r}. slack has no tool to 'delete'.\n"
            )
            assert "slack.post_message(" in answer
        why = await ask(client, "search_tools", query=query, detail="explain")
        assert "; slack has no tool to 'delete'." in why
        for query in ("post a Slack message", "delete a message"):
            assert "no tool to" not in await ask(client, "search_tools", query=query)


# Parameters


async def test_a_tool_can_be_called_with_what_one_search_says_of_it() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        answer = await ask(
            client, "search_tools", query="convert miles to kilometres", detail="schema"
        )
        assert re.search(r"^units\.convert_units .*\n value: number", answer, re.MULTILINE)
        described = await ask(client, "describe_tools", names=["units.convert_units"])
        assert described in answer
        others = addresses(answer)
        assert 1 <= len(others) <= 4
        assert "units.convert_units" not in others


async def test_a_query_that_asks_for_nothing_matches_nothing() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        for query in ("", "...", "the of and"):
            answer = await ask(client, "search_tools", query=query)
            assert answer.startswith(f"No tool here matches {query!r}.")


# Twins


@pytest.mark.parametrize("detail", ["brief", "schema", "explain"])
async def test_copies_of_a_tool_on_several_servers_take_one_place(detail: str) -> None:
    copies = {
        f"lingua{n}": FakeBackend([tool("translate", "Translate a text into another language.")])
        for n in "abc"
    }
    other = FakeBackend([tool("mow", "Mow the lawn.")])
    async with encoded_gateway({**copies, "other": other}) as gateway, connect(gateway) as client:
        answer = await ask(
            client, "search_tools", query="translate a text into Greek", detail=detail
        )
        assert sum("translate" in address for address in addresses(answer)) <= 1
        first, second, third = re.findall(r"lingua[abc]\.translate", answer)
        assert {first, second, third} == {
            "linguaa.translate",
            "linguab.translate",
            "linguac.translate",
        }
        assert f"also: {second}, {third}" in answer


# Explained


async def test_an_agent_can_ask_why() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        answer = await ask(
            client, "search_tools", query="convert miles to km", detail="explain", limit=2
        )
        head, sure, first, *_ = answer.splitlines()
        assert head == "Best matches for 'convert miles to km':"
        assert re.fullmatch(
            r"Confidence [01]\.\d\d \(nothing fits below 0\.\d+\); compared words and meaning\.",
            sure,
        )
        assert re.match(
            r"1\. units\.convert_units: score [\d.]+; words [\d.]+ of a perfect match: "
            r".*convert \(.*name.*\).*; "
            r"meaning 0\.\d+ \(cosine\)",
            first,
        )
        await client.call_tool(
            "call_tool",
            {"name": "units.list_units", "arguments": {}},
        )
        again = await ask(
            client, "search_tools", query="convert miles to km", detail="explain", limit=8
        )
        assert "learnt +0.0" in again
        assert "called after searches like this" in again


# The model


async def test_without_the_model_words_are_searched_and_a_poor_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, fresh_encoder: None
) -> None:
    monkeypatch.setattr(encoder_module, "MODEL_FILE", "missing.onnx")
    async with encoded_gateway() as gateway, connect(gateway) as client:
        good = await ask(client, "search_tools", query="convert units of measure")
        assert addresses(good)[0] == "units.convert_units"
        assert "Only words" not in good
        poor = await ask(client, "search_tools", query="qqzzxx")
        assert "Only words were compared, because search by meaning is off here." in poor


async def test_tools_known_from_last_time_get_their_vectors_though_nobody_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_encoder: None
) -> None:
    monkeypatch.setattr(maintenance, "ENCODER_LOAD_DELAY_S", 0)
    backend = FakeBackend([tool("send_mail", "Send an e-mail.")])
    config = Config(data_dir=tmp_path)
    async with GatewayRuntime(config, backends={"post": backend}) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
    for name in (INDEX_FILE, VECTOR_FILE):
        (tmp_path / name).unlink(missing_ok=True)
    get_shipped_encoder.cache_clear()
    asked = len(backend.requests)
    async with GatewayRuntime(config, backends={"post": backend}) as gateway:
        assert gateway.catalog.unencoded_count == 1
        await wait_for_task("load encoder")
        await wait_for_task("encode the catalog")
        assert gateway.catalog.unencoded_count == 0
    assert len(backend.requests) == asked


async def test_the_model_is_not_read_where_no_tool_is_known(
    monkeypatch: pytest.MonkeyPatch, fresh_encoder: None
) -> None:
    monkeypatch.setattr(maintenance, "ENCODER_LOAD_DELAY_S", 0)
    async with gateway_over():
        await wait_for_task("load encoder")
        assert not get_shipped_encoder().is_loaded


async def test_a_gateway_that_closes_at_once_does_not_wait_for_the_model(
    fresh_encoder: None,
) -> None:
    async with gateway_over({"post": FakeBackend()}):
        assert under_way("load encoder")
    assert not under_way("load encoder")
    assert not get_shipped_encoder().is_loaded


async def test_an_answer_is_text_and_can_be_sent() -> None:
    async with encoded_gateway() as gateway, connect(gateway) as client:
        for query in ("\ud7ff \x00", "天" * 3_000, json.dumps({"a": ["b"]}), "-x AND (y OR z)"):
            for detail in ("brief", "schema", "explain"):
                assert await ask(client, "search_tools", query=query, detail=detail)
