"""Measures what hostile scripts do to everybody else: each runs through a gateway while another
client goes
on calling a tool.

The scripts are those of `tests/scripts/sandbox`; anyone who sends them is a process of its own. For
each: how it ended, how long it took, and what the other client's calls took meanwhile, as a
multiple of what they took between the attacks. Two floors are measured in the same way: a process
that has nothing to do with the gateway and only uses up a core (what it costs, the machine costs),
and scripts that mean no harm, one after another (what they cost, company costs). Last, what is left
behind: processes and memory.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
from mcp import Client

from benchmarks import processes, sandbox_tools
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

CPU_S, WALL_S = 1.0, 3.0
GRACE_S = 3.0
"""A limit is noticed, a process is ended and another one started."""
LEAST = 150
"""Calls of the other client that a figure is taken from; an attack is repeated until there are so
many."""
MOST_S = 6.0
QUIET = 40
"""Calls between two attacks; all of them together say what calls take when nothing is wrong."""
GOAL = 2.0
READY_S = 60.0
SPINNER = "(floor: a core used up outside of the gateway)"
COMPANY = "(floor: scripts that mean no harm)"
_SPIN = "while True: pass"


@dataclass(frozen=True)
class Attack:
    name: str
    language: str
    code: str
    allowed: tuple[str, ...] | str


@dataclass(frozen=True)
class Felt:
    """Describes how one attack went, and how it was felt."""

    attack: str
    language: str
    ended: str
    seconds: float
    calls: list[float]
    contained: bool


def attacks() -> list[Attack]:
    """Every hostile script there is."""
    from tests.scripts.sandbox import attacks_javascript, attacks_lua, attacks_python

    return [
        *(Attack(name, "python", code, allowed) for name, code, allowed in attacks_python.ATTACKS),
        *(Attack(name, "lua", code, allowed) for name, code, allowed in attacks_lua.ATTACKS),
        *(
            Attack(name, language, code, allowed)
            for name, language, code, allowed in attacks_javascript.ATTACKS
        ),
    ]


async def measure(options: argparse.Namespace) -> Report:
    """Every attack in turn, on one gateway."""
    chosen = [
        one
        for one in attacks()
        if options.only is None or options.only in f"{one.language} {one.name}"
    ]
    if options.smoke:
        chosen = chosen[:: max(1, len(chosen) // 8)]
    least, most = (40, 1.0) if options.smoke else (LEAST, MOST_S)
    quiet: list[float] = []
    with processes.scratch() as folder:
        port = processes.free_port()
        limits = {"cpu_s": CPU_S, "wall_s": WALL_S, "workers": 2}
        config = processes.write_config(folder, {"servers": sandbox_tools.SERVERS, "code": limits})
        # Not the command, whose path has no place for the victims: they are this repository's.
        command = [
            sys.executable,
            "-m",
            "portico",
            "serve",
            "--config",
            str(config),
            "--port",
            str(port),
        ]
        with processes.listening(port, command, folder) as gateway:
            url = f"http://127.0.0.1:{port}/mcp"
            async with (
                Client(url, mode="legacy", read_timeout_seconds=READY_S) as bystander,
                _attacker(url) as attacker,
            ):
                for language in ("python", "lua", "javascript", "typescript"):
                    await attacker("1 + 1", language)
                before = await _measure_leftovers(gateway)
                felt = [
                    await _measure_attack(SPINNER, "", _spinning, bystander, least, most),
                    await _run_attack(
                        Attack(COMPANY, "python", "6 * 7", "harmless"),
                        attacker,
                        bystander,
                        least,
                        most,
                    ),
                ]
                for number, attack in enumerate(chosen):
                    print(f"\r{number + 1} of {len(chosen)}", end="", file=sys.stderr, flush=True)
                    quiet += [await _call(bystander) for _ in range(QUIET)]
                    felt.append(await _run_attack(attack, attacker, bystander, least, most))
                print("\r", end="", file=sys.stderr)
                after = await _measure_leftovers(gateway)
    return _report(felt, quiet, before, after)


Strike = Callable[[str, str], Awaitable[str]]
"""Code and language → how it ended."""


async def _run_attack(
    attack: Attack, attacker: Strike, bystander: Any, least: int, most: float
) -> Felt:
    async def strike() -> str:
        return await attacker(attack.code, attack.language)

    return await _measure_attack(
        attack.name, attack.language, strike, bystander, least, most, attack.allowed
    )


@contextlib.asynccontextmanager
async def _attacker(url: str) -> AsyncGenerator[Strike]:
    """Somebody who sends scripts, in a process of its own: what that costs, it costs nobody who is
    measured."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.attacks", "--strike", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=processes.REPOSITORY,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    into, out = process.stdin, process.stdout

    async def strike(code: str, language: str) -> str:
        into.write(json.dumps({"code": code, "language": language}).encode() + b"\n")
        return (await out.readline()).decode().strip()

    try:
        yield strike
    finally:
        process.kill()
        await process.wait()


async def _strike(url: str) -> None:
    """The attacker's own process: a script a line, and how it ended."""
    async with Client(url, mode="legacy", read_timeout_seconds=READY_S) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            result: Any = await client.call_tool("run_code", json.loads(line))
            text: str = result.content[0].text
            print(
                text.removeprefix("script ").partition(":")[0] if result.is_error else "harmless",
                flush=True,
            )


async def _spinning() -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SPIN)
    try:
        await asyncio.sleep(CPU_S)
    finally:
        process.kill()
        await process.wait()
    return "–"


async def _measure_attack(
    name: str,
    language: str,
    strike: Callable[[], Awaitable[str]],
    bystander: Any,
    least: int,
    most: float,
    allowed: tuple[str, ...] | str = ("–",),
) -> Felt:
    during: list[float] = []
    longest, ended, begun_all = 0.0, "", time.perf_counter()
    while len(during) < least and (not ended or time.perf_counter() - begun_all < most):
        async with _calling(bystander) as meanwhile:
            begun = time.perf_counter()
            ended = await strike()
            longest = max(longest, time.perf_counter() - begun)
        during += meanwhile
    contained = (
        ended in allowed if isinstance(allowed, tuple) else ended == allowed
    ) and longest < WALL_S + GRACE_S
    return Felt(name, language, ended, longest, during, contained)


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
    result = await client.call_tool(
        "call_tool", {"name": "calculator.add", "arguments": {"a": 1, "b": 2}}
    )
    if result.is_error:
        raise SystemExit(f"another client's call failed: {result}")
    return time.perf_counter() - begun


async def _measure_leftovers(gateway: psutil.Process) -> tuple[int, float]:
    """Processes and megabytes of the gateway, when nothing has run for a moment."""
    await asyncio.sleep(2)
    return len(gateway.children(recursive=True)), gateway.memory_info().rss / 1024**2


def _report(
    felt: list[Felt], quiet: list[float], before: tuple[int, float], after: tuple[int, float]
) -> Report:
    floors, rest = felt[:2], felt[2:]
    usual = {share: percentile(quiet, share) for share in (0.5, 0.99)}

    def times(one: Felt, share: float) -> float:
        return percentile(one.calls, share) / usual[share]

    def rows(all_: list[Felt]) -> Iterator[tuple[Cell, ...]]:
        for one in all_:
            name = one.attack if one.contained else f"NOT CONTAINED: {one.attack}"
            yield (
                one.language,
                name[:60],
                one.ended,
                one.seconds,
                times(one, 0.5),
                times(one, 0.99),
                len(one.calls),
            )

    columns = ("", "script", "ended", "s", "p50 ×", "p99 ×", "calls")
    worst = sorted(rest, key=lambda one: -times(one, 0.99))
    shares = sorted(times(one, 0.99) for one in rest)
    within = sum(share <= GOAL for share in shares) / len(shares)
    left = (("processes", before[0], after[0]), ("gateway, MB", before[1], after[1]))
    return Report(
        "attacks",
        (
            Table(
                f"{len(rest)} hostile scripts ({CPU_S:g} s of computing, {WALL_S:g} s "
                "in all), the worst felt first",
                columns,
                tuple(rows([*floors, *worst])),
                "× is what another client's calls took, as a multiple of what they "
                "took between the attacks (p50 "
                f"{usual[0.5] * 1000:.1f} ms, p99 {usual[0.99] * 1000:.1f} ms).",
            ),
            Table("Left behind", ("", "before", "after"), left),
        ),
        (
            Goal("scripts that were not contained", sum(not one.contained for one in rest), 0, 0),
            Goal(
                "another client's p99 during an attack ÷ before, median",
                percentile(shares, 0.5),
                GOAL,
            ),
            Goal("… share of the attacks within the goal", within, 1.0, 0.1, at_least=True),
            Goal("processes left behind", max(0, after[0] - before[0]), 0, 0),
        ),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", help="only scripts whose language and name contain this"
    )
    parser.add_argument("--strike", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.strike:
        asyncio.run(_strike(options.strike))
        return 0
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
