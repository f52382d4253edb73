"""Measures the scan for texts that speak to the model: what it finds, what it suspects wrongly, and
what it costs.

The poisoned and honest definitions of `tests/fixtures/descriptions` were written for it, and one
half of each was put aside until the patterns were done. The definitions of the recorded fleet are
those of real servers. Times are of the processor, without what is remembered of earlier scans.
"""

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fleet import recordings
from benchmarks.processes import REPOSITORY
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from portico.policy.definition_scan import scan_definition

CORPUS = REPOSITORY / "tests" / "fixtures" / "descriptions"
FOUND, SUSPECTED = 0.8, 0.01


def read_corpus(name: str, half: str) -> list[Any]:
    """Return one half of a part of the corpus."""
    lines = (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["tool"] for row in map(json.loads, lines) if row["half"] == half]


def scan(tools: list[Any]) -> tuple[int, list[float]]:
    """Return how many definitions have findings, and the milliseconds of each scan."""
    found = 0
    times: list[float] = []
    for tool in tools:
        blob = json.dumps(tool).encode()
        started = time.process_time()
        found += bool(scan_definition.__wrapped__(blob))
        times.append((time.process_time() - started) * 1_000)
    return found, times


def measure(shared: Path | None) -> Report:
    """Scan the corpus and the fleet."""
    fleet = [tool for server in recordings(shared) for tool in server["tools"]]
    sets = {
        f"{kind}, {half.replace('_', ' ')} half": read_corpus(kind, half)
        for kind in ("poisoned", "honest")
        for half in ("build", "held_out")
    }
    sets["tools of real servers"] = fleet
    rows: list[tuple[Cell, ...]] = []
    shares: dict[str, float] = {}
    for name, tools in sets.items():
        found, times = scan(tools)
        shares[name] = found / len(tools)
        rows.append((name, len(tools), found, median(times), max(times), sum(times)))
    columns = ("definitions", "number", "suspected", "ms, median", "ms, longest", "ms, all")
    goals = (
        Goal(
            "poisoned definitions found, held out half",
            shares["poisoned, held out half"],
            FOUND,
            0,
            at_least=True,
        ),
        Goal("tools of real servers suspected", shares["tools of real servers"], SUSPECTED, 0),
    )
    return Report("definition_scan", (Table("Scanned", columns, tuple(rows)),), goals)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    return conclude(measure(options.shared), options)


if __name__ == "__main__":
    sys.exit(main())
