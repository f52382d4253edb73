"""BM25F: how well each document matches the words of a query, as one number per slot.

Pure arithmetic on postings. Scores are shares of a perfect match, so they can be compared between
queries and added to other signals of the same kind.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portico.search.document import MatchReason
from portico.search.document_table import Mask
from portico.search.lexical.fields import FIELDS
from portico.search.lexical.postings import MAX_STRENGTH, Postings
from portico.search.lexical.query import QueryTerm

Scores = NDArray[np.float32]

_MIN_TELLING_WEIGHT = 0.5
"""The weight of a word from which it matters that a document lacks it; words of asking weigh less.
"""


@dataclass(frozen=True, slots=True)
class TermLookup:
    """A wanted term, looked up: where its postings are, and what it is worth here."""

    query_term: QueryTerm
    postings_range: slice
    weight: float


def look_up_terms(postings: Postings, terms: Sequence[QueryTerm], count: int) -> list[TermLookup]:
    """Look up every term, those that no document has too: they count against a document's
    completeness."""
    found: list[TermLookup] = []
    for item in terms:
        where = postings.find_list(item.term)
        found.append(
            TermLookup(item, where, item.weight * compute_idf(count, where.stop - where.start))
        )
    return found


def compute_idf(count: int, matching_count: int) -> float:
    """What a term tells when `having` of `count` documents have it (inverse document frequency)."""
    return math.log1p((count - matching_count + 0.5) / (matching_count + 0.5))


def compute_scores(
    postings: Postings, lookups: Sequence[TermLookup], size: int, allowed: Mask | None
) -> Scores:
    """Each of `size` slots' share of a perfect match, 0 … 1; 0 where it is not allowed."""
    scores = np.zeros(size, dtype=np.float32)
    unit = _compute_perfect_score(lookups) * MAX_STRENGTH
    for item in lookups:
        if item.postings_range.stop > item.postings_range.start:
            # A slot stands at most once in a list, so a plain indexed addition loses nothing.
            scores[postings.slots[item.postings_range]] += postings.strengths[
                item.postings_range
            ] * np.float32(item.weight / unit)
    if allowed is not None:
        scores[~allowed] = 0
    return scores


def compute_coverage(postings: Postings, lookups: Sequence[TermLookup], slot: int) -> float:
    """The share of the query's words that the document in `slot` has at all, rare words counting
    most."""
    needed = [item for item in lookups if not item.query_term.is_bonus]
    full = sum(item.weight for item in needed)
    got = sum(
        item.weight
        for item in needed
        if _find_positions(postings, item.postings_range, (slot,))[0] >= 0
    )
    if full:
        return got / full
    return 0.0


def explain_matches(
    postings: Postings, lookups: Sequence[TermLookup], slots: Sequence[int]
) -> list[tuple[MatchReason, ...]]:
    """For each slot, which words of the query its document has, where, and what each added; the
    weightiest first."""
    full = _compute_perfect_score(lookups)
    found: list[dict[str, MatchReason]] = [{} for _ in slots]
    for item in lookups:
        wanted = item.query_term
        for words, at in zip(
            found, _find_positions(postings, item.postings_range, slots), strict=True
        ):
            if at >= 0:
                gain = item.weight * int(postings.strengths[at]) / MAX_STRENGTH / full
                before = words.get(wanted.word, MatchReason(wanted.word, (), 0.0, True))
                words[wanted.word] = MatchReason(
                    wanted.word,
                    tuple(
                        dict.fromkeys(
                            (*before.fields, *_decode_field_names(int(postings.fields[at])))
                        )
                    ),
                    before.score + gain,
                    before.is_synonym and wanted.is_synonym,
                    before.correction or wanted.correction,
                )
    return [tuple(sorted(words.values(), key=lambda it: (-it.score, it.word))) for words in found]


def list_missing_words(
    lookups: Sequence[TermLookup], reasons: Sequence[MatchReason]
) -> tuple[str, ...]:
    """The telling words of a query that a document with these reasons does not have."""
    had = {reason.word for reason in reasons}
    telling = (
        it.query_term.word
        for it in lookups
        if not it.query_term.is_bonus and it.query_term.weight >= _MIN_TELLING_WEIGHT
    )
    return tuple(word for word in dict.fromkeys(telling) if word not in had)


def _compute_perfect_score(lookups: Sequence[TermLookup]) -> float:
    """The score of a document that has every term at full strength."""
    return sum(item.weight for item in lookups) or 1.0


def _find_positions(postings: Postings, postings_range: slice, slots: Sequence[int]) -> list[int]:
    """Where each slot stands in a list, -1 where it does not."""
    listed = postings.slots[postings_range]
    if not len(listed):
        return [-1] * len(slots)
    places = np.minimum(
        np.searchsorted(listed, np.asarray(slots, dtype=np.uint32)), len(listed) - 1
    )
    return np.where(listed[places] == slots, places + postings_range.start, -1).tolist()


def _decode_field_names(fields: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for at, field in enumerate(FIELDS) if fields >> at & 1))
