"""Usage through a real gateway, for every client, and known to the next gateway."""

import subprocess
import sys
from pathlib import Path

import pytest

from portico.config import Config
from portico.demo import make_demo_servers
from portico.gateway import GatewayRuntime, maintenance
from portico.testing import Transport, connect, gateway_over
from portico.upstream.backend import Era
from tests.gateways import open_gateway
from tests.interaction.fake_servers import ask, fake
from tests.usage.recording import soon, until


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
async def test_a_client_has_one_account_of_what_it_was_shown(transport: Transport, era: Era):
    async with (
        gateway_over({"post": fake("send", "find")}) as gateway,
        connect(gateway, transport, era) as client,
    ):
        await client.list_tools(cache_mode="bypass")
        listed = gateway.usage_data.ledger.total.answers
        await ask(client, "search_tools", query="send")
        await ask(client, "describe_tools", names=["post.send"])
        await client.call_tool("call_tool", {"name": "post.send"})
        await until(lambda: not gateway.usage_data.ledger.has_pending)
        (account,) = gateway.usage_data.ledger.list_sessions()
        total = gateway.usage_data.ledger.total
        (row,) = await soon(gateway.store.load_ledger_sessions())
    assert listed >= 1
    # What the tool itself answers would have been shown without us, too.
    assert account.answers == total.answers == listed + 2
    assert account.shown == total.shown > 100
    assert row == account


async def test_two_clients_have_an_account_each():
    async with gateway_over({"post": fake("send")}) as gateway:
        for _ in range(2):
            async with connect(gateway, "http", "legacy") as client:
                await ask(client, "search_tools", query="send")
        await until(lambda: not gateway.usage_data.ledger.has_pending)
        assert gateway.usage_data.ledger.total.sessions == 2


async def test_the_next_gateway_knows_what_was_used_and_shown(tmp_path: Path):
    config = Config(data_dir=tmp_path)
    async with (
        GatewayRuntime(config, backends={"post": fake("send")}) as gateway,
        connect(gateway) as client,
    ):
        await soon(gateway.wait_until_listed())
        await ask(client, "search_tools", query="send")
        await client.call_tool("call_tool", {"name": "post.send"})
    shown = gateway.usage_data.ledger.total.shown
    async with GatewayRuntime(config, backends={"post": fake("send")}) as gateway:
        await soon(gateway.load_usage())
        assert gateway.usage_data.tool_usage.get_statistics("post.send").calls == 1
        assert gateway.usage_data.ledger.total.shown == shown > 0
        # The first one may have ended before it computed any: the next does so when it reads the
        # record.
        await until(lambda: "post.send" in gateway.usage_data.standings.by_address)


def test_no_database_is_loaded_before_a_client_has_its_first_listing(tmp_path: Path):
    code = """
import asyncio, sys
from pathlib import Path
from portico.gateway import GatewayRuntime, maintenance
from portico.config import Config
from portico.demo import make_demo_servers
from portico.testing import connect

maintenance.RECORD_OPEN_DELAY_S = 60.0

async def main():
    async with GatewayRuntime(Config(data_dir=Path(sys.argv[1]))) as gateway, connect(gateway) as client:
        await client.list_tools()
        print([name for name in ("sqlalchemy", "aiosqlite", "asyncpg", "fastapi") if name in sys.modules])

asyncio.run(main())
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == "[]"


async def test_where_use_is_off_nothing_of_it_is_on_record(tmp_path: Path) -> None:
    config = Config.model_validate(
        {"usage": False, "servers": make_demo_servers(), "data_dir": tmp_path}
    )
    async with GatewayRuntime(config) as gateway, connect(gateway) as client:
        await client.list_tools()
        await client.call_tool("call_tool", {"name": "text.slugify", "arguments": {"text": "A"}})
        assert gateway.usage_data.tool_usage.get_statistics("text.slugify").calls == 1
        await gateway.usage_data.standings.recompute()
    async with GatewayRuntime(config) as later:
        await later.load_usage()
        assert later.usage_data.tool_usage.get_statistics("text.slugify").calls == 0
        assert later.usage_data.ledger.total.sessions == 0
        assert later.usage_data.standings.computed_at == 0
        assert await later.store.load_calls() == []


async def test_the_first_answer_of_the_next_gateway_knows_what_was_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    backends = {"post": fake("send", "find"), "mail": fake("read")}
    async with open_gateway(backends, data_dir=tmp_path) as gateway:
        await gateway.call_text("call_tool", name="post.find")
        await until(lambda: not gateway.runtime.usage_data.tool_usage.has_pending)
        await soon(gateway.runtime.store.load_daily_usage(0))
    # From here on the database is not opened: what is known of use is read without it.
    monkeypatch.setattr(maintenance, "RECORD_OPEN_DELAY_S", 600.0)
    async with open_gateway(backends, data_dir=tmp_path) as gateway:
        overview = await gateway.call_text("browse_tools")
        full = await gateway.call_text("describe_tools", names=["post.find"], detail="full")
    assert "Most used tools, then some of each server:\npost.find(" in overview
    assert 'usage: {"calls":1' in full


async def test_the_hot_list_stays_long_after_the_first_call():
    backends = {f"server{n}": fake("first", "second", "third") for n in range(4)}
    async with open_gateway(backends) as gateway:
        await gateway.call_text("call_tool", name="server2.third")
        await gateway.runtime.usage_data.standings.recompute()
        hot = [tool.address for tool in gateway.runtime.get_view().ranked_catalog.hot_list.tools]
    assert hot[0] == "server2.third"
    assert len(hot) == len(set(hot)) == 10
    assert [name.split(".")[0] for name in hot[1:5]] == [f"server{n}" for n in range(4)]


async def test_of_many_servers_the_hot_list_has_one_tool_each_after_the_first_call():
    backends = {f"server{n:02}": fake("first", "second") for n in range(20)}
    async with open_gateway(backends) as gateway:
        await gateway.call_text("call_tool", name="server19.second")
        await gateway.runtime.usage_data.standings.recompute()
        hot = [tool.address for tool in gateway.runtime.get_view().ranked_catalog.hot_list.tools]
    assert hot == ["server19.second", *(f"server{n:02}.first" for n in range(14))]
