"""How soon a fresh `portico stdio` has answered its first search, with the manifest of a real fleet
on disk.

From spawn to the moment the answer to `search_tools` has been read, over pipes and hand-written
JSON-RPC, beside what
`python -c "import mcp"` takes in the same round. Three stdio servers with known manifests stand among the recorded
ones: none of them may be started.
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

from benchmarks import fleet, processes
from benchmarks.rounds import Samples, turns
from benchmarks.table import Goal, Report, Table, arguments, conclude
from portico.app import GatewayRuntime
from portico.config_file import load

GOAL = 1.5
ROUNDS = 20
SMOKE_ROUNDS = 3
ANSWER_S = 60.0
QUERY = "create a new issue in a repository"
LIVE_SERVERS = 3
IMPORT_MCP = 'python -c "import mcp"'
PORTICO = "portico stdio → first search answer"
HANDSHAKE = "  of which until initialize is answered"
BARE = 'python -c "pass"'

# A server that says on disk that it was started.
_TELLTALE = """
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
"""


@dataclass(frozen=True)
class Moment:
    """How long after its spawn something happened, and what the process had worked by then."""

    seconds: float
    worked: float


class BackendStarted(Exception):
    """A search started a server."""


def measure(options: argparse.Namespace) -> Report:
    """Fill the manifest, then start over and over."""
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    with processes.scratch() as folder:
        telltales = [folder / f"started-{number}" for number in range(LIVE_SERVERS)]
        config = _config(options.shared, folder, telltales)
        tools = asyncio.run(_fill(config))
        if not all(telltale.exists() for telltale in telltales):
            raise SystemExit("the stdio servers were not listed when the manifest was filled")
        for telltale in telltales:
            telltale.unlink()
        samples = {name: Samples() for name in (PORTICO, HANDSHAKE, IMPORT_MCP, BARE)}
        worked = {name: Samples() for name in samples}
        command = [*processes.portico(), "stdio", "--config", str(config)]
        for number, name in turns((IMPORT_MCP, PORTICO, BARE), rounds + 1):
            if name == PORTICO:
                taken = dict(zip((HANDSHAKE, PORTICO), first_answer(command), strict=True))
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


def _config(shared: Path | None, folder: Path, telltales: Sequence[Path]) -> Path:
    servers = fleet.servers(shared, folder / "recordings")
    for number, telltale in enumerate(telltales):
        arguments = ["-S", "-c", _TELLTALE, str(telltale)]
        servers[f"live-{number}"] = {
            "command": sys.executable,
            "args": arguments,
            "protocol": "legacy",
        }
    return processes.write_config(folder, {"servers": servers})


async def _fill(config: Path) -> int:
    """Let a gateway list and encode everything once; gives the number of tools."""
    async with GatewayRuntime(load(config).config) as gateway:
        await gateway.wait_until_listed()
        if (encoding := gateway.catalog.start_encoding()) is not None:
            await encoding
        return len(gateway.get_view().snapshot.tools)


def first_answer(command: Sequence[str]) -> tuple[Moment, Moment]:
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
        _ask(process, 1, "initialize", hello)
        handshake = Moment(time.perf_counter() - begun, _worked(process))
        _tell(process, {"method": "notifications/initialized"})
        found = _ask(
            process, 2, "tools/call", {"name": "search_tools", "arguments": {"query": QUERY}}
        )
        answered = Moment(time.perf_counter() - begun, _worked(process))
        if found.get("isError") or "create_issue" not in found["content"][0]["text"]:
            raise SystemExit(f"the search found something else: {found}")
        if children := process.children(recursive=True):
            raise BackendStarted(f"a search started {children}")
    finally:
        process.stdin.close()
        processes.end(process)
        process.stdout.close()
    return handshake, answered


def _tell(process: psutil.Popen, message: dict[str, Any]) -> None:
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def _ask(process: psutil.Popen, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    _tell(process, {"id": number, "method": method, "params": params})
    while line := process.stdout.readline():
        message = json.loads(line)
        if message.get("id") == number:
            return message["result"]
    raise SystemExit(
        f"portico ended before it answered {method}: exit code {process.wait(ANSWER_S)}"
    )


def _worked(process: psutil.Process) -> float:
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
    title = f"Start with a known manifest: {tools:,} tools, {rounds} rounds, no server started"
    table = Table(title, ("", "p50 ms", "p99 ms", "best ms", "× import mcp", "CPU p50 ms"), rows)
    ratio = samples[PORTICO].ratio_to(samples[IMPORT_MCP])
    return Report(
        "startup",
        (table,),
        (Goal("first search answer, × import mcp", ratio, GOAL),),
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
