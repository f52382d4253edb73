"""Measures how soon a fresh `portico stdio` has answered its first search, with the manifest of a
real fleet on disk.

From spawn to the moment the answer to `search_tools` has been read, over pipes and hand-written
JSON-RPC, beside what `python -c "import mcp"` takes in the same round. Three stdio servers with
known manifests stand among the recorded ones: none of them may be started. The same once more with
five servers beside them that were never listed and do not work, each in a way of its own.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks import fleet, processes
from benchmarks.rounds import Samples, turns
from benchmarks.table import Goal, Report, Table, arguments, conclude
from portico.config_file import load
from portico.gateway import GatewayRuntime

GOAL = 1.5
DEAD_GOAL = 1.2
ROUNDS = 20
SMOKE_ROUNDS = 1
SMOKE_SERVERS = 8
"""Of the fleet, in a smoke run: to encode all of it takes minutes."""
ANSWER_S = 60.0
QUERY = "create a new issue in a repository"
FOUND_AT = "github-ref"
LIVE_SERVERS = 3
IMPORT_MCP = 'python -c "import mcp"'
PORTICO = "portico stdio → first search answer"
HANDSHAKE = "  of which until initialize is answered"
DEAD = "  the same beside five dead servers"
DEAD_HANDSHAKE = "    of which until initialize is answered"
BARE = 'python -c "pass"'

# A server that says on disk that it was started.
TELLTALE = """
import json, pathlib, sys
pathlib.Path(sys.argv[1]).touch()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    info = {"name": "telltale", "version": "1"}
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
        "tools/list": {"tools": [{"name": "ping", "description": "Answers.", "inputSchema": {"type": "object"}}]},
    }
    found = results.get(message["method"])
    answer = {"result": found} if found else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""  # noqa: E501


_DEAD_SERVERS: dict[str, dict[str, Any]] = {
    "exits": {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit(3)"]},
    "hangs": {"command": sys.executable, "args": ["-S", "-c", "import time; time.sleep(600)"]},
    "crashes-late": {"command": sys.executable, "args": ["-S", "-c", "import time; time.sleep(3)"]},
    "unknown-host": {"url": "https://no-such-host.invalid/mcp"},
}


def _make_dead_servers() -> dict[str, dict[str, Any]]:
    """Servers that fail: at once, never, late, by name, and at a port that nobody listens on."""
    return {**_DEAD_SERVERS, "refuses": {"url": f"http://127.0.0.1:{processes.free_port()}/mcp"}}


@dataclass(frozen=True)
class Moment:
    """Describes how long after its spawn something happened, and what the process had worked by
    then."""

    seconds: float
    worked: float


class BackendStarted(Exception):
    """A search started a server."""


def measure(options: argparse.Namespace) -> Report:
    """Fill the manifest, then start over and over."""
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    with processes.scratch() as folder:
        telltales = [folder / f"started-{number}" for number in range(LIVE_SERVERS)]
        config = _config(options, folder, telltales)
        tools = asyncio.run(_fill(config))
        if not all(telltale.exists() for telltale in telltales):
            raise SystemExit("the stdio servers were not listed when the manifest was filled")
        for telltale in telltales:
            telltale.unlink()
        contestants = {PORTICO: HANDSHAKE, DEAD: DEAD_HANDSHAKE}
        configs = {PORTICO: config, DEAD: _add_dead_servers(config)}
        samples = {name: Samples() for name in (PORTICO, HANDSHAKE, DEAD, DEAD_HANDSHAKE)}
        samples |= {name: Samples() for name in (IMPORT_MCP, BARE)}
        worked = {name: Samples() for name in samples}
        for number, name in turns((IMPORT_MCP, PORTICO, DEAD, BARE), rounds + 1):
            if name in contestants:
                command = [*processes.portico(), "stdio", "--config", str(configs[name])]
                moments = first_answer(command, may_start_servers=name == DEAD)
                taken = dict(zip((contestants[name], name), moments, strict=True))
                started = [telltale.name for telltale in telltales if telltale.exists()]
                if started:
                    raise BackendStarted(f"a search started {', '.join(started)}")
            else:
                taken = {name: _lifetime("import mcp" if name == IMPORT_MCP else "pass")}
            if number:  # the first round warms the page cache
                for key, moment in taken.items():
                    samples[key].rounds.append([moment.seconds])
                    worked[key].rounds.append([moment.worked])
    return _report(samples, worked, tools, rounds)


def _config(options: argparse.Namespace, folder: Path, telltales: Sequence[Path]) -> Path:
    servers = fleet.servers(options.shared, folder / "recordings")
    if options.smoke:
        servers = {name: servers[name] for name in [FOUND_AT, *servers][:SMOKE_SERVERS]}
    for number, telltale in enumerate(telltales):
        arguments = ["-S", "-c", TELLTALE, str(telltale)]
        servers[f"live-{number}"] = {
            "command": sys.executable,
            "args": arguments,
            "protocol": "legacy",
        }
    return processes.write_config(folder, {"servers": servers})


def _add_dead_servers(config: Path) -> Path:
    """Write the same configuration, over the same data, with the dead servers beside."""
    tree = yaml.safe_load(config.read_text())
    tree["servers"] |= _make_dead_servers()
    path = config.with_name("beside-dead-servers.yaml")
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


async def _fill(config: Path) -> int:
    """Let a gateway list and encode everything once; gives the number of tools."""
    async with GatewayRuntime(load(config).config) as gateway:
        await gateway.wait_until_listed()
        if (encoding := gateway.catalog.start_encoding()) is not None:
            await encoding
        return len(gateway.get_view().snapshot.tools)


def first_answer(
    command: Sequence[str], *, may_start_servers: bool = False
) -> tuple[Moment, Moment]:
    """When `initialize` was answered, and when the search was."""
    begun = time.perf_counter()
    process = psutil.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        ask(process, 1, "initialize", hello)
        handshake = Moment(time.perf_counter() - begun, _get_cpu_time(process))
        tell(process, {"method": "notifications/initialized"})
        found = ask(
            process, 2, "tools/call", {"name": "search_tools", "arguments": {"query": QUERY}}
        )
        answered = Moment(time.perf_counter() - begun, _get_cpu_time(process))
        if found.get("isError") or "create_issue" not in found["content"][0]["text"]:
            raise SystemExit(f"the search found something else: {found}")
        children = process.children(recursive=True)
        if children and not may_start_servers:
            raise BackendStarted(f"a search started {children}")
    finally:
        process.stdin.close()
        processes.end(process)
        process.stdout.close()
    return handshake, answered


def tell(process: psutil.Popen, message: dict[str, Any]) -> None:
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def ask(process: psutil.Popen, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    tell(process, {"id": number, "method": method, "params": params})
    while line := process.stdout.readline():
        message = json.loads(line)
        if message.get("id") == number:
            return message["result"]
    raise SystemExit(
        f"portico ended before it answered {method}: exit code {process.wait(ANSWER_S)}"
    )


def _get_cpu_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _lifetime(code: str) -> Moment:
    before = psutil.Process().cpu_times()
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=ANSWER_S)
    seconds = time.perf_counter() - begun
    after = psutil.Process().cpu_times()
    own = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return Moment(seconds, own)


def _report(
    samples: dict[str, Samples], worked: dict[str, Samples], tools: int, rounds: int
) -> Report:
    rows = tuple(
        (
            name,
            one.percentile(0.5) * 1000,
            one.percentile(0.99) * 1000,
            min(one.all) * 1000,
            one.ratio_to(samples[IMPORT_MCP]),
            worked[name].percentile(0.5) * 1000,
        )
        for name, one in samples.items()
    )
    title = f"Start with a known manifest: {tools:,} tools, {rounds} rounds, nothing known started"
    table = Table(title, ("", "p50 ms", "p99 ms", "best ms", "× import mcp", "CPU p50 ms"), rows)
    ratio = samples[PORTICO].ratio_to(samples[IMPORT_MCP])
    dead_ratio = samples[DEAD].ratio_to(samples[PORTICO])
    return Report(
        "startup",
        (table,),
        (
            Goal("first search answer, × import mcp", ratio, GOAL),
            Goal("beside five dead servers, × without", dead_ratio, DEAD_GOAL),
        ),
        {"tools": tools},
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, help="folder with fleet/servers.jsonl.gz")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    options = parser.parse_args()
    return conclude(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
