"""`start`, `stop`, `logs` and `restart`: one gateway in the background for this user."""

import asyncio
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.cli.conftest import Home
from tests.cli.local_gateway.conftest import SERVERS, find
from tests.cli.local_gateway.test_bridge import bridge

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")


@pytest.fixture
def background(home: Home) -> Iterator[Home]:
    """A home whose background gateway is ended in any case."""
    home.write({"servers": SERVERS, "gateway": {"port": 0}})
    yield home
    if (left := find(home)) is not None:
        psutil.Process(left.registration.pid).kill()


def test_it_is_started_once_found_logged_and_stopped(background: Home) -> None:
    home = background
    assert home.run("stop").out == "No gateway runs for this configuration.\n"
    assert home.run("logs").code == 1
    started = home.run("start", "--json").data
    assert started["started"]
    assert psutil.Process(started["pid"]).terminal() is None
    assert home.run("start", "--json").data == {**started, "started": False}
    log = home.run("logs").out
    assert "/mcp" in log
    assert "`portico stop` stops it." in log
    assert "Ctrl+C" not in log
    assert "mcp add" not in log
    assert started["url"] in home.run("status").out
    assert home.run("stop", "--json").data == {"stopped": True, "pid": started["pid"]}
    assert find(home) is None


async def test_a_restart_keeps_the_port_and_the_clients(background: Home) -> None:
    home = background
    first = (await asyncio.to_thread(home.spawn, "start", "--json")).data
    async with bridge(home) as client:
        await client.handshake()
        second = (await asyncio.to_thread(home.spawn, "restart", "--json")).data
        assert second["gateway"] == first["url"]
        assert second["pid"] != first["pid"]
        assert len((await client.request("tools/list"))["result"]["tools"]) > 1
    assert (await asyncio.to_thread(home.spawn, "stop")).code == 0


def test_one_that_cannot_start_says_why(background: Home) -> None:
    home = background
    home.write({"servers": SERVERS, "gateway": {"port": "many"}})
    failed = home.run("start")
    assert failed.code == 1
    assert "the gateway did not start" in failed.err
    assert "gateway.port" in failed.err


def test_without_one_a_restart_says_how_to_start_it(background: Home) -> None:
    failed = background.run("restart")
    assert (failed.code, "portico start" in failed.err) == (1, True)
