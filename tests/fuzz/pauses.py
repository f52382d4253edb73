"""Schemas × values and paths × results, through the pipeline of a gateway: how long does any of
them hold the loop?

    python -m tests.fuzz.pauses --minutes 10 [--seed 1] [--only schema|answer|path|workflow] [--size 3000000]

Reports the longest pauses (processor time of one turn of the event loop, or the interpreter's lock
held by any thread) with the seed of each case, and fails over 250 ms, or when a case does not come
back at all. One case again:
`--seed N --cases 1`. The same cases, small ones, are the tests in `test_pauses.py`: those measure
nothing.
"""  # noqa: E501

import argparse
import asyncio
import faulthandler
import random
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.hostile.meter import METER, MeasuredLoop

from portico.calls.pipeline import CallContext
from portico.cli.serving_process import collect_garbage, defer_full_collections
from portico.errors import PorticoError
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Raw
from tests.fuzz import paths, schemas

LONGEST_MS = 250.0
HANGS_S = 60.0
"""Processor time: on a machine with much else to do a case that computes for ten seconds took more
than a minute."""
STANDS_STILL_S = 600.0
"""After which a case that computes nothing is given up."""
MEMORY = 8 * 2**30
SIZE, SMALL = 3_000_000, 30_000
OUTPUT = 120_000
"""Characters of an answer that is held against its schema."""
SHOWN = 10
_RESULT_ID = re.compile(r"result_id[^\w-]+([\w-]{6,})")


class Bench:
    """A gateway over one server whose listing and whose answers are set for each case; no wire is
    in between."""

    def __init__(self, gateway: GatewayRuntime, server: FakeBackend) -> None:
        self._gateway, self._server = gateway, server
        self._answer: Raw = {"content": []}
        server.on("tools/call", lambda *_: self._answer)

    async def ask(self, tool: str, arguments: Raw) -> Raw:
        """Return what a meta-tool answers, or the error as an object."""
        try:
            params = {"name": tool, "arguments": arguments}
            return await self._gateway.get_view().handle(
                "tools/call", params, CallContext(), "legacy"
            )
        except PorticoError as error:
            return {"isError": True, "content": [{"type": "text", "text": str(error)}]}

    async def offer(self, definition: Raw) -> None:
        """Have the server list this tool, and the gateway know it."""
        tools = [{"name": "t", **definition}]
        if self._server.listing["tools"] != tools:
            self._server.listing["tools"] = tools
            await self._gateway.refresh()

    def forget(self) -> None:
        """Let go of what the server was asked: the collector would walk through all of it."""
        self._server.requests.clear()

    def answer_with(self, structured: Any) -> None:
        """Have the server answer with this from now on."""
        self._answer = {"content": [], "structuredContent": structured}


Case = Callable[[Bench], Awaitable[Raw]]
"""One case, ready to be asked: everything it sends was generated before."""


def make_schema_case(dice: random.Random, size: int) -> Case:
    """Arguments that nearly fit."""
    schema = schemas.make_schema(dice)
    arguments = schemas.make_value(dice, schema, size)

    async def check(bench: Bench) -> Raw:
        await bench.offer({"inputSchema": schema})
        return await bench.ask("call_tool", {"name": "s.t", "arguments": arguments})

    return check


def make_answer_case(dice: random.Random, size: int) -> Case:
    """An answer that nearly fits."""
    schema = schemas.make_schema(dice)
    answer = schemas.make_value(dice, schema, min(size, OUTPUT))

    async def check(bench: Bench) -> Raw:
        await bench.offer({"inputSchema": {"type": "object"}, "outputSchema": schema})
        bench.answer_with(answer)
        return await bench.ask("call_tool", {"name": "s.t"})

    return check


def make_path_case(dice: random.Random, size: int) -> Case:
    """A part of a large result."""
    answer = paths.make_result(dice, max(size, SMALL * 10))
    path = paths.make_path(dice)

    async def check(bench: Bench) -> Raw:
        await bench.offer({"inputSchema": {"type": "object"}})
        bench.answer_with(answer)
        kept = await bench.ask("call_tool", {"name": "s.t"})
        # What is said of a changed definition comes before it.
        found = _RESULT_ID.search("\n".join(block.get("text", "") for block in kept["content"]))
        assert found, kept
        return await bench.ask("read_result", {"result_id": found[1], "path": path})

    return check


def make_workflow_case(dice: random.Random, size: int) -> Case:
    """Steps that refer to inputs and to each other."""
    answer = paths.make_result(dice, size)
    steps: list[Raw] = [{"id": "s0", "tool": "s.t"}]
    steps += [
        {"id": f"s{n}", "tool": "s.t", "arguments": {"a": paths.make_text(dice)}}
        for n in range(1, 4)
    ]
    if dice.random() < 0.3:
        steps[-1]["if"] = paths.make_text(dice)
    inputs = paths.make_result(dice, size)

    async def check(bench: Bench) -> Raw:
        await bench.offer({"inputSchema": {"type": "object"}})
        bench.answer_with(answer)
        return await bench.ask("run_workflow", {"steps": steps, "inputs": inputs})

    return check


CASES: dict[str, Callable[[random.Random, int], Case]] = {
    "schema": make_schema_case,
    "answer": make_answer_case,
    "path": make_path_case,
    "workflow": make_workflow_case,
}


@asynccontextmanager
async def open_bench() -> AsyncGenerator[Bench]:
    """A gateway for any number of cases."""
    server = FakeBackend([{"name": "t", "inputSchema": {"type": "object"}}])
    async with gateway_over({"s": server}) as gateway:
        yield Bench(gateway, server)


async def run(options: argparse.Namespace) -> list[tuple[float, str, int]]:
    """Cases until time is up: the pause, the check and the seed of each."""
    felt: list[tuple[float, str, int]] = []
    until, seed = time.monotonic() + options.minutes * 60, options.seed
    names = [options.only] if options.only else [*CASES]
    async with open_bench() as bench:
        collecting = asyncio.create_task(collect_garbage())  # as `portico serve` does
        while time.monotonic() < until and len(felt) < options.cases:
            name = names[seed % len(names)]
            dice = random.Random(seed)
            size = int(
                10 ** dice.uniform(2, len(str(options.size)) - 1)
                * options.size
                / 10 ** (len(str(options.size)) - 1)
            )
            print(f"{name} {seed}", file=sys.stderr, flush=True)
            signal.setitimer(signal.ITIMER_PROF, HANGS_S)
            faulthandler.dump_traceback_later(STANDS_STILL_S, exit=True)
            check = CASES[name](dice, size)
            await asyncio.sleep(0)
            METER.take()
            await check(bench)
            await asyncio.sleep(0)
            felt.append((METER.take().longest, name, seed))
            faulthandler.cancel_dump_traceback_later()
            signal.setitimer(signal.ITIMER_PROF, 0)
            bench.forget()
            seed += 1
        collecting.cancel()
    return felt


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--only", choices=[*CASES])
    parser.add_argument(
        "--size", type=int, default=SIZE, help=f"the most characters of a value; default {SIZE}"
    )
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # Writes all stacks and ends the process, even while a library call has the interpreter's lock.
    faulthandler.register(signal.SIGPROF, chain=True)
    threading.Thread(target=METER.watch_lock, daemon=True).start()
    with defer_full_collections(), asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        felt = runner.run(run(options))
    felt.sort(reverse=True)
    print(
        f"{len(felt)} cases; peak memory "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )
    for pause, name, seed in felt[:SHOWN]:
        print(f"{pause:10.1f} ms  {name} --seed {seed}")
    return 1 if felt and felt[0][0] > LONGEST_MS else 0


if __name__ == "__main__":
    sys.exit(main())
