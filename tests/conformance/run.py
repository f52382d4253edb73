"""The command line: run the suite directly and through the gateway, compare, report, exit 1 when
something is lost."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance import processes, report
from tests.conformance.checks import Results, failures
from tests.conformance.comparison import Comparison, compare, load_gaps
from tests.conformance.suite import (
    SPECS,
    VERSION,
    Suite,
    SuiteBroken,
    SuiteMissing,
    find_suite,
    install,
)


def run_direct(suite: Suite, spec: str, folder: Path) -> Results:
    """The suite against the fixture alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with processes.fixture(folder) as url:
        return suite.run(url, spec, folder / "results")


def run_through(suite: Suite, spec: str, folder: Path, template: str | None = None) -> Results:
    """The suite against the gateway in front of a fresh fixture."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        processes.fixture(folder) as upstream,
        processes.gateway(upstream, spec, folder, template) as url,
    ):
        return suite.run(url, spec, folder / "results")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.install:
            install(options.node_dir)
        suite = find_suite(options.node_dir)
        with tempfile.TemporaryDirectory(prefix="portico-conformance-") as scratch:
            folder: Path = options.out or Path(scratch)
            outcomes = [
                _judge(suite, spec, folder / spec, options) for spec in options.spec or SPECS
            ]
    except (SuiteMissing, SuiteBroken, processes.ServerTrouble) as trouble:
        print(trouble, file=sys.stderr)
        return 2
    if options.json:
        said = {"suite": VERSION, "specs": {spec: document for spec, document, _ in outcomes}}
        options.json.write_text(json.dumps(said, indent=1), "utf-8")
    return 0 if all(ok for _, _, ok in outcomes) else 1


def _judge(
    suite: Suite, spec: str, folder: Path, options: argparse.Namespace
) -> tuple[str, dict[str, Any], bool]:
    direct = run_direct(suite, spec, folder / "direct")
    comparison: Comparison | None = None
    if not options.direct_only:
        through = run_through(suite, spec, folder / "through", options.through)
        comparison = compare(spec, direct, through, load_gaps())
    print(report.table(spec, direct, comparison and comparison.through))
    if said := report.findings(spec, direct, comparison):
        print(said)
    print()
    # A check that fails directly would hide the same failure in the gateway, so it is a failure of
    # this run too.
    ok = not failures(direct) and (comparison is None or comparison.ok)
    return spec, report.document(direct, comparison), ok


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--node-dir", type=Path, help="folder with (or for) Node and the suite")
    parser.add_argument(
        "--install", action="store_true", help="npm-install Node and the suite there first"
    )
    parser.add_argument(
        "--spec", choices=SPECS, action="append", help="only this version; may be repeated"
    )
    parser.add_argument("--direct-only", action="store_true", help="leave the gateway out")
    parser.add_argument(
        "--through",
        metavar="COMMAND",
        help="another gateway: {config}, {port}, {upstream} are filled in",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every check here")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the suite's own files and all logs here"
    )
    return parser
