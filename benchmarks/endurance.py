"""Measures whether a gateway that is called and called stays as it was: time, memory and objects
over
100,000 calls of a kind.

    python -m benchmarks.endurance [--smoke] [--json FILE] [--check]

`pipeline` is the gateway's own calls, `client` the SDK's client in memory, through `call_tool`;
`kept` answers come
from the cache, `asked` ones from a Python function of the same process, the record included. The
first tenth is warming up. After each further tenth garbage is collected and what is held is
counted: `growth` is the slope of a line through that, for each call. `single flight` is so many
identical calls at the same moment, and how many of them the tool saw.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any

import psutil

from benchmarks.table import Goal, Report, Table, arguments, conclude
from portico.config import BackendConfig, Config
from portico.config.backend import CacheConfig
from portico.gateway import GatewayRuntime
from portico.testing import connect

PARTS, SMOKE_PARTS = 10, 4
QUESTIONS = 500
"""Different questions, over and over: the cache has been full long before the counting begins."""
CROWD, SMOKE_CROWD = 2_000, 200
FULL = {"pipeline": 100_000, "client": 20_000}
SMOKE = {"pipeline": 2_000, "client": 600}
MOST_BYTES, MOST_OBJECTS = 64.0, 0.05
"""Growth for each call: less than the smallest thing that could be left behind."""
WRITTEN_S = 1.0
"""What was called is written half a second later; until then it is held."""

_ran = 0


async def answer_cached(number: int) -> dict[str, Any]:
    """Answer with the number."""
    return await answer_uncached(number)


async def answer_uncached(number: int) -> dict[str, Any]:
    """Answer with the number."""
    global _ran
    _ran += 1
    await asyncio.sleep(0)
    return {"number": number, "text": "the same for everybody " * 4}


TOOLS = {"kept": answer_cached, "asked": answer_uncached}


@dataclass(frozen=True)
class Held:
    """Describes what a run left behind, and how long it took."""

    calls: int
    microseconds: float
    rss: tuple[float, float]
    objects: tuple[int, int]
    bytes_per_call: float
    objects_per_call: float


async def endure(call: Callable[[int], Awaitable[object]], calls: int, parts: int = PARTS) -> Held:
    """Call so often, and count what is held after each part."""
    part, process = max(1, calls // parts), psutil.Process()
    at, rss, objects, seconds = list[float](), list[float](), list[float](), 0.0
    for number in range(parts):
        started = time.perf_counter()
        for one in range(part):
            await call(one % QUESTIONS)
        seconds += time.perf_counter() - started if number else 0.0
        await asyncio.sleep(WRITTEN_S)
        gc.collect()
        at.append((number + 1) * part)
        rss.append(process.memory_info().rss)
        objects.append(len(gc.get_objects()))
    grown = [linear_regression(at[1:], figures[1:]).slope for figures in (rss, objects)]
    spent = seconds / (part * (parts - 1)) * 1e6
    ends = (rss[1] / 2**20, rss[-1] / 2**20), (int(objects[1]), int(objects[-1]))
    return Held(part * parts, spent, *ends, *grown)


async def together(gateway: GatewayRuntime, count: int) -> int:
    """Return how often a tool is run for so many identical calls at once."""
    before, tool = _ran, gateway.get_view().snapshot.resolve_tool("here.kept")
    await asyncio.gather(*(gateway.calls.call(tool, {"number": -count}) for _ in range(count)))
    return _ran - before


async def run(options: argparse.Namespace) -> Report:
    """Measure."""
    efforts, crowd, parts = (
        (SMOKE, SMOKE_CROWD, SMOKE_PARTS) if options.smoke else (FULL, CROWD, PARTS)
    )
    found: dict[tuple[str, str], Held] = {}
    with tempfile.TemporaryDirectory() as folder:
        here = BackendConfig(
            functions=f"{__name__}:TOOLS"
            if __name__ != "__main__"
            else "benchmarks.endurance:TOOLS"
        )
        server = here.model_copy(update={"cache": CacheConfig(tools={"kept": 86_400})})
        async with GatewayRuntime(
            Config(servers={"here": server}, data_dir=Path(folder))
        ) as gateway:
            await gateway.wait_until_listed()
            await gateway.usage_data.tool_usage.load()
            for name in TOOLS:
                tool = gateway.get_view().snapshot.resolve_tool(f"here.{name}")

                async def straight(number: int, tool: Any = tool) -> object:
                    return await gateway.calls.call(tool, {"number": number})

                found["pipeline", name] = await endure(straight, efforts["pipeline"], parts)
            async with connect(gateway) as client:
                for name in TOOLS:

                    async def through(number: int, name: str = name) -> object:
                        wanted = {"name": f"here.{name}", "arguments": {"number": number}}
                        return await client.call_tool("call_tool", wanted)

                    found["client", name] = await endure(through, efforts["client"], parts)
            # The functions are imported by the gateway, perhaps a second time: its copy is the one
            # that counts.
            import benchmarks.endurance as copy

            seen = await copy.together(gateway, crowd)
    return _report(found, crowd, seen, smoke=options.smoke)


def _report(found: dict[tuple[str, str], Held], crowd: int, seen: int, *, smoke: bool) -> Report:
    columns = (
        "way",
        "answers",
        "calls",
        "µs/call",
        "MiB then",
        "now",
        "objects then",
        "now ",
        "bytes/call",
        "objects/call",
    )
    rows = tuple(
        (
            way,
            name,
            one.calls,
            one.microseconds,
            *one.rss,
            *one.objects,
            one.bytes_per_call,
            one.objects_per_call,
        )
        for (way, name), one in found.items()
    )
    flights = Table("single flight", ("identical calls", "the tool ran"), ((crowd, seen),))
    goals = [Goal("times a tool runs for identical calls at once", seen, 1, 0)]
    # A small run says nothing of memory: what is allocated once weighs too much in it.
    if not smoke:
        goals += [
            Goal(
                "bytes left by a call, at most",
                max(one.bytes_per_call for one in found.values()),
                MOST_BYTES,
            ),
            Goal(
                "objects left by a call, at most",
                max(one.objects_per_call for one in found.values()),
                MOST_OBJECTS,
            ),
        ]
    return Report("endurance", (Table("growth", columns, rows), flights), tuple(goals))


def main() -> int:
    """Run from the command line."""
    options = arguments(__doc__).parse_args()
    return conclude(asyncio.run(run(options)), options)


if __name__ == "__main__":
    sys.exit(main())
