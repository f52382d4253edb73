"""Ends that are not the end of a running gateway: of one that still starts, of one command, of a
block of code."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from portico.config import BackendConfig, Config
from portico.gateway import GatewayRuntime
from portico.storage.manifests import ManifestStore
from tests.fixtures import broken_command
from tests.fixtures.raw_client import RawClient
from tests.lifetime.gateway_process import GatewayProcess, by, configuration, end_gateway, launch
from tests.lifetime.process_marks import MARK, TIMEOUT_S, find_marked, left_over, new_mark, until
from tests.upstream.scripted import script

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are POSIX")

DEAF = script(
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen(sys.argv[1], 'w').close()\ntime.sleep(120)"
)
"""Never answers, ignores its stdin and SIGTERM; makes a file when it is ready to."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_in_the_middle_of_its_start_does_not_outlive_the_gateway(
    number: signal.Signals, tmp_path: Path
):
    mark, ready = new_mark(), tmp_path / "ready"
    file = configuration(tmp_path, mark, {"deaf": [*DEAF, str(ready)]})
    process = await launch("stdio", "--config", str(file), mark=mark)
    assert await until(lambda: os.path.exists(ready))
    assert (await end_gateway(GatewayProcess(process, None, mark), by(number))).left == ()


async def test_a_command_that_answers_and_ends_leaves_nothing_behind(tmp_path: Path):
    mark = new_mark()
    file = configuration(
        tmp_path,
        mark,
        {name: broken_command(name) for name in ("healthy", "leaves_child", "ignores_sigterm")},
    )
    process = await launch(
        "call", "leaves_child.child_pid", "--json", "--config", str(file), mark=mark
    )
    async with asyncio.timeout(TIMEOUT_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said
    assert json.loads(said)
    assert await left_over(mark) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_function_that_never_returns_does_not_keep_the_gateway_from_ending(
    number: signal.Signals, tmp_path: Path
):
    mark = new_mark()
    file = tmp_path / "portico.json"
    servers = {"stuck": {"functions": "tests.lifetime.stuck_tool"}}
    file.write_text(json.dumps({"servers": servers, "data_dir": str(tmp_path / "data")}))
    process = await launch("stdio", "--config", str(file), mark=mark)
    client = RawClient(process)
    await client.handshake()
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await client.call("search_tools", query="forever")
            if "stuck.forever" in json.dumps(found):
                break
            await asyncio.sleep(0.05)
    await client.send_request(
        "tools/call", {"name": "call_tool", "arguments": {"name": "stuck.forever"}}
    )
    await client.request("ping")
    assert (await end_gateway(GatewayProcess(process, client, mark), by(number))).left == ()


def config(mark: str, *names: str, **options: Any) -> Config:
    return Config(
        servers={
            name: BackendConfig(command=command, args=tuple(args), env={MARK: mark}, **options)
            for name in names
            for command, *args in [broken_command(name)]
        }
    )


async def wait_for_starts(gateway: GatewayRuntime, mark: str, count: int) -> None:
    await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
    assert len(find_marked(mark)) == count


async def test_a_gateway_closed_by_its_owner_leaves_nothing_behind():
    mark = new_mark()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    names = (
        "healthy",
        "modern_only",
        "ignores_stdin_close",
        "leaves_child",
        "leaves_child_on_stdout",
    )
    async with GatewayRuntime(config(mark, *names), manifests=ManifestStore(None)) as gateway:
        await wait_for_starts(gateway, mark, 7)
    assert find_marked(mark) == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


async def test_a_gateway_whose_owner_fails_leaves_nothing_behind():
    mark = new_mark()

    async def own() -> None:
        async with GatewayRuntime(
            config(mark, "healthy", "leaves_child"), manifests=ManifestStore(None)
        ) as gateway:
            await wait_for_starts(gateway, mark, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await own()
    assert find_marked(mark) == []


async def test_a_gateway_closed_while_its_servers_start_leaves_nothing_behind():
    mark = new_mark()
    names = ("healthy", "never_answers", "ignores_discover", "crash_on_start", "leaves_child")
    for wait_s in (0, 0.02, 0.1, 0.4):
        async with GatewayRuntime(config(mark, *names), manifests=ManifestStore(None)) as gateway:
            await asyncio.wait({asyncio.ensure_future(gateway.wait_until_listed())}, timeout=wait_s)
        assert find_marked(mark) == []
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert [task for task in others if "listed" not in repr(task)] == []


async def test_closing_twice_at_once_closes_once():
    mark = new_mark()
    async with GatewayRuntime(
        config(mark, "healthy", "ignores_stdin_close"), manifests=ManifestStore(None)
    ) as gateway:
        await wait_for_starts(gateway, mark, 2)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(gateway.close(), gateway.close())
        assert find_marked(mark) == []


async def test_a_close_that_is_cut_short_can_be_taken_up_again():
    mark = new_mark()
    async with GatewayRuntime(
        config(mark, "ignores_stdin_close"), manifests=ManifestStore(None)
    ) as gateway:
        await wait_for_starts(gateway, mark, 1)
        closing = asyncio.create_task(gateway.close())
        await asyncio.wait({closing}, timeout=0.1)
        closing.cancel()
        await asyncio.wait({closing})
    assert find_marked(mark) == []
