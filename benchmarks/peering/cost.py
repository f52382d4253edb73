"""Measures what a gateway costs before anyone has asked for anything: tokens, the time until it
answers, and
memory.

Every round starts each gateway again over the same recorded servers, which it has met before, and
takes
`python -c "import mcp"` in between; the last round also counts and weighs.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.peering import running_gateway
from benchmarks.peering.gateways import Gateway
from benchmarks.peering.upstreams import Recording, serving
from benchmarks.rounds import Samples, turns
from benchmarks.table import Cell, Table
from portico.rendering.listing_cost import count_listed_tokens
from portico.rendering.token_budget import TokenCounter, get_best_counter

IMPORT_MCP = 'python -c "import mcp"'
DIRECT = "each server listed directly"


@dataclass
class Cost:
    """Describes what one gateway cost."""

    listed: Samples = field(default_factory=Samples)
    """Spawn until all of `tools/list` was answered, seconds."""
    called: Samples = field(default_factory=Samples)
    """Spawn until the first call succeeded."""
    tools: int = 0
    tokens: int = 0
    instructions: int = 0
    memory: float = 0.0
    memory_later: float = 0.0
    """After the calls."""


async def measure(
    gateways: Sequence[Gateway], recordings: Mapping[str, Recording], rounds: int, calls: int
) -> tuple[dict[str, Cost], Samples, dict[str, str]]:
    """Costs by gateway, what the import took, and which gateway failed, why."""
    costs = {one.name: Cost() for one in gateways}
    floor, failed = Samples(), dict[str, str]()
    with processes.scratch() as folder, serving(recordings, folder / "fleet") as upstreams:
        homes: dict[str, Path] = {}
        for one in gateways:
            try:
                homes[one.name] = await running_gateway.prepare_folder(one, folder, upstreams)
            except Exception as error:  # whatever becomes of one, the others are measured
                failed[one.name] = running_gateway.reason(one.name, error)
        by_name = {one.name: one for one in gateways if one.name in homes}
        servers = [one.name for one in upstreams]
        # A round more, whose times do not count, because the first one fills the page cache; a
        # single one has to do.
        warm = 1 if rounds > 1 else 0
        for number, name in turns([IMPORT_MCP, *by_name], rounds + warm):
            counts = number >= warm
            if name == IMPORT_MCP:
                taken = _import_mcp()
                if counts:
                    floor.rounds.append([taken])
            elif name not in failed:
                last = number == rounds + warm - 1
                try:
                    moments = await _start(
                        by_name[name], homes[name], servers, costs[name], calls if last else 0
                    )
                except Exception as error:  # as above
                    failed[name] = running_gateway.reason(name, error)
                    continue
                if counts:
                    costs[name].listed.rounds.append([moments[0]])
                    costs[name].called.rounds.append([moments[1]])
    return costs, floor, failed


async def _start(
    gateway: Gateway, home: Path, servers: Sequence[str], cost: Cost, calls: int
) -> tuple[float, float]:
    """Seconds from spawn to the listing, and to the first call; with `calls`, it is also counted
    and weighed."""
    with running_gateway.running(gateway, home, processes.free_port()) as process:
        async with running_gateway.connect_client(process, servers) as taken:
            await taken.listing()
            listed = time.perf_counter() - process.begun
            await taken.until_called()
            called = time.perf_counter() - process.begun
            if calls:
                # Listed again, because a gateway may have answered before it knew all of its
                # servers.
                tools, instructions = await taken.listing()
                counter = get_best_counter()
                cost.tools, cost.tokens = (
                    len(tools),
                    sum(count_listed_tokens(tool, counter.count) for tool in tools),
                )
                cost.instructions = counter.count(instructions)
                cost.memory = process.memory
                for _ in range(calls):
                    await taken.call()
                cost.memory_later = process.memory
    return listed, called


def _import_mcp() -> float:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import mcp"], check=True, timeout=running_gateway.ANSWER_S
    )
    return time.perf_counter() - begun


def direct(recordings: Mapping[str, Recording], counter: TokenCounter) -> tuple[int, int]:
    """Tools and tokens of a client that is connected to every server itself."""
    tools: list[dict[str, Any]] = [tool for one in recordings.values() for tool in one["tools"]]
    said = (one["initialize"].get("instructions") or "" for one in recordings.values())
    return len(tools), sum(count_listed_tokens(tool, counter.count) for tool in tools) + sum(
        map(counter.count, said)
    )


def tables(
    names: Sequence[str],
    found: tuple[dict[str, Cost], Samples, dict[str, str]],
    recordings: Mapping[str, Recording],
) -> tuple[Table, Table]:
    """Tokens, then start and memory."""
    costs, floor, failed = found
    counter = get_best_counter()
    tools, tokens = direct(recordings, counter)
    listed: list[tuple[Cell, ...]] = [(DIRECT, tools, tokens, "100%", "")]
    started: list[tuple[Cell, ...]] = [
        (IMPORT_MCP, floor.percentile(0.5) * 1000, 1.0, None, None, None, None, "")
    ]
    for name in names:
        one = costs[name]
        if name in failed or not one.tokens:
            why = failed.get(name, "did not answer")
            listed.append((name, None, None, None, why))
            started.append((name, None, None, None, None, None, None, why))
            continue
        paid = one.tokens + one.instructions
        listed.append((name, one.tools, paid, f"{paid / tokens:.2%}", ""))
        times = (one.listed.percentile(0.5) * 1000, one.listed.ratio_to(floor))
        calls = (one.called.percentile(0.5) * 1000, one.called.ratio_to(floor))
        started.append((name, *times, *calls, one.memory, one.memory_later, ""))
    how = f"{len(recordings)} servers, {tools} tools"
    return (
        Table(
            f"What a conversation starts with ({how}; tokens by {counter.name})",
            ("", "tools listed", "tokens", "share", "why not"),
            tuple(listed),
            note="`tools/list` as {name, description, inputSchema}, and the instructions.",
        ),
        Table(
            f"Start and memory ({how}, met before; {len(floor.rounds)} rounds)",
            (
                "",
                "tools/list ms",
                "× import",
                "first call ms",
                "× import ",
                "MB at start",
                "MB later",
                "why not",
            ),
            tuple(started),
            note="From spawn, medians. Memory: gateway and children, not the servers; "
            "later: after the calls.",
        ),
    )
