"""Measures whether a gateway's own search names the right tool among its first five, asked over MCP
like any
client."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.metrics import Estimate, estimates, mean_estimates, recall_at
from benchmarks.peering import running_gateway
from benchmarks.peering.gateways import FOUND, Gateway
from benchmarks.peering.upstreams import ECHO, echo, serving, tools_as_recordings
from benchmarks.table import Cell, Table
from benchmarks.tool_sets import Question, Source, ToolSet, read_set

SEED = 20_261_116


@dataclass
class Finds:
    """Describes what one gateway earned, by set and question."""

    recalls: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    seconds: list[float] = field(default_factory=list[float])

    def of(self, name: str) -> Estimate:
        return estimates(_marks(self.recalls[name]))[0]

    def mean(self) -> Estimate:
        return mean_estimates([_marks(one) for one in self.recalls.values()])[0]


async def measure(
    gateways: Sequence[Gateway], sources: Sequence[Source], most: int, smallest: int | None = None
) -> tuple[dict[str, Finds], dict[str, str]]:
    """Recalls by gateway, and which one failed, why; sets over the same tools are asked in one
    run."""
    found = {one.name: Finds() for one in gateways}
    failed: dict[str, str] = {}
    catalogs: dict[str, list[ToolSet]] = {}
    for source in sources:
        catalogs.setdefault(str(source.tools), []).append(read_set(source))
    for sets in catalogs.values():
        asked = {one.name: sample(one.questions, most) for one in sets}
        tools = sets[0].tools if smallest is None else _few(sets[0].tools, asked, smallest)
        recordings = {**tools_as_recordings(tools), ECHO: echo()}
        ids = {
            normalize_name(f"{tool.get('server') or 'server'} {tool['name']}"): str(tool["id"])
            for tool in tools
        }
        for one in gateways:
            with processes.scratch() as folder, serving(recordings, folder / "fleet") as upstreams:
                try:
                    home = await running_gateway.prepare_folder(one, folder, upstreams)
                    async with running_gateway.run_gateway(one, home, upstreams) as taken:
                        for name, questions in asked.items():
                            found[one.name].recalls[name] = [
                                await _ask(taken, question, ids, found[one.name].seconds)
                                for question in questions
                            ]
                except Exception as error:  # whatever becomes of one, the others are asked
                    failed[one.name] = running_gateway.reason(one.name, error)
    return found, failed


async def _ask(
    taken: running_gateway.Seat, question: Question, ids: Mapping[str, str], seconds: list[float]
) -> float:
    tool, arguments = taken.gateway.search(question.text)
    begun = perf_counter()
    result = await taken.clients[ECHO].call_tool(tool, arguments)
    seconds.append(perf_counter() - begun)
    names = taken.gateway.found(result)[:FOUND]
    return recall_at([ids.get(normalize_name(name), name) for name in names], question.groups)


def sample(questions: Sequence[Question], most: int) -> list[Question]:
    """The questions that have an answer; of more than `most`, always the same ones."""
    answerable = [question for question in questions if question.groups]
    return answerable if len(answerable) <= most else random.Random(SEED).sample(answerable, most)


def normalize_name(name: str) -> str:
    """A tool's name as every gateway spells it: letters and digits only."""
    return re.sub(r"[\W_]+", "", name.lower())


def _few(
    tools: Sequence[Mapping[str, Any]], asked: Mapping[str, Sequence[Question]], size: int
) -> tuple[Mapping[str, Any], ...]:
    """The tools that are asked for, and others up to `size`."""
    needed = {
        id_
        for questions in asked.values()
        for one in questions
        for group in one.groups
        for id_ in group
    }
    others = [tool["id"] for tool in tools if tool["id"] not in needed]
    kept = needed | set(others[:: max(1, len(others) // max(1, size - len(needed)))])
    return tuple(tool for tool in tools if tool["id"] in kept)


def _marks(recalls: Sequence[float]) -> Any:
    return np.array(recalls, dtype=np.float64).reshape(-1, 1)


def table(
    gateways: Sequence[Gateway],
    found: tuple[dict[str, Finds], dict[str, str]],
    absent: Mapping[str, str],
) -> Table:
    """Recall by set, with its interval, and how long a search took."""
    finds, failed = found
    sets = list(next((one.recalls for one in finds.values() if one.recalls), {}))
    asked = {name: len(one) for finds_ in finds.values() for name, one in finds_.recalls.items()}
    rows: list[tuple[Cell, ...]] = []
    for one in gateways:
        why = one.no_search or absent.get(one.name) or failed.get(one.name, "")
        if one.no_search or not (got := finds[one.name]).recalls:
            rows.append((one.name, *[None] * (len(sets) + 2), why))
            continue
        cells = [_format_estimate(got.of(name)) if name in got.recalls else None for name in sets]
        rows.append(
            (one.name, *cells, _format_estimate(got.mean()), median(got.seconds) * 1000, "")
        )
    columns = (
        "",
        *(f"{name} (n={asked[name]})" for name in sets),
        "mean",
        "search p50 ms",
        "why not",
    )
    return Table(
        f"recall@{FOUND} of the gateway's own search, asked over MCP, %",
        columns,
        tuple(rows),
        note="In brackets the 95% interval over other questions of the kind.",
    )


def _format_estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low * 100:.0f}–{estimate.high * 100:.0f}]"
