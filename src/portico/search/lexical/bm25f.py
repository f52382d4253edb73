"""BM25F: how well each document matches the words of a query, as one number per slot.

Pure arithmetic on postings. Scores are shares of a perfect match, so they can be compared between queries and added to
other signals of the same kind.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portico.search.document import Reason
from portico.search.lexical.fields import FIELDS
from portico.search.lexical.postings import STRONGEST, Postings
from portico.search.lexical.query import Wanted
from portico.search.roster import Mask

Scores = NDArray[np.float32]

_TELLING = 0.5
"""The weight of a word from which it matters that a document lacks it; words of asking weigh less."""


@dataclass(frozen=True, slots=True)
class Sought:
    """A wanted term, looked up: where its postings are, and what it is worth here."""

    wanted: Wanted
    where: slice
    worth: float


def seek(postings: Postings, wanted: Sequence[Wanted], count: int) -> list[Sought]:
    """Look up every term, those that no document has too: they count against a document's completeness."""
    found: list[Sought] = []
    for item in wanted:
        where = postings.list_of(item.term)
        found.append(Sought(item, where, item.weight * rarity(count, where.stop - where.start)))
    return found


def rarity(count: int, having: int) -> float:
    """What a term tells when `having` of `count` documents have it (inverse document frequency)."""
    return math.log1p((count - having + 0.5) / (having + 0.5))


def score(postings: Postings, sought: Sequence[Sought], size: int, allowed: Mask | None) -> Scores:
    """Each of `size` slots' share of a perfect match, 0 … 1; 0 where it is not allowed."""
    scores = np.zeros(size, dtype=np.float32)
    unit = _perfect(sought) * STRONGEST
    for item in sought:
        if item.where.stop > item.where.start:
            # A slot stands at most once in a list, so a plain indexed addition loses nothing.
            scores[postings.slots[item.where]] += postings.strengths[item.where] * np.float32(item.worth / unit)
    if allowed is not None:
        scores[~allowed] = 0
    return scores


def coverage(postings: Postings, sought: Sequence[Sought], slot: int) -> float:
    """The share of the query's words that the document in `slot` has at all, rare words counting most."""
    needed = [item for item in sought if not item.wanted.bonus]
    full = sum(item.worth for item in needed)
    got = sum(item.worth for item in needed if _positions(postings, item.where, (slot,))[0] >= 0)
    return got / full if full else 0.0


def explain(postings: Postings, sought: Sequence[Sought], slots: Sequence[int]) -> list[tuple[Reason, ...]]:
    """For each slot, which words of the query its document has, where, and what each added; the weightiest first."""
    full = _perfect(sought)
    found: list[dict[str, Reason]] = [{} for _ in slots]
    for item in sought:
        wanted = item.wanted
        for words, at in zip(found, _positions(postings, item.where, slots), strict=True):
            if at >= 0:
                gain = item.worth * int(postings.strengths[at]) / STRONGEST / full
                before = words.get(wanted.word, Reason(wanted.word, (), 0.0, True))
                words[wanted.word] = Reason(
                    wanted.word,
                    tuple(dict.fromkeys((*before.fields, *_names(int(postings.fields[at]))))),
                    before.score + gain,
                    before.kindred and wanted.kindred,
                    before.corrected or wanted.corrected,
                )
    return [tuple(sorted(words.values(), key=lambda it: (-it.score, it.word))) for words in found]


def lacking(sought: Sequence[Sought], reasons: Sequence[Reason]) -> tuple[str, ...]:
    """The telling words of a query that a document with these reasons does not have."""
    had = {reason.word for reason in reasons}
    telling = (it.wanted.word for it in sought if not it.wanted.bonus and it.wanted.weight >= _TELLING)
    return tuple(word for word in dict.fromkeys(telling) if word not in had)


def _perfect(sought: Sequence[Sought]) -> float:
    """The score of a document that has every term at full strength."""
    return sum(item.worth for item in sought) or 1.0


def _positions(postings: Postings, where: slice, slots: Sequence[int]) -> list[int]:
    """Where each slot stands in a list, -1 where it does not."""
    listed = postings.slots[where]
    if not len(listed):
        return [-1] * len(slots)
    places = np.minimum(np.searchsorted(listed, np.asarray(slots, dtype=np.uint32)), len(listed) - 1)
    return np.where(listed[places] == slots, places + where.start, -1).tolist()


def _names(fields: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for at, field in enumerate(FIELDS) if fields >> at & 1))
