"""A hostile client and a hostile server beside a polite client: does anything they send hold up
everybody?

Every kind of input in `benchmarks/hostile` is sent through a real `portico serve`, as large as the
default limits let it in, while another client goes on calling a cheap tool. For each: how it ended,
how long it took, the longest pause of the gateway's event loop, the p99 of the polite client's
calls, and by how much memory grew. Pauses are processor time, and of a call's time is left out how
long the polite client or the gateway's loop was ready and had no processor, so that other programs
do not add to either.

The p99 is a multiple of what as many calls took directly before and after beside a *harmless*
client, which sends requests of the same kind and size (small calls, searches, scripts, 4 MB of one
text, …) one after the other as fast as it can, or has the server answer with as many bytes. Anyone
who uses a gateway makes the others wait for their share of one event loop, and more bytes take a
larger share of it, so a multiple of what calls take alone would count company, not harm; the floor
"nobody else" says how much that is. "small ×" is the multiple beside small requests.

The machine's noise does not repeat and a stall does: a kind that is not far within both limits is
measured three times, and the median counts. Floors are measured in the same way: nobody else, a
core used up by a foreign process, and the same bytes without harm. Linux may apply `nice` within a
terminal session only; `/proc/self/autogroup` then gives a run precedence over other sessions.

A whole run takes an hour; `--keep FILE --minutes N` makes it in portions.

With `--faults`, how long each fault of `tests/faults` keeps the loop to itself, in one process.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import stall_faults
from benchmarks.hostile.all_kinds import BY_NAME, KINDS
from benchmarks.hostile.kept import Kept, append, read_kept
from benchmarks.hostile.kinds import MIB, Kind
from benchmarks.hostile.running import sum_waits
from benchmarks.hostile.trial import Felt, Trial
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

PAUSE_MS = 50.0
TIMES = 2.0
SHARE = 0.95
GROWTH_MB = 1_024.0
"""A message of 64 MB of empty lists is a gigabyte once it is decoded; nothing may take more."""
LEAST, SMOKE_LEAST = 200, 30
"""Calls of the polite client that a figure is taken from; an attack is repeated until there are so
many, or for MOST_S."""
ROUNDS, CLEAR_TIMES = 3, 1.5
"""How often a kind is measured that does not stay within half of the pause and this multiple the
first time. A stall is there every time, what other programs of the machine do is not."""
SMOKE = 6
SAID = 70
"""Characters of an answer that are shown: the first of it, or which limit refused the input."""
ALONE = "(floor: nobody else)"
SPINNER = "(floor: a core used up outside of the gateway)"
FLOORS = ("(floor: small calls)", "(floor: 4 MB, one text)", "(floor: answer of 64 MB, one text)")
"""Harmless calls; the last two with as many bytes as the attacks have."""


def choose_kinds(options: argparse.Namespace) -> list[Kind]:
    """The kinds that are asked for."""
    if options.only:
        return [
            kind
            for kind in KINDS
            if any(text in f"{kind.sender} {kind.meets}: {kind.name}" for text in options.only)
        ]
    return list(KINDS[3 :: len(KINDS) // SMOKE] if options.smoke else KINDS)


async def measure(options: argparse.Namespace) -> Report:
    """Every kind in turn, but for those that an earlier portion of the run has measured."""
    kinds = choose_kinds(options)
    kept = read_kept(options.keep)
    until = time.monotonic() + 60 * (options.minutes or float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        places = Path(folder) / "stacks" if options.where else None
        trial = Trial(SMOKE_LEAST if options.smoke else LEAST, places)

        async def measure_one(name: str, measuring: Awaitable[Felt]) -> None:
            felt = await measuring
            kept[name] = Kept(felt, trial.waits.take())
            append(options.keep, kept[name])

        try:
            for name, measuring in _list_floors(trial):
                if name not in kept:
                    await measure_one(name, measuring())
            for number, kind in enumerate(kinds):
                if kind.name in kept:
                    continue
                if time.monotonic() > until:
                    break
                await measure_one(kind.name, _strike(trial, kind, 1 if options.smoke else ROUNDS))
                one = kept[kind.name].felt
                said = f"{kind.name}: {one.ended}, {one.pause_ms:.0f} ms, {one.times:.2f}×"
                print(f"{number + 1} of {len(kinds)}: {said}", file=sys.stderr, flush=True)
        finally:
            await trial.close()
    return _report(
        [kept[name].felt for name, _ in _list_floors(trial)],
        [kept[kind.name].felt for kind in kinds if kind.name in kept],
        len(kinds),
        sum_waits([one.waits for one in kept.values()]).share,
    )


def _list_floors(trial: Trial) -> list[tuple[str, Callable[[], Awaitable[Felt]]]]:
    return [
        (ALONE, lambda: trial.wait_alone(ALONE)),
        (SPINNER, lambda: trial.spin(SPINNER)),
        *((name, partial(trial.strike, BY_NAME[name])) for name in FLOORS),
    ]


async def _strike(trial: Trial, kind: Kind, most: int) -> Felt:
    """One kind; so many times unless the first is far within both limits."""
    rounds = [await trial.strike(kind)]
    first = rounds[0]
    if first.pause_ms > PAUSE_MS / 2 or first.times > CLEAR_TIMES:
        while len(rounds) < most and not rounds[-1].hung:
            rounds.append(await trial.strike(kind))
    return take_median(rounds)


def take_median(rounds: list[Felt]) -> Felt:
    """The last round, with the median of all rounds' pauses and of their p99, and the largest
    growth of memory. One that hung stays as it is."""
    felt = rounds[-1]
    if not felt.hung:
        by_times = sorted(rounds, key=lambda one: one.times)[len(rounds) // 2]
        calls = by_times.calls
        company = by_times.company
        small_company = by_times.small_company
        felt.pause_ms = median(one.pause_ms for one in rounds)
        felt.growth_mb = max(one.growth_mb for one in rounds)
        felt.calls = calls
        felt.company = company
        felt.small_company = small_company
    return felt


def _report(floors: list[Felt], felt: list[Felt], planned: int, delayed: float) -> Report:
    def rows(some: list[Felt]) -> Iterator[tuple[Cell, ...]]:
        for one in some:
            yield (
                *(one.sender, one.meets, one.name, one.ended, one.sent / MIB, one.seconds),
                *(
                    one.pause_ms,
                    one.times,
                    one.times_small,
                    one.growth_mb,
                    one.said.replace("\\n", " ")[:SAID],
                ),
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
        "small ×",
        "MB",
        "said",
    )
    columns = (*columns, "where") if where else columns
    within = sum(one.times <= TIMES for one in felt) / len(felt)
    within_small = sum(one.times_small <= TIMES for one in felt) / len(felt)
    paused = sum(one.pause_ms <= PAUSE_MS for one in felt) / len(felt)
    portion = str(planned) if len(felt) == planned else f"{len(felt)} of {planned}"
    title = f"{portion} kinds of hostile input beside a polite client, the longest pause first"
    company = [taken for one in felt for taken in one.company]
    p50, p99 = (f"{percentile(company, share) * 1000:.1f} ms" for share in (0.5, 0.99))
    note = (
        "pause: longest turn of the event loop, or the interpreter's lock held, in processor time. "
        "p99 ×: the polite client's calls, without waits for a processor, as a multiple of those "
        "directly before and after beside a client that sends harmless requests of that size "
        f"(of all of these: p50 {p50}, p99 {p99}); these waits were {delayed:.0%} of the time that "
        "polite calls took, and where they are much of it, the machine is too busy. "
        f"Beside small requests, {within_small:.0%} of the kinds were within {TIMES:g}×. "
        f"Both are the median of {ROUNDS} rounds, unless "
        f"the first was within {PAUSE_MS / 2:g} ms and {CLEAR_TIMES:g}×. MB: growth of the "
        f"gateway's peak memory; {GROWTH_MB:,.0f} is the bound."
    )
    return Report(
        "stalls",
        (Table(title, columns, tuple(rows([*floors, *worst])), note),),
        (
            Goal("longest pause, the worst kind, ms", max(one.pause_ms for one in felt), PAUSE_MS),
            Goal("… share of the kinds within that", paused, 1.0, 0, at_least=True),
            Goal(
                "share of the kinds with the polite client's p99 ≤ 2× that beside a harmless one",
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
        "--only",
        metavar="TEXT",
        action="append",
        help="only inputs whose sender, place and name contain this; may be given several times",
    )
    parser.add_argument(
        "--keep",
        metavar="FILE",
        type=Path,
        help="append each kind's figures there, and leave out those that it has",
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        help="begin with no further kind after that; --keep goes on from there",
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
