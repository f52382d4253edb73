"""A hostile client and a hostile server beside a polite client: does anything they send hold up everybody?

Every kind of input in `benchmarks/hostile` is sent through a real `portico serve`, as large as the default limits let
it in, while another client goes on calling a cheap tool. For each: how it ended, how long it took, the longest pause
of the gateway's event loop (in processor time, so that other programs do not add to it), what the polite client's calls
took as a multiple of what they take between the attacks, and by how much memory grew. Floors are measured in the same
way: a core used up by a foreign process, and the same bytes without harm. With `--faults`, how long each fault
of `tests/faults` keeps the loop to itself, in one process.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import stall_faults
from benchmarks.hostile import stacks
from benchmarks.hostile.all_kinds import BY_NAME, KINDS
from benchmarks.hostile.kinds import MIB, Kind
from benchmarks.hostile.running import Lost, Measured, measured
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.visitors import NoAnswer, Visitor

PAUSE_MS = 50.0
TIMES = 2.0
SHARE = 0.95
GROWTH_MB = 1_024.0
"""A message of 64 MB is 64 MB of text and, decoded, up to 14 times that in empty lists; not twice over, and no more."""
HANG_S = 15.0
"""An input that is not answered by then hangs."""
KILL_MB = 4_096.0
LEAST, SMOKE_LEAST = 100, 30
"""Calls of the polite client that a figure is taken from; an attack is repeated until there are so many."""
MOST_S = 1.5
QUIET = 25
"""Calls between two attacks; all of them together say what calls take when nothing is wrong."""
SMOKE = 14
SPINNER = "(floor: a core used up outside of the gateway)"
SPIN_S = 2.0
FLOORS = ("(floor: small calls)", "(floor: 4 MB, one text)", "(floor: answer of 64 MB, one text)")
"""What company costs; the last two with as many bytes as the attacks have."""


@dataclass(frozen=True)
class Felt:
    """How one kind of input went, and how it was felt."""

    name: str
    sender: str
    meets: str
    ended: str
    said: str
    sent: int
    seconds: float
    pause_ms: float
    calls: list[float]
    growth_mb: float
    where: str = ""

    @property
    def hung(self) -> bool:
        return self.ended in ("HUNG", "DIED")


@contextlib.asynccontextmanager
async def _calling(client: Visitor) -> AsyncGenerator[list[float]]:
    """The polite client's calls, one after another, as long as this lasts; a call that is never answered counts too."""
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
        begun = time.perf_counter()
        await asyncio.wait({calling}, timeout=HANG_S)
        if not calling.done() or calling.exception() is not None:
            calling.cancel()
            taken.append(time.perf_counter() - begun + HANG_S)


async def _call(client: Visitor) -> float:
    begun = time.perf_counter()
    answer = await client.call("call_tool", {"name": "calculator.add", "arguments": {"a": 1, "b": 2}})
    if "result" not in answer:
        raise NoAnswer(f"a polite call was answered with {str(answer)[:200]}")
    return time.perf_counter() - begun


class Trial:
    """Sends one kind after another to one gateway, and takes another gateway where one is lost."""

    def __init__(self, least: int, places: Path | None) -> None:
        self._least, self._places = least, places
        self._stack = contextlib.AsyncExitStack()
        self._gateway: Measured | None = None
        self._round = 0
        self.quiet: list[float] = []

    async def close(self) -> None:
        """End the gateway."""
        self._gateway = None
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()

    async def _ready(self) -> Measured:
        if self._gateway is None:
            self._gateway = await self._stack.enter_async_context(measured(self._places))
        return self._gateway

    async def spin(self) -> Felt:
        """What calls take while a foreign process uses up a core."""
        gateway = await self._ready()
        await gateway.pauses()
        async with gateway.client() as polite, _calling(polite) as calls:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
            await asyncio.sleep(SPIN_S)
            process.kill()
            await process.wait()
        return Felt(SPINNER, "", "", "–", "", 0, SPIN_S, (await gateway.pauses()).longest, calls, 0.0)

    async def strike(self, kind: Kind) -> Felt:
        """One kind, as often as it takes."""
        gateway = await self._ready()
        async with gateway.client() as polite:
            self.quiet += [await _call(polite) for _ in range(QUIET)]
            return await self._struck(gateway, kind, polite)

    async def _struck(self, gateway: Measured, kind: Kind, polite: Visitor) -> Felt:
        await gateway.pauses()
        before = gateway.forget_peak()
        done: dict[str, object] = {"ended": "", "said": "", "sent": 0}
        longest, begun = 0.0, time.perf_counter()
        async with (
            _watched(gateway, before),
            stacks.sampled(gateway.process, self._places),
            _calling(polite) as calls,
        ):
            try:
                async with asyncio.timeout(HANG_S):
                    begun_at = time.perf_counter()
                    await self._become(gateway, kind)
                    await gateway.attack(kind=kind.name, prepare=True)
                    first = True
                    while first or (len(calls) < self._least and time.perf_counter() - begun < MOST_S):
                        begun_at = time.perf_counter() if not (first and kind.relists) else begun_at
                        if kind.relists and not first:
                            await self._become(gateway, kind)
                        done = await gateway.attack(kind=kind.name, round=self._round)
                        longest = max(longest, time.perf_counter() - begun_at)
                        first = False
            except TimeoutError:
                done |= {"ended": "HUNG", "peak": gateway.memory()}
                gateway.process.kill()
            except (Lost, NoAnswer, OSError) as error:
                done |= {"ended": "DIED", "said": str(error)}
        return await self._felt(gateway, kind, done, longest or time.perf_counter() - begun, calls, before)

    async def _felt(
        self, gateway: Measured, kind: Kind, done: dict[str, object], seconds: float, calls: list[float], before: float
    ) -> Felt:
        growth, pause = float(str(done.get("peak", before))) - before, seconds * 1000
        lost = done["ended"] in ("HUNG", "DIED", "lost")
        try:
            if not lost:
                await gateway.idle()
                growth = gateway.memory() - before
                pause = (await gateway.pauses()).longest
        except (OSError, TimeoutError):
            lost = True
        where = stacks.find_busiest(self._places)
        if not lost:
            try:
                await self._become(gateway, None)
                await gateway.idle()
            except (NoAnswer, OSError):
                lost = True
        if lost or not gateway.process.is_running():
            with contextlib.suppress(Exception):
                gateway.process.kill()
            await self.close()
        said, sent = str(done.get("said", "")), int(str(done.get("sent", 0)))
        return Felt(
            *(kind.name, kind.sender, kind.meets, str(done["ended"]), said, sent),
            *(seconds, pause, calls, growth, where),
        )

    async def _become(self, gateway: Measured, kind: Kind | None) -> None:
        self._round += 1
        await gateway.become(kind.name if kind is not None else "", self._round)


@contextlib.asynccontextmanager
async def _watched(gateway: Measured, before: float) -> AsyncGenerator[None]:
    """End a gateway that takes the memory of the machine."""

    async def watch() -> None:
        while gateway.memory("VmRSS") - before < KILL_MB:
            await asyncio.sleep(0.1)
        gateway.process.kill()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await watching


def chosen(options: argparse.Namespace) -> list[Kind]:
    """The kinds that are asked for."""
    kinds = [one for one in KINDS if not one.name.startswith("(")]
    if options.only:
        return [one for one in kinds if options.only in f"{one.sender} {one.meets}: {one.name}"]
    return kinds[:: len(kinds) // SMOKE] if options.smoke else kinds


async def measure(options: argparse.Namespace) -> Report:
    """Every kind in turn."""
    kinds = chosen(options)
    with tempfile.TemporaryDirectory() as folder:
        places = Path(folder) / "stacks" if options.where else None
        trial = Trial(SMOKE_LEAST if options.smoke else LEAST, places)
        try:
            floors = [await trial.spin()]
            floors += [await trial.strike(BY_NAME[name]) for name in FLOORS]
            felt: list[Felt] = []
            for number, kind in enumerate(kinds):
                felt.append(one := await trial.strike(kind))
                said = f"{kind.name}: {one.ended}, pause {one.pause_ms:.0f} ms"
                print(f"{number + 1} of {len(kinds)}: {said}", file=sys.stderr, flush=True)
        finally:
            await trial.close()
    return _report(floors, felt, trial.quiet)


def _report(floors: list[Felt], felt: list[Felt], quiet: list[float]) -> Report:
    usual = percentile(quiet, 0.99)

    def times(one: Felt) -> float:
        return percentile(one.calls, 0.99) / usual if one.calls else float("inf")

    def rows(some: list[Felt]) -> Iterator[tuple[Cell, ...]]:
        for one in some:
            stopped = one.where or one.said.replace("\\n", " ")
            yield (
                *(one.sender, one.meets[:32], one.name[:52], one.ended, one.sent / MIB, one.seconds),
                *(one.pause_ms, times(one), one.growth_mb, stopped[:90]),
            )

    worst = sorted(felt, key=lambda one: (-one.hung, -one.pause_ms))
    columns = ("sent by", "meets", "input", "ended", "sent MB", "s", "pause ms", "p99 ×", "MB", "said, or where")
    within = sum(times(one) <= TIMES for one in felt) / len(felt)
    paused = sum(one.pause_ms <= PAUSE_MS for one in felt) / len(felt)
    title = f"{len(felt)} kinds of hostile input beside a polite client, the longest pause first"
    note = (
        f"pause: longest turn of the event loop, or the interpreter's lock held, in processor time. p99 ×: the polite "
        f"client's calls, as a multiple of those between the attacks (p50 {percentile(quiet, 0.5) * 1000:.1f} ms, "
        f"p99 {usual * 1000:.1f} ms). MB: growth of the gateway's peak memory; {GROWTH_MB:.0f} is the bound."
    )
    return Report(
        "stalls",
        (Table(title, columns, tuple(rows([*floors, *worst])), note),),
        (
            Goal("longest pause, the worst kind, ms", max(one.pause_ms for one in felt), PAUSE_MS),
            Goal("… share of the kinds within that", paused, 1.0, 0, at_least=True),
            Goal("share of the kinds with the polite client's p99 ≤ 2×", within, SHARE, 0, at_least=True),
            Goal("kinds that hang or end the gateway", sum(one.hung for one in felt), 0, 0),
            Goal("largest growth of memory, MB", max(one.growth_mb for one in felt), GROWTH_MB),
        ),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", metavar="TEXT", help="only inputs whose sender, place and name contain this")
    parser.add_argument("--where", action="store_true", help="say where the gateway computed most, by sampling stacks")
    parser.add_argument("--faults", action="store_true", help="the faults of tests/faults, in one process")
    options = parser.parse_args()
    report = stall_faults.measure(options) if options.faults else asyncio.run(measure(options))
    return conclude(report, options)


if __name__ == "__main__":
    sys.exit(main())
