"""Rows A10, B3 and B6 of docs/requirements.md: calls are counted, use shows in order and answers,
and tiers come of it."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client

from portico.config import Config, LearningConfig, UsageConfig
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, connect, gateway_over
from portico.usage import recorder
from portico.usage.statistics import UNUSED, Statistics
from portico.usage.tool_tiers import Standings, compute_tier_score, to_tier
from tests.gateways import open_gateway
from tests.interaction.fake_servers import ask, text, tool
from tests.usage.recording import DAY, UsageServices, soon, until

QUERY = "send a message to the people"
TOOLS = [
    tool("notify_a", "Send a message to the people of list A."),
    tool("notify_b", "Send a message to the people of list B."),
    tool("notify_c", "Send a message to the people of list C."),
    tool("weather", "Tell the weather of a city."),
]


@asynccontextmanager
async def post_gateway(*servers: str) -> AsyncGenerator[tuple[GatewayRuntime, Client]]:
    """A gateway that learns nothing of its callers: only everybody's use changes an order."""
    backends = {name: FakeBackend(TOOLS) for name in servers or ("post",)}
    for backend in backends.values():
        for one in TOOLS:
            backend.on_call(one["name"], lambda _: text("done"))
    config = Config(learning=LearningConfig(scope="off"))
    async with open_gateway(backends, config, encoded=True) as opened:
        yield opened.runtime, opened.client


async def list_shown(client: Client, name: str, **arguments: str) -> list[str]:
    """The tools an answer shows, the first first."""
    return re.findall(r"^(\w+\.\w+)\(", await ask(client, name, **arguments), re.MULTILINE)


async def use(gateway: GatewayRuntime, client: Client, name: str, times: int = 5) -> None:
    for _ in range(times):
        await client.call_tool("call_tool", {"name": name})
    await soon(gateway.usage_data.standings.recompute())


async def read_usage(client: Client, name: str) -> dict[str, Any]:
    """What the whole description of a tool says of its use."""
    full = await ask(client, "describe_tools", names=[name], detail="full")
    return json.loads(re.findall(r"^usage: (.*)$", full, re.MULTILINE)[0])


async def test_a10_calls_are_counted() -> None:
    async with post_gateway() as (gateway, client):
        await use(gateway, client, "post.weather", 3)
        assert (await read_usage(client, "post.weather"))["calls"] == 3
        assert (await read_usage(client, "post.notify_a"))["calls"] == 0


async def test_a10_of_two_equal_tools_the_used_one_comes_first_in_search() -> None:
    async with post_gateway("alpha", "omega") as (gateway, client):
        first = (await list_shown(client, "search_tools", query="weather of a city"))[0]
        (second,) = {"alpha.weather", "omega.weather"} - {first}
        await use(gateway, client, second)
        assert (await list_shown(client, "search_tools", query="weather of a city"))[0] == second


async def test_a10_used_tools_come_first_in_a_listing() -> None:
    async with post_gateway() as (gateway, client):
        assert (await list_shown(client, "browse_tools", server="post"))[0] == "post.notify_a"
        await use(gateway, client, "post.weather")
        assert (await list_shown(client, "browse_tools", server="post"))[0] == "post.weather"


@pytest.mark.parametrize("query", ["notify_a", "post.notify_a", "notify a"])
async def test_a10_however_popular_no_tool_hides_an_exact_match(query: str) -> None:
    async with post_gateway() as (gateway, client):
        await use(gateway, client, "post.notify_b", 50)
        assert (await list_shown(client, "search_tools", query=query))[0] == "post.notify_a"


async def test_a10_a_popular_tool_does_not_come_before_one_that_fits_better() -> None:
    async with post_gateway() as (gateway, client):
        await use(gateway, client, "post.weather", 50)
        assert "notify" in (await list_shown(client, "search_tools", query=QUERY))[0]


def test_b3_the_score_is_of_popularity_reliability_speed_and_recency() -> None:
    known = Statistics(calls=5_000, successes=4_500, mean_ms=250, calls_7d=10, calls_30d=40)
    assert compute_tier_score(known) == pytest.approx(
        0.4 * 0.5 + 0.3 * 0.9 + 0.2 * 0.75 + 0.1 * 0.25, abs=0.006
    )
    assert compute_tier_score(UNUSED) == 0


def test_b3_the_thresholds_make_four_tiers() -> None:
    assert [to_tier(score) for score in (0.8, 0.6, 0.3, 0.29)] == [
        "hot",
        "warm",
        "standard",
        "cold",
    ]


def test_b3_without_history_a_tool_is_not_recent() -> None:
    with_history = Statistics(calls=100, successes=100, calls_7d=1, calls_30d=1)
    assert compute_tier_score(with_history) - compute_tier_score(
        Statistics(calls=100, successes=100)
    ) == pytest.approx(0.1)


async def test_b3_the_running_gateway_computes_tiers_daily(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "READ_INTERVAL_S", 0.02)
    services = UsageServices()
    standings = Standings(services.usage, services.record, clock=lambda: services.now)
    running = recorder.UsageRecorder(
        services.record,
        services.usage,
        services.ledger,
        UsageConfig(),
        maintenance_tasks=(standings.maintain,),
    )
    running.start()
    services.call(ms=1)
    await until(lambda: standings.computed_at == services.now)
    assert standings.by_address["mail.send"].score == 0.6
    services.now += 20 * DAY
    await until(lambda: standings.computed_at == services.now)
    assert standings.by_address["mail.send"].score == 0.5
    assert await soon(services.record.load_tiers()) != (0.0, [])
    await soon(running.close())


async def test_b3_a_gateway_that_was_used_has_tiers() -> None:
    async with post_gateway() as (gateway, client):
        await use(gateway, client, "post.weather")
        assert gateway.usage_data.standings.by_address["post.weather"].tier in ("warm", "standard")


async def test_b6_latency_p95_success_rate_and_invocations_are_in_the_answers() -> None:
    async with post_gateway() as (gateway, client):
        await use(gateway, client, "post.weather", 4)
        reported = await read_usage(client, "post.weather")
    assert (reported["calls"], reported["success_rate"]) == (4, 1.0)
    assert 0 <= reported["p50_ms"] <= reported["p95_ms"]
    assert (reported["calls_7d"], reported["calls_30d"]) == (4, 4)
    assert reported["last_used"]


async def test_b6_a_failed_call_lowers_the_success_rate_and_a_refused_one_does_not() -> None:
    backend = FakeBackend([tool("add", "Add.", a="integer")])
    backend.on_call("add", lambda arguments: {**text("no"), "isError": arguments.get("a") == 2})
    async with gateway_over({"math": backend}) as gateway, connect(gateway) as client:
        for a in (1, 2, "three"):
            await client.call_tool("call_tool", {"name": "math.add", "arguments": {"a": a}})
        reported = await read_usage(client, "math.add")
    assert (reported["calls"], reported["success_rate"]) == (2, 0.5)
