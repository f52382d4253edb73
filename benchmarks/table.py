"""Results as aligned tables on stdout and as JSON in a file, with the goals they were measured
against."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import results_page

Cell = str | int | float | None
COMPARED_VERSIONS = ("portico-mcp", "mcp", "fastmcp")


@dataclass(frozen=True)
class Table:
    """One table; a float is shown with three significant digits, None as a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Goal:
    """A promise about a figure: at most `limit`, or at least; missed by no more than `tolerance` of
    it is borne.

    Times are noisy, so a tenth is borne unless said otherwise.
    """

    name: str
    measured: float
    limit: float
    tolerance: float = 0.1
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self._within(0)

    @property
    def tolerable(self) -> bool:
        return self._within(self.tolerance)

    def _within(self, slack: float) -> bool:
        if self.at_least:
            return self.measured >= self.limit * (1 - slack)
        return self.measured <= self.limit * (1 + slack)

    def __str__(self) -> str:
        verdict = (
            "met"
            if self.met
            else f"missed, within {self.tolerance:.0%}"
            if self.tolerable
            else "MISSED"
        )
        sign = "≥" if self.at_least else "≤"
        return f"{self.name}: {number(self.measured)} (goal {sign} {number(self.limit)}): {verdict}"


@dataclass(frozen=True)
class Report:
    """Describes what one benchmark found."""

    benchmark: str
    tables: tuple[Table, ...]
    goals: tuple[Goal, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the figures were measured with; goes to JSON only."""


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a small run, in seconds; its figures are rough"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument(
        "--results", action="store_true", help="put the tables into benchmarks/RESULTS.md"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit 1 when a goal is missed by more than its tolerance",
    )
    return parser


def conclude(report: Report, options: argparse.Namespace) -> int:
    """Print the report, keep it if asked to, and give the exit code."""
    parts = [align(table) for table in report.tables]
    parts += ["\n".join(map(str, report.goals))] if report.goals else []
    text = "\n\n".join(parts)
    print(f"\n{text}", flush=True)
    if options.results:
        page = results_page.PAGE.read_text(encoding="utf-8")
        page = results_page.place_report(page, report.benchmark, text, _circumstances())
        results_page.PAGE.write_text(page, encoding="utf-8")
    if options.json is not None:
        facts = {**_circumstances(), **report.facts}
        goals = [{**asdict(goal), "met": goal.met} for goal in report.goals]
        body = {
            **facts,
            "benchmark": report.benchmark,
            "tables": [as_records(t) for t in report.tables],
            "goals": goals,
        }
        options.json.write_text(
            json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return 1 if options.check and not all(goal.tolerable for goal in report.goals) else 0


def align(table: Table) -> str:
    """A table as text: numbers to the right, words to the left."""
    cells = [[_text(cell) for cell in row] for row in table.rows]
    columns = list(zip(table.columns, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [
        any(isinstance(row[place], int | float) for row in table.rows)
        for place in range(len(columns))
    ]
    lines = [
        _line(row, widths, right)
        for row in (table.columns, ["─" * width for width in widths], *cells)
    ]
    return "\n".join([table.title, *lines, *([table.note] if table.note else [])])


def as_records(table: Table) -> dict[str, Any]:
    """A table as JSON: one object per row."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {"title": table.title, "rows": rows, **({"note": table.note} if table.note else {})}


def number(value: float) -> str:
    """Three significant digits, thousands separated, no exponent."""
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def get_installed_version(distribution: str) -> str:
    """The version of a distribution; empty where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _text(cell: Cell) -> str:
    return "–" if cell is None else cell if isinstance(cell, str) else number(cell)


def _line(cells: Iterable[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    )
    return "  ".join(placed).rstrip()


def _circumstances() -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).stem, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": {name: get_installed_version(name) or None for name in COMPARED_VERSIONS},
    }
