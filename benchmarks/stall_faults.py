"""Measures how long each fault keeps the gateway's event loop to itself: everybody else waits so
long.

`python -m benchmarks.stalls --faults`: every fault of `tests/faults`, one at a time, in one process
with the gateway.
What a turn of the loop takes is measured in time of its processor, not of the clock: whatever else
the machine does, the figures are the same.
"""

import argparse
import asyncio
import asyncio.base_events
import sys
import time
from dataclasses import dataclass
from typing import Any

from tests.faults import matrix
from tests.faults.table import Fault, Wire, on

from benchmarks import processes
from benchmarks.rounds import percentile
from benchmarks.table import Goal, Report, Table

GOAL_MS = 25.0
"""A call to a healthy server takes some milliseconds; a pause of this length is felt once, by few.
"""
SHOWN = 25
WIRES: tuple[Wire, ...] = ("stdio", "http", "modern", "sse")
SMOKE = ("dies_in_a_call", "list_changed_storm", "ten_thousand_roots", "listing_huge")


@dataclass(frozen=True)
class Turns:
    """Describes what the turns of the loop took during one fault, in milliseconds."""

    wire: str
    fault: str
    outcome: str
    turns: list[float]
    wrong: tuple[str, ...]

    @property
    def longest(self) -> float:
        return max(self.turns, default=0.0)


class MeasuredLoop(asyncio.SelectorEventLoop):
    """A loop that knows what its turns took."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[float] = []

    def _run_once(self) -> None:
        begun = time.thread_time()
        base: Any = asyncio.base_events.BaseEventLoop
        base._run_once(self)
        self.turns.append((time.thread_time() - begun) * 1000)


class MeasuredFaultRunner(matrix.FaultRunner):
    """Remembers what the loop did while each fault was on."""

    async def run_fault(self, fault: Fault) -> matrix.Cell:
        """One fault, with nothing else under way."""
        loop: Any = asyncio.get_running_loop()
        await asyncio.sleep(0.2)
        loop.turns.clear()
        cell = await super().run_fault(fault)
        MEASURED[fault.id] = list(loop.turns)
        return cell


MEASURED: dict[str, list[float]] = {}


def measure(options: argparse.Namespace) -> Report:
    """Each wire in turn."""
    felt: list[Turns] = []
    for wire in WIRES:
        faults = [
            fault
            for fault in on(wire)
            if (not options.smoke or fault.id in SMOKE)
            and (not options.only or any(text in f"{wire} {fault.id}" for text in options.only))
        ]
        if not faults:
            continue
        print(f"\r{wire}: {len(faults)} faults", end="", file=sys.stderr, flush=True)
        MEASURED.clear()
        with processes.scratch() as folder, asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            done = runner.run(
                matrix.run(wire, faults, folder, together=1, runner_class=MeasuredFaultRunner)
            )
        for fault in faults:
            cell = done.cells[fault.id]
            felt.append(Turns(wire, fault.id, cell.outcome.kind, MEASURED[fault.id], cell.wrong))
    print("\r", end="", file=sys.stderr)
    return _report(felt)


def _report(felt: list[Turns]) -> Report:
    felt.sort(key=lambda one: -one.longest)
    rows = tuple(
        (one.wire, one.fault, one.outcome, one.longest, percentile(one.turns, 0.99), len(one.turns))
        for one in felt[:SHOWN]
    )
    columns = ("", "a server that", "outcome", "longest turn ms", "p99 turn ms", "turns")
    title = f"Turns of the event loop (processor time) during {len(felt)} faults, the longest first"
    longest = [one.longest for one in felt]
    return Report(
        "stalls --faults",
        (Table(title, columns, rows),),
        (
            Goal("longest turn during a fault, median, ms", percentile(longest, 0.5), GOAL_MS),
            Goal("… the worst", max(longest), GOAL_MS),
            Goal(
                "faults after which something was wrong", sum(bool(one.wrong) for one in felt), 0, 0
            ),
        ),
    )
