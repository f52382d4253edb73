"""Measures what a call costs through a gateway: the same client, the same echo server, what stands
between
them changes.

    direct              nothing between
    byte relay          a process that copies bytes: the floor for anything written in Python
    portico             every upstream tool listed (`exposure: full`), so the very same tool is
    called
    portico call_tool   the same through the meta-tool
    portico key         over HTTP, a gateway that wants a credential, and gets a key
    portico jwt         the same gateway, with a token (JWT) of an identity provider
    fastmcp shared      FastMCP's proxy over one connected client
    fastmcp proxy       FastMCP's proxy with its defaults

In turn, calls go over one SDK client session each, reused, to a server on the SDK. The crowd of
sixteen has a plain client and a plain server instead, the same for all: the SDK's would be busier
than what stands between, and hide the differences. Every program is a process of its own. The
client speaks the transport and era that the upstream speaks, except on the route http→stdio, which
is compared with a direct HTTP call. `its CPU` is what the program that the client talks to worked
for a call (`direct`: the server itself). A busy machine, on which everyone waits for the processor,
draws `× direct` towards 1; it changes `its CPU` and `× at p10` (the quickest tenth) least.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from benchmarks import concurrent_callers, processes, programs
from benchmarks.concurrent_callers import WORKERS
from benchmarks.credentials import contest_with_credentials
from benchmarks.latency_contestants import (
    READY_S,
    Contestant,
    WrongAnswer,
    contest,
    list_programs,
    until_ready,
)
from benchmarks.rounds import Samples, turns
from benchmarks.table import Goal, Report, Table, arguments, conclude

ROUTES = ("http", "stdio", "http→stdio")
ERAS = ("legacy", "modern")
GOAL = 2.0
THROUGHPUT_GOAL = 3.0
"""Times the calls in a second that FastMCP's proxy bears, on one shared session."""
TOKEN_GOAL = 1.1
"""Times the same call with a key, with a token."""
FEWEST_CALLS = 3
_TEXT = "The quick brown fox jumps over the lazy dog. " * 4


@dataclass(frozen=True)
class Effort:
    """Describes how much is measured."""

    rounds: int
    calls: int
    crowd_calls: int
    turn_s: float
    """A contestant's turn ends after so long, however few calls it managed."""


FULL = Effort(rounds=25, calls=10, crowd_calls=64, turn_s=0.5)
SMOKE = Effort(rounds=2, calls=6, crowd_calls=16, turn_s=0.2)
SMOKE_CONTESTANTS = ("byte relay", "portico", "portico key", "portico jwt")


@dataclass
class Measured:
    """Describes what one contestant did: seconds per call in turn, calls per second in a crowd."""

    alone: Samples = field(default_factory=Samples)
    worked: float = 0.0
    """Processor seconds of the program that the client talks to, over all calls in turn."""
    crowd: list[float] = field(default_factory=list[float])


@dataclass
class Seat:
    """A contestant with its open session."""

    contestant: Contestant
    client: Client
    program: psutil.Process
    """What the client talks to: the gateway, or for `direct` the server itself."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def worked(self) -> float:
        """Processor seconds that the program has used so far."""
        times = self.program.cpu_times()
        return times.user + times.system

    async def call(self) -> None:
        text = f"{next(self._numbers)} {_TEXT}"
        result = await self.client.call_tool(self.contestant.tool, self.contestant.arguments(text))
        said = getattr(result.content[0], "text", None) if result.content else None
        if result.is_error or said != text:
            raise WrongAnswer(f"{self.contestant.name} answered {str(said)[:300]!r}")

    async def alone(self, effort: Effort) -> list[float]:
        """One call after the other."""
        taken: list[float] = []
        ends = time.perf_counter() + effort.turn_s
        while len(taken) < effort.calls and (
            len(taken) < FEWEST_CALLS or time.perf_counter() < ends
        ):
            begun = time.perf_counter()
            await self.call()
            taken.append(time.perf_counter() - begun)
        return taken


async def measure(route: str, era: str, effort: Effort, only: Iterable[str]) -> dict[str, Measured]:
    """All contestants of one route, in rounds."""
    with processes.scratch() as folder:
        async with contextlib.AsyncExitStack() as stack:
            everybody = contest(route, era, folder)
            if route == "http":
                upstream = str(everybody[0].reach)
                everybody += await contest_with_credentials(upstream, era, folder)
            contestants = [one for one in everybody if not only or one.name in only]
            # One after the other: a proxy may want its upstream to be there when it starts.
            listening = {
                port: stack.enter_context(processes.listening(port, program, folder))
                for port, program in list_programs(contestants).items()
            }
            seats: dict[str, Seat] = {}
            for one in contestants:
                before = set(psutil.Process().children())
                client = await stack.enter_async_context(_session(one, era, folder))
                program = (
                    listening[one.listens[0]]
                    if one.listens
                    else (set(psutil.Process().children()) - before).pop()
                )
                seats[one.name] = Seat(one, client, program)
            measured = {name: Measured() for name in seats}
            for seat in seats.values():
                await until_ready(seat.call)
                await seat.alone(effort)
            for _, name in turns(list(seats), effort.rounds):
                worked = seats[name].worked
                measured[name].alone.rounds.append(await seats[name].alone(effort))
                measured[name].worked += seats[name].worked - worked
    for name, rates in (
        await concurrent_callers.measure(
            route, era, effort.rounds, effort.crowd_calls, effort.turn_s, only
        )
    ).items():
        measured[name].crowd = rates
    return measured


@contextlib.asynccontextmanager
async def _session(contestant: Contestant, era: str, folder: Path) -> AsyncGenerator[Client]:
    log = folder / f"{contestant.listens[0] if contestant.listens else contestant.name}.log"
    with log.open("a") as sink:
        reach: Any = contestant.reach
        if isinstance(reach, list):
            program = StdioServerParameters(
                command=reach[0], args=reach[1:], cwd=processes.REPOSITORY
            )
            reach = stdio_client(program, sink)
        elif contestant.credential:
            headers = {"Authorization": f"Bearer {contestant.credential}"}
            reach = streamable_http_client(reach, http_client=create_mcp_http_client(headers))
        client = Client(
            reach,
            mode=programs.MODERN if era == "modern" else "legacy",
            read_timeout_seconds=READY_S,
        )
        try:
            await client.__aenter__()
        except Exception as error:  # whatever the SDK raises; the program itself may have said more
            why = "; ".join(map(str, _reasons(error)))
            raise processes.DidNotStart(
                f"{contestant.name} did not start ({why}); {processes.tail(log)}"
            ) from error
        try:
            yield client
        finally:
            await client.__aexit__(*sys.exc_info())


def tabulate(route: str, era: str, measured: dict[str, Measured]) -> Table:
    """One route's table; ratios are medians of the ratios within each round."""
    direct, relay = measured["direct"], measured.get("byte relay")
    rows = [
        (
            name,
            one.alone.percentile(0.5) * 1000,
            one.alone.percentile(0.99) * 1000,
            one.alone.ratio_to(direct.alone),
            one.alone.ratio_to(relay.alone) if relay else None,
            one.alone.percentile(0.1) / direct.alone.percentile(0.1),
            one.worked / len(one.alone.all) * 1000,
            median(one.crowd),
            median(own / its for own, its in zip(one.crowd, direct.crowd, strict=True)),
            len(one.alone.all),
        )
        for name, one in measured.items()
    ]
    columns = (
        "",
        "p50 ms",
        "p99 ms",
        "× direct",
        "× relay",
        "× at p10",
        "its CPU ms",
        f"{WORKERS}-way calls/s",
        "of direct",
        "calls",
    )
    return Table(f"{route}, {era} era", columns, tuple(rows))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--routes", nargs="+", choices=ROUTES, help="default: all; with --smoke http and stdio"
    )
    parser.add_argument(
        "--eras", nargs="+", choices=ERAS, help="default: both; with --smoke legacy"
    )
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument(
        "--calls", type=int, help=f"calls of a contestant in a round, default {FULL.calls}"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="CONTESTANT",
        help="these and `direct`; with --smoke not FastMCP",
    )
    parser.add_argument(
        "--goal", type=float, default=GOAL, help=f"times direct at p50, default {GOAL}"
    )
    options = parser.parse_args()
    report: Report | None = None
    try:
        report = asyncio.run(_report(options))
    except* processes.DidNotStart as failed:
        print(*_reasons(failed), sep="\n", file=sys.stderr)
    return conclude(report, options) if report else 2


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """Return what went wrong, without the groups that open sessions wrap it in."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _reasons(one)
    else:
        yield error


async def _report(options: argparse.Namespace) -> Report:
    base = SMOKE if options.smoke else FULL
    effort = Effort(
        options.rounds or base.rounds, options.calls or base.calls, base.crowd_calls, base.turn_s
    )
    chosen = options.only or (SMOKE_CONTESTANTS if options.smoke else ())
    only = {"direct", *chosen} if chosen else set[str]()
    tables: list[Table] = []
    goals: list[Goal] = []
    for route in options.routes or (("http", "stdio") if options.smoke else ROUTES):
        for era in options.eras or (("legacy",) if options.smoke else ERAS):
            print(f"{route}, {era} …", file=sys.stderr, flush=True)
            measured = await measure(route, era, effort, only)
            tables.append(tabulate(route, era, measured))
            if "portico" in measured and route != "http→stdio":
                ratio = measured["portico"].alone.ratio_to(measured["direct"].alone)
                goals.append(
                    Goal(f"portico, {route} {era}, × direct at sequential p50", ratio, options.goal)
                )
            if "portico jwt" in measured and "portico key" in measured:
                ratio = measured["portico jwt"].alone.ratio_to(measured["portico key"].alone)
                name = f"portico jwt, {route} {era}, × portico key at sequential p50"
                goals.append(Goal(name, ratio, TOKEN_GOAL))
            if "portico" in measured and "fastmcp shared" in measured:
                own, theirs = measured["portico"].crowd, measured["fastmcp shared"].crowd
                times = median(mine / its for mine, its in zip(own, theirs, strict=True))
                name = f"portico, {route} {era}, × the calls/s of fastmcp shared, {WORKERS}-way"
                goals.append(Goal(name, times, THROUGHPUT_GOAL, at_least=True))
    return Report("latency", tuple(tables), tuple(goals), {"effort": vars(effort)})


if __name__ == "__main__":
    sys.exit(main())
