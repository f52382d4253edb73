"""The command: `install` brings the servers, `compare` runs every comparison and prints it as a
table."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.real_servers import catalogue, installation, run_checks, runs, sandbox
from tests.real_servers.catalogue import Server
from tests.real_servers.installation import NotInstalled
from tests.real_servers.runs import Place, Run

COLUMNS = (
    "| server | package | transport | era | protocol | tools | questions | full | "
    "other era | meta | s |"
)


def main() -> int:
    """0 when everything is equal (or installed), 1 when something differs, 2 when it could not be
    tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.real_servers")
    parser.add_argument("verb", choices=("install", "compare"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument(
        "--only", action="append", help="compare: only this server; may be repeated"
    )
    options = parser.parse_args()
    table = catalogue.load()
    try:
        if options.verb == "install":
            installation.install(table, options.folder)
            return 0
        found = installation.find(table, options.folder)
    except NotInstalled as missing:
        print(missing, file=sys.stderr)
        return 2
    servers = [
        server
        for server in table.servers.values()
        if not options.only or server.name in options.only
    ]
    with tempfile.TemporaryDirectory() as folder, sandbox.web_page() as page:
        return 0 if asyncio.run(_compare(servers, Place(found, Path(folder), page))) else 1


async def _compare(servers: list[Server], place: Place) -> bool:
    print(COLUMNS, "|" + "---|" * COLUMNS.count(" | ") + "---|", sep="\n")
    notes: list[str] = []
    for server in servers:
        started = time.monotonic()
        outcomes = await runs.all_ways(server, place)
        seconds = time.monotonic() - started
        cells, wrong = _judge(server, outcomes)
        notes += wrong
        kind = "npm" if server.npm else "PyPI"
        package = f"{kind} {server.package} {server.version}"
        print(
            f"| {server.name} | {package} | {server.transport} | {server.era} | "
            f"{server.protocol} | {server.tools} "
            f"| {len(server.questions)} | {' | '.join(cells)} | {seconds:.1f} |",
            flush=True,
        )
    print(*notes, sep="\n")
    return not notes


def _judge(server: Server, outcomes: list[Run | BaseException]) -> tuple[list[str], list[str]]:
    """One cell per way through the gateway, and every difference in words."""
    direct = outcomes[runs.DIRECT]
    if isinstance(direct, BaseException):
        return ["?"] * 3, [f"{server.name}, directly: {direct!r}"]
    notes = [f"{server.name}, directly: {note}" for note in run_checks.of_direct(server, direct)]
    cells: list[str] = []
    for way, judge, name in (
        (runs.FULL, run_checks.of_full, "full"),
        (runs.TRANSPARENT, run_checks.of_transparent, "other era"),
        (runs.META, run_checks.of_meta, "meta"),
    ):
        run = outcomes[way]
        wrong = [repr(run)] if isinstance(run, BaseException) else judge(server, direct, run)
        equal = 0 if isinstance(run, BaseException) else len(run.answers)
        cells.append(f"{equal} equal" if not wrong else f"{len(wrong)} differ")
        notes += [f"{server.name}, {name}: {note}" for note in wrong]
    return cells, notes
