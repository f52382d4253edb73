"""A gateway that is asked to stop lets calls under way end, begins no others, and does not wait for
ever."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.cli.commands.test_serve import _announced as announced  # pyright: ignore[reportPrivateUsage]
from tests.cli.conftest import TIMEOUT_S, Home, Start, command
from tests.gateway import slow_server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def slow(**more: Any) -> dict[str, Any]:
    server = {
        "command": slow_server.command(),
        "args": slow_server.arguments(),
        "protocol": "legacy",
    }
    return {"servers": {"slow": server}, **more}


async def said(client: Client, name: str, **arguments: Any) -> str:
    result: Any = await client.call_tool("call_tool", {"name": name, "arguments": arguments})
    return result.content[0].text


async def until(there: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not there.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.02)


async def wait_until_refused(client: Client) -> None:
    """Call until the gateway says that it is about to end."""
    refused = ""
    async with asyncio.timeout(TIMEOUT_S):
        while "about to end" not in refused:
            refused = await said(client, "slow.who")


async def test_a_call_under_way_is_answered_and_no_other_begun(
    home: Home, start: Start, tmp_path: Path
) -> None:
    home.write(slow(limits={"drain_s": 60}))
    go = tmp_path / "go"
    process = start("serve", "--port", "0")
    url, _ = announced(process)
    async with Client(url) as one, Client(url) as other:
        waiting = asyncio.create_task(said(one, "slow.wait", file=str(go)))
        await until(Path(f"{go}.begun"))
        process.send_signal(signal.SIGTERM)
        await wait_until_refused(other)
        assert not waiting.done()
        go.touch()
        assert str(process.pid) not in await asyncio.wait_for(waiting, TIMEOUT_S)
    assert await asyncio.to_thread(process.wait, TIMEOUT_S) == 0


async def test_a_call_that_takes_too_long_is_not_waited_for(
    home: Home, start: Start, tmp_path: Path
) -> None:
    home.write(slow(limits={"drain_s": 0.2}))
    process = start("serve", "--port", "0")
    url, _ = announced(process)
    asking = asyncio.create_task(_ask_for_ever(url, tmp_path / "never"))
    await until(tmp_path / "never.begun")
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, TIMEOUT_S) == 0
    asking.cancel()
    await asyncio.wait({asking})


async def _ask_for_ever(url: str, file: Path) -> None:
    async with Client(url) as client:
        await said(client, "slow.wait", file=str(file))


async def test_a_second_signal_ends_it_at_once(home: Home, start: Start, tmp_path: Path) -> None:
    home.write(slow(limits={"drain_s": 3_600}))
    process = start("serve", "--port", "0")
    url, _ = announced(process)
    asking = asyncio.create_task(_ask_for_ever(url, tmp_path / "never"))
    await until(tmp_path / "never.begun")
    async with Client(url) as other:
        process.send_signal(signal.SIGTERM)
        await wait_until_refused(other)  # two signals at once may be one
        process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, TIMEOUT_S) == 0
    asking.cancel()
    await asyncio.wait({asking})


def test_on_stdio_a_call_under_way_is_answered_too(home: Home, tmp_path: Path) -> None:
    home.write(slow(limits={"drain_s": 60}))
    go = tmp_path / "go"
    with subprocess.Popen(
        [*command(), "stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=home.folder,
        env=home.environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        call = {
            "name": "call_tool",
            "arguments": {"name": "slow.wait", "arguments": {"file": str(go)}},
        }
        for message in (
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        asyncio.run(until(Path(f"{go}.begun")))
        process.send_signal(signal.SIGTERM)
        go.touch()
        answers = [json.loads(line) for line in process.stdout]
        assert process.wait(TIMEOUT_S) == 0
    assert [one["result"]["content"][0]["text"] for one in answers if one.get("id") == 2] != []
