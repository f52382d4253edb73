"""Measures whether bad servers slow down a good one: calls to a healthy server alone, and beside
four that
misbehave.

One takes 5 s to list its tools (and is asked again and again), one never answers, one crashes as it
starts, one prints garbage between its answers. Two gateways, asked in turns; all the while another
client asks the second one for the bad servers' tools. That noise is there in both gateways' turns,
so the ratio shows what the gateway makes of its neighbours, not what their processes take from the
machine.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

from mcp import Client
from tests.fixtures import broken_command

from benchmarks import processes
from benchmarks.rounds import Samples, turns
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

GOAL = 1.2
ROUNDS, SMOKE_ROUNDS = 60, 10
CALLS, SMOKE_CALLS = 10, 8
READY_S = 30.0
PESTER_S = 1.0
ALONE, BESIDE = "alone", "beside four bad servers"
BAD = {
    "slow": "slow_list",
    "silent": "never_answers",
    "crashing": "crash_on_start",
    "garbage": "garbage_stdout",
}


async def measure(options: argparse.Namespace) -> Report:
    """Both gateways, in rounds, from the moment the second one's neighbours start to misbehave."""
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    calls = SMOKE_CALLS if options.smoke else CALLS
    with processes.scratch() as folder:
        async with contextlib.AsyncExitStack() as stack:
            clients: dict[str, Client] = {}
            ready: dict[str, float] = {}
            for name in (ALONE, BESIDE):
                begun = time.perf_counter()
                url = stack.enter_context(_gateway(folder / name.split()[0], bad=name == BESIDE))
                clients[name] = await stack.enter_async_context(
                    Client(url, mode="legacy", read_timeout_seconds=READY_S)
                )
                await _until_ready(clients[name])
                ready[name] = time.perf_counter() - begun
            await stack.enter_async_context(_pestering(url))
            samples = {name: Samples() for name in clients}
            for _, name in turns(list(clients), rounds):
                samples[name].rounds.append([await _time_call(clients[name]) for _ in range(calls)])
            states = await _states(clients[BESIDE])
    return _report(samples, ready, states)


@contextlib.contextmanager
def _gateway(folder: Path, *, bad: bool) -> Generator[str]:
    """A gateway with the healthy server, and the bad ones before it if asked for; gives its URL."""
    folder.mkdir()
    servers = {name: _server(fixture) for name, fixture in BAD.items()} if bad else {}
    config = processes.write_config(folder, {"servers": {**servers, "healthy": _server("healthy")}})
    port = processes.free_port()
    command = [*processes.portico(), "serve", "--config", str(config), "--port", str(port)]
    with processes.listening(port, command, folder):
        yield f"http://127.0.0.1:{port}/mcp"


def _server(fixture: str) -> dict[str, Any]:
    program, *args = broken_command(fixture)
    # A listing that is never fresh and a start that never gives up: they stay as bad as they are
    # for the whole run.
    return {"command": program, "args": args, "ttl_s": 0, "timeouts": {"start_s": 600}}


async def _call(client: Client, server: str) -> Any:
    return await client.call_tool(
        "call_tool", {"name": f"{server}.echo", "arguments": {"text": "hello"}}
    )


async def _time_call(client: Client) -> float:
    begun = time.perf_counter()
    result = await _call(client, "healthy")
    taken = time.perf_counter() - begun
    if result.is_error:
        raise SystemExit(f"the healthy server's call failed: {result}")
    return taken


async def _until_ready(client: Client) -> None:
    deadline = time.monotonic() + READY_S
    while (await _call(client, "healthy")).is_error:
        if time.monotonic() > deadline:
            raise SystemExit("the healthy server was not ready in time")
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def _pestering(url: str) -> AsyncGenerator[None]:
    """A client of its own, in a process of its own, that keeps asking for the bad servers."""
    command = [sys.executable, "-m", "benchmarks.neighbours", "--pester", url]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=processes.REPOSITORY, env=dict(os.environ)
    )
    try:
        yield
        if process.returncode is not None:
            raise SystemExit("the client that asks for the bad servers ended early")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _pester(url: str) -> None:
    async with Client(url, mode="legacy", read_timeout_seconds=READY_S) as client:

        async def ask(server: str) -> None:
            while True:
                await _call(client, server)
                await client.call_tool("browse_tools", {"server": server})
                await asyncio.sleep(PESTER_S)

        await asyncio.gather(*(ask(server) for server in BAD))


async def _states(client: Client) -> list[str]:
    """Return what the gateway tells a client about its servers."""
    result = await client.call_tool("browse_tools", {})
    text: str = getattr(result.content[0], "text", "")
    lines = text.partition("Servers:\n")[2].splitlines()
    return [line for line in lines if line.partition(":")[0] in (*BAD, "healthy")]


def _report(samples: dict[str, Samples], ready: dict[str, float], states: list[str]) -> Report:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            name,
            one.percentile(0.5) * 1000,
            one.percentile(0.99) * 1000,
            one.ratio_to(samples[ALONE]),
            one.percentile(0.99) / samples[ALONE].percentile(0.99),
            ready[name],
            len(one.all),
        )
        for name, one in samples.items()
    )
    columns = (
        "healthy server",
        "p50 ms",
        "p99 ms",
        "p50 × alone",
        "p99 × alone",
        "spawn → first answer s",
        "calls",
    )
    said = tuple((name, what) for name, _, what in (line.partition(": ") for line in states))
    reported = Table("What the gateway says about its servers", ("server", "browse_tools"), said)
    goal = Goal(
        "calls beside bad neighbours, × alone at p50",
        samples[BESIDE].ratio_to(samples[ALONE]),
        GOAL,
    )
    title = "Calls to a healthy server (HTTP client, stdio server)"
    return Report("neighbours", (Table(title, columns, rows), reported), (goal,))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    parser.add_argument("--pester", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pester:
        asyncio.run(_pester(options.pester))
        return 0
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
