"""Measures what rules cost: a decision, what a caller is shown, and a call.

    python -m benchmarks.rules [--smoke] [--json FILE] [--check]

The rules are of every kind: names with and without a server, servers, marks, conditions on
arguments, for groups and for everybody; none decides alone. `again` is a tool that was
decided about before, with a condition to be compared each time; `new` one that was not. A list is
the snapshot of 5,000 tools on 100 servers as one selection of rules shows it: `first` for a
selection nobody had before, `one server changed` after another listing of one server, `again` for
every request in between. A call goes through the pipeline to a server in the same process. Times
are of the process's own work.
"""

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Any

from benchmarks.table import Goal, Report, Table, arguments, conclude
from portico.callers import Caller, Principal
from portico.calls.call import CallContext
from portico.calls.call_recorder import CallRecorder
from portico.calls.pipeline import CallPipeline, CallSettings
from portico.calls.rule_enforcement import build_rules
from portico.catalog.rule_filter import RuleFilter
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, make_tool
from portico.config import Config
from portico.events import EventBus
from portico.policy.rules import CallerRules, RuleSet
from portico.policy.target import Target
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream

RULES = (0, 10, 200, 1_000)
TOOLS, SMOKE_TOOLS, TOOLS_EACH = 5_000, 500, 50
DECISIONS, SMOKE_DECISIONS = 20_000, 200
CALLS, SMOKE_CALLS = 3_000, 30
ROUNDS, SMOKE_ROUNDS = 7, 2
MOST_DECISION_US, MOST_LIST_MS, MOST_CALL_RATIO = 20.0, 5.0, 1.05
ANA = Caller(principal=Principal("https://login.example", "ana", groups=("dev",)))


def make_rules(amount: int) -> RuleSet:
    """Rules of every kind; none of them decides alone about everything."""
    kinds: list[Callable[[int], Raw]] = [
        lambda n: {"tools": [f"server{n}.drop_*"], "may": "deny"},
        lambda n: {"tools": [f"*.purge{n}_*"], "may": "deny"},
        lambda n: {"for": ["group:dev"], "tools": [f"server{n}.tool{n}*"], "may": "allow"},
        lambda n: {"servers": [f"internal{n}*"], "may": "deny"},
        lambda n: {"tools": [f"server{n % 5}.query"], "when": {"table": f"t{n}"}, "may": "deny"},
        lambda n: {"tools": [f"erase{n}_*"], "destructive": True, "may": "ask"},
        lambda n: {"for": [f"group:other{n}"], "tools": ["*"], "may": "deny"},
        lambda n: {"resources": [f"server{n}.file:///secret*"], "may": "deny"},
    ]
    rules = [kinds[number % len(kinds)](number) for number in range(amount)]
    return build_rules(Config.model_validate({"rules": rules}))


def make_snapshot(tools: int) -> Snapshot:
    servers: dict[str, ServerEntry] = {}
    for number in range(tools // TOOLS_EACH):
        name = f"server{number}"
        listed = [make_one_tool(name, f"tool{at}_do") for at in range(TOOLS_EACH - 2)]
        listed += [make_one_tool(name, "drop_all"), make_one_tool(name, "query")]
        servers[name] = ServerEntry(name, tools={tool.name: tool for tool in listed}, listed_at=1.0)
    return Snapshot(servers)


def make_one_tool(server: str, name: str) -> Tool:
    return make_tool(server, {"name": name, "inputSchema": {"type": "object"}})


def measure_us(work: Callable[[], object], times: int, rounds: int) -> float:
    """Return the microseconds of one run: the median of rounds."""
    found: list[float] = []
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - begun) / times * 1e6)
    return median(found)


def measure_decisions(own: CallerRules, times: int, rounds: int) -> tuple[float, float, float]:
    """Return the microseconds of a decision: known, known with conditions, and new."""
    known = Target("tool", "server3", "tool3_do")
    conditional = Target("tool", "server3", "query")
    names: Iterator[int] = count()
    values = {"table": "none of them"}
    return (
        measure_us(lambda: own.decide(known, values), times, rounds),
        measure_us(lambda: own.decide(conditional, values), times, rounds),
        measure_us(
            lambda: own.decide(Target("tool", "server3", f"new{next(names)}"), values),
            times,
            rounds,
        ),
    )


def measure_lists(
    own: CallerRules, snapshot: Snapshot, rounds: int
) -> tuple[float, float, float, int]:
    """Return the milliseconds of a list: first, after a change of one server, again; and its
    tools."""
    first: list[float] = []
    changed: list[float] = []
    again: list[float] = []
    shown = snapshot
    for number in range(rounds):
        rule_filter = RuleFilter(CallerRules(own.rules, "allow"))
        begun = time.process_time()
        shown = rule_filter.restrict(snapshot)
        first.append(time.process_time() - begun)
        entry = replace(snapshot.servers["server1"], listed_at=2.0 + number)
        other = Snapshot({**snapshot.servers, "server1": entry}, snapshot.index)
        begun = time.process_time()
        rule_filter.restrict(other)
        changed.append(time.process_time() - begun)
        begun = time.process_time()
        rule_filter.restrict(other)
        again.append(time.process_time() - begun)
    return median(first) * 1e3, median(changed) * 1e3, median(again) * 1e3, len(shown.tools)


class _Hop:
    """A pipeline over a server in this process."""

    def __init__(self, rules: RuleSet) -> None:
        bus = EventBus()
        backend = FakeBackend([{"name": "tool3_do", "inputSchema": {"type": "object"}}])
        backend.on_call("tool3_do", lambda _: {"content": [{"type": "text", "text": "done"}]})
        servers = Config.model_validate({"servers": {"server3": {"command": "x"}}}).servers
        self._calls = CallPipeline(
            {"server3": Upstream("server3", backend, bus)},
            CallSettings(servers, rules=rules),
            CallRecorder(bus),
        )
        self._tool = make_one_tool("server3", "tool3_do")
        self._backend = backend

    async def measure_us(self, calls: int) -> float:
        context = CallContext(ANA)
        await self._calls.call(self._tool, {"a": 1}, context)
        begun = time.process_time()
        for _ in range(calls):
            await self._calls.call(self._tool, {"a": 1}, context)
        spent = time.process_time() - begun
        self._backend.requests.clear()
        return spent / calls * 1e6


async def measure_hops(amounts: tuple[int, ...], calls: int, rounds: int) -> dict[int, float]:
    """Return the microseconds of a call by number of rules; the contestants take turns."""
    hops = {amount: _Hop(make_rules(amount)) for amount in amounts}
    found: dict[int, list[float]] = {amount: [] for amount in amounts}
    for _ in range(rounds):
        for amount, hop in hops.items():
            found[amount].append(await hop.measure_us(calls))
    return {amount: median(times) for amount, times in found.items()}


def run(options: argparse.Namespace) -> int:
    is_smoke = options.smoke
    amounts = RULES[:2] if is_smoke else RULES
    rounds = SMOKE_ROUNDS if is_smoke else ROUNDS
    decisions = SMOKE_DECISIONS if is_smoke else DECISIONS
    snapshot = make_snapshot(SMOKE_TOOLS if is_smoke else TOOLS)
    decided: list[tuple[Any, ...]] = []
    listed: list[tuple[Any, ...]] = []
    for amount in amounts:
        own = make_rules(amount).select_for(ANA)
        decided.append((amount, *measure_decisions(own, decisions, rounds)))
        gc.collect()
        listed.append((amount, *measure_lists(own, snapshot, rounds)))
    hops = asyncio.run(measure_hops(amounts, SMOKE_CALLS if is_smoke else CALLS, rounds))
    largest = 200 if 200 in amounts else amounts[-1]
    worst = max(next(row for row in decided if row[0] == largest)[1:3])
    _, first, _, again, _ = next(row for row in listed if row[0] == largest)
    report = Report(
        "rules",
        (
            Table(
                "A decision, µs", ("rules", "again", "again, with conditions", "new"),
                tuple(decided),
            ),
            Table(
                f"What a caller is shown of {len(snapshot.tools):,} tools, ms",
                ("rules", "first", "one server changed", "again", "tools shown"),
                tuple(listed),
            ),
            Table(
                "A call through the pipeline, µs", ("rules", "call", "beside none"),
                tuple((n, us, us / hops[0]) for n, us in hops.items()),
            ),
        ),
        (
            Goal(f"a decision at {largest} rules, µs", worst, MOST_DECISION_US),
            Goal(f"a list at {largest} rules, first, ms", first, MOST_LIST_MS),
            Goal(f"a list at {largest} rules, again, ms", again, MOST_LIST_MS),
        ),
    )  # fmt: skip
    return conclude(report, options)


if __name__ == "__main__":
    sys.exit(run(arguments(__doc__).parse_args()))
