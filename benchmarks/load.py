"""Measures how much a gateway bears, beside its peers, and what it does when it is asked for four
times
that.

First, 1 to 256 clients call the echo tool as fast as they are answered, each over a connection (and
in the handshake era a session) of its own: calls a second, and how long the slowest hundredth took.
Contestants as in
`benchmarks.latency`, in turns. All of them wait for the same echo server, and everyone shares the
machine's processors
with the clients: compare within a table.

Then, one Portico with few places before a server that thinks for a while is offered calls at a
fixed pace, whatever comes back: half of what it bears, then four times as much, then half again.
`shed` are calls that were turned away, with advice when to come again. A second client, which asks
for one thing after the other, is there all the time. Times count from when a call was due, so that
nobody looks quick by asking late.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from benchmarks import processes, programs
from benchmarks.latency import ERAS, READY_S, Contestant, contest
from benchmarks.light_clients import LightClient, NoAnswer, open_light_client, open_light_clients
from benchmarks.rounds import percentile, turns
from benchmarks.table import Goal, Report, Table, arguments, conclude

LEVELS = (1, 16, 64, 256)
CONTESTANTS = ("direct", "byte relay", "portico", "portico call_tool", "fastmcp shared")
TIMES = 4
PLACES, LINE = 16, 16
THINKS_MS = 250.0
BACK_GOAL = 1.5
REFUSAL_GOAL_MS = 100.0
_TEXT = "The quick brown fox jumps over the lazy dog. " * 4


@dataclass(frozen=True)
class Effort:
    """Describes how much is measured."""

    levels: tuple[int, ...]
    rounds: int
    turn_s: float
    calm_s: float
    flood_s: float


FULL = Effort(LEVELS, rounds=3, turn_s=2.0, calm_s=4.0, flood_s=8.0)
SMOKE = Effort((1, 16), rounds=1, turn_s=0.5, calm_s=1.0, flood_s=1.5)
SMOKE_CONTESTANTS = ("direct", "byte relay", "portico")


@dataclass
class Level:
    """Describes what one contestant did for so many clients."""

    seconds: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])


# --- as fast as they are answered


async def crowd(
    there: Sequence[LightClient], contestant: Contestant, turn_s: float, numbers: "count[int]"
) -> Level:
    """Everyone calls, again and again, until the turn is over."""
    measured = Level()
    begun = time.perf_counter()
    ends = begun + turn_s

    async def work(one: LightClient) -> None:
        while (asked := time.perf_counter()) < ends:
            text = f"{next(numbers)} {_TEXT}"
            answer = await one.call(contestant.tool, contestant.arguments(text))
            if not _says(answer, text):
                raise NoAnswer(f"{contestant.name} answered {str(answer)[:300]}")
            measured.seconds.append(time.perf_counter() - asked)

    await asyncio.gather(*map(work, there))
    measured.rates.append(len(measured.seconds) / (time.perf_counter() - begun))
    return measured


def _says(answer: Mapping[str, Any], text: str) -> bool:
    content = answer.get("result", {}).get("content") or [{}]
    return content[0].get("text") == text


async def measure(era: str, effort: Effort, only: Sequence[str]) -> dict[str, dict[int, Level]]:
    """All contestants of one era, at every level, in rounds."""
    numbers = count()
    with processes.scratch() as folder, contextlib.ExitStack() as stack:
        there = {one.name: one for one in contest("http", era, folder) if one.name in only}
        started = dict(filter(None, (one.listens for one in there.values())))
        for port, program in started.items():
            stack.enter_context(processes.listening(port, program, folder))
        measured = {name: {level: Level() for level in effort.levels} for name in there}
        for one in there.values():
            await _until_ready(one, era)
        for level in effort.levels:
            for _, name in turns(list(there), effort.rounds):
                print(f"  {level} of {name}", file=sys.stderr, flush=True)
                async with open_light_clients(level, str(there[name].reach), era) as crowded:
                    turn = await crowd(crowded, there[name], effort.turn_s, numbers)
                measured[name][level].seconds += turn.seconds
                measured[name][level].rates += turn.rates
    return measured


async def _until_ready(contestant: Contestant, era: str) -> None:
    """A gateway may listen before it has listed its server."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            async with open_light_clients(1, str(contestant.reach), era) as (one,):
                if _says(await one.call(contestant.tool, contestant.arguments("ready?")), "ready?"):
                    return
        except (NoAnswer, OSError):
            pass
        if time.monotonic() > deadline:
            raise processes.DidNotStart(f"{contestant.name} did not answer within {READY_S:g} s")
        await asyncio.sleep(0.05)


def tabulate(era: str, measured: dict[str, dict[int, Level]]) -> Table:
    """One era's table."""
    levels = list(next(iter(measured.values())))
    columns = [
        "",
        *(f"{level} clients/s" for level in levels),
        *(f"p99 ms at {level}" for level in levels),
    ]
    rows = [
        (
            name,
            *(median(at[level].rates) for level in levels),
            *(percentile(at[level].seconds, 0.99) * 1000 for level in levels),
        )
        for name, at in measured.items()
    ]
    heads = tuple(column.replace(" clients/s", " clients, calls/s") for column in columns)
    return Table(f"as fast as they are answered, {era} era", heads, tuple(rows))


# --- four times what it bears


@dataclass
class Phase:
    """Describes what became of calls that were due at a fixed pace."""

    accepted: list[float] = field(default_factory=list[float])
    refused: list[float] = field(default_factory=list[float])
    advised: list[float] = field(default_factory=list[float])
    wrong: int = 0
    polite: list[float] = field(default_factory=list[float])
    polite_refused: int = 0

    @property
    def all(self) -> int:
        return len(self.accepted) + len(self.refused) + self.wrong


class Flood:
    """Calls at a fixed pace over as many connections as that takes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._free: list[LightClient] = []
        self._numbers = count()
        self._under_way: list[asyncio.Task[None]] = []

    async def offer(self, per_s: float, seconds: float, polite: LightClient) -> Phase:
        """Return what becomes of them; `answered` waits for those that are under way at its end."""
        phase = Phase()
        begun = time.perf_counter()
        self._under_way.append(asyncio.create_task(self._talk(polite, begun + seconds, phase)))
        for number in range(int(per_s * seconds)):
            due = begun + number / per_s
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            self._under_way.append(asyncio.create_task(self._call(due, phase)))
        return phase

    async def answered(self) -> None:
        """Until everything that was asked is answered."""
        await asyncio.gather(*self._under_way)

    async def _call(self, due: float, phase: Phase) -> None:
        one = (
            self._free.pop()
            if self._free
            else await open_light_client(self._url, "modern", "flood")
        )
        text = f"{next(self._numbers)} {_TEXT}"
        try:
            answer = await one.call("call_tool", {"name": "echo.echo", "arguments": {"text": text}})
        except (NoAnswer, OSError, TimeoutError):
            phase.wrong += 1
            return
        taken = time.perf_counter() - due
        self._free.append(one)
        error = answer.get("result", {}).get("_meta", {}).get("portico/error", {})
        if _says(answer, text):
            phase.accepted.append(taken)
        elif "turned_away" in answer:
            phase.refused.append(taken)
            phase.advised.append(answer["turned_away"])
        elif error.get("kind") == "overloaded" and error.get("retryable"):
            phase.refused.append(taken)
            phase.advised.append(error["retry_after_s"])
        else:
            phase.wrong += 1

    async def _talk(self, one: LightClient, ends: float, phase: Phase) -> None:
        while (asked := time.perf_counter()) < ends:
            text = f"polite {next(self._numbers)}"
            answer = await one.call("call_tool", {"name": "echo.echo", "arguments": {"text": text}})
            if _says(answer, text):
                phase.polite.append(time.perf_counter() - asked)
            else:
                phase.polite_refused += 1

    def close(self) -> None:
        for one in self._free:
            one.close()


async def saturate(effort: Effort) -> tuple[float, dict[str, Phase]]:
    """Return what one gateway with few places bears, and what became of each pace."""
    port, gateway = processes.free_port(), processes.free_port()
    url = f"http://127.0.0.1:{gateway}/mcp"
    limits = {
        "requests": PLACES,
        "waiting": LINE,
        "caller_requests": PLACES - 4,
        "caller_waiting": LINE // 2,
    }
    with processes.scratch() as folder, contextlib.ExitStack() as stack:
        echo = programs.command("upstream", port=port, delay_ms=THINKS_MS)
        config = {
            "servers": {"echo": {"url": f"http://127.0.0.1:{port}/mcp", "protocol": "modern"}},
            "limits": {**limits, "wait_s": 2},
        }
        serve = [
            *processes.portico(),
            "serve",
            "--config",
            str(processes.write_config(folder, config)),
        ]
        stack.enter_context(processes.listening(port, echo, folder))
        stack.enter_context(processes.listening(gateway, [*serve, "--port", str(gateway)], folder))
        contestant = Contestant("portico", url, "call_tool")
        await _until_ready(contestant, "modern")
        # No more than one client's places, so that nobody waits while it is found out.
        async with open_light_clients(PLACES - 4, url, "modern", "flood") as some:
            await crowd(
                some, contestant, 1.0, count()
            )  # connections to the server are opened first
            capacity = (await crowd(some, contestant, effort.calm_s, count())).rates[0]
        flood = Flood(url)
        stack.callback(flood.close)
        paces = {
            "half, before": (0.5, effort.calm_s),
            f"{TIMES} times": (TIMES, effort.flood_s),
            # At once: what the flood left behind is part of it.
            "half, the second after": (0.5, 1.0),
            "half, later": (0.5, effort.calm_s),
        }
        phases: dict[str, Phase] = {}
        for name, (times, seconds) in paces.items():
            polite = await open_light_client(url, "modern", "polite")
            stack.callback(polite.close)
            phases[name] = await flood.offer(capacity * times, seconds, polite)
        await flood.answered()
    return capacity, phases


def tabulate_phases(capacity: float, phases: dict[str, Phase]) -> Table:
    """Return what became of each pace."""
    columns = (
        "offered",
        "calls",
        "shed %",
        "p50 ms",
        "p99 ms",
        "refusal p50 ms",
        "refusal p99 ms",
        "advice s",
        "wrong",
        "polite p50 ms",
        "polite p99 ms",
        "polite shed",
    )
    rows = [
        (
            name,
            phase.all,
            100 * len(phase.refused) / phase.all,
            *_both(phase.accepted),
            *_both(phase.refused),
            median(phase.advised) if phase.advised else None,
            phase.wrong,
            *_both(phase.polite),
            phase.polite_refused,
        )
        for name, phase in phases.items()
    ]
    title = (
        f"{PLACES} places before a server that thinks for {THINKS_MS:g} ms: it bears "
        f"{capacity:,.0f} calls/s"
    )
    return Table(title, columns, tuple(rows))


def _both(seconds: Sequence[float]) -> tuple[float | None, float | None]:
    if not seconds:
        return None, None
    return percentile(seconds, 0.5) * 1000, percentile(seconds, 0.99) * 1000


def _goals(phases: dict[str, Phase]) -> list[Goal]:
    before, flood, after, _ = phases.values()
    back = percentile(after.accepted, 0.5) / percentile(before.accepted, 0.5)
    wrong = sum(phase.wrong for phase in phases.values())
    return [
        Goal("p50 in the second after the flood, × before", back, BACK_GOAL),
        Goal(
            f"p99 of a refusal at {TIMES} times, ms",
            percentile(flood.refused, 0.99) * 1000,
            REFUSAL_GOAL_MS,
            1.0,
        ),
        Goal(UNANSWERED, wrong, 0, 0),
        Goal(
            "calls of a polite client that were turned away meanwhile", flood.polite_refused, 0, 0
        ),
    ]


UNANSWERED = "calls without a right answer or advice"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--quick", dest="smoke", action="store_true", help="the same as --smoke")
    parser.add_argument(
        "--eras", nargs="+", choices=ERAS, help="default: both; with --smoke modern"
    )
    parser.add_argument("--levels", nargs="+", type=int, help=f"clients at once, default {LEVELS}")
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, help="with --smoke not FastMCP")
    parser.add_argument("--no-peers", action="store_true", help="only the flood")
    options = parser.parse_args()
    try:
        report = asyncio.run(_report(options))
    except processes.DidNotStart as failed:
        print(failed, file=sys.stderr)
        return 2
    # How fast it is depends on the machine; whether every call has its answer does not.
    unanswered = any(goal.measured for goal in report.goals if goal.name == UNANSWERED)
    return conclude(report, options) or int(unanswered)


async def _report(options: argparse.Namespace) -> Report:
    base = SMOKE if options.smoke else FULL
    levels, rounds = tuple(options.levels or base.levels), options.rounds or base.rounds
    effort = Effort(levels, rounds, base.turn_s, base.calm_s, base.flood_s)
    only = options.only or (SMOKE_CONTESTANTS if options.smoke else CONTESTANTS)
    tables: list[Table] = []
    if not options.no_peers:
        for era in options.eras or (("modern",) if options.smoke else ERAS):
            print(f"{era} …", file=sys.stderr, flush=True)
            tables.append(tabulate(era, await measure(era, effort, only)))
    print("flood …", file=sys.stderr, flush=True)
    capacity, phases = await saturate(effort)
    tables.append(tabulate_phases(capacity, phases))
    return Report("load", tuple(tables), tuple(_goals(phases)), {"effort": vars(effort)})


if __name__ == "__main__":
    sys.exit(main())
