"""Measures what a running gateway takes by size of the catalog: memory, searches through the wire,
the index
made again.

    python -m benchmarks.footprint [--shared PATH] [--cache DIR] [--smoke] [--json FILE] [--check]

The servers are recordings: the fleet, then varied copies of it (`benchmarks.synthetic`), all listed
and with vectors before, and one small stdio server that is called. `memory` is the resident set of
`portico serve` and of every process it started but that server: the guard, and once a script ran,
its worker (the row `a script`, which no goal counts).
`steady` is after housekeeping, which gives back what only starting needed; `at work again` is after
more searches and a
call, and the larger of the two is held to the goal.
`cold` is the same gateway when it had to list and encode everything. `search` is `search_tools` by
the SDK's client,
each query once, over HTTP (while what is done after a start is still going on, and when it is over)
and over stdio.
`made again` is what the gateway does when its index is lost: definitions read, sorted into
categories, their words
indexed, their vectors fetched from the file. Encoding tools that have no vector yet is not in it:
it goes on in the background while words are searched (`benchmarks.scale` times it).
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks import fleet, processes
from benchmarks.rounds import percentile
from benchmarks.synthetic import enlarged_fleet, noisy_copies
from benchmarks.table import Goal, Report, Table, arguments, conclude
from benchmarks.tool_sets import document, read_questions, read_tools
from benchmarks.vector_cache import default_folder, vectors_of
from portico.catalog.entries import compose_tool_text
from portico.catalog.listing import ListedTool, ServerListing
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import encode_json, make_tool
from portico.config_file import load
from portico.events import CatalogChanged, Event
from portico.gateway import INDEX_FILE, VECTOR_FILE, GatewayRuntime
from portico.search import VECTOR_WIDTH, Encoder, compute_text_key
from portico.storage.search_files import VectorFile

_FLEET, _TYPICAL, _FULL, _SMOKE = 0, 5_000, 100_000, 600
MEMORY_MB = {_FLEET: 200, _FULL: 700}
SEARCH_MS = {_TYPICAL: 12, _FULL: 30}
BUILD_S, CHANGE_MS = 60, 100
STEADY_S = 16.0
"""After so long, housekeeping has been done."""
COLD_S = 900.0
_LIVE = "live"
_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        info = {"name": "live", "version": "1"}
        found = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
            "tools/list": {"tools": [{"name": "ping", "description": "Answers.", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "pong"}]},
        }.get(message["method"])
        answer = {"result": found} if found else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""  # noqa: E501


@dataclass(frozen=True)
class World:
    """A configuration on disk with everything that is known."""

    config: Path
    tools: int
    servers: int

    @property
    def data(self) -> Path:
        return self.config.parent / "data"


@dataclass
class Measured:
    """One size of catalog."""

    memory: dict[str, tuple[float, float, int]] = field(
        default_factory=dict[str, tuple[float, float, int]]
    )
    """By moment: resident and private megabytes, and in how many processes."""
    search: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    worked: dict[str, float] = field(default_factory=dict[str, float])
    """Processor seconds of the gateway for a search, by transport."""
    first: dict[str, float] = field(default_factory=dict[str, float])
    build: tuple[float, float] = (0.0, 0.0)
    """Processor seconds, and the clock's."""
    change: tuple[float, float] = (0.0, 0.0)


def make_world(folder: Path, size: int, shared: Path | None, cache: Path) -> World:
    """Recordings, their configuration and their vectors."""
    recorded = [one for one in fleet.recordings(shared) if one.get("tools")]
    real = [document(tool) for tool in read_tools(fleet.folder_of(shared) / "servers.jsonl.gz")]
    vectors = list(vectors_of(real, Encoder(), cache).values())
    (folder / "recordings").mkdir()
    servers: dict[str, dict[str, Any]] = {}
    keys: list[str] = []
    for one in enlarged_fleet(recorded, size or len(real)):
        path = folder / "recordings" / f"{one['slug']}.json"
        path.write_bytes(orjson.dumps(one))
        servers[one["slug"]] = {"recorded": str(path)}
        keys += [
            compute_text_key(compose_tool_text(make_tool(one["slug"], tool)))
            for tool in one["tools"]
        ]
    servers[_LIVE] = {
        "command": sys.executable,
        "args": ["-S", "-c", _SERVER],
        "protocol": "legacy",
    }
    kept = VectorFile(folder / "data" / VECTOR_FILE, VECTOR_WIDTH)
    for block in noisy_copies(keys, vectors):
        kept.add(block)
    return World(processes.write_config(folder, {"servers": servers}), len(keys) + 1, len(servers))


async def fill(world: World) -> None:
    """Have everything listed once."""
    async with GatewayRuntime(load(world.config).config) as gateway:
        await gateway.wait_until_listed()
        if (encoding := gateway.catalog.start_encoding()) is not None:
            await encoding


async def made_again(world: World) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return how long the index takes to make when it is lost, and until one changed server is
    found by
    its new words."""
    (world.data / INDEX_FILE).unlink()
    began = time.process_time(), time.perf_counter()
    gateway = GatewayRuntime(load(world.config).config)
    if (encoding := gateway.catalog.start_encoding()) is not None:
        await encoding
    build = time.process_time() - began[0], time.perf_counter() - began[1]
    known = gateway.catalog.snapshot.servers
    middling = sorted(
        (one for one in known.values() if one.initialize_info),
        key=lambda one: (len(one.tools), one.name),
    )
    entry = middling[len(middling) // 2]
    taken = [await _change_server(gateway, entry, number) for number in range(3)]
    await gateway.close()
    return build, min(taken)


async def _change_server(
    gateway: GatewayRuntime, entry: ServerEntry, number: int
) -> tuple[float, float]:
    received: list[tuple[float, float]] = []

    def note(event: Event) -> None:
        if isinstance(event, CatalogChanged):
            received.append((time.process_time(), time.perf_counter()))

    definitions = [
        {**tool.definition, "description": f"{tool.description} Now in colour {number}."}
        for tool in entry.tools.values()
    ]
    assert entry.initialize_info is not None
    listing = ServerListing(
        entry.initialize_info,
        tuple(ListedTool(one["name"], encode_json(one), ()) for one in definitions),
        entry.offers,
        (),
    )
    gateway.bus.subscribe(note)
    began = time.process_time(), time.perf_counter()
    await gateway.catalog.accept_listing(entry.name, listing)
    return received[0][0] - began[0], received[0][1] - began[1]


async def measure(world: World, queries: Sequence[str], found: Measured) -> None:
    """A gateway at work, over HTTP, then over stdio."""
    half = len(queries) // 2
    async with _over_http(world) as (process, client):
        found.memory["listening"] = _memory(process)
        found.first["search"] = await _time_calls(client, "search_tools", {"query": queries[0]})
        found.memory["first search"] = _memory(process)
        await _time_calls(client, "describe_tools", {"names": [f"{_LIVE}.ping"]})
        found.first["wrong name"] = await _time_calls(
            client, "describe_tools", {"names": ["nonsuch.thing"]}
        )
        found.first["browse"] = await _time_calls(client, "browse_tools", {})
        found.first["call"] = await _time_calls(
            client, "call_tool", {"name": f"{_LIVE}.ping", "arguments": {}}
        )
        found.memory["called"] = _memory(process)
        await _search(process, client, queries[1:half], _EARLY, found)
        found.memory["searched"] = _memory(process)
        await asyncio.sleep(STEADY_S)
        found.memory["steady"] = _memory(process)
        await _search(process, client, queries[half:], "http", found)
        await _time_calls(client, "call_tool", {"name": f"{_LIVE}.ping", "arguments": {}})
        found.memory["at work again"] = _memory(process)
        await _time_calls(client, "run_code", {"code": "1 + 1"})
        found.memory["a script"] = _memory(process)
    command = [*processes.portico(), "stdio", "--config", str(world.config)]
    with open(world.config.with_suffix(".log"), "w") as errors:  # noqa: ASYNC230
        transport = stdio_client(
            StdioServerParameters(command=command[0], args=command[1:]), errlog=errors
        )
        async with Client(transport) as client:
            await _time_calls(client, "search_tools", {"query": queries[0]})
            process = max(
                psutil.Process().children(recursive=True), key=lambda one: one.memory_info().rss
            )
            await _search(process, client, queries[1:], "stdio", found)


@contextlib.asynccontextmanager
async def _over_http(world: World) -> AsyncGenerator[tuple[psutil.Process, Client]]:
    port = processes.free_port()
    command = [*processes.portico(), "serve", "--config", str(world.config), "--port", str(port)]
    with processes.listening(port, command, world.config.parent) as process:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield process, client


async def _search(
    process: psutil.Process, client: Client, queries: Sequence[str], transport: str, found: Measured
) -> None:
    before = sum(process.cpu_times()[:2])
    found.search[transport] = [
        await _time_calls(client, "search_tools", {"query": query}) for query in queries
    ]
    found.worked[transport] = (sum(process.cpu_times()[:2]) - before) / len(queries)


async def _time_calls(client: Client, tool: str, values: Mapping[str, Any]) -> float:
    began = time.perf_counter()
    await client.call_tool(tool, dict(values))
    return time.perf_counter() - began


async def cold(world: World) -> tuple[float, float, int]:
    """The memory of a gateway that has listed and encoded everything itself."""
    for file in world.data.iterdir():
        if file.is_file():
            file.unlink()
    record = VectorFile(world.data / VECTOR_FILE, VECTOR_WIDTH)
    until = time.monotonic() + COLD_S
    async with _over_http(world) as (process, _):
        while record.count < world.tools and time.monotonic() < until:  # noqa: ASYNC110  (another process writes it)
            await asyncio.sleep(1)
        await asyncio.sleep(STEADY_S)
        return _memory(process)


def _memory(process: psutil.Process) -> tuple[float, float, int]:
    family = [process, *process.children(recursive=True)]
    counted = [one for one in family if _SERVER not in one.cmdline()]
    infos = [one.memory_full_info() for one in counted]
    return sum(it.rss for it in infos) / 1e6, sum(it.uss for it in infos) / 1e6, len(infos)


def tables(found: Mapping[int, tuple[World, Measured]]) -> tuple[Table, ...]:
    """Memory by moment, searches by transport, what is done once."""
    memory: list[tuple[Any, ...]] = []
    search: list[tuple[Any, ...]] = []
    once: list[tuple[Any, ...]] = []
    for world, it in found.values():
        memory += (
            (world.tools, world.servers, moment, *figures) for moment, figures in it.memory.items()
        )
        search += (
            (
                world.tools,
                transport,
                1e3 * percentile(times, 0.5),
                1e3 * percentile(times, 0.99),
                1e3 * it.worked[transport],
            )
            for transport, times in it.search.items()
        )
        once.append(
            (
                world.tools,
                *(1e3 * it.first[what] for what in _FIRSTS),
                *it.build,
                *(1e3 * s for s in it.change),
            )
        )
    return (
        Table(
            "Memory",
            ("tools", "servers", "moment", "resident MB", "private MB", "processes"),
            tuple(memory),
        ),
        Table(
            "search_tools through the wire",
            ("tools", "over", "p50 ms", "p99 ms", "its CPU ms"),
            tuple(search),
        ),
        Table(
            "What is done once",
            (
                "tools",
                *(f"first {what} ms" for what in _FIRSTS),
                "index made again CPU s",
                "clock s",
                "one server CPU ms",
                "clock ms",
            ),
            tuple(once),
        ),
    )


_EARLY = "http, just started"
_FIRSTS = ("search", "wrong name", "browse", "call")


def goals(found: Mapping[int, tuple[World, Measured]]) -> tuple[Goal, ...]:
    """Return what was promised."""
    promised: list[Goal] = []
    for size, (world, it) in found.items():
        name = f"{world.tools:,} tools"
        if size in MEMORY_MB:
            resident = max(it.memory[moment][0] for moment in ("steady", "at work again"))
            promised.append(Goal(f"{name}: resident memory, MB", resident, MEMORY_MB[size]))
        for transport, times in it.search.items() if size in SEARCH_MS else ():
            if transport == _EARLY:
                continue
            promised.append(
                Goal(
                    f"{name}: search over {transport}, p50 ms",
                    1e3 * percentile(times, 0.5),
                    SEARCH_MS[size],
                )
            )
        if size == _FULL:
            promised.append(Goal(f"{name}: index made again, clock s", it.build[1], BUILD_S))
            promised.append(
                Goal(f"{name}: one changed server, clock ms", 1e3 * it.change[1], CHANGE_MS)
            )
    return tuple(promised)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, metavar="PATH", help="folder with fleet/")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", default=default_folder(), help="keeps vectors"
    )
    parser.add_argument("--sizes", type=int, nargs="*", help="tools; 0 is the fleet")
    options = parser.parse_args()
    queries = [
        it.text for it in read_questions(fleet.folder_of(options.shared) / "queries_dev.jsonl.gz")
    ]
    found: dict[int, tuple[World, Measured]] = {}
    for size in options.sizes or ((_SMOKE,) if options.smoke else (_FLEET, _TYPICAL, _FULL)):
        print(f"{size or 'the fleet'} …", file=sys.stderr, flush=True)
        with processes.scratch() as folder:
            world, it = make_world(folder, size, options.shared, options.cache), Measured()
            asyncio.run(fill(world))
            asyncio.run(measure(world, queries, it))
            it.build, it.change = asyncio.run(made_again(world))
            if size == _FLEET:
                it.memory["cold"] = asyncio.run(cold(world))
            found[size] = world, it
    return conclude(Report("footprint", tables(found), goals(found)), options)


if __name__ == "__main__":
    sys.exit(main())
