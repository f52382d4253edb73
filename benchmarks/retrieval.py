"""Measures whether search finds the right tool, beside FastMCP's BM25 search where that is
installed.

    python -m benchmarks.retrieval [--data DIR]… [--set NAME]… [--no-peer] [--ablation] [--ranks OUT]
    python -m benchmarks.retrieval --tools FILE --queries FILE [--ranks OUT]

R@k is the share of a question's needs that have a right tool among the first k; nDCG@10 also asks
how early it stands; MRR is one over the place of the first right tool. In brackets: the interval
that holds 95% of bootstrap resamples of the questions. Both searches see the same tools: FastMCP as
a mounted server shows them (`server_tool`), through its own index class. Questions that no tool
serves are counted apart. Times are CPU time of one query on one thread: a page of ten, query
encoding included.

Without --data, our own questions to the recorded fleet (`questions/fleet.jsonl`) are a set beside
the given ones,
`fleet_own`, that counts in no mean. The refusals of `fleet_own` are what the cut was fitted on
(`training.calibrate`).
"""  # noqa: E501

import argparse
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import ablation
from benchmarks.chosen_sets import OWN, PUBLIC, sources
from benchmarks.contestants import (
    DEPTH,
    OURS,
    Contestant,
    fastmcp,
    fastmcp_version,
    index_of,
    portico,
)
from benchmarks.metrics import MEASURES, Estimate, Marks, estimates, marks, mean_estimates
from benchmarks.one_thread import begin_again
from benchmarks.ranks import place_for, write_ranks
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.tool_sets import Question, Source, ToolSet, UnreadableSet, read_set, reduce_set
from benchmarks.vector_cache import default_folder, vectors_of
from portico.search import Encoder, EncoderUnavailable, Vector

_SMOKE_QUESTIONS, _SMOKE_TOOLS = 16, 160
_FLEET = "fleet"
_FLEET_GOALS = (("R@1", 55), ("R@5", 80), ("R@10", 88))


@dataclass(frozen=True, slots=True)
class Run:
    """One search on one set, question by question."""

    set: str
    tools: int
    search: str
    questions: Sequence[Question]
    ranked: Sequence[Sequence[str]]
    refused: NDArray[np.bool_]
    seconds: NDArray[np.float64]

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """Which questions some tool serves."""
        return np.array([bool(question.groups) for question in self.questions])

    def marks(self, style: str | None = None) -> Marks:
        """Return what the answerable questions earned, or those of one style."""
        pairs = zip(self.questions, self.ranked, strict=True)
        rows = [
            marks(ranked, it.groups)
            for it, ranked in pairs
            if it.groups and style in (None, it.style)
        ]
        return np.array(rows).reshape(-1, len(MEASURES))

    def recall_5(self, style: str | None = None) -> float:
        """R@5 of the answerable questions, or those of one style, in %."""
        return 100 * float(self.marks(style)[:, MEASURES.index("R@5")].mean())


def main() -> int:
    options = parser().parse_args()
    asked = choose_sets(options)
    runs: list[Run] = []
    ablated: dict[str, dict[str, Marks]] = {}
    peer = not options.no_peer and not options.ablation
    if peer and not fastmcp_version():
        say("FastMCP is not installed: its rows are left out. `pip install fastmcp` to see them.")
        peer = False
    for source in asked:
        tools = load_set(source, smoke=options.smoke)
        say(f"{tools.name}: {len(tools.tools):,} tools, {len(tools.questions):,} questions")
        if options.ablation:
            encoder = ablation.Remembering()
            ablated[tools.name] = ablation.compare(
                tools, encoder, encode_tools(tools, encoder, options.cache)
            )
            continue
        ours = run(portico_on(tools, options.cache), tools)
        runs += [ours, *([run(fastmcp(tools), tools)] if peer else [])]
        if options.ranks:
            ranks = zip((question.id for question in tools.questions), ours.ranked, strict=True)
            write_ranks(place_for(options.ranks, tools.name, several=len(asked) > 1), ranks)
    tables = (
        [ablation.table(ablated, [source.name for source in asked if source.family == OWN])]
        if options.ablation
        else list(tables_of(runs, {source.name: source.family for source in asked}))
    )
    facts = {
        "fastmcp": fastmcp_version() or None,
        "smoke": options.smoke,
        "figures": list(figures(runs)),
    }
    promised = () if options.smoke else tuple(goals([it for it in runs if it.search == OURS]))
    return conclude(Report("retrieval", tuple(tables), promised, facts), options)


def parser() -> argparse.ArgumentParser:
    found = arguments(__doc__)
    found.add_argument(
        "--data",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder with sets, however deep; may be repeated (default: retrieval/ and "
        "fleet/ of $PORTICO_SHARED or "
        "../shared, and our own questions)",
    )
    found.add_argument(
        "--tools", type=Path, metavar="FILE", help="a catalog of your own; with --queries"
    )
    found.add_argument("--queries", type=Path, metavar="FILE", help="questions to it")
    found.add_argument(
        "--set", action="append", metavar="NAME", help="only this set; may be repeated"
    )
    found.add_argument(
        "--no-peer",
        action="store_true",
        help="leave FastMCP out (its search takes most of the time)",
    )
    found.add_argument(
        "--ablation", action="store_true", help="what each part of search is worth, instead"
    )
    found.add_argument(
        "--ranks",
        type=Path,
        metavar="OUT",
        help="write rankings: a file, or a folder for several sets",
    )
    found.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=default_folder(),
        help="keeps vectors between runs",
    )
    return found


def choose_sets(options: argparse.Namespace) -> list[Source]:
    """The sets that were asked for."""
    if (options.tools is None) != (options.queries is None):
        raise SystemExit("--tools and --queries go together: a catalog, and questions to it.")
    if options.ablation and options.ranks:
        raise SystemExit(
            "--ranks writes one ranking per question; --ablation makes many. Choose one of them."
        )
    if options.tools is not None:
        return [Source(options.queries.name.partition(".")[0], options.tools, options.queries)]
    found = sources(options.data)
    names = [source.name for source in found]
    if unknown := [name for name in options.set or () if name not in names]:
        raise SystemExit(f"There is no set {', '.join(unknown)}. There are: {', '.join(names)}.")
    return [source for source in found if not options.set or source.name in options.set]


def load_set(source: Source, *, smoke: bool) -> ToolSet:
    """The set, or a small one like it."""
    try:
        tools = read_set(source)
    except UnreadableSet as error:
        raise SystemExit(str(error)) from error
    if not tools.questions or not tools.tools:
        raise SystemExit(f"{source.name}: {source.queries} or {source.tools} is empty.")
    return reduce_set(tools, _SMOKE_QUESTIONS, _SMOKE_TOOLS) if smoke else tools


def encode_tools(tools: ToolSet, encoder: Encoder, cache: Path) -> dict[str, Vector]:
    """The tools' vectors; none, said aloud, where there is no encoder."""
    try:
        encoder.load()
        return vectors_of(tools.documents, encoder, cache)
    except EncoderUnavailable as error:
        say(f"search by meaning is off, these are figures of words alone: {error}")
        return {}


def portico_on(tools: ToolSet, cache: Path) -> Contestant:
    """Portico over a set. With an encoder of its own, which remembers no query of another set."""
    encoder = Encoder()
    vectors = encode_tools(tools, encoder, cache)
    contestant = portico(index_of(tools.documents, encoder, vectors))
    contestant.search("the first question pays for what is made once", DEPTH)
    return contestant


def run(contestant: Contestant, tools: ToolSet) -> Run:
    """Put every question of a set."""
    ranked: list[Sequence[str]] = []
    refused: list[bool] = []
    seconds: list[float] = []
    for question in tools.questions:
        # CPU time: neither search waits for anything, so what else the machine does is left out.
        started = time.process_time()
        answer = contestant.search(question.text, contestant.page)
        seconds.append(time.process_time() - started)
        if contestant.page < DEPTH:
            answer = contestant.search(question.text, DEPTH)
        ranked.append(answer.ranked)
        refused.append(answer.refused)
    return Run(
        tools.name,
        len(tools.tools),
        contestant.label,
        tools.questions,
        ranked,
        np.array(refused),
        np.array(seconds),
    )


def tables_of(runs: Sequence[Run], families: Mapping[str, str]) -> Iterator[Table]:
    """Sets, styles, negatives: whatever there is of them."""
    searches = list(dict.fromkeys(it.search for it in runs))
    scored = [it for it in runs if it.answerable.any()]
    rows: list[tuple[Cell, ...]] = []
    for it in scored:
        p50, p99 = 1000 * np.percentile(it.seconds, (50, 99))
        earned = format_measures(estimates(it.marks()))
        rows.append(
            (it.set, it.tools, int(it.answerable.sum()), it.search, *earned, float(p50), float(p99))
        )
    for label, names in means(list(dict.fromkeys(it.set for it in scored)), families):
        for search in searches:
            mean = mean_estimates(
                [it.marks() for it in scored if it.search == search and it.set in names]
            )
            rows.append((label, None, None, search, *format_measures(mean), None, None))
    columns = ("set", "tools", "questions", "search", *MEASURES, "p50 ms", "p99 ms")
    yield Table("Tool retrieval, % (95% interval)", columns, tuple(rows))

    if styled := list(by_style(scored)):
        rows = [
            (
                it.set,
                style,
                len(it.marks(style)),
                it.search,
                *format_measures(estimates(it.marks(style))),
            )
            for it, style in styled
        ]
        columns = ("set", "style", "questions", "search", *MEASURES)
        yield Table("By style of question, % (95% interval)", columns, tuple(rows))

    columns = (
        "set",
        "search",
        "no tool serves",
        "said so %",
        "a tool serves",
        "refused %",
        "though in first 5 %",
    )
    title = "How often it says that nothing fits"
    yield Table(
        title, columns, tuple(refusals(runs)), "FastMCP's search says so by naming no tool."
    )


def means(
    sets: Sequence[str], families: Mapping[str, str]
) -> Iterator[tuple[str, Collection[str]]]:
    """Which sets share a mean: each family of several, and all of several families; ours share
    none."""
    members: dict[str, list[str]] = {}
    given = [name for name in sets if families.get(name) != OWN]
    for name in given:
        members.setdefault(families.get(name, ""), []).append(name)
    for family, names in members.items():
        if len(names) > 1:
            yield f"mean of {family or 'sets'} ({len(names)})", names
    if len(members) > 1:
        yield f"mean of all ({len(given)})", given


def by_style(runs: Iterable[Run]) -> Iterator[tuple[Run, str]]:
    """The styles of each set that tells its questions apart, both searches of a style side by
    side."""
    for _, of_set in groupby(runs, key=lambda it: it.set):
        searches = list(of_set)
        styles = sorted({question.style for question in searches[0].questions if question.groups})
        if any(styles):
            yield from ((it, style) for style in styles for it in searches)


def refusals(runs: Iterable[Run]) -> Iterator[tuple[Cell, ...]]:
    """Return how often each search refuses questions without and with an answer, and those it had
    the
    answer to."""
    for it in runs:
        answerable, nothing = it.answerable, ~it.answerable
        found = answerable.copy()
        found[answerable] = it.marks()[:, MEASURES.index("R@5")] > 0
        shares = [_share(it.refused[kind]) for kind in (nothing, answerable, found)]
        yield (
            it.set,
            it.search,
            int(nothing.sum()),
            shares[0],
            int(answerable.sum()),
            shares[1],
            shares[2],
        )


def goals(runs: Sequence[Run]) -> Iterator[Goal]:
    """Return what was promised of Portico's search, as far as these sets show it."""
    public = [it.recall_5() for it in runs if it.set in PUBLIC]
    if len(public) == len(PUBLIC):
        yield _at_least(
            f"mean of the {len(PUBLIC)} public sets: R@5, %", float(np.mean(public)), 82
        )
    for it in runs:
        if it.set.partition("_")[0] == _FLEET and it.answerable.any():
            yield from fleet_goals(it)


def fleet_goals(run: Run) -> Iterator[Goal]:
    """Return what was promised of questions to the recorded fleet."""
    earned = dict(zip(MEASURES, 100 * run.marks().mean(axis=0), strict=True))
    for measure, limit in _FLEET_GOALS:
        yield _at_least(f"{run.set}: {measure}, %", float(earned[measure]), limit)
    if styles := {
        question.style for question in run.questions if question.groups and question.style
    }:
        share, weakest = min((run.recall_5(style), style) for style in styles)
        yield _at_least(f"{run.set}: R@5 of its weakest style ({weakest}), %", share, 65)
    if (said := _share(run.refused[~run.answerable])) is not None:
        yield _at_least(f"{run.set}: questions without an answer told so, %", said, 50)
    if (refused := _share(run.refused[run.answerable])) is not None:
        yield Goal(f"{run.set}: answerable questions refused, %", refused, 5, tolerance=0)


def figures(runs: Iterable[Run]) -> Iterator[dict[str, object]]:
    """The same as numbers, for JSON."""
    for it in runs:
        if it.answerable.any():
            earned = dict(zip(MEASURES, map(asdict, estimates(it.marks())), strict=True))
            yield {
                "set": it.set,
                "search": it.search,
                "questions": int(it.answerable.sum()),
                **earned,
            }


def format_measures(of_measures: Iterable[Estimate]) -> tuple[str, ...]:
    """Percentages with their intervals."""
    return tuple(
        f"{100 * it.value:5.1f} ({100 * it.low:.0f}–{100 * it.high:.0f})" for it in of_measures
    )


def say(line: str) -> None:
    """Return what is going on, apart from the results."""
    print(line, file=sys.stderr, flush=True)


def _at_least(name: str, measured: float, limit: float) -> Goal:
    # The same index gives the same answers on every machine: nothing to tolerate.
    return Goal(name, measured, limit, tolerance=0, at_least=True)


def _share(answers: NDArray[np.bool_]) -> float | None:
    return 100 * float(answers.mean()) if len(answers) else None


if __name__ == "__main__":
    begin_again()
    raise SystemExit(main())
