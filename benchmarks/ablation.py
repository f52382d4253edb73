"""Measures what each part of search is worth: the same questions with one part switched off, or
with use
having taught it.

A variant is one row of `VARIANTS`: which constants of `portico.search` it exchanges, what it takes
from the documents, whether it has an encoder. What use teaches is measured apart: half of a set's
questions are asked and their tools called, the other half is put to the index before and after.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import combinations
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.contestants import DEPTH, Contestant, index_of, portico
from benchmarks.metrics import MEASURES, Marks, marks
from benchmarks.table import Cell, Table
from benchmarks.tool_sets import Question, ToolSet
from portico.search import Boost, Encoder, SearchDocument, Vector
from portico.search.usage_patterns import (
    TermHashes,
    UsagePatterns,
    extract_query_terms,
    hash_terms,
    pack_terms,
)
from portico.storage.rows import FollowedRow, LearnedRows, PairRow, UsedRow

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Variant:
    """Search with something changed."""

    label: str
    constants: Mapping[str, object] = field(default_factory=dict[str, object])
    """What to put in place of which constant: `module.NAME`, below `portico.search`."""
    document: Callable[[SearchDocument], SearchDocument] = lambda document: document
    """What is left of a document."""
    dense: bool = True


SHIPPED = Variant("fusion, as shipped")
VARIANTS = (
    Variant("lexical alone", dense=False),
    Variant("dense alone", {"ranking.DENSE_SHARE": 1.0}),
    SHIPPED,
    Variant("… without clauses", {"lexical.tokens._MAX_CLAUSES": 1}),
    Variant("… without server boost", document=lambda document: replace(document, server_text="")),
    # No cosine reaches 2: everything keeps a place of its own.
    Variant(
        "… without grouping of twins",
        {
            "ranking.DUPLICATE_SIMILARITY": 2.0,
            "ranking.SAME_NAME_DUPLICATE_SIMILARITY": 2.0,
            "document_table._MIN_DESCRIPTION_CHARS": 10_000,
        },
    ),
    Variant("… without spelling", {"lexical.tokens._CORRECTION_WEIGHT": 0.0}),
)
COLD, WARM = "fusion, second half of the questions", "… after use for the first half"


class Remembering(Encoder):
    """An encoder that encodes a query once for all variants."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, Vector] = {}

    def encode_query(self, text: str) -> Vector:
        if text not in self._known:
            self._known[text] = super().encode_query(text)
        return self._known[text]


def compare(tools: ToolSet, encoder: Encoder, vectors: Mapping[str, Vector]) -> dict[str, Marks]:
    """Return what every variant earns on a set's answerable questions, by label."""
    questions = [question for question in tools.questions if question.groups]
    documents = tools.documents
    found: dict[str, Marks] = {}
    for variant in VARIANTS:
        with with_constants(variant.constants):
            index = index_of(
                list(map(variant.document, documents)), encoder if variant.dense else None, vectors
            )
            found[variant.label] = mark_questions(portico(index), questions)
    index = index_of(documents, encoder, vectors)
    first, second = questions[::2], questions[1::2]
    if second:
        found[COLD] = mark_questions(portico(index), second)
        found[WARM] = mark_questions(portico(index, lifts_after(first, encoder)), second)
    return found


def mark_questions(contestant: Contestant, questions: Sequence[Question]) -> Marks:
    """Return what a search earns, question by question."""
    return np.array(
        [marks(contestant.search(it.text, DEPTH).ranked, it.groups) for it in questions]
    )


def lifts_after(used: Sequence[Question], encoder: Encoder) -> Callable[[str], Mapping[str, Boost]]:
    """Return what search has learnt when each of these questions was asked once, and a tool called
    for
    each of its needs."""
    calls = [(question, sorted(map(min, question.groups))) for question in used]
    followed = tuple(
        FollowedRow(
            pack_terms(_terms(question.text)),
            tool,
            1.0,
            0.0,
            encoder.encode_query(question.text).tobytes(),
        )
        for question, tools in calls
        for tool in tools
    )
    often = Counter(tool for _, tools in calls for tool in tools)
    pairs = Counter(pair for _, tools in calls for pair in combinations(dict.fromkeys(tools), 2))
    rows = LearnedRows(
        followed,
        tuple(PairRow(*pair, float(times), 0.0) for pair, times in pairs.items()),
        tuple(UsedRow(tool, float(times), 0.0) for tool, times in often.items()),
    )
    habits = UsagePatterns(30 * _DAY_S, rows)
    return lambda query: habits.compute_boosts(_terms(query), encoder.encode_query(query), (), 0.0)


def _terms(query: str) -> TermHashes:
    return hash_terms(extract_query_terms(query), b"benchmark")


def table(of_sets: Mapping[str, Mapping[str, Marks]], apart: Collection[str] = ()) -> Table:
    """R@5 of every set by variant, and the means over sets but those that stand `apart`."""
    counted = [name for name in of_sets if name not in apart] or list(of_sets)
    shown = ("R@1", "R@5", "R@10", "nDCG@10")
    columns = [MEASURES.index(measure) for measure in shown]
    rows: list[tuple[Cell, ...]] = []
    for label in (*(variant.label for variant in VARIANTS), COLD, WARM):
        means = {
            name: 100 * found[label].mean(axis=0)
            for name, found in of_sets.items()
            if label in found
        }
        if means:
            mean = np.mean([means[name] for name in counted if name in means], axis=0)
            each = (
                float(means[name][MEASURES.index("R@5")]) if name in means else None
                for name in of_sets
            )
            rows.append((label, *each, *(float(mean[column]) for column in columns)))
    return Table(
        "What each part is worth: R@5 by set, and means over the sets, %",
        ("search", *of_sets, *(f"mean {measure}" for measure in shown)),
        tuple(rows),
        " ".join(
            (
                "The last two rows share half of the questions: compare them with each other only.",
                *(f"{name} counts in no mean." for name in of_sets if name not in counted),
            )
        ),
    )


@contextlib.contextmanager
def with_constants(constants: Mapping[str, object]) -> Generator[None]:
    """`portico.search` with other constants, until the end of the block."""
    kept: list[tuple[ModuleType, str, Any]] = []
    try:
        for path, value in constants.items():
            module, name = _constant(path)
            kept.append((module, name, getattr(module, name)))
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in reversed(kept):
            setattr(module, name, value)


def _constant(path: str) -> tuple[ModuleType, str]:
    place, _, name = path.rpartition(".")
    module = import_module(f"portico.search.{place}")
    if not hasattr(module, name):
        raise AttributeError(
            f"portico.search.{place} has no {name} (any more): correct VARIANTS in {__name__}"
        )
    return module, name
