"""Whether search finds the right tool, on public sets and on a recorded fleet, beside FastMCP's BM25 search.

    python -m benchmarks.retrieval [--shared PATH] [--smoke] [--json FILE]

R@k is the share of a question's needs that have a right tool among the first k; nDCG@10 also asks how early it stands.
Both searches see the same tools: FastMCP as a mounted server shows them (`server_tool`), through its own index class.
Negative questions, which no tool here serves, are counted apart: how often the ranking says that nothing fits.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from benchmarks.fleet import shared_folder
from benchmarks.table import Cell, Report, Table, arguments, conclude
from benchmarks.tool_sets import FLEET, SETS, Question, ToolSet, document, read_set
from portico.search import Index

_DEPTH = 10
_SMOKE_QUESTIONS = 40

Search = Callable[[str], list[str]]
"""A query in, the ids of the first ten tools out."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one question went."""

    recall: dict[int, float]
    ndcg: float
    seconds: float


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, metavar="PATH", help="folder with retrieval/ and fleet/")
    parser.add_argument("--set", action="append", choices=(*SETS, FLEET), help="only this set; may be repeated")
    parser.add_argument("--no-peer", action="store_true", help="leave FastMCP out (its search takes most of the time)")
    options = parser.parse_args()
    shared = shared_folder(options.shared, "retrieval")

    rows: list[tuple[Cell, ...]] = []
    styles: list[tuple[Cell, ...]] = []
    negatives: list[tuple[Cell, ...]] = []
    means: dict[str, list[tuple[float, ...]]] = {}
    for name in options.set or (*SETS, FLEET):
        tools = read_set(shared, name)
        index = Index.build(map(document, tools.tools))
        answerable = [question for question in tools.questions if question.groups]
        if options.smoke:
            answerable = answerable[:: 1 + len(answerable) // _SMOKE_QUESTIONS]
        for label, search in contestants(tools, index, peer=not options.no_peer):
            outcomes = [ask(search, question) for question in answerable]
            rows.append((name, len(tools.tools), len(outcomes), label, *figures(outcomes)))
            means.setdefault(label, []).append(figures(outcomes)[:4])
            if name == FLEET:
                styles += [(style, len(part), label, *figures(part)) for style, part in by_style(answerable, outcomes)]
        if name == FLEET:
            negatives = list(refusals(index, tools.questions))
    rows += [("mean of sets", None, None, label, *mean(figures), None) for label, figures in means.items()]

    measures = ("R@1", "R@5", "R@10", "nDCG@10", "p50 ms")
    tables = [Table("Tool retrieval, %", ("set", "tools", "questions", "search", *measures), tuple(rows))]
    if styles:
        styles.sort(key=lambda row: str(row[0]))
        tables.append(Table("The fleet's questions by style, %", ("style", "n", "search", *measures), tuple(styles)))
        title = "How often the ranking says that nothing fits (Ranking.weak), %"
        tables.append(Table(title, ("questions", "n", "said so"), tuple(negatives)))
    return conclude(Report("retrieval", tuple(tables), facts={"fastmcp": version("fastmcp")}), options)


def contestants(tools: ToolSet, index: Index, *, peer: bool) -> Iterable[tuple[str, Search]]:
    """Portico's search and, unless left out, FastMCP's, over the same tools."""
    yield "portico BM25F", lambda query: [hit.id for hit in index.search(query, _DEPTH).hits]
    if peer:
        yield f"fastmcp {version('fastmcp')} BM25", fastmcp_search(tools)


def fastmcp_search(tools: ToolSet) -> Search:
    """FastMCP's BM25 index, filled the way its search transform fills it."""
    # Private, because FastMCP offers the index only inside a running server; the figures are of the index alone.
    from fastmcp.server.transforms.search.base import (
        _extract_searchable_text as searchable_text,  # pyright: ignore[reportPrivateUsage]
    )
    from fastmcp.server.transforms.search.bm25 import _BM25Index as BM25Index  # pyright: ignore[reportPrivateUsage]
    from fastmcp.tools.base import Tool

    index = BM25Index()
    index.build(
        [
            searchable_text(
                # Not validated: names that are no MCP names are welcome here, thousands of warnings are not.
                Tool.model_construct(
                    name=f"{tool['server']}_{tool['name']}" if tool["server"] else tool["name"],
                    description=tool["description"],
                    parameters=tool["input_schema"] or {},
                )
            )
            for tool in tools.tools
        ]
    )
    return lambda query: [tools.tools[place]["id"] for place in index.query(query, _DEPTH)]


def ask(search: Search, question: Question) -> Outcome:
    """Put one question and mark the answer."""
    # CPU time: neither search waits for anything, so what else the machine does is left out.
    started = time.process_time()
    ranked = search(question.text)
    seconds = time.process_time() - started
    recall = {k: recall_at(ranked[:k], question.groups) for k in (1, 5, 10)}
    return Outcome(recall, ndcg(ranked[:_DEPTH], question.groups), seconds)


def recall_at(ranked: Sequence[str], groups: Sequence[frozenset[str]]) -> float:
    """The share of the groups that have a member among the ranked."""
    return sum(not group.isdisjoint(ranked) for group in groups) / len(groups)


def ndcg(ranked: Sequence[str], groups: Sequence[frozenset[str]]) -> float:
    """Discounted gain over the best possible; the first tool that serves a group earns it, its doubles earn nothing."""
    open_groups = list(groups)
    gain = 0.0
    for place, tool in enumerate(ranked):
        served = next((group for group in open_groups if tool in group), None)
        if served is not None:
            open_groups.remove(served)
            gain += 1 / math.log2(place + 2)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(len(groups), _DEPTH)))


def figures(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """R@1, R@5, R@10 and nDCG@10 in percent, and the median latency in milliseconds."""
    recalls = (statistics.fmean(outcome.recall[k] for outcome in outcomes) for k in (1, 5, 10))
    percent = (*recalls, statistics.fmean(outcome.ndcg for outcome in outcomes))
    return *(100 * value for value in percent), 1000 * statistics.median(outcome.seconds for outcome in outcomes)


def mean(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """The mean of each column: every set counts the same, whatever its size."""
    return tuple(statistics.fmean(column) for column in zip(*rows, strict=True))


def by_style(questions: Sequence[Question], outcomes: Sequence[Outcome]) -> Iterable[tuple[str, list[Outcome]]]:
    """The outcomes of each style of question."""
    pairs = sorted(zip(questions, outcomes, strict=True), key=lambda pair: pair[0].style)
    for style, part in groupby(pairs, key=lambda pair: pair[0].style):
        yield style, [outcome for _, outcome in part]


def refusals(index: Index, questions: Sequence[Question]) -> Iterable[tuple[Cell, ...]]:
    """How often the ranking says that nothing fits: where that is so, where it missed a tool, where it found one."""
    said: dict[str, list[bool]] = {"no tool serves": [], "a tool serves, not in the first 5": [], "in the first 5": []}
    for question in questions:
        ranking = index.search(question.text, 5)
        found = any(not group.isdisjoint(hit.id for hit in ranking.hits) for group in question.groups)
        kind = (
            "no tool serves"
            if not question.groups
            else "in the first 5"
            if found
            else "a tool serves, not in the first 5"
        )
        said[kind].append(ranking.weak)
    return [(kind, len(answers), 100 * statistics.fmean(answers)) for kind, answers in said.items() if answers]


if __name__ == "__main__":
    raise SystemExit(main())
