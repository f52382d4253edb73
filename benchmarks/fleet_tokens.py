"""What a fleet of real servers costs a model's context: its whole listing, and what a client of Portico pays instead.

Counted with o200k_base where TIKTOKEN_CACHE_DIR has its table, else with Portico's own estimate; the table says which.
Listings are counted as `{name, description, inputSchema}` in compact JSON: the least that a client shows its model.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import fleet, processes
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from portico.app import Gateway
from portico.config import Config
from portico.disclosure.render import brief, schema
from portico.disclosure.tokens import best_counter
from portico.disclosure.view import View
from portico.execution.call import NOBODY

SMOKE_QUERIES = 40
SMOKE_STEP = 8
"""A smoke run measures every eighth tool's renderings."""


def definition(tool: Mapping[str, Any]) -> str:
    """The least that a client shows its model of a tool."""
    shown = {key: tool.get(key) for key in ("name", "description", "inputSchema")}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


async def measure(options: argparse.Namespace) -> Report:
    """Load the fleet into a gateway and count what it would send."""
    with processes.scratch() as folder:
        servers = fleet.servers(options.shared, folder / "recordings")
        async with Gateway(Config.model_validate({"data_dir": folder / "data", "servers": servers})) as gateway:
            await gateway.listed()
            return await _count(gateway.view(), len(servers), options)


async def _count(view: View, servers: int, options: argparse.Namespace) -> Report:
    counter = best_counter()
    tools = list(view.snapshot.tools.values())
    step = SMOKE_STEP if options.smoke else 1
    raw = [counter.count(definition(tool.definition)) for tool in tools[::step]]
    lines = [counter.count(brief(tool)) for tool in tools[::step]]
    described = [counter.count(schema(tool)) for tool in tools[::step]]
    whole = sum(raw) * step
    listed = (await view.handle("tools/list", {}, NOBODY, "legacy"))["tools"]
    meta = sum(counter.count(definition(tool)) for tool in listed)
    instructions = counter.count(view.instructions())
    asked = fleet.queries(options.shared)[: SMOKE_QUERIES if options.smoke else None]
    found = [counter.count(await _ask(view, "search_tools", query=query)) for query in asked]
    found_typed = [counter.count(await _ask(view, "search_tools", query=query, detail="schema")) for query in asked]
    overview = counter.count(await _ask(view, "browse_tools"))
    task = meta + instructions + round(median(found)) + round(median(described))

    def share(tokens: float) -> str:
        return f"{tokens / whole:.2%}"

    rows: list[tuple[Cell, ...]] = [
        (f"listing of {servers} servers, {len(tools):,} tools", whole, "100%"),
        ("the same in the schema rendering", sum(described) * step, share(sum(described) * step)),
        ("the same in brief lines", sum(lines) * step, share(sum(lines) * step)),
        ("Portico's tools/list (meta)", meta, share(meta)),
        ("Portico's instructions", instructions, share(instructions)),
        ("both, paid once by every conversation", meta + instructions, share(meta + instructions)),
        ("… plus one search and one description (medians)", task, share(task)),
    ]
    parts: list[tuple[Cell, ...]] = [
        _spread(f"search_tools answer ({len(asked)} queries)", found),
        _spread('search_tools answer, detail="schema"', found_typed),
        ("browse_tools() answer", overview, None, None, overview),
        _spread("brief line of a tool", lines),
        _spread("schema rendering of a tool", described),
        _spread("its JSON definition", raw),
    ]
    how = counter.name + (f", every {step}th tool" if step > 1 else "")
    return Report(
        "fleet_tokens",
        (
            Table(f"What a conversation starts with, tokens ({how})", ("", "tokens", "share"), tuple(rows)),
            Table(f"What each step costs, tokens ({how})", ("", "median", "p95", "p99", "max"), tuple(parts)),
        ),
        (
            Goal("brief line, median tokens", median(lines), 35, 0),
            Goal("brief line, p99 tokens", percentile(lines, 0.99), 80, 0),
        ),
        {"counter": counter.name},
    )


async def _ask(view: View, name: str, **arguments: Any) -> str:
    result = await view.handle("tools/call", {"name": name, "arguments": arguments}, NOBODY, "legacy")
    return "\n".join(block["text"] for block in result["content"])


def _spread(name: str, counts: Iterable[int]) -> tuple[Cell, ...]:
    figures = list(counts)
    return name, median(figures), percentile(figures, 0.95), percentile(figures, 0.99), max(figures)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, help="folder with fleet/servers.jsonl.gz")
    options = parser.parse_args()
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
