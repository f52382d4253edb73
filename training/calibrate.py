"""Fits the constants of `portico.search.scored_query`: when to say that nothing fits.

    python -m training.calibrate [--data DIR]… [--seed N] [--cache DIR] [--json FILE]

Every question is put to a real index with the encoder that ships, as often as it makes sense: as it
stands; with the right servers taken out (the right tools, where a set's servers are no servers), so
that it has no answer any more; and both over small catalogs of some servers, drawn with the seed.
What search hands to `verdict.confidence` each time is what the fit sees. Three tables: the fit
beside the shipped constants; how such a fit does on questions it has not seen; and how often
search, as it ships, says that nothing fits.
"""

import argparse
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.ablation import Remembering, with_constants
from benchmarks.chosen_sets import OWN_FLEET, sources
from benchmarks.contestants import index_of
from benchmarks.table import Cell, Report, Table, arguments, conclude
from benchmarks.tool_sets import Question, ToolSet, read_set
from benchmarks.vector_cache import default_folder, vectors_of
from numpy.typing import NDArray

from portico.search import Index, scored_query

Numbers = NDArray[np.float64]
Allow = Callable[[str], bool]

SMALL = (3, 12, 40)
"""Servers beside the right one in a small catalog."""
_SEED = 4
_MOST_QUESTIONS = 300
"""Of one set, evenly spaced: every kind of question weighs the same however many there are."""
_FEWEST_TOOLS = 3
_REFUSED = 0.044
"""The share of answerable questions to the fleet that may be refused: under a twentieth, with
something to spare."""
_RIDGE = 0.0003
_STEPS = 50
_SPLITS = 50

ANSWERABLE, TAKEN_OUT, NO_ANSWER = "answerable", "taken out", "no answer"
_KINDS = (NO_ANSWER, TAKEN_OUT, ANSWERABLE)
_FEATURES = ("nearness", "coverage", "choice", "offset")


@dataclass(frozen=True, slots=True)
class Case:
    """A question to one catalog, and what search made of it."""

    set: str
    question: int
    kind: str
    servers: int
    """Servers beside the right one; 0 for the whole catalog."""
    evidence: tuple[float, float, float] | None
    """Nearness, coverage, log of the number of tools. None where no verdict was needed: a name, or
    nothing at all."""
    refused: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """Describes what evidence is multiplied with, the offset last, and below which sum nothing
    fits."""

    coefficients: Numbers
    cut: float

    def refuses(self, evidence: Numbers) -> NDArray[np.bool_]:
        """Which rows of evidence are too weak."""
        return evidence @ self.coefficients[:-1] + self.coefficients[-1] < self.cut


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder with sets; may be repeated",
    )
    parser.add_argument(
        "--seed", type=int, default=_SEED, help="draws the small catalogs, and the halves"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_folder(), metavar="DIR", help="keeps vectors"
    )
    options = parser.parse_args()
    cases = list(collect_cases(options))
    unseen = [by_halves(cases, options.seed)] if any(map(_is_fleet, cases)) else []
    tables = (constants(fit(cases), shipped_fit()), *unseen, outcomes(cases))
    return conclude(
        Report("calibrate", tables, facts={"seed": options.seed, "cases": len(cases)}), options
    )


def collect_cases(options: argparse.Namespace) -> Iterator[Case]:
    """Every case of every set."""
    encoder = Remembering()
    for source in sources(options.data):
        tools = read_set(source)
        questions = tools.questions[
            :: -(-len(tools.questions) // (16 if options.smoke else _MOST_QUESTIONS))
        ]
        tools = dataclasses.replace(tools, questions=questions)
        index = index_of(
            tools.documents, encoder, vectors_of(tools.documents, encoder, options.cache)
        )
        yield from cases_of(tools, index, random.Random(options.seed))


def cases_of(tools: ToolSet, index: Index, chance: random.Random) -> Iterator[Case]:
    """The questions of a set, each to the catalogs it can be put to."""
    server_of = {tool["id"]: tool.get("server") or "" for tool in tools.tools}
    servers = sorted(set(server_of.values()) - {""}) if has_servers(tools) else []
    for number, question in enumerate(tools.questions):
        for kind, small, allow in catalogs(question, server_of, servers, chance):
            mask = None if allow is None else index.build_mask(allow)
            if mask is None or np.count_nonzero(mask) >= _FEWEST_TOOLS:
                yield case(index, question, (tools.name, number, kind, small), mask)


def has_servers(tools: ToolSet) -> bool:
    """Decide whether its servers are servers: tools carry their name in front, not a category or
    nothing."""
    return all(
        tool.get("server") and tool["id"].startswith(f"{tool['server']}/") for tool in tools.tools
    )


def catalogs(
    question: Question, server_of: dict[str, str], servers: Sequence[str], chance: random.Random
) -> Iterator[tuple[str, int, Allow | None]]:
    """Return what the question is to be put to: kind, servers beside the right one, and which tools
    are
    there."""
    right = frozenset[str]().union(*question.groups)
    hosts = sorted({server_of[id_] for id_ in right if id_ in server_of}) if servers else []
    others = [server for server in servers if server not in hosts]
    yield (ANSWERABLE if right else NO_ANSWER), 0, None
    if right:
        yield TAKEN_OUT, 0, lambda id_: id_ not in right and server_of[id_] not in hosts
    for small in SMALL:
        if len(others) < small:
            continue
        some = frozenset(chance.sample(others, small))
        if not right:
            yield NO_ANSWER, small, lambda id_, some=some: server_of[id_] in some
        elif hosts:
            one = chance.choice(hosts)
            yield ANSWERABLE, small, lambda id_, some=some | {one}: server_of[id_] in some
            yield TAKEN_OUT, small, lambda id_, some=some: server_of[id_] in some


def case(
    index: Index,
    question: Question,
    about: tuple[str, int, str, int],
    mask: NDArray[np.bool_] | None,
) -> Case:
    """Ask, and listen to what search hands to the verdict."""
    received: list[tuple[float, float, float]] = []
    estimate_confidence = scored_query.estimate_confidence

    def listening(nearness: float, coverage: float, count: int) -> float:
        received.append((nearness, coverage, float(np.log(max(count, 1)))))
        return estimate_confidence(nearness, coverage, count)

    with with_constants({"scored_query.estimate_confidence": listening}):
        ranking = index.search(question.text, 10, allow=mask)
    return Case(*about, received[0] if received else None, ranking.is_weak)


def weight(kind: str, servers: int, name: str) -> float:
    """Return what all cases of a kind, size and set weigh together.

    Questions with no answer weigh most, ours above all: they are the most and the most varied. A
    right tool taken out often leaves another that would do, so those weigh least.
    """
    if kind == NO_ANSWER:
        return 3.0 if name == OWN_FLEET and not servers else 1.5
    if kind == TAKEN_OUT:
        return 0.3
    return 0.5 if servers else 1.0


def fit(cases: Sequence[Case]) -> Fit:
    """Weighted logistic regression by Newton's method; the cut refuses so many of the fleet's
    answerable questions."""
    judged = [it for it in cases if it.evidence is not None]
    groups = [(it.kind, it.servers, it.set) for it in judged]
    sizes = Counter(groups)
    weights = np.array([weight(*group) / sizes[group] for group in groups])
    evidence = evidence_of(judged)
    answerable = np.array([it.kind == ANSWERABLE for it in judged], dtype=np.float64)
    coefficients = regression(evidence, answerable, weights / weights.sum())
    asked = [it for it in judged if it.kind == ANSWERABLE and not it.servers]
    # Where there is no fleet, all sets together stand in for it.
    fleet = list(filter(_is_fleet, asked)) or asked
    sums = evidence_of(fleet) @ coefficients[:-1] + coefficients[-1]
    return Fit(coefficients, float(np.percentile(sums, 100 * _REFUSED)))


def regression(evidence: Numbers, answers: Numbers, weights: Numbers) -> Numbers:
    """The coefficients and the offset that explain the answers best; a small ridge keeps them
    finite."""
    middle, spread = evidence.mean(axis=0), evidence.std(axis=0) + 1e-9
    table = np.column_stack([(evidence - middle) / spread, np.ones(len(evidence))])
    ridge = np.diag([_RIDGE] * evidence.shape[1] + [1e-9])
    found = np.zeros(table.shape[1])
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-table @ found))
        slope = table.T @ (weights * (answers - likely)) - ridge @ found
        bend = (table * (weights * likely * (1 - likely))[:, None]).T @ table + ridge
        step = np.linalg.solve(bend, slope)
        found += step
        if np.abs(step).max() < 1e-9:
            break
    plain = found[:-1] / spread
    return np.append(plain, found[-1] - plain @ middle)


def shipped_fit() -> Fit:
    """The constants of `portico.search.scored_query`, read off the function itself."""

    def evidence(nearness: float, coverage: float, count: int) -> float:
        sure = scored_query.estimate_confidence(nearness, coverage, count)
        return float(np.log(sure / (1 - sure)))

    offset = evidence(0, 0, 1)
    parts = (
        evidence(1, 0, 1),
        evidence(0, 1, 1),
        offset + (evidence(0, 0, 1000) - offset) / np.log(1000),
    )
    return Fit(
        np.array([*(part - offset for part in parts), offset]),
        float(np.log(scored_query.WEAK / (1 - scored_query.WEAK))),
    )


def evidence_of(cases: Iterable[Case]) -> Numbers:
    """One row per case that has evidence."""
    return np.array([it.evidence for it in cases if it.evidence is not None]).reshape(-1, 3)


def constants(fitted: Fit, shipped: Fit) -> Table:
    """The fit and what ships, side by side."""
    rows = (
        (label, *map(float, it.coefficients), float(1 / (1 + np.exp(-it.cut))))
        for label, it in (("fitted now", fitted), ("shipped", shipped))
    )
    return Table("The constants", ("", *_FEATURES, "weak below"), tuple(rows))


def by_halves(cases: Sequence[Case], seed: int) -> Table:
    """Fitted on half of the questions, judged on the other half, again and again: what other
    questions would see."""
    chance = random.Random(seed)
    names = sorted({(it.set, it.question) for it in cases})
    shares: list[tuple[float, float]] = []
    for _ in range(_SPLITS):
        learnt = set(chance.sample(names, len(names) // 2))
        found = fit([it for it in cases if (it.set, it.question) in learnt])
        rest = [
            it
            for it in cases
            if (it.set, it.question) not in learnt and _is_fleet(it) and not it.servers
        ]
        kinds = ([it for it in rest if it.kind == kind] for kind in (NO_ANSWER, ANSWERABLE))
        if all(of_kind := tuple(kinds)):
            shares.append((_share_refused(found, of_kind[0]), _share_refused(found, of_kind[1])))
    rows: list[tuple[Cell, ...]] = []
    for label, column in zip(
        ("no answer: said so", "answerable: refused"), zip(*shares, strict=True), strict=False
    ):
        low, middle, high = np.percentile(column, (10, 50, 90))
        rows.append((label, float(middle), float(low), float(high)))
    title = (
        f"Fitted on half of the questions, the fleet's of the other half asked, {_SPLITS} times, %"
    )
    return Table(title, ("", "median", "10% below", "10% above"), tuple(rows))


def outcomes(cases: Sequence[Case]) -> Table:
    """Return how often search as it ships says that nothing fits, by set and size of catalog."""
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(it.set for it in cases):
        for servers in (0, *reversed(SMALL)):
            of = [it for it in cases if it.set == name and it.servers == servers]
            if of:
                size = str(servers) if servers else "all"
                rows.append(
                    (name, size, *(cell for kind in _KINDS for cell in _count_cases(of, kind)))
                )
    return Table(
        "How often it says that nothing fits, as shipped",
        (
            "set",
            "servers",
            "no answer",
            "said so %",
            "taken out",
            "told so %",
            "answerable",
            "refused %",
        ),
        tuple(rows),
        "servers: drawn at random; an answerable question's right server comes on top",
    )


def _count_cases(cases: Iterable[Case], kind: str) -> tuple[int, float | None]:
    refused = [it.refused for it in cases if it.kind == kind]
    return len(refused), 100 * sum(refused) / len(refused) if refused else None


def _is_fleet(it: Case) -> bool:
    return it.set.partition("_")[0] == "fleet"


def _share_refused(found: Fit, cases: Sequence[Case]) -> float:
    # Where the constants are not asked, they change nothing.
    settled = sum(it.refused for it in cases if it.evidence is None)
    return 100 * (settled + float(found.refuses(evidence_of(cases)).sum())) / len(cases)


if __name__ == "__main__":
    raise SystemExit(main())
