"""Postings: one sorted list of documents per term, all lists in three flat arrays.

Documents are numbered by slot. A posting's strength is its BM25F saturation, 0 … 1 in 16 bits; it
depends on its document alone, so lists can be cut and joined freely. A term's rarity depends on all
documents and is computed when needed. Immutable: `splice` returns new postings, copying unchanged
parts in long runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import compress, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.lazy_attribute import lazy_property

_MIN_CHARS = 4
_MAX_CHARS = 24
_TWO_SLIPS_FROM = 8
"""Length from which two slips are allowed."""
_MAX_CANDIDATES = 400
"""Terms compared per first letter and length, the most common first; bounds the time of a
search."""

SpellingCandidates = Mapping[tuple[str, int], list[str]]
"""Possible corrections, by first letter and length."""


def group_candidates(vocabulary: Iterable[tuple[str, int]]) -> SpellingCandidates:
    """Group possible corrections, given terms with the number of documents that have each."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for term, count in vocabulary:
        is_word = term.isascii() and term.isalpha()
        if count and is_word and _MIN_CHARS <= len(term) <= _MAX_CHARS + 2:
            found.setdefault((term[0], len(term)), []).append((count, term))
    return {
        key: [term for _, term in nlargest(_MAX_CANDIDATES, terms)] for key, terms in found.items()
    }


def find_corrections(
    term: str, candidates: SpellingCandidates, is_known: Callable[[str], bool] | None = None
) -> list[str]:
    """Return the terms nearest to a misspelt one among those that are known; empty if none is
    near."""
    if not (_MIN_CHARS <= len(term) <= _MAX_CHARS and term.isascii() and term.isalpha()):
        return []
    # Imported late: only misspelt words need it.
    try:
        from rapidfuzz import process
        from rapidfuzz.distance import OSA
    except ImportError:
        return []
    slips = 2 if len(term) >= _TWO_SLIPS_FROM else 1
    lengths = range(len(term) - slips, len(term) + slips + 1)
    choices = [choice for length in lengths for choice in candidates.get((term[0], length), ())]
    if is_known is not None:
        choices = list(filter(is_known, choices))
    found = process.extract(term, choices, scorer=OSA.distance, score_cutoff=slips, limit=None)
    nearest = min((distance for _, distance, _ in found), default=0)
    return [choice for choice, distance, _ in found if distance == nearest]


MAX_STRENGTH = 65_535
"""The strength that stands for 1."""
_MAX_DEAD_TERMS = 1_024
"""Number of terms without a document up to which renumbering is not worth it."""


@dataclass(frozen=True, slots=True, eq=False)
class PostingEntries:
    """New postings: one row each, ordered by term, then slot."""

    terms: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    strengths: NDArray[np.uint16]
    fields: NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class Postings:
    """Every term's list: `slots[starts[t]:starts[t + 1]]`, ascending, for the term numbered `t`."""

    vocabulary: Mapping[str, int]
    """Number of each term, in ascending order."""
    starts: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    strengths: NDArray[np.uint16]
    fields: NDArray[np.uint16]
    """One bit for each of `bm25f.FIELDS` that contains the term."""

    @classmethod
    def empty(cls) -> "Postings":
        slots = np.empty(0, dtype=np.uint32)
        small = np.empty(0, dtype=np.uint16)
        return cls({}, np.zeros(1, dtype=np.uint32), slots, small, small)

    def __contains__(self, term: object) -> bool:
        """Return whether any document has the term; a numbered term may have lost its last one."""
        return self.count_documents(str(term)) > 0

    def count_documents(self, term: str) -> int:
        place = self.find_list(term)
        return place.stop - place.start

    @lazy_property
    def spelling_candidates(self) -> SpellingCandidates:
        """Terms a misspelt word could mean; computed on first use."""
        sizes = np.diff(self.starts).tolist()
        return group_candidates((term, sizes[number]) for term, number in self.vocabulary.items())

    def correct_spelling(self, term: str) -> str:
        """Return the probable correction of an unknown term (nearest, then most common), or ""."""
        near = find_corrections(term, self.spelling_candidates)
        return max(near, key=lambda found: (self.count_documents(found), found), default="")

    def restrict(self, visible: NDArray[np.bool_]) -> "Postings":
        """Return the same lists for a search in which only these slots count: whether a term
        exists, how rare it is and how it is spelt says nothing of the others."""
        return _VisiblePostings(
            *(self.vocabulary, self.starts, self.slots, self.strengths, self.fields),
            whole=self,
            visible=visible,
        )

    def find_list(self, term: str) -> slice:
        """Return the range of a term's list; empty if no document has the term."""
        number = self.vocabulary.get(term)
        if number is None:
            return slice(0, 0)
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def splice(
        self,
        removed_slots: NDArray[np.uint32],
        vocabulary: Mapping[str, int],
        added: PostingEntries,
    ) -> "Postings":
        """Return postings without `removed_slots` and with `added`, numbered by `vocabulary`.

        Once most terms have lost their last document, the others are renumbered.
        """
        spliced = self._splice_arrays(removed_slots, vocabulary, added)
        dead = len(vocabulary) - int(np.count_nonzero(np.diff(spliced.starts)))
        if dead > max(_MAX_DEAD_TERMS, len(vocabulary) // 2):
            return spliced.without_dead_terms()
        return spliced

    def without_dead_terms(self) -> "Postings":
        """Return the same lists without numbers for terms that no document has."""
        alive = np.diff(self.starts) > 0
        if alive.all():
            return self
        # A dead term's list is empty, so the lists stay in place and only the starts close up.
        starts = np.append(self.starts[:-1][alive], self.starts[-1:])
        vocabulary = {
            term: number for number, term in enumerate(compress(self.vocabulary, alive.tolist()))
        }
        return Postings(vocabulary, starts, self.slots, self.strengths, self.fields)

    def _splice_arrays(
        self,
        removed_slots: NDArray[np.uint32],
        vocabulary: Mapping[str, int],
        added: PostingEntries,
    ) -> "Postings":
        sizes = np.zeros(len(vocabulary), dtype=np.int64)
        sizes[: len(self.vocabulary)] = np.diff(self.starts)
        removed = self._find_positions(removed_slots)
        np.subtract.at(sizes, np.searchsorted(self.starts, removed, side="right") - 1, 1)
        sizes += np.bincount(added.terms, minlength=len(sizes))
        starts = np.zeros(len(sizes) + 1, dtype=np.uint32)
        np.cumsum(sizes, out=starts[1:])
        if not len(self.slots):
            return Postings(vocabulary, starts, added.slots, added.strengths, added.fields)
        runs = list(_plan_runs(len(self.slots), removed, self._find_insert_positions(added)))
        return Postings(
            vocabulary,
            starts,
            _join_runs(self.slots, added.slots, runs),
            _join_runs(self.strengths, added.strengths, runs),
            _join_runs(self.fields, added.fields, runs),
        )

    def _find_positions(self, removed_slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        if not len(removed_slots) or not len(self.slots):
            return np.empty(0, dtype=np.int64)
        is_removed = np.zeros(max(int(self.slots.max()), int(removed_slots.max())) + 1, dtype=bool)
        is_removed[removed_slots] = True
        return np.flatnonzero(is_removed[self.slots])

    def _find_insert_positions(self, added: PostingEntries) -> NDArray[np.int64]:
        """Return the old posting each added one goes before; ascending, as `added` is sorted."""
        positions = np.full(len(added.terms), len(self.slots), dtype=np.int64)
        known = int(np.searchsorted(added.terms, len(self.vocabulary)))
        edges = np.flatnonzero(np.diff(added.terms[:known], prepend=-1, append=-1)).tolist()
        for first, end in pairwise(edges):
            term = int(added.terms[first])
            start = int(self.starts[term])
            stop = int(self.starts[term + 1])
            positions[first:end] = start + np.searchsorted(
                self.slots[start:stop], added.slots[first:end]
            )
        return positions


@dataclass(frozen=True, eq=False, kw_only=True)
class _VisiblePostings(Postings):
    whole: Postings
    visible: NDArray[np.bool_]

    def count_documents(self, term: str) -> int:
        return int(np.count_nonzero(self.visible[self.slots[self.find_list(term)]]))

    def correct_spelling(self, term: str) -> str:
        near = find_corrections(term, self.whole.spelling_candidates, self.__contains__)
        return max(near, key=lambda found: (self.count_documents(found), found), default="")


Run = tuple[int, int, int, int]
"""Old postings [a, b), then added postings [c, d)."""


def _plan_runs(size: int, removed: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[Run]:
    # Not np.unique: it holds the GIL for 50 ms where 10,000 tools are replaced.
    cuts = np.sort(np.concatenate([removed, removed + 1, places, [0, size]]))
    cuts = cuts[np.diff(cuts, prepend=-1) > 0]
    dropped = np.isin(cuts, removed)
    ends = np.searchsorted(places, cuts, side="right")
    following = [*cuts[1:].tolist(), size]
    first = 0
    for cut, stop, drop, end in zip(
        cuts.tolist(), following, dropped.tolist(), ends.tolist(), strict=True
    ):
        yield 0, 0, first, end
        if not drop:
            yield cut, stop, 0, 0
        first = end


def _join_runs(old: NDArray[Any], added: NDArray[Any], runs: list[Run]) -> NDArray[Any]:
    return np.concatenate(
        [old[:0], *(old[a:b] if b else added[c:d] for a, b, c, d in runs if b > a or d > c)]
    )
