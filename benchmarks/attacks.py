"""What hostile scripts do to everybody else: each runs through a gateway while another client goes on calling a tool.

The scripts are those of `tests/execution/sandbox`. For each: how it ended, how long it took, and what the other
client's calls took meanwhile, as a multiple of what they took just before. A process that has nothing to do with the
gateway and only uses up a core is measured in the same way, as the floor: what it costs, the machine costs, not the
gateway. Last, what is left behind: processes and memory.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
from mcp import Client

from benchmarks import processes, victims
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

CPU_S, WALL_S = 1.0, 3.0
GRACE_S = 3.0
"""A limit is noticed, a process is ended and another one started."""
LEAST = 150
"""Calls of the other client that a figure is taken from; an attack is repeated until there are so many."""
MOST_TIMES = 12
GOAL = 2.0
READY_S = 60.0
SPINNER = "(floor: a core used up outside of the gateway)"
_SPIN = "while True: pass"


@dataclass(frozen=True)
class Attack:
    name: str
    language: str
    code: str
    allowed: tuple[str, ...] | str


@dataclass(frozen=True)
class Felt:
    """How one attack went, and how it was felt."""

    attack: str
    language: str
    ended: str
    seconds: float
    p50: float
    p99: float
    calls: int
    contained: bool


def attacks() -> list[Attack]:
    """Every hostile script there is."""
    from tests.execution.sandbox import attacks_javascript, attacks_lua, attacks_python

    return [
        *(Attack(name, "python", code, allowed) for name, code, allowed in attacks_python.ATTACKS),
        *(Attack(name, "lua", code, allowed) for name, code, allowed in attacks_lua.ATTACKS),
        *(Attack(name, language, code, allowed) for name, language, code, allowed in attacks_javascript.ATTACKS),
    ]


async def measure(options: argparse.Namespace) -> Report:
    """Every attack in turn, on one gateway."""
    chosen = [one for one in attacks() if options.only is None or options.only in f"{one.language} {one.name}"]
    if options.smoke:
        chosen = chosen[:: max(1, len(chosen) // 8)]
    least, times = (40, 2) if options.smoke else (LEAST, MOST_TIMES)
    with processes.scratch() as folder:
        port = processes.free_port()
        limits = {"cpu_s": CPU_S, "wall_s": WALL_S, "workers": 2}
        config = processes.write_config(folder, {"servers": victims.SERVERS, "code": limits})
        # Not the command, whose path has no place for the victims: they are this repository's.
        command = [sys.executable, "-m", "portico", "serve", "--config", str(config), "--port", str(port)]
        with processes.listening(port, command, folder) as gateway:
            url = f"http://127.0.0.1:{port}/mcp"
            async with (
                Client(url, mode="legacy", read_timeout_seconds=READY_S) as bystander,
                Client(url, mode="legacy", read_timeout_seconds=READY_S) as attacker,
            ):
                for language in ("python", "lua", "javascript", "typescript"):
                    await attacker.call_tool("run_code", {"code": "1 + 1", "language": language})
                before = await _left(gateway)
                felt = [await _felt(SPINNER, "", _spinning, bystander, least, times)]
                for number, attack in enumerate(chosen):
                    print(f"\r{number + 1} of {len(chosen)}", end="", file=sys.stderr, flush=True)
                    felt.append(await _attacked(attack, attacker, bystander, least, times))
                print("\r", end="", file=sys.stderr)
                after = await _left(gateway)
    return _report(felt, before, after)


async def _attacked(attack: Attack, attacker: Any, bystander: Any, least: int, times: int) -> Felt:
    said: list[str] = []

    async def strike() -> str:
        result = await attacker.call_tool("run_code", {"code": attack.code, "language": attack.language})
        text: str = result.content[0].text
        said.append(text)
        return text.removeprefix("script ").partition(":")[0] if result.is_error else "harmless"

    return await _felt(attack.name, attack.language, strike, bystander, least, times, attack.allowed)


async def _spinning() -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SPIN)
    try:
        await asyncio.sleep(CPU_S)
    finally:
        process.kill()
        await process.wait()
    return "–"


async def _felt(
    name: str,
    language: str,
    strike: Callable[[], Awaitable[str]],
    bystander: Any,
    least: int,
    times: int,
    allowed: tuple[str, ...] | str = ("–",),
) -> Felt:
    quiet = [await _call(bystander) for _ in range(least)]
    during: list[float] = []
    longest, ended = 0.0, ""
    for _ in range(times):
        async with _calling(bystander) as meanwhile:
            begun = time.perf_counter()
            ended = await strike()
            longest = max(longest, time.perf_counter() - begun)
        during += meanwhile
        if len(during) >= least:
            break
    contained = (ended in allowed if isinstance(allowed, tuple) else ended == allowed) and longest < WALL_S + GRACE_S
    p50, p99 = (percentile(during, share) / percentile(quiet, share) for share in (0.5, 0.99))
    return Felt(name, language, ended, longest, p50, p99, len(during), contained)


@contextlib.asynccontextmanager
async def _calling(client: Any) -> AsyncGenerator[list[float]]:
    """Another client's calls, one after another, as long as this lasts."""
    taken: list[float] = []
    over = asyncio.Event()

    async def call() -> None:
        while not over.is_set():
            taken.append(await _call(client))

    calling = asyncio.create_task(call())
    try:
        yield taken
    finally:
        over.set()
        await calling


async def _call(client: Any) -> float:
    begun = time.perf_counter()
    result = await client.call_tool("call_tool", {"name": "calculator.add", "arguments": {"a": 1, "b": 2}})
    if result.is_error:
        raise SystemExit(f"another client's call failed: {result}")
    return time.perf_counter() - begun


async def _left(gateway: psutil.Process) -> tuple[int, float]:
    """Processes and megabytes of the gateway, when nothing has run for a moment."""
    await asyncio.sleep(2)
    return len(gateway.children(recursive=True)), gateway.memory_info().rss / 1024**2


def _report(felt: list[Felt], before: tuple[int, float], after: tuple[int, float]) -> Report:
    floor, *rest = felt

    def rows(all_: list[Felt]) -> Iterator[tuple[Cell, ...]]:
        for one in all_:
            name = one.attack if one.contained else f"NOT CONTAINED: {one.attack}"
            yield one.language, name[:60], one.ended, one.seconds, one.p50, one.p99, one.calls

    columns = ("", "script", "ended", "s", "p50 ×", "p99 ×", "calls")
    worst = sorted(rest, key=lambda one: -one.p99)
    shares = sorted(one.p99 for one in rest)
    left = (("processes", before[0], after[0]), ("gateway, MB", before[1], after[1]))
    return Report(
        "attacks",
        (
            Table(
                f"{len(rest)} hostile scripts ({CPU_S:g} s of computing, {WALL_S:g} s in all), the worst felt first",
                columns,
                tuple(rows([floor, *worst])),
                "× is what another client's calls took during the attack, as a multiple of just before.",
            ),
            Table("Left behind", ("", "before", "after"), left),
        ),
        (
            Goal("scripts that were not contained", sum(not one.contained for one in rest), 0, 0),
            Goal("another client's p99 during an attack ÷ before, median", percentile(shares, 0.5), GOAL),
            Goal("… of the worst attack", shares[-1], GOAL),
            Goal("processes left behind", max(0, after[0] - before[0]), 0, 0),
        ),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", metavar="TEXT", help="only scripts whose language and name contain this")
    options = parser.parse_args()
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
