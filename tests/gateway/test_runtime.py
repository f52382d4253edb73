"""Applying another configuration to a running gateway."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from portico.config import BackendConfig, Config
from portico.gateway import GatewayRuntime
from portico.testing import connect
from tests.gateway import slow_server
from tests.gateways import open_gateway

TIMEOUT_S = 240.0


def slow(mark: str = "", **more: Any) -> BackendConfig:
    return BackendConfig(
        command=slow_server.command(),
        args=tuple(slow_server.arguments()),
        env={"MARK": mark},
        protocol="legacy",
        **more,
    )


@asynccontextmanager
async def open_persistent(
    folder: Path, servers: Mapping[str, BackendConfig], **more: Any
) -> AsyncGenerator[tuple[GatewayRuntime, Any]]:
    config = Config(servers=dict(servers), **more)
    async with open_gateway(config=config, data_dir=folder) as opened:
        yield opened.runtime, opened.client


def changed(gateway: GatewayRuntime, **more: Any) -> Config:
    return gateway.config.model_copy(update=more)


async def call_text(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool("call_tool", {"name": name, "arguments": arguments})
    text: Any = result.content[0]
    return text.text


async def until(there: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not there.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.01)


async def test_an_added_server_can_be_called_and_a_removed_one_is_unknown(tmp_path: Path):
    async with open_persistent(tmp_path, {"a": slow("A")}) as (gateway, client):
        await gateway.apply(changed(gateway, servers={"b": slow("B")}))
        assert (await call_text(client, "b.who")).startswith("B ")
        assert "b.who" in await call_text(client, "a.who")
        assert set(gateway.upstreams) == {"b"}


async def test_only_the_changed_server_is_restarted(tmp_path: Path):
    async with open_persistent(tmp_path, {"a": slow("A"), "b": slow("B")}) as (gateway, client):
        first = [await call_text(client, "a.who"), await call_text(client, "b.who")]
        change = await gateway.apply(changed(gateway, servers={"a": slow("A"), "b": slow("C")}))
        assert change.restarted == ("b",)
        assert await call_text(client, "a.who") == first[0]
        assert (await call_text(client, "b.who")).startswith("C ")


async def test_a_call_under_way_ends_on_the_old_server_while_new_ones_go_to_the_new(tmp_path: Path):
    go = tmp_path / "go"
    async with open_persistent(tmp_path, {"a": slow("old")}) as (gateway, client):
        waiting = asyncio.create_task(call_text(client, "a.wait", file=str(go)))
        await until(Path(f"{go}.begun"))
        await gateway.apply(changed(gateway, servers={"a": slow("new")}))
        assert (await call_text(client, "a.who")).startswith("new ")
        assert not waiting.done()
        go.touch()
        assert (await asyncio.wait_for(waiting, TIMEOUT_S)).startswith("old ")


async def test_a_call_under_way_ends_even_if_its_server_is_taken_away(tmp_path: Path):
    go = tmp_path / "go"
    async with open_persistent(tmp_path, {"a": slow("old")}) as (gateway, client):
        waiting = asyncio.create_task(call_text(client, "a.wait", file=str(go)))
        await until(Path(f"{go}.begun"))
        await gateway.apply(changed(gateway, servers={}))
        go.touch()
        assert (await asyncio.wait_for(waiting, TIMEOUT_S)).startswith("old ")


async def test_a_gateway_that_ends_does_not_wait_for_servers_that_are_being_let_go(tmp_path: Path):
    go = tmp_path / "never"
    async with open_persistent(tmp_path, {"a": slow("old", restart={"drain_s": 3_600})}) as (
        gateway,
        client,
    ):
        waiting = asyncio.create_task(call_text(client, "a.wait", file=str(go)))
        await until(Path(f"{go}.begun"))
        await gateway.apply(changed(gateway, servers={}))
        await asyncio.wait_for(gateway.close(), TIMEOUT_S)
        waiting.cancel()


async def test_a_restarting_server_shows_its_tools_under_the_new_rules(
    tmp_path: Path,
):
    async with open_persistent(tmp_path, {"a": slow("A")}) as (gateway, client):
        broken = slow("A", tools={"deny": ["wait"]}).model_copy(
            update={"command": "/no/such/program"}
        )
        await gateway.apply(changed(gateway, servers={"a": broken}))
        assert list(gateway.get_view().snapshot.tools) == ["a.who"]
        assert "known but unavailable" in await call_text(client, "a.who")


async def test_a_denied_tool_is_gone_at_once_and_the_server_stays_up(tmp_path: Path):
    async with open_persistent(tmp_path, {"a": slow("A")}) as (gateway, client):
        before = await call_text(client, "a.who")
        change = await gateway.apply(
            changed(gateway, servers={"a": slow("A", tools={"deny": ["wait"]})})
        )
        assert (change.adjusted, change.restarted) == (("a",), ())
        assert list(gateway.get_view().snapshot.tools) == ["a.who"]
        assert await call_text(client, "a.who") == before


async def test_limits_of_a_server_are_taken_while_it_runs(tmp_path: Path):
    go = tmp_path / "go"
    async with open_persistent(tmp_path, {"a": slow("A")}) as (gateway, client):
        tight = slow("A", limits={"concurrency": 1, "queue": 0})
        await gateway.apply(changed(gateway, servers={"a": tight}))
        waiting = asyncio.create_task(call_text(client, "a.wait", file=str(go)))
        await until(Path(f"{go}.begun"))
        assert "busy" in await call_text(client, "a.who")
        go.touch()
        await waiting


async def test_clients_are_notified_when_their_view_changes(tmp_path: Path):
    shown = asyncio.Event()

    async def heard(message: Any) -> None:
        if "ToolListChanged" in type(message).__name__ or "tools/list_changed" in str(message):
            shown.set()

    config = Config(servers={"a": slow("A")}, data_dir=tmp_path)
    async with GatewayRuntime(config) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        async with connect(gateway, era="legacy", message_handler=heard) as client:
            assert "search_tools" in {tool.name for tool in (await client.list_tools()).tools}
            await gateway.apply(changed(gateway, exposure="full"))
            await asyncio.wait_for(shown.wait(), TIMEOUT_S)
            assert {tool.name for tool in (await client.list_tools()).tools} == {
                "a__who",
                "a__wait",
            }


@pytest.mark.parametrize("times", [20])
async def test_many_changes_while_calls_run_lose_no_call(tmp_path: Path, times: int):
    async with open_persistent(tmp_path, {"a": slow("0"), "b": slow("B")}) as (gateway, client):
        stop = asyncio.Event()
        answers: list[str] = []

        async def keep_calling() -> None:
            while not stop.is_set():
                answers.append(await call_text(client, "a.who"))

        calling = [asyncio.create_task(keep_calling()) for _ in range(4)]
        for number in range(1, times):
            await gateway.apply(changed(gateway, servers={"a": slow(str(number)), "b": slow("B")}))
            await call_text(client, "a.who")
        stop.set()
        await asyncio.wait_for(asyncio.gather(*calling), TIMEOUT_S)
        assert not [answer for answer in answers if "unavailable" in answer or "failed" in answer]
        assert (await call_text(client, "a.who")).startswith(f"{times - 1} ")
