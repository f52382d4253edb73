"""Measures one gateway for all clients: commands and bridges that use the gateway that runs.

`portico search` beside `portico --version`; `portico stdio` as a bridge beside serving alone, from
spawn to the answer to `initialize`; and the memory of eight clients beside that of one. Memory is
that of whole process trees, a page that processes share counted once (PSS; else USS).
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import psutil

from benchmarks import processes
from benchmarks.rounds import Samples, turns
from benchmarks.startup import TELLTALE, ask, tell
from benchmarks.table import Goal, Report, Table, arguments, conclude

ROUNDS = 15
SMOKE_ROUNDS = 1
CLIENTS = 8
SERVERS = 3
VERSION = "portico --version"
SEARCH = "portico search, with a running gateway"
SEARCH_ALONE = "portico search --alone"
ALONE = "portico stdio --alone → initialize"
BRIDGE = "portico stdio as a bridge → initialize"
SEARCH_GOAL = 2.0
BRIDGE_GOAL = 0.3
MEMORY_GOAL = 1.3
ANSWER_S = 60.0
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def measure(options: argparse.Namespace) -> Report:
    """Start a gateway in the background, then ask it over and over."""
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    with processes.scratch() as folder:
        os.environ["PORTICO_DATA_DIR"] = str(folder / "data")
        servers = {
            f"live-{number}": {
                "command": sys.executable,
                "args": ["-S", "-c", TELLTALE, str(folder / f"started-{number}")],
                "protocol": "legacy",
                "idle_s": 0,
            }
            for number in range(SERVERS)
        }
        config = processes.write_config(folder, {"servers": servers, "gateway": {"port": 0}})
        with _running_gateway(config) as gateway:
            samples = _measure_times(config, rounds)
            memory = _measure_memory(config, gateway)
    return _report(samples, memory, rounds)


@contextlib.contextmanager
def _running_gateway(config: Path) -> Generator[psutil.Process]:
    """A gateway in the background whose servers run, from the moment it answers."""
    command = processes.portico()
    _run([*command, "start", "--config", str(config)])
    try:
        (registration,) = (config.parent / "data" / "gateways").glob("*.json")
        _run([*command, "call", "live-0.ping", "--config", str(config)])
        yield psutil.Process(int(registration.name.split("-")[1]))
    finally:
        _run([*command, "stop", "--config", str(config)])


def _measure_times(config: Path, rounds: int) -> dict[str, Samples]:
    portico = processes.portico()
    named = ["--config", str(config)]
    commands = {
        VERSION: [*portico, "--version"],
        SEARCH: [*portico, "search", "answers", *named],
        SEARCH_ALONE: [*portico, "search", "answers", *named, "--alone"],
        ALONE: [*portico, "stdio", *named, "--alone"],
        BRIDGE: [*portico, "stdio", *named],
    }
    samples = {name: Samples() for name in commands}
    for number, name in turns(tuple(commands), rounds + 1):
        begun = time.perf_counter()
        if name in (ALONE, BRIDGE):
            with _client(commands[name]):
                taken = time.perf_counter() - begun
        else:
            _run(commands[name])
            taken = time.perf_counter() - begun
        if number:  # the first round warms the page cache
            samples[name].rounds.append([taken])
    return samples


def _measure_memory(config: Path, gateway: psutil.Process) -> dict[str, float]:
    """Return megabytes: one client alone, one client and eight through the gateway, one bridge."""
    command = [*processes.portico(), "stdio", "--config", str(config)]
    with _client([*command, "--alone"]) as alone:
        tell(alone, {"method": "notifications/initialized"})
        _call(alone)
        figures = {"one client, serving alone": _sum_memory([alone])}
    with contextlib.ExitStack() as stack:
        bridges: list[psutil.Popen] = []
        for number in range(1, CLIENTS + 1):
            bridges.append(stack.enter_context(_client(command)))
            tell(bridges[-1], {"method": "notifications/initialized"})
            _call(bridges[-1])
            if number == 1:
                figures["one client through the gateway"] = _sum_memory([gateway, *bridges])
                figures["  of which its bridge"] = _sum_memory(bridges)
                figures["  its bridge, resident"] = bridges[0].memory_info().rss / 1e6
        figures[f"{CLIENTS} clients through the gateway"] = _sum_memory([gateway, *bridges])
    return figures


def _sum_memory(roots: Iterable[psutil.Process]) -> float:
    total = 0
    for root in roots:
        for process in (root, *root.children(recursive=True)):
            found = process.memory_full_info()
            total += getattr(found, "pss", 0) or found.uss
    return total / 1e6


@contextlib.contextmanager
def _client(command: Sequence[str]) -> Generator[psutil.Popen]:
    """A client whose `initialize` was answered."""
    process = psutil.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        ask(process, 1, "initialize", INITIALIZE)
        yield process
    finally:
        process.stdin.close()
        processes.end(process)
        process.stdout.close()


def _call(process: psutil.Popen) -> None:
    for number in range(SERVERS):
        arguments = {"name": f"live-{number}.ping", "arguments": {}}
        ask(process, 2 + number, "tools/call", {"name": "call_tool", "arguments": arguments})


def _run(command: Sequence[str]) -> None:
    subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=ANSWER_S,
        check=False,
    )


def _report(samples: dict[str, Samples], memory: dict[str, float], rounds: int) -> Report:
    rows = tuple(
        (name, one.percentile(0.5) * 1000, min(one.all) * 1000, one.ratio_to(samples[VERSION]))
        for name, one in samples.items()
    )
    times = Table(
        f"Commands and clients of a running gateway, {rounds} rounds",
        ("", "p50 ms", "best ms", "× --version"),
        rows,
    )
    one = memory["one client through the gateway"]
    many = memory[f"{CLIENTS} clients through the gateway"]
    held = Table(
        f"Memory of all processes, {SERVERS} servers",
        ("", "MB", "× one client"),
        tuple((name, figure, figure / one) for name, figure in memory.items()),
    )
    return Report(
        "shared",
        (times, held),
        (
            Goal(
                "search with a running gateway, × --version",
                samples[SEARCH].ratio_to(samples[VERSION]),
                SEARCH_GOAL,
            ),
            Goal(
                "a bridge's start, × serving alone",
                samples[BRIDGE].ratio_to(samples[ALONE]),
                BRIDGE_GOAL,
            ),
            Goal(f"memory of {CLIENTS} clients, × one", many / one, MEMORY_GOAL),
        ),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    options = parser.parse_args()
    return conclude(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
