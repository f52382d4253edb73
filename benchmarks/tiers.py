"""Measures how long the four tiers take, over REST and over MCP, with the recorded fleet and with
100,000
tools.

    python -m benchmarks.tiers [--servers FILE] [--smoke] [--json FILE] [--check]

One client over loopback, one request after the other; the client's own work is in every figure.
`first` is the first request after the catalog changed: everything that is shown is laid out and
rendered again. `again` is one of many after it; T2 goes through the categories, T3 through the
tools, each a tool that was not asked for before. The larger catalog is copies of the fleet's
servers under other names. One tool in twenty has been used. `CPU` is what client and gateway, which
are one process, worked for a request: a busy machine changes it least.
"""

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import httpx2
from mcp import Client

from benchmarks import processes
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.tokens import FLEET, load_recorded_servers, shared_folder
from portico.api.app import make_api
from portico.callers import Caller
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.config import Config
from portico.events import ToolCalled
from portico.gateway import GatewayRuntime
from portico.rendering.listing_cost import START_DELAY_S as COUNTED_AFTER_S
from portico.search import Index, SearchDocument
from portico.storage.manifests import ManifestStore
from portico.testing import serve_http
from portico.usage.tool_tiers import RankedCatalog

LARGE, SMOKE_LARGE = 100_000, 2_000
SMOKE_SERVERS = 20
GOALS_MS = {"T0": 20.0, "T1": 30.0, "T2": 50.0, "T3": 100.0}
ENDPOINTS = ("REST", "MCP")
_ONE_IN = 20
_LONGEST_S = 12 * 3_600.0

Ask = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Effort:
    """Describes how much is measured."""

    first: int
    again: int


FULL, SMOKE = Effort(12, 200), Effort(3, 20)


@dataclass
class Clock:
    """The time that cached answers grow old by."""

    now: float = 0.0

    def __call__(self) -> float:
        """As `time.monotonic`."""
        return self.now


@dataclass
class Times:
    """Milliseconds of some requests: by the clock, and of processor time."""

    clock: list[float] = field(default_factory=list[float])
    worked: list[float] = field(default_factory=list[float])

    async def take(self, ask: Ask) -> None:
        """Time one request."""
        begun, worked = time.perf_counter(), time.process_time()
        await ask()
        self.clock.append((time.perf_counter() - begun) * 1_000)
        self.worked.append((time.process_time() - worked) * 1_000)

    @property
    def row(self) -> tuple[float, ...]:
        """Median and 95th percentile of each."""
        return tuple(
            figure
            for one in (self.clock, self.worked)
            for figure in (median(one), percentile(one, 0.95))
        )


@dataclass
class Measured:
    """One tier through one endpoint."""

    first: Times = field(default_factory=Times)
    again: Times = field(default_factory=Times)

    @property
    def row(self) -> tuple[float, ...]:
        """Everything."""
        return (*self.first.row, *self.again.row)


Figures = dict[tuple[str, str], Measured]
"""By endpoint and tier."""


async def fleet(options: argparse.Namespace, folder: Path) -> Snapshot:
    """The recorded servers, as a gateway knows them."""
    path: Path = options.servers or shared_folder(None, FLEET) / FLEET
    servers = load_recorded_servers(path, folder / "recordings")
    if options.smoke:
        servers = dict(itertools.islice(servers.items(), SMOKE_SERVERS))
    config = Config.model_validate({"data_dir": folder / "data", "servers": servers})
    async with GatewayRuntime(config) as gateway:
        await gateway.wait_until_listed()
        return gateway.catalog.snapshot


def enlarge(small: Snapshot, size: int) -> Snapshot:
    """The servers of a snapshot, and copies of them under other names, until there are so many
    tools."""
    servers: dict[str, ServerEntry] = {}
    documents: list[SearchDocument] = []
    for copy in itertools.count():
        for entry in small.servers.values():
            left = size - len(documents)
            if left <= 0:
                return Snapshot(servers, Index.build(documents))
            name = f"{entry.name}-{copy}" if copy else entry.name
            tools = {
                tool.name: replace(tool, server=name)
                for tool in itertools.islice(entry.tools.values(), left)
            }
            servers[name] = replace(entry, name=name, tools=tools)
            documents += (
                _document(tool, small.get_category(f"{entry.name}.{tool.name}"))
                for tool in tools.values()
            )
    raise AssertionError


def _document(tool: Tool, category: str) -> SearchDocument:
    # Names are enough: no tier searches, and a hundred thousand descriptions take minutes to index.
    return SearchDocument(tool.address, tool.hash, tool.server, tool.name, category=category)


async def measure(snapshot: Snapshot, effort: Effort, folder: Path) -> Figures:
    """Every tier through both endpoints."""
    clock = Clock()
    config = Config.model_validate({"data_dir": folder})
    async with GatewayRuntime(config, manifests=ManifestStore(None)) as gateway:
        # Its first chores, such as counting what a listing would cost, are not what is measured.
        await asyncio.sleep(COUNTED_AFTER_S + 0.5)
        gateway.catalog.snapshot = snapshot
        view = gateway.get_view()
        for address in itertools.islice(snapshot.tools, 0, None, _ONE_IN):
            for ok in (True, True, False):
                gateway.bus.publish(
                    ToolCalled(address, "0" * 16, 0.02, ok, Caller(name="benchmark"))
                )
        await gateway.usage_data.standings.recompute()
        api = make_api(view.profile_state, view.search_service, gateway.store, clock=clock)
        async with (
            serve_http(gateway, api=api) as url,
            httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=60) as http,
            Client(url, mode="auto") as client,
        ):
            asks = {
                "REST": _over_rest(http, view.ranked_catalog),
                "MCP": _over_mcp(client, view.ranked_catalog),
            }
            found: Figures = {
                (endpoint, tier): Measured() for tier in GOALS_MS for endpoint in ENDPOINTS
            }
            for (endpoint, tier), measured in found.items():
                ask = asks[endpoint][tier]
                for _ in range(effort.first):
                    # A snapshot that nothing has been worked out of yet, as after a change.
                    gateway.catalog.snapshot = replace(snapshot, servers=dict(snapshot.servers))
                    clock.now += _LONGEST_S
                    await measured.first.take(ask)
                for _ in range(effort.again):
                    await measured.again.take(ask)
            return found


def _over_rest(http: httpx2.AsyncClient, shelves: RankedCatalog) -> dict[str, Ask]:
    categories, tools = (
        itertools.cycle(shelves.categories),
        _spread(list(shelves.snapshot.tools.values())),
    )

    async def get(path: str) -> None:
        reply = await http.get(f"/api/v1/tools/{path}")
        reply.raise_for_status()

    def whole() -> Awaitable[None]:
        tool = next(tools)
        return get(f"{tool.server}/{quote(tool.name, safe='')}")

    return {
        "T0": lambda: get("hot"),
        "T1": lambda: get("categories"),
        "T2": lambda: get(f"category/{quote(next(categories), safe='')}"),
        "T3": whole,
    }


def _over_mcp(client: Client, shelves: RankedCatalog) -> dict[str, Ask]:
    categories, tools = (
        itertools.cycle(shelves.categories),
        _spread(list(shelves.snapshot.tools.values())[1:]),
    )

    async def call(name: str, **given: Any) -> None:
        result = await client.call_tool(name, given)
        if result.is_error:
            raise SystemExit(f"{name}({given}) was answered by {result.content}")

    return {
        "T0": lambda: call("browse_tools"),
        "T1": lambda: call("browse_tools"),
        "T2": lambda: call("browse_tools", category=next(categories)),
        "T3": lambda: call("describe_tools", names=[next(tools).address]),
    }


def _spread(tools: Sequence[Tool]) -> Iterator[Tool]:
    """The tools, so that neighbours are of different servers."""
    step = next(step for step in (7_919, 104_729) if len(tools) % step)
    return (tools[at * step % len(tools)] for at in itertools.count())


async def run(options: argparse.Namespace) -> Report:
    """Measure both sizes."""
    effort = SMOKE if options.smoke else FULL
    with processes.scratch() as folder:
        real = await fleet(options, folder)
        small = enlarge(real, len(real.tools))
        large = enlarge(real, SMOKE_LARGE if options.smoke else LARGE)
        of_small = await measure(small, effort, folder / "small")
        of_large = await measure(large, effort, folder / "large")
    kinds = [
        f"{kind} {what}"
        for kind in ("first", "again")
        for what in ("p50", "p95", "CPU p50", "CPU p95")
    ]
    rows = [
        [(tier, endpoint, *one[endpoint, tier].row) for endpoint, tier in one]
        for one in (of_small, of_large)
    ]
    ratios = [
        (*few[:2], *(_ratio(many[at], few[at]) for at in range(2, len(few))))
        for few, many in zip(*rows, strict=True)
    ]
    sizes = [f"{len(one.servers):,} servers, {len(one.tools):,} tools" for one in (small, large)]
    goals = [
        Goal(
            f"{tier} over {endpoint}, {kind}, p95 ms", percentile(times.clock, 0.95), GOALS_MS[tier]
        )
        for (endpoint, tier), measured in of_small.items()
        for kind, times in (("first", measured.first), ("again", measured.again))
    ]
    return Report(
        "tiers",
        (
            *(
                Table(f"{size}: milliseconds", ("tier", "over", *kinds), tuple(one))
                for size, one in zip(sizes, rows, strict=True)
            ),
            Table(
                "How many times as long the larger takes",
                ("tier", "over", *kinds),
                tuple(ratios),
                "browse_tools() answers T0 and T1 together.",
            ),
        ),
        tuple(goals),
        {"first": effort.first, "again": effort.again},
    )


def _ratio(many: Cell, few: Cell) -> float:
    assert isinstance(many, float)
    assert isinstance(few, float)
    return many / few


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--servers", type=Path, metavar="FILE", help=f"recorded servers (default: {FLEET})"
    )
    options = parser.parse_args()
    return conclude(asyncio.run(run(options)), options)


if __name__ == "__main__":
    sys.exit(main())
