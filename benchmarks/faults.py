"""Measures what a healthy server's callers feel of each kind of fault beside it: its p50 and p99, ×
the run
without faults.

Two gateways, asked in turns: one has healthy servers only, the other also the misbehaving one of
`tests/faults`. All the while another client, a process of its own, calls that one through the
second gateway, with one fault after another switched on. That noise is there in both gateways'
turns, so a ratio shows what the gateway makes of its neighbours, not what their processes take from
the machine. The first row is the floor: the same calls to a server that answers them.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client
from tests.faults.matrix import PROGRAM
from tests.faults.misbehaving.steps import LIMIT
from tests.interaction.raw_clients import raw_http

from benchmarks import processes
from benchmarks.rounds import Samples, percentile, turns
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

GOAL = 1.5
CALLS = 20
"""Calls in one turn."""
SECONDS, SMOKE_SECONDS = 8.0, 1.2
"""For each fault."""
READY_S = 60.0
PESTER_S = 0.05
FLOOR = ""
ALONE, BESIDE = "alone", "beside"
STDIO = (
    FLOOR,
    "dies_before_greeting",
    "dies_in_a_call",
    "hangs_in_a_call",
    "freezes_in_a_call",
    "half_an_answer",
    "text_between_answers",
    "only_garbage",
    "answer_just_under_the_limit",
    "answer_far_over_the_limit",
    "line_without_end",
    "huge_error",
    "drips",
    "answers_to_nobody",
    "json_too_deep",
    "stderr_flood",
    "list_changed_storm",
    "progress_flood",
    "log_flood",
    "ten_thousand_roots",
    "leaves_a_child_on_its_pipes",
)
HTTP = (
    FLOOR,
    "dies_in_a_call",
    "hangs_in_a_call",
    "only_garbage",
    "answer_far_over_the_limit",
    "status_502",
    "reset_in_the_body",
    "gzip_unprompted",
    "head_for_ever",
    "chunk_extensions_for_ever",
    "stream_without_end",
    "loses_its_sessions",
    "list_changed_storm",
    "progress_flood",
    "log_flood",
    "ten_thousand_roots",
)
SMOKE = {
    "stdio": ("dies_in_a_call", "stderr_flood", "list_changed_storm"),
    "http": ("status_502", "log_flood"),
}


@dataclass(frozen=True)
class Felt:
    """One fault, and the healthy server's calls meanwhile."""

    wire: str
    fault: str
    samples: dict[str, Samples]
    pestered: int

    def times(self, share: float) -> float:
        beside, alone = self.samples[BESIDE].all, self.samples[ALONE].all
        return percentile(beside, share) / percentile(alone, share)


async def measure(options: argparse.Namespace) -> Report:
    """Every fault in turn."""
    seconds = options.seconds or (SMOKE_SECONDS if options.smoke else SECONDS)
    chosen = [
        (wire, fault)
        for wire, faults in (("stdio", STDIO), ("http", HTTP))
        for fault in ((FLOOR, *SMOKE[wire]) if options.smoke else faults)
        if not options.only or options.only in f"{wire} {fault}"
    ]
    felt: list[Felt] = []
    with processes.scratch() as folder:
        async with contextlib.AsyncExitStack() as stack:
            for wire, fault in chosen:
                (folder / _server(wire, fault)).write_text("")
            bad = {
                _server(wire, fault): _command(folder / _server(wire, fault))
                for wire, fault in chosen
            }
            bad |= stack.enter_context(
                _http_servers(folder, [_server(*one) for one in chosen if one[0] == "http"])
            )
            urls = {
                name: stack.enter_context(_gateway(folder / name, bad if name == BESIDE else {}))
                for name in (ALONE, BESIDE)
            }
            clients = {
                name: await stack.enter_async_context(
                    Client(url, mode="legacy", read_timeout_seconds=READY_S)
                )
                for name, url in urls.items()
            }
            for client in clients.values():
                await _until_ready(client, "healthy")
            pest = await stack.enter_async_context(_pestering(urls[BESIDE]))
            for number, (wire, fault) in enumerate(chosen):
                print(f"\r{number + 1} of {len(chosen)}", end="", file=sys.stderr, flush=True)
                await _until_ready(clients[BESIDE], _server(wire, fault))
                await _switch_fault(folder / _server(wire, fault), fault)
                pest.turn_to(_server(wire, fault))
                felt.append(Felt(wire, fault, await _sample_calls(clients, seconds), pest.calls))
                pest.turn_to("")
                await _switch_fault(folder / _server(wire, fault), "")
            print("\r", end="", file=sys.stderr)
    return _report(felt, seconds)


async def _sample_calls(clients: dict[str, Client], seconds: float) -> dict[str, Samples]:
    samples = {name: Samples() for name in clients}
    ends = time.perf_counter() + seconds
    for _, name in turns(list(clients), 1_000_000):
        # Whole rounds only: whatever the machine does, both have had their turn in it.
        if time.perf_counter() > ends and len(samples[ALONE].rounds) == len(samples[BESIDE].rounds):
            break
        samples[name].rounds.append([await _time_call(clients[name]) for _ in range(CALLS)])
    return samples


async def _switch_fault(switch: Path, fault: str) -> None:
    new = switch.with_suffix(".new")
    new.write_text(fault)
    new.replace(switch)
    await asyncio.sleep(0.2)


@contextlib.contextmanager
def _gateway(folder: Path, bad: dict[str, dict[str, Any]]) -> Generator[str]:
    """A gateway over a healthy server, and the bad ones before it if there are any; gives its
    URL."""
    folder.mkdir()
    (folder / "fine").write_text("")
    timeout = {"start_s": 10, "call_s": 2, "list_s": 5}
    lenient = {"pause_s": 0.05, "longest_s": 0.5, "tries": 1_000_000}
    servers = {
        name: {**target, "timeouts": timeout, "restart": lenient} for name, target in bad.items()
    }
    config = {
        "servers": {**servers, "healthy": _command(folder / "fine")},
        "limits": {"max_message_bytes": LIMIT},
    }
    port = processes.free_port()
    file = processes.write_config(folder, config)
    with processes.listening(
        port, [*processes.portico(), "serve", "--config", str(file), "--port", str(port)], folder
    ):
        yield f"http://127.0.0.1:{port}/mcp"


def _server(wire: str, fault: str) -> str:
    """Each fault has a server of its own: what one leaves behind is not another's."""
    return f"{wire}_{fault or 'none'}"


def _command(switch: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", PROGRAM, "stdio", str(switch)]}


@contextlib.contextmanager
def _http_servers(folder: Path, names: Sequence[str]) -> Generator[dict[str, dict[str, Any]]]:
    (folder / "servers").write_text("".join(f"{name} legacy\n" for name in names))
    process = subprocess.Popen(
        [sys.executable, "-S", PROGRAM, "http", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        yield {name: {"url": f"http://127.0.0.1:{port}/mcp"} for name, port in ports.items()}
    finally:
        process.kill()
        process.communicate()


async def _call(client: Client, server: str) -> Any:
    return await client.call_tool(
        "call_tool", {"name": f"{server}.work", "arguments": {"nonce": "hello"}}
    )


async def _time_call(client: Client) -> float:
    begun = time.perf_counter()
    result = await _call(client, "healthy")
    taken = time.perf_counter() - begun
    if result.is_error:
        raise SystemExit(f"the healthy server's call failed: {result}")
    return taken


async def _until_ready(client: Client, server: str) -> None:
    deadline = time.monotonic() + READY_S
    while (await _call(client, server)).is_error:
        if time.monotonic() > deadline:
            raise SystemExit(f"the server {server} was not ready in time")
        await asyncio.sleep(0.02)


class _Pest:
    """Another client, in a process of its own, that keeps calling one server after another."""

    def __init__(self, into: asyncio.StreamWriter) -> None:
        self._into = into
        self.calls = 0

    def turn_to(self, server: str) -> None:
        """Call this one from now on; nobody for an empty name."""
        self._into.write(server.encode() + b"\n")
        self.calls = 0

    async def count(self, lines: asyncio.StreamReader) -> None:
        """Hear of every call that ended."""
        while await lines.readline():
            self.calls += 1


@contextlib.asynccontextmanager
async def _pestering(url: str) -> AsyncGenerator[_Pest]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.faults", "--pester", url),
        cwd=processes.REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), READY_S)
    pest = _Pest(process.stdin)
    counting = asyncio.create_task(pest.count(process.stdout))
    try:
        yield pest
        if process.returncode is not None:
            raise SystemExit("the client that calls the bad server ended early")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await counting


async def _pester(url: str) -> None:
    """The other client's own process: a server's name a line."""
    server = ""

    async def listen() -> None:
        nonlocal server
        while line := await asyncio.to_thread(sys.stdin.readline):
            server = line.strip()

    async with raw_http(url, "legacy") as client:
        listening = asyncio.create_task(listen())
        print("ready", flush=True)
        while not listening.done():
            if server:
                called = {"name": f"{server}.work", "arguments": {"nonce": "hello"}}
                await client.request("tools/call", {"name": "call_tool", "arguments": called})
                print("called", flush=True)
            await asyncio.sleep(PESTER_S)


def _report(felt: Sequence[Felt], seconds: float) -> Report:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            one.wire,
            one.fault or "(none: the same calls, answered)",
            one.samples[ALONE].percentile(0.99) * 1000,
            one.samples[BESIDE].percentile(0.99) * 1000,
            one.times(0.5),
            one.times(0.99),
            one.pestered,
            len(one.samples[BESIDE].all),
        )
        for one in felt
    )
    columns = (
        "",
        "beside a server that",
        "p99 alone ms",
        "p99 beside ms",
        "p50 ×",
        "p99 ×",
        "faults",
        "calls",
    )
    shares = sorted(one.times(0.99) for one in felt if one.fault)
    within = sum(share <= GOAL for share in shares) / len(shares) if shares else 1.0
    title = f"Calls to a healthy server, {seconds:g} s for each fault (HTTP client, stdio server)"
    note = "× is the gateway with the faulty server ÷ the gateway without it, measured in turns."
    goals = (
        Goal("healthy p99 beside a fault ÷ without, median", percentile(shares, 0.5), GOAL),
        Goal("… the worst", shares[-1], GOAL),
        Goal("… share of the faults within the goal", within, 1.0, 0.1, at_least=True),
    )
    return Report("faults", (Table(title, columns, rows, note),), goals if shares else ())


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", dest="smoke", help="the same as --smoke")
    parser.add_argument("--seconds", type=float, help=f"for each fault; default {SECONDS:g}")
    parser.add_argument(
        "--only", metavar="TEXT", help="only faults whose wire and name contain this"
    )
    parser.add_argument("--pester", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pester:
        asyncio.run(_pester(options.pester))
        return 0
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
