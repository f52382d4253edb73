"""Measures what a call costs through each gateway: the same client, the same echo server, in turns;
then
sixteen at once.

A gateway that starts its servers cannot reach one over HTTP: it is compared with Portico doing the
same, and both with the direct HTTP call.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from mcp import Client

from benchmarks import processes
from benchmarks.concurrent_callers import WORKERS
from benchmarks.latency import FEWEST_CALLS, Effort
from benchmarks.peering import running_gateway
from benchmarks.peering.gateways import Gateway
from benchmarks.peering.upstreams import ECHO, one_echo
from benchmarks.rounds import Samples, turns
from benchmarks.table import Cell, Table

DIRECT = "direct"


@dataclass
class Speed:
    alone: Samples = field(default_factory=Samples)
    crowd: list[float] = field(default_factory=list[float])
    """Calls per second, by round."""


class Direct:
    """The client with nothing between it and the server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self) -> None:
        result = await self._client.call_tool(
            ECHO, {"text": "The quick brown fox jumps over the lazy dog."}
        )
        if result.is_error:
            raise running_gateway.WrongAnswer(f"the server answered {str(result)[:300]}")


Caller = Direct | running_gateway.Seat


async def measure(
    gateways: Sequence[Gateway], effort: Effort
) -> tuple[dict[str, Speed], dict[str, str]]:
    """Speeds by gateway, `direct` first, and which gateway failed, why."""
    failed: dict[str, str] = {}
    with processes.scratch() as folder, one_echo(folder) as upstream:
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(upstream.url, mode="legacy"))
            callers: dict[str, Caller] = {DIRECT: Direct(client)}
            for one in gateways:
                try:
                    home = await running_gateway.prepare_folder(one, folder, [upstream])
                    callers[one.name] = await stack.enter_async_context(
                        running_gateway.run_gateway(one, home, [upstream])
                    )
                except Exception as error:  # whatever becomes of one, the others are measured
                    failed[one.name] = running_gateway.reason(one.name, error)
            speeds = {name: Speed() for name in callers}
            # The first round warms up.
            for number, name in turns(list(callers), effort.rounds + 1):
                if name in failed:
                    continue
                try:
                    alone, crowd = (
                        await _alone(callers[name], effort),
                        await _crowd(callers[name], effort),
                    )
                except Exception as error:  # as above
                    failed[name] = running_gateway.reason(name, error)
                    continue
                if number:
                    speeds[name].alone.rounds.append(alone)
                    speeds[name].crowd.append(crowd)
    return speeds, failed


async def _alone(caller: Caller, effort: Effort) -> list[float]:
    taken: list[float] = []
    ends = time.perf_counter() + effort.turn_s
    while len(taken) < effort.calls and (len(taken) < FEWEST_CALLS or time.perf_counter() < ends):
        begun = time.perf_counter()
        await caller.call()
        taken.append(time.perf_counter() - begun)
    return taken


async def _crowd(caller: Caller, effort: Effort) -> float:
    done = 0
    begun = time.perf_counter()

    async def work() -> None:
        nonlocal done
        for _ in range(effort.crowd_calls // WORKERS):
            await caller.call()
            done += 1
            if time.perf_counter() > begun + effort.turn_s:
                return

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return done / (time.perf_counter() - begun)


def table(names: Sequence[str], found: tuple[dict[str, Speed], dict[str, str]]) -> Table:
    speeds, failed = found
    direct = speeds[DIRECT]
    rows: list[tuple[Cell, ...]] = []
    for name in (DIRECT, *names):
        if name in failed:
            rows.append((name, *[None] * 6, failed.get(name, "")))
            continue
        one = speeds[name]
        share = median(own / its for own, its in zip(one.crowd, direct.crowd, strict=True))
        times = (one.alone.percentile(0.5) * 1000, one.alone.percentile(0.99) * 1000)
        rows.append(
            (
                name,
                *times,
                one.alone.ratio_to(direct.alone),
                median(one.crowd),
                share,
                len(one.alone.all),
                "",
            )
        )
    return Table(
        "A call (HTTP client → gateway → one HTTP server; `→ stdio` and mcp-proxy "
        "start the server themselves)",
        (
            "",
            "p50 ms",
            "p99 ms",
            "× direct",
            f"{WORKERS}-way calls/s",
            "of direct",
            "calls",
            "why not",
        ),
        tuple(rows),
        note="Ratios are medians of the ratios within each round.",
    )
