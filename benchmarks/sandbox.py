"""Measures what a script costs: each language through `run_code`, beside FastMCP's CodeMode, and
beside
calls one by one.

    nothing          a script that returns a number, when everything is warm
    one call         a script with one call of a tool that takes 10 ms
    10 in turn       ten such calls, each awaited before the next
    10 at once       ten such calls together

One client session each, in this process, over the same tool. `cold` is the first script of a
language: its library is imported, its worker started. `× 10 ms` is how many of the tool's own ten
milliseconds a script takes.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil
from fastmcp import Client as PeerClient
from fastmcp import FastMCP

from benchmarks.rounds import Samples, turns
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from portico.config import Config
from portico.rendering.token_budget import get_best_counter
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw

ROUNDS, SMOKE_ROUNDS = 30, 4
TOOL_S = 0.010
TRIVIAL_MS, PARALLEL, SHARE = 3.0, 2.0, 1 / 3
PEER = "fastmcp CodeMode"
CALLS_IN_TURN = "call_tool ×10"
_COUNTER = get_best_counter()
KINDS = ("nothing", "one call", "10 in turn", "10 at once")

SCRIPTS: Mapping[str, tuple[str, str, str, str]] = {
    "python": (
        "6 * 7",
        "(await slow.step(n=0))['n']",
        "total = 0\nfor n in range(10):\n    total = (await slow.step(n=total))['n']\ntotal",
        "import asyncio\nsum(one['n'] for one in await asyncio.gather(*[slow.step(n=n) "
        "for n in range(10)]))",
    ),
    "lua": (
        "return 6 * 7",
        "return slow.step({n=0}):await().n",
        "local total = 0\nfor i = 1, 10 do total = slow.step({n=total}):await().n end\n"
        "return total",
        "local all, sum = {}, 0\nfor i = 1, 10 do all[i] = slow.step({n=i}) end\n"
        "for _, one in ipairs(all) do sum = sum + one:await().n end\nreturn sum",
    ),
    "javascript": (
        "6 * 7",
        "(await slow.step({n: 0})).n",
        "let total = 0;\nfor (let i = 0; i < 10; i++) total = (await slow.step({n: "
        "total})).n;\ntotal",
        "const all = await Promise.all([...Array(10).keys()].map(n => slow.step({n})));\n"
        "all.reduce((sum, one) => sum + one.n, 0)",
    ),
    "typescript": (
        "const x: number = 6 * 7;\nx",
        "(await slow.step({n: 0})).n as number",
        "let total: number = 0;\nfor (let i = 0; i < 10; i++) total = (await "
        "slow.step({n: total})).n;\ntotal",
        "const all: {n: number}[] = await Promise.all([...Array(10).keys()].map(n => "
        "slow.step({n})));\n"
        "all.reduce((sum: number, one) => sum + one.n, 0)",
    ),
    PEER: (
        "return 6 * 7",
        "return (await call_tool('step', {'n': 0}))['n']",
        "total = 0\nfor n in range(10):\n    total = (await call_tool('step', {'n': "
        "total}))['n']\nreturn total",
        "import asyncio\n"
        "all = await asyncio.gather(*[call_tool('step', {'n': n}) for n in range(10)])\n"
        "return sum([one['n'] for one in all])",
    ),
}


@dataclass
class Contestant:
    """Something that runs scripts."""

    run: Callable[[str], Awaitable[Any]]
    samples: dict[str, Samples] = field(default_factory=lambda: {kind: Samples() for kind in KINDS})
    cold_ms: float = 0.0
    worker_mb: float | None = None


async def step(n: int) -> dict[str, int]:
    """Take ten milliseconds, and give the next number."""
    await asyncio.sleep(TOOL_S)
    return {"n": n + 1}


def slow() -> FakeBackend:
    """The tool as a server behind the gateway."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    backend = FakeBackend(
        [{"name": "step", "description": "Give the next number.", "inputSchema": schema}]
    )

    async def answered(given: Raw) -> Raw:
        value = await step(given["n"])
        return {
            "content": [{"type": "text", "text": json.dumps(value)}],
            "structuredContent": value,
        }

    backend.on_call("step", answered)
    return backend


async def measure(options: argparse.Namespace) -> Report:
    """Every language and the peer in turns."""
    rounds = options.rounds or (SMOKE_ROUNDS if options.smoke else ROUNDS)
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_over({"slow": slow()}, Config()))
        client = await stack.enter_async_context(connect(gateway))
        seats: dict[str, Contestant] = {}
        for language in ("python", "lua", "javascript", "typescript"):
            seats[language] = Contestant(_portico(client, language))
        seats[PEER] = Contestant(await stack.enter_async_context(_peer()))
        for name, seat in seats.items():
            await _warm_up(name, seat)
        for _, name in turns(list(seats), rounds):
            for kind, code in zip(KINDS, SCRIPTS[name], strict=True):
                seats[name].samples[kind].rounds.append([await _time_script(seats[name].run, code)])
        costs = await _costs(client)
    return _report(seats, costs)


def _portico(client: Any, language: str) -> Callable[[str], Awaitable[Any]]:
    async def run(code: str) -> Any:
        result = await client.call_tool("run_code", {"code": code, "language": language})
        if result.is_error:
            raise SystemExit(f"{language} failed: {result.content}")
        return result

    return run


@contextlib.asynccontextmanager
async def _peer() -> AsyncGenerator[Callable[[str], Awaitable[Any]]]:
    from fastmcp.experimental.transforms.code_mode import CodeMode

    server = FastMCP("peer", transforms=[CodeMode()])
    server.tool(step)
    async with PeerClient(server) as client:

        async def run(code: str) -> Any:
            return await client.call_tool("execute", {"code": code})

        yield run


async def _warm_up(name: str, seat: Contestant) -> None:
    own = psutil.Process(os.getpid())
    before = {child.pid for child in own.children(recursive=True)}
    seat.cold_ms = await _time_script(seat.run, SCRIPTS[name][0]) * 1000
    for code in SCRIPTS[name]:
        await seat.run(code)
    fresh = [child for child in own.children(recursive=True) if child.pid not in before]
    sizes = list[float]()
    for child in fresh:
        with contextlib.suppress(psutil.Error):
            sizes.append(child.memory_info().rss / 1024**2)
    seat.worker_mb = max(sizes, default=None)


async def _time_script(run: Callable[[str], Awaitable[Any]], code: str) -> float:
    begun = time.perf_counter()
    await run(code)
    return time.perf_counter() - begun


async def _costs(client: Any) -> dict[str, tuple[int, int, float]]:
    """Round trips, tokens of questions and answers, and seconds: ten chained calls one by one, and
    as a script."""
    found: dict[str, tuple[int, int, float]] = {}
    begun, tokens, total = time.perf_counter(), 0, 0
    for _ in range(10):
        question = {"name": "slow.step", "arguments": {"n": total}}
        answer = await client.call_tool("call_tool", question)
        total = answer.structured_content["n"]
        tokens += _tokens("call_tool", question, answer)
    found[CALLS_IN_TURN] = (10, tokens, time.perf_counter() - begun)
    for language in ("python", "lua", "javascript"):
        question = {"code": SCRIPTS[language][2], "language": language}
        begun = time.perf_counter()
        answer = await client.call_tool("run_code", question)
        found[f"run_code, {language}"] = (
            1,
            _tokens("run_code", question, answer),
            time.perf_counter() - begun,
        )
    return found


def _tokens(name: str, question: Raw, answer: Any) -> int:
    """Return what a model writes and reads of one call: the call itself, and the text of its
    answer."""
    texts = [
        json.dumps({"name": name, "arguments": question}),
        *(one.text for one in answer.content),
    ]
    return sum(map(_COUNTER.count, texts))


def _ms(seat: Contestant, kind: str) -> float:
    return seat.samples[kind].percentile(0.5) * 1000


def _report(seats: dict[str, Contestant], costs: dict[str, tuple[int, int, float]]) -> Report:
    peer = seats[PEER]
    rows: list[tuple[Cell, ...]] = []
    for name, seat in seats.items():
        figures = [_ms(seat, kind) for kind in KINDS]
        times_peer = seat.samples["nothing"].ratio_to(peer.samples["nothing"])
        at_once = seat.samples["10 at once"].ratio_to(seat.samples["one call"])
        rows.append((name, *figures, at_once, times_peer, seat.cold_ms, seat.worker_mb))
    columns = (
        "",
        *(f"{kind} ms" for kind in KINDS),
        "10 at once ÷ one",
        "nothing ÷ peer",
        "cold ms",
        "worker MB",
    )
    one_by_one = costs[CALLS_IN_TURN]
    token_rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, trips, tokens, tokens / one_by_one[1], seconds * 1000)
        for name, (trips, tokens, seconds) in costs.items()
    )
    ours = [name for name in seats if name != PEER]
    goals = [
        Goal(
            f"{name}: a warm script that does nothing, ms", _ms(seats[name], "nothing"), TRIVIAL_MS
        )
        for name in ours
    ]
    goals += [
        Goal(
            f"{name}: ten calls at once ÷ one",
            seats[name].samples["10 at once"].ratio_to(seats[name].samples["one call"]),
            PARALLEL,
        )
        for name in ours
    ]
    goals += [
        Goal(f"{name}: tokens of ten chained calls ÷ one by one", tokens / one_by_one[1], SHARE, 0)
        for name, (_, tokens, _) in costs.items()
        if name != CALLS_IN_TURN
    ]
    return Report(
        "sandbox",
        (
            Table(
                "Scripts, medians",
                columns,
                tuple(rows),
                f"The tool itself takes {TOOL_S * 1000:g} ms.",
            ),
            Table(
                f"Ten chained calls ({_COUNTER.name})",
                ("", "round trips", "tokens", "÷ one by one", "ms"),
                token_rows,
            ),
        ),
        tuple(goals),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, metavar="N")
    options = parser.parse_args()
    return conclude(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    sys.exit(main())
