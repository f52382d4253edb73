"""Portico beside its peers, at the same jobs, in one run: tokens, search, a call, start, memory,
calls lost.

    python -m benchmarks.peers [--install] [--peers-dir DIR] [--only NAME …] [--parts PART …] [--servers N] …

FastMCP (BM25 search, CodeMode), ContextForge, mcp-proxy and 1MCP, each in an environment of its own
at one version under `--peers-dir`; `--install` brings what is not there (pip, npm). One that is not
there is named with the reason, and a job that one cannot do is a dash with the reason. Without
`--install`, FastMCP may be this environment's own.

Behind every gateway stand the same recorded servers, all in one process on loopback, or, for one
that starts its servers, each in a process of its own. Gateways take turns where time is measured.
"""  # noqa: E501

import argparse
import asyncio
import logging
import math
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import fleet
from benchmarks.chosen_sets import sources
from benchmarks.peering import cost, installation, search_quality, slow_neighbours, speed
from benchmarks.peering.contextforge import ContextForge
from benchmarks.peering.gateways import (
    FastMCP,
    FastMCPCode,
    Field,
    Gateway,
    MCPProxy,
    OneMCP,
    OneMCPAsync,
    Portico,
    PorticoToStdio,
    own_place,
)
from benchmarks.peering.upstreams import ECHO, Recording, echo
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude, get_installed_version

PEERS: tuple[type[Gateway], ...] = (
    FastMCP,
    FastMCPCode,
    ContextForge,
    OneMCP,
    OneMCPAsync,
    MCPProxy,
)
SMOKE_PEER = FastMCP
PARTS = ("cost", "finding", "speed", "siblings")
SETS = ("livemcp_agent", "livemcp_step", "livemcp_task", "fleet_dev")
"""Sets made of servers and tools whose questions this project did not write."""
SMOKE_SETS = ("livemcp_step",)
SERVERS, SMOKE_SERVERS = 30, 4
QUESTIONS, SMOKE_QUESTIONS = 100, 5
SMOKE_TOOLS = 60
ROUNDS, SMOKE_ROUNDS = 7, 1
CALLS, SMOKE_CALLS = 100, 5
EFFORT = speed.Effort(rounds=20, calls=10, crowd_calls=64, turn_s=0.5)
SMOKE_EFFORT = speed.Effort(rounds=2, calls=4, crowd_calls=16, turn_s=0.2)
WINDOW = slow_neighbours.Window(calls=100, seconds=15)
SMOKE_WINDOW = slow_neighbours.Window(calls=8, seconds=2, first_call_s=8)


def present(options: argparse.Namespace) -> Field:
    """Return who is there, installing first if asked to."""
    found = Field({Portico.name: Portico(own_place())})
    for kind in PEERS:
        if kind.package is None or (options.only and kind.name not in options.only):
            continue
        if options.smoke and not options.only and kind is not SMOKE_PEER:
            found.absent[kind.name] = "not in a smoke run, unless it is named with --only"
            continue
        try:
            if options.install:
                installation.install(kind.package, options.peers_dir, _say)
            found.present[kind.name] = kind(installation.find(kind.package, options.peers_dir))
        except installation.NotThere as reason:
            found.absent[kind.name] = str(reason)
    return found


def load_recordings(options: argparse.Namespace) -> dict[str, Recording]:
    """Some servers of the fleet, evenly over the alphabet, and the echo server."""
    number = options.servers or (SMOKE_SERVERS if options.smoke else SERVERS)
    by_name = {
        one["slug"]: one
        for one in sorted(fleet.recordings(options.shared), key=lambda one: one["slug"])
    }
    chosen = list(by_name)[:: max(1, len(by_name) // number)][:number]
    return {**{name: by_name[name] for name in chosen}, ECHO: echo()}


async def measure(options: argparse.Namespace) -> Report:
    """All parts that were asked for."""
    field = present(options)
    gateways = list(field.present.values())
    names = [one.name for one in gateways]
    tables: list[Table] = [who(field)]
    goals: list[Goal] = []
    if "cost" in options.parts:
        _say("tokens, start, memory …")
        rounds, calls = (
            (SMOKE_ROUNDS, SMOKE_CALLS) if options.smoke else (options.rounds or ROUNDS, CALLS)
        )
        recordings = load_recordings(options)
        costs = await cost.measure(gateways, recordings, rounds, calls)
        tables += cost.tables(names, costs, recordings)
        mine = costs[0][Portico.name]
        paid = mine.tokens + mine.instructions if mine.tokens else math.inf
        goals.append(Goal("portico: tools/list and instructions, tokens", paid, 1_000, 0))
    if "finding" in options.parts:
        _say("search …")
        found = await _finding(gateways, options)
        tables.append(search_quality.table(gateways, found, field.absent))
        recalls = {name: one.mean().value for name, one in found[0].items() if one.recalls}
        if Portico.name in recalls and len(recalls) > 1:
            best = max(recalls.items(), key=lambda one: one[1] if one[0] != Portico.name else -1.0)
            goals.append(
                Goal(
                    f"portico: mean recall@5, beside {best[0]}",
                    recalls[Portico.name],
                    best[1],
                    0,
                    True,
                )
            )
    if "speed" in options.parts:
        _say("a call …")
        callers = (
            [*gateways, PorticoToStdio(own_place())] if MCPProxy.name in field.present else gateways
        )
        called = await speed.measure(callers, SMOKE_EFFORT if options.smoke else EFFORT)
        tables.append(speed.table([one.name for one in callers], called))
    if "siblings" in options.parts:
        _say("calls beside slow and dead servers …")
        watched = await slow_neighbours.measure(gateways, SMOKE_WINDOW if options.smoke else WINDOW)
        tables.append(slow_neighbours.table(names, watched))
        mine = watched[Portico.name]
        goals += [
            Goal(f"portico: healthy calls lost, bad {when}", one.lost, 0, 0)
            for when, one in mine.items()
        ]
    return Report(
        "peers", tuple(tables), tuple(goals), {"absent": field.absent, "machine": machine()}
    )


async def _finding(gateways: Sequence[Gateway], options: argparse.Namespace) -> Any:
    names = options.sets or (SMOKE_SETS if options.smoke else SETS)
    chosen = [source for source in sources(options.data) if source.name in names]
    most = options.questions or (SMOKE_QUESTIONS if options.smoke else QUESTIONS)
    able = [one for one in gateways if not one.no_search]
    return await search_quality.measure(able, chosen, most, SMOKE_TOOLS if options.smoke else None)


def who(field: Field) -> Table:
    """Return who takes part, at which version and how set; who does not, and why."""
    rows: list[tuple[Cell, ...]] = [
        (one.name, one.place.version, one.settings) for one in field.present.values()
    ]
    rows += [(name, "–", f"left out: {why}") for name, why in field.absent.items()]
    return Table("Who takes part", ("", "version", "set so"), tuple(rows), note=machine())


def machine() -> str:
    """Return what it was measured on."""
    about = (
        f"Python {platform.python_version()}, mcp {get_installed_version('mcp')} (client), "
        f"{os.cpu_count()} CPUs"
    )
    return f"{about}, {platform.platform()}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    names = [kind.name for kind in PEERS]
    parser = arguments(__doc__)
    parser.add_argument(
        "--install", action="store_true", help="install the peers that are not there (pip, npm)"
    )
    parser.add_argument(
        "--peers-dir",
        type=Path,
        default=installation.DEFAULT_DIR,
        metavar="DIR",
        help="default .cache/peers",
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"these beside Portico: {names}"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument(
        "--servers", type=int, metavar="N", help=f"recorded servers behind each, default {SERVERS}"
    )
    parser.add_argument(
        "--questions", type=int, metavar="N", help=f"at most so many of a set, default {QUESTIONS}"
    )
    parser.add_argument("--sets", nargs="+", metavar="SET", help=f"default {' '.join(SETS)}")
    parser.add_argument("--rounds", type=int, help=f"starts of each, default {ROUNDS}")
    parser.add_argument("--shared", type=Path, help="folder with fleet/servers.jsonl.gz")
    parser.add_argument(
        "--data", type=Path, action="append", metavar="DIR", help="folders of sets; may be repeated"
    )
    options = parser.parse_args()
    options.peers_dir = options.peers_dir.absolute()
    # Ended from outside, by a limit of time perhaps, it still ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A session whose gateway is ended while an answer is under way says so at length, and that is
    # no finding.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
