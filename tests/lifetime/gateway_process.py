"""A gateway in a process of its own, over servers that do not all want to go when asked."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.client import Client

from tests.fixtures import broken_command
from tests.fixtures.raw_client import RawClient
from tests.lifetime.process_marks import MARK, TIMEOUT_S, find_marked, left_over, new_mark

SERVERS = (
    "healthy",
    "modern_only",
    "ignores_stdin_close",
    "ignores_sigterm",
    "leaves_child",
    "leaves_child_on_stdout",
)
PROCESSES = 2 + len(SERVERS) + 2
"""The gateway, its guard, the servers, and the children of two of them."""

_ROOT = str(Path(__file__).parents[2])
_PORTICO = "import sys; from portico.cli.main import main; sys.exit(main())"


@dataclass(frozen=True)
class GatewayProcess:
    """A running gateway whose servers are all up."""

    process: asyncio.subprocess.Process
    client: RawClient | None
    mark: str


@dataclass(frozen=True)
class Outcome:
    """Describes how it ended."""

    before: int
    """Processes there were."""
    code: int | None
    left: tuple[str, ...]
    """Processes there still are."""


def configuration(folder: Path, mark: str, servers: Mapping[str, list[str]] | None = None) -> Path:
    """A configuration file over these servers (default: all that are named here)."""
    commands = servers or {name: broken_command(name) for name in SERVERS}
    entries = {
        name: {"command": command, "args": args, "env": {MARK: mark}, "start": "boot"}
        for name, (command, *args) in commands.items()
    }
    path = folder / f"portico-{mark}.json"
    path.write_text(json.dumps({"servers": entries, "data_dir": str(folder / mark)}))
    return path


async def launch(*arguments: str, mark: str) -> asyncio.subprocess.Process:
    """`portico` with these arguments, marked, in a session of its own as under a terminal."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PORTICO,
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={
            # What our own variables say would win over the file that a test wrote.
            **{
                name: value for name, value in os.environ.items() if not name.startswith("PORTICO_")
            },
            MARK: mark,
            "PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")])),
        },
        start_new_session=True,
        limit=2**24,
    )


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncGenerator[GatewayProcess]:
    """`portico stdio` with a client."""
    mark = new_mark()
    process = await launch("stdio", "--config", str(configuration(folder, mark)), mark=mark)
    client = RawClient(process)
    try:
        await client.handshake()

        async def works(name: str) -> bool:
            return not (await client.call("call_tool", name=f"{name}.pid", arguments={})).get(
                "isError"
            )

        await _all_work(works)
        yield GatewayProcess(process, client, mark)
    finally:
        _clear(process)


@asynccontextmanager
async def over_http(folder: Path) -> AsyncGenerator[GatewayProcess]:
    """`portico serve` whose client has come and gone."""
    mark = new_mark()
    process = await launch(
        "serve", "--port", "0", "--config", str(configuration(folder, mark)), mark=mark
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            url = (await process.stdout.readline()).decode().split()[0]
        async with Client(url) as client:

            async def works(name: str) -> bool:
                result: Any = await client.call_tool(
                    "call_tool", {"name": f"{name}.pid", "arguments": {}}
                )
                return not result.is_error

            await _all_work(works)
        yield GatewayProcess(process, None, mark)
    finally:
        _clear(process)


async def _all_work(works: Callable[[str], Awaitable[bool]]) -> None:
    """Every server answers; until it has been listed, the gateway says to try again."""
    async with asyncio.timeout(TIMEOUT_S):
        for name in SERVERS:
            while not await works(name):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def _clear(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


async def end_gateway(
    gateway: GatewayProcess, end: Callable[[GatewayProcess], Awaitable[None]]
) -> Outcome:
    """End a gateway in some way and look around."""
    before = len(find_marked(gateway.mark))
    await end(gateway)
    left = await left_over(gateway.mark)
    # Not Process.wait: it waits for pipes too.
    async with asyncio.timeout(TIMEOUT_S):
        while gateway.process.returncode is None and not left:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return Outcome(before, gateway.process.returncode, tuple(left))


def by(*numbers: signal.Signals) -> Callable[[GatewayProcess], Awaitable[None]]:
    """One signal after the other, with time for the first to be taken."""

    async def send(gateway: GatewayProcess) -> None:
        for position, number in enumerate(numbers):
            if position:
                await asyncio.sleep(0.5)  # the servers that resist take longer than this to stop
            if gateway.process.returncode is None:
                gateway.process.send_signal(number)

    return send


async def by_hanging_up(gateway: GatewayProcess) -> None:
    """The client closes the gateway's stdin."""
    assert gateway.client is not None
    await gateway.client.close_stdin()


async def in_the_middle_of_a_call(gateway: GatewayProcess) -> None:
    """SIGTERM while a call is under way."""
    assert gateway.client is not None
    await gateway.client.send_request(
        "tools/call", {"name": "call_tool", "arguments": {"name": "healthy.echo"}}
    )
    await by(signal.SIGTERM)(gateway)
