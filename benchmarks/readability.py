"""Measures how the code reads, in figures, beside Starlette, the MCP SDK and FastMCP in the same
run.

Names, lines and modules are counted from syntax trees. `functions`, `files` and `frames` come from
a real trace of one warm call through each (`call_trace.py`). Lines are those of the files as they
are.
"""

import argparse
import ast
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks import call_trace
from benchmarks.call_trace import Trace
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

PACKAGES = ("portico", "starlette", "mcp", "fastmcp")
LONG_FUNCTION = 60
LONG_LINE = 100
MAX_MODULE_LINES = 400
_IRREGULAR = """
begun bent bought bound broken brought built caught chosen dealt done drawn driven fallen felt
forgotten found frozen given gone grown heard held hidden hung kept known laid led left lent lost
made meant met paid said seen sent shown sold sought spent spoken stood struck taken taught
thought thrown told torn understood woken won worn written
"""
IRREGULAR_PARTICIPLES = frozenset(_IRREGULAR.split())
VERBS_IN_ED = frozenset(["need", "feed", "speed", "exceed", "proceed", "seed", "embed", "shed"])
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Counts:
    """Describes what was counted in one package."""

    modules: list[int] = field(default_factory=list[int])
    """Lines of each module."""
    functions: int = 0
    long_functions: int = 0
    definitions: int = 0
    participles: list[str] = field(default_factory=list[str])
    classes: Counter[str] = field(default_factory=Counter[str])
    conditional_expressions: int = 0
    parallel_assignments: int = 0
    long_lines: int = 0

    @property
    def lines(self) -> int:
        return sum(self.modules)

    @property
    def duplicate_classes(self) -> list[str]:
        return sorted(name for name, count in self.classes.items() if count > 1)

    def per_thousand_lines(self, count: int) -> float:
        return count * 1000 / self.lines


def is_bare_participle(name: str) -> bool:
    """Decide whether a name is one word, and that word a past participle."""
    word = name.strip("_")
    if "_" in word or not word[1:].islower():
        return False
    word = word.lower()
    if word in IRREGULAR_PARTICIPLES:
        return True
    return word.endswith("ed") and len(word) > 4 and word not in VERBS_IN_ED


def count_package(folder: Path) -> Counts:
    """Count every module under `folder`."""
    counts = Counts()
    for path in sorted(folder.rglob("*.py")):
        _count_module(counts, path.read_text(encoding="utf-8"))
    return counts


def _count_module(counts: Counts, source: str) -> None:
    lines = source.splitlines()
    counts.modules.append(len(lines))
    counts.long_lines += sum(len(line) > LONG_LINE for line in lines)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            counts.functions += 1
            counts.long_functions += (node.end_lineno or node.lineno) - node.lineno >= LONG_FUNCTION
        if isinstance(node, Function | ast.ClassDef):
            counts.definitions += 1
            if is_bare_participle(node.name):
                counts.participles.append(node.name)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            counts.classes[node.name] += 1
        counts.conditional_expressions += isinstance(node, ast.IfExp)
        counts.parallel_assignments += _is_parallel_assignment(node)


def _is_parallel_assignment(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


async def trace_all() -> dict[str, Trace]:
    """Trace one warm call through each package."""
    return {
        "portico": await call_trace.trace_portico(),
        "starlette": await call_trace.trace_starlette(),
        "mcp": await call_trace.trace_sdk(),
        "fastmcp": await call_trace.trace_fastmcp(),
    }


def _rows(counts: dict[str, Counts], traces: dict[str, Trace]) -> Iterator[tuple[Cell, ...]]:
    for package, counted in counts.items():
        trace = traces[package]
        yield (
            package,
            len(counted.modules),
            counted.lines,
            median(counted.modules),
            max(counted.modules),
            counted.long_functions * 100 / counted.functions,
            len(counted.participles) * 100 / counted.definitions,
            len(counted.duplicate_classes),
            counted.per_thousand_lines(counted.conditional_expressions),
            counted.per_thousand_lines(counted.parallel_assignments),
            counted.per_thousand_lines(counted.long_lines),
            trace.functions,
            trace.files,
            trace.frames,
        )


def measure() -> Report:
    """Count and trace every package."""
    counts: dict[str, Counts] = {}
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{package} is not installed")
        counts[package] = count_package(Path(spec.origin).parent)
    traces = asyncio.run(trace_all())
    columns = (
        "package",
        "modules",
        "lines",
        "median",
        "max",
        "long functions %",
        "participles %",
        "duplicate classes",
        "conditional/kLOC",
        "parallel/kLOC",
        "long lines/kLOC",
        "functions",
        "files",
        "frames",
    )
    ours = counts["portico"]
    trace = traces["portico"]
    note = (
        "participles: functions, methods and classes named by a bare past participle. "
        "duplicate classes: public "
        "names used more than once. functions, files, frames: own package, one warm "
        "call of a tool (Starlette: one "
        "request)."
    )
    remaining = ", ".join(sorted(set(ours.participles)))
    return Report(
        "readability",
        (
            Table(
                "How the code reads",
                columns,
                tuple(_rows(counts, traces)),
                f"{note}\nours: {remaining}",
            ),
        ),
        (
            Goal("bare participles, %", len(ours.participles) * 100 / ours.definitions, 1.5, 0),
            Goal("duplicate public class names", len(ours.duplicate_classes), 0, 0),
            Goal(
                "conditional expressions a kLOC",
                ours.per_thousand_lines(ours.conditional_expressions),
                12,
                0,
            ),
            Goal(
                "parallel assignments a kLOC",
                ours.per_thousand_lines(ours.parallel_assignments),
                1,
                0,
            ),
            Goal("lines over 100 columns", ours.long_lines, 0, 0),
            Goal("functions that one call_tool touches", trace.functions, 130, 0),
            Goal("files that one call_tool touches", trace.files, 40, 0),
            Goal("frames when the server is written to", trace.frames, 20, 0),
            Goal("modules", len(ours.modules), 400, 0),
            Goal("longest module, lines", max(ours.modules), MAX_MODULE_LINES, 0),
            Goal("lines of src", ours.lines, 64_000, 0),
        ),
    )


def main() -> int:
    options: argparse.Namespace = arguments(__doc__).parse_args()
    return conclude(measure(), options)


if __name__ == "__main__":
    sys.exit(main())
