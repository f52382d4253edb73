"""A hostile client and a hostile server beside a polite client: does anything they send hold up
everybody?

Every kind of input in `benchmarks/hostile` is sent through a real `portico serve`, as large as the
default limits let it in, while another client goes on calling a cheap tool. For each: how it ended,
how long it took, the longest pause of the gateway's event loop (in processor time, so that other
programs do not add to it), what the polite client's calls took as a multiple of what they take
between the attacks, and by how much memory grew. Floors are measured in the same way: a core used
up by a foreign process, and the same bytes without harm. With `--faults`, how long each fault of
`tests/faults` keeps the loop to itself, in one process.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import stall_faults
from benchmarks.hostile.all_kinds import BY_NAME, KINDS
from benchmarks.hostile.kinds import MIB, Kind
from benchmarks.hostile.trial import Felt, Trial
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

PAUSE_MS = 50.0
TIMES = 2.0
SHARE = 0.95
GROWTH_MB = 1_024.0
"""A message of 64 MB of empty lists is a gigabyte once it is decoded; nothing may take more."""
LEAST, SMOKE_LEAST = 100, 30
"""Calls of the polite client that a figure is taken from; an attack is repeated until there are so
many."""
AGAIN = 2
SMOKE = 12
SAID = 70
"""Characters of an answer that are shown: the first of it, or which limit refused the input."""
SPINNER = "(floor: a core used up outside of the gateway)"
FLOORS = ("(floor: small calls)", "(floor: 4 MB, one text)", "(floor: answer of 64 MB, one text)")
"""What company costs; the last two with as many bytes as the attacks have."""


def chosen(options: argparse.Namespace) -> list[Kind]:
    """The kinds that are asked for."""
    if options.only:
        return [one for one in KINDS if options.only in f"{one.sender} {one.meets}: {one.name}"]
    return list(KINDS[3 :: len(KINDS) // SMOKE] if options.smoke else KINDS)


async def measure(options: argparse.Namespace) -> Report:
    """Every kind in turn."""
    kinds = chosen(options)
    with tempfile.TemporaryDirectory() as folder:
        places = Path(folder) / "stacks" if options.where else None
        trial = Trial(SMOKE_LEAST if options.smoke else LEAST, places)
        try:
            floors = [await trial.spin(SPINNER)]
            floors += [await trial.strike(BY_NAME[name]) for name in FLOORS]
            felt: list[Felt] = []
            for number, kind in enumerate(kinds):
                felt.append(one := await _strike(trial, kind))
                said = f"{kind.name}: {one.ended}, pause {one.pause_ms:.0f} ms"
                print(f"{number + 1} of {len(kinds)}: {said}", file=sys.stderr, flush=True)
        finally:
            await trial.close()
    return _report(floors, felt, trial.quiet)


async def _strike(trial: Trial, kind: Kind) -> Felt:
    """One kind; where only the polite client's calls took long, which may be others' doing, the
    best of three."""
    felt = await trial.strike(kind)
    for _ in range(AGAIN):
        usual = percentile(trial.quiet, 0.99)
        if felt.hung or felt.pause_ms > PAUSE_MS or percentile(felt.calls, 0.99) <= TIMES * usual:
            break
        again = await trial.strike(kind)
        if percentile(again.calls, 0.99) < percentile(felt.calls, 0.99):
            felt.calls = again.calls
        felt.pause_ms = max(felt.pause_ms, again.pause_ms)
        felt.growth_mb = max(felt.growth_mb, again.growth_mb)
    return felt


def _report(floors: list[Felt], felt: list[Felt], quiet: list[float]) -> Report:
    usual = percentile(quiet, 0.99)

    def times(one: Felt) -> float:
        return percentile(one.calls, 0.99) / usual if one.calls else float("inf")

    def rows(some: list[Felt]) -> Iterator[tuple[Cell, ...]]:
        for one in some:
            yield (
                *(one.sender, one.meets, one.name, one.ended, one.sent / MIB, one.seconds),
                *(one.pause_ms, times(one), one.growth_mb, one.said.replace("\\n", " ")[:SAID]),
                *([one.where] if where else []),
            )

    where = any(one.where for one in felt)
    worst = sorted(felt, key=lambda one: (-one.hung, -one.pause_ms))
    columns = (
        "sent by",
        "meets",
        "input",
        "ended",
        "sent MB",
        "s",
        "pause ms",
        "p99 ×",
        "MB",
        "said",
    )
    columns = (*columns, "where") if where else columns
    within = sum(times(one) <= TIMES for one in felt) / len(felt)
    paused = sum(one.pause_ms <= PAUSE_MS for one in felt) / len(felt)
    title = f"{len(felt)} kinds of hostile input beside a polite client, the longest pause first"
    usual_ms = f"p50 {percentile(quiet, 0.5) * 1000:.1f} ms, p99 {usual * 1000:.1f} ms"
    note = (
        "pause: longest turn of the event loop, or the interpreter's lock held, in processor time. p99 ×: the polite "
        f"client's calls, as a multiple of those between the attacks ({usual_ms}), the best of three where it is over "
        f"{TIMES:g}. MB: growth of the gateway's peak memory; {GROWTH_MB:,.0f} is the bound."
    )
    return Report(
        "stalls",
        (Table(title, columns, tuple(rows([*floors, *worst])), note),),
        (
            Goal("longest pause, the worst kind, ms", max(one.pause_ms for one in felt), PAUSE_MS),
            Goal("… share of the kinds within that", paused, 1.0, 0, at_least=True),
            Goal(
                "share of the kinds with the polite client's p99 ≤ 2×",
                within,
                SHARE,
                0,
                at_least=True,
            ),
            Goal("kinds that hang or end the gateway", sum(one.hung for one in felt), 0, 0),
            Goal("largest growth of memory, MB", max(one.growth_mb for one in felt), GROWTH_MB),
        ),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", help="only inputs whose sender, place and name contain this"
    )
    parser.add_argument(
        "--where",
        action="store_true",
        help="say where the gateway computed most, by sampling stacks",
    )
    parser.add_argument(
        "--faults", action="store_true", help="the faults of tests/faults, in one process"
    )
    options = parser.parse_args()
    report = stall_faults.measure(options) if options.faults else asyncio.run(measure(options))
    return conclude(report, options)


if __name__ == "__main__":
    sys.exit(main())
