"""Search learns what its callers mean: from what they call after what they searched, each for
themselves."""

import contextlib
import os
import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import Implementation

from portico.callers import Caller
from portico.config import Config, Profile
from portico.gateway import HABITS_FILE, GatewayRuntime
from portico.storage.learning_store import LearningStore
from portico.testing import FakeBackend, Transport, connect
from portico.upstream.backend import Era
from tests.gateways import run_gateway
from tests.interaction.fake_servers import ask, text, tool

QUERY = "send a message to the people"
LIKE = "please send the people a message"
TOOLS = [
    tool("notify_a", "Send a message to the people of list A."),
    tool("notify_b", "Send a message to the people of list B."),
    tool("notify_c", "Send a message to the people of list C."),
    tool("weather", "Tell the weather of a city."),
    tool("multiply", "Multiply two numbers."),
    tool("broken_notice", "Hang up a notice for tenants."),
]


def backend() -> FakeBackend:
    fake = FakeBackend(TOOLS)
    for one in TOOLS:
        failed = {"isError": True} if one["name"].startswith("broken") else {}
        fake.on_call(one["name"], lambda _, failed=failed: {**text("done"), **failed})
    return fake


@asynccontextmanager
async def post_gateway(
    folder: Path | None = None, **settings: Any
) -> AsyncGenerator[GatewayRuntime]:
    """A gateway that has listed and encoded everything: from now on, only use changes a ranking."""
    config = Config(data_dir=Path("nowhere"), **settings)
    async with run_gateway({"post": backend()}, config, data_dir=folder, encoded=True) as gateway:
        yield gateway


def client_named(name: str, **options: Any) -> dict[str, Any]:
    return {"client_info": Implementation(name=name, version="1"), **options}


async def search(client: Client, query: str = QUERY) -> list[str]:
    """The tools a search shows, best first."""
    return re.findall(
        r"^(post\.\w+)\(", await ask(client, "search_tools", query=query), re.MULTILINE
    )


async def use(client: Client, name: str, times: int = 4, query: str = QUERY) -> None:
    """Search, and then call a tool."""
    for _ in range(times):
        await search(client, query)
        await client.call_tool("call_tool", {"name": name})


def runner_up(ranked: list[str]) -> str:
    """The best of the tools that are as good as the first."""
    return next(name for name in ranked[1:] if "notify" in name)


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
async def test_what_was_called_after_a_search_comes_first_in_the_next_like_it(
    transport: Transport, era: Era
) -> None:
    async with post_gateway() as gateway, connect(gateway, transport, era) as client:
        second = runner_up(await search(client))
        await use(client, second)
        assert (await search(client))[0] == second
        assert (await search(client, LIKE))[0] == second


async def test_of_servers_that_do_the_same_the_one_used_before_comes_first() -> None:
    tools = [
        tool("translate", "Translate a text into another language."),
        tool("ping", "Answer that it is there."),
    ]
    same = {name: FakeBackend(tools) for name in ("lingua", "polyglot")}
    for fake in same.values():
        fake.on_call("ping", lambda _: text("pong"))
    query = "translate a text into Greek"
    async with run_gateway(same, Config(), encoded=True) as gateway, connect(gateway) as client:
        before = await ask(client, "search_tools", query=query)
        assert "used before" not in before
        first, second = re.findall(r"(\w+)\.translate", before)[:2]
        await client.call_tool("call_tool", {"name": f"{second}.ping"})
        after = await ask(client, "search_tools", query=query)
        assert re.findall(r"(\w+)\.translate", after)[:2] == [second, first]
        assert f"Preferred, as used before: {second}." in after


async def test_what_a_caller_taught_is_that_caller_s_own() -> None:
    async with (
        post_gateway() as gateway,
        connect(gateway, **client_named("other")) as other,
        connect(gateway, **client_named("ours")) as ours,
    ):
        await use(ours, second := runner_up(await search(other)))
        assert (await search(ours))[0] == second
        assert await gateway.learner.compute_boosts(Caller(name="other"), QUERY) == {}


async def test_what_was_learnt_in_a_profile_stays_in_it() -> None:
    async with (
        post_gateway(profiles={"work": Profile()}) as gateway,
        connect(gateway, profile="work", **client_named("ours")) as at_work,
        connect(gateway, **client_named("ours")) as at_home,
    ):
        await use(at_work, second := runner_up(await search(at_home)))
        assert (await search(at_work))[0] == second
        assert await gateway.learner.compute_boosts(Caller(name="ours", profile="work"), QUERY)
        assert await gateway.learner.compute_boosts(Caller(name="ours"), QUERY) == {}


async def test_all_callers_learn_together_where_the_configuration_says_so() -> None:
    async with (
        post_gateway(learning="shared", profiles={"work": Profile()}) as gateway,
        connect(gateway, profile="work", **client_named("ours")) as ours,
        connect(gateway, **client_named("other")) as other,
    ):
        await use(ours, second := runner_up(await search(other)))
        assert (await search(other))[0] == second


async def test_a_restart_keeps_what_was_learnt(tmp_path: Path) -> None:
    async with post_gateway(tmp_path) as gateway, connect(gateway) as client:
        await use(client, second := runner_up(await search(client)))
    async with post_gateway(tmp_path) as gateway, connect(gateway) as client:
        assert (await search(client))[0] == second


async def test_another_gateway_on_the_same_folder_learns_and_forgets_too(tmp_path: Path) -> None:
    async with (
        post_gateway(tmp_path) as first,
        post_gateway(tmp_path) as second,
        connect(first, **client_named("ours")) as here,
        connect(second, **client_named("ours")) as there,
    ):
        await use(here, better := runner_up(await search(there)))
        await first.learner.flush()
        await second.learner.flush()
        assert (await search(there))[0] == better
        LearningStore(tmp_path / HABITS_FILE).forget()
        await second.learner.flush()
        assert await second.learner.compute_boosts(Caller(name="ours"), QUERY) == {}


async def test_with_learning_off_nothing_is_learnt_and_no_file_made(tmp_path: Path) -> None:
    async with (
        post_gateway(tmp_path, learning="off") as gateway,
        connect(gateway, **client_named("ours")) as client,
    ):
        await use(client, runner_up(await search(client)))
        await gateway.learner.flush()
        assert await gateway.learner.compute_boosts(Caller(name="ours"), QUERY) == {}
    assert not [name for name in os.listdir(tmp_path) if name.startswith(HABITS_FILE)]


async def test_no_text_of_a_query_is_kept(tmp_path: Path) -> None:
    async with post_gateway(tmp_path) as gateway, connect(gateway) as client:
        await use(client, "post.notify_a", query="send a message about xylophones")
        await gateway.learner.flush()
        kept = b"".join(
            (tmp_path / name).read_bytes()
            for name in os.listdir(tmp_path)
            if name.startswith(HABITS_FILE)
        )
    assert b"post.notify_a" in kept
    assert b"xyloph" not in kept
    with contextlib.closing(sqlite3.connect(tmp_path / HABITS_FILE)) as db:
        assert db.execute("select tool, weight from followed").fetchall() == [
            ("post.notify_a", pytest.approx(4))
        ]


async def test_a_call_that_fails_is_no_sign_that_the_tool_was_meant() -> None:
    async with post_gateway() as gateway, connect(gateway, **client_named("ours")) as client:
        before = await search(client)
        await use(client, "post.broken_notice")
        await gateway.learner.flush()
        assert await gateway.learner.compute_boosts(Caller(name="ours"), QUERY) == {}
        assert await search(client) == before


async def test_a_tool_that_no_search_showed_was_not_meant_by_it() -> None:
    async with post_gateway() as gateway, connect(gateway) as client:
        for _ in range(5):
            await ask(client, "search_tools", query=QUERY, limit=1)
            await client.call_tool("call_tool", {"name": "post.weather"})
        assert "post.weather" not in (await search(client))[:3]


async def test_an_exact_name_comes_first_whatever_was_learnt() -> None:
    async with post_gateway() as gateway, connect(gateway) as client:
        for query in ("notify_a", "post.notify_a"):
            await use(client, "post.notify_b", 8, query)
            assert (await search(client, query))[0] == "post.notify_a"


async def test_a_full_view_s_calls_are_counted_though_nobody_searches() -> None:
    async with post_gateway(exposure="full") as gateway, connect(gateway) as client:
        await client.call_tool("post__weather", {})
        assert gateway.usage_data.tool_usage.get_statistics("post.weather").calls == 1
