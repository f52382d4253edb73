"""BM25F: scores how well each document matches the words of a query.

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
"""Weight from which a missing word matters; filler words weigh less."""


@dataclass(frozen=True, slots=True)
class TermLookup:
    """A query term with its postings and its weight in this index."""

    query_term: QueryTerm
    postings_range: slice
    weight: float


def look_up_terms(postings: Postings, terms: Sequence[QueryTerm], count: int) -> list[TermLookup]:
    """Look up every term, including unknown ones, which count against completeness."""
    found: list[TermLookup] = []
    for item in terms:
        postings_range = postings.find_list(item.term)
        found.append(
            TermLookup(
                item,
                postings_range,
                item.weight * compute_idf(count, postings_range.stop - postings_range.start),
            )
        )
    return found


def compute_idf(count: int, matching_count: int) -> float:
    """Return the inverse document frequency of a term in `matching_count` documents."""
    return math.log1p((count - matching_count + 0.5) / (matching_count + 0.5))


def compute_scores(
    postings: Postings, lookups: Sequence[TermLookup], size: int, allowed: Mask | None
) -> Scores:
    """Return each slot's share of a perfect match, 0 … 1; 0 where it is not allowed."""
    scores = np.zeros(size, dtype=np.float32)
    unit = _compute_perfect_score(lookups) * MAX_STRENGTH
    for item in lookups:
        if item.postings_range.stop > item.postings_range.start:
            # A slot occurs at most once in a list, so plain indexed addition is correct.
            scores[postings.slots[item.postings_range]] += postings.strengths[
                item.postings_range
            ] * np.float32(item.weight / unit)
    if allowed is not None:
        scores[~allowed] = 0
    return scores


def compute_coverage(postings: Postings, lookups: Sequence[TermLookup], slot: int) -> float:
    """Return the share of the query's words that a document has, weighted by rarity."""
    needed = [item for item in lookups if not item.query_term.is_bonus]
    total = sum(item.weight for item in needed)
    matched = sum(
        item.weight
        for item in needed
        if _find_positions(postings, item.postings_range, (slot,))[0] >= 0
    )
    if total:
        return matched / total
    return 0.0


def explain_matches(
    postings: Postings, lookups: Sequence[TermLookup], slots: Sequence[int]
) -> list[tuple[MatchReason, ...]]:
    """Return for each slot the query words found, their fields and scores, highest first."""
    total = _compute_perfect_score(lookups)
    found: list[dict[str, MatchReason]] = [{} for _ in slots]
    for item in lookups:
        wanted = item.query_term
        for words, position in zip(
            found, _find_positions(postings, item.postings_range, slots), strict=True
        ):
            if position >= 0:
                gain = item.weight * int(postings.strengths[position]) / MAX_STRENGTH / total
                before = words.get(wanted.word, MatchReason(wanted.word, (), 0.0, True))
                words[wanted.word] = MatchReason(
                    wanted.word,
                    tuple(
                        dict.fromkeys(
                            (*before.fields, *_decode_field_names(int(postings.fields[position])))
                        )
                    ),
                    before.score + gain,
                    before.is_synonym and wanted.is_synonym,
                    before.correction or wanted.correction,
                )
    return [
        tuple(sorted(words.values(), key=lambda reason: (-reason.score, reason.word)))
        for words in found
    ]


def list_missing_words(
    lookups: Sequence[TermLookup], reasons: Sequence[MatchReason]
) -> tuple[str, ...]:
    """Return the significant query words that a document with these reasons lacks."""
    matched = {reason.word for reason in reasons}
    significant = (
        lookup.query_term.word
        for lookup in lookups
        if not lookup.query_term.is_bonus and lookup.query_term.weight >= _MIN_TELLING_WEIGHT
    )
    return tuple(word for word in dict.fromkeys(significant) if word not in matched)


def _compute_perfect_score(lookups: Sequence[TermLookup]) -> float:
    """Return the score of a document that has every term at full strength."""
    return sum(item.weight for item in lookups) or 1.0


def _find_positions(postings: Postings, postings_range: slice, slots: Sequence[int]) -> list[int]:
    """Return the position of each slot in a list, -1 where it is missing."""
    listed = postings.slots[postings_range]
    if not len(listed):
        return [-1] * len(slots)
    positions = np.minimum(
        np.searchsorted(listed, np.asarray(slots, dtype=np.uint32)), len(listed) - 1
    )
    return np.where(listed[positions] == slots, positions + postings_range.start, -1).tolist()


def _decode_field_names(fields: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for at, field in enumerate(FIELDS) if fields >> at & 1))
