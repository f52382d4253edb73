"""Corrects misspelt words to terms that documents contain.

Only a word no document has is corrected, and only to terms with the same first letter that differ
by one slip (two in a long word): two letters swapped, one missing, doubled or wrong.
"""

from collections.abc import Iterable, Mapping
from heapq import nlargest

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
        if (
            count
            and _MIN_CHARS <= len(term) <= _MAX_CHARS + 2
            and term.isascii()
            and term.isalpha()
        ):
            found.setdefault((term[0], len(term)), []).append((count, term))
    return {
        key: [term for _, term in nlargest(_MAX_CANDIDATES, terms)] for key, terms in found.items()
    }


def find_corrections(term: str, candidates: SpellingCandidates) -> list[str]:
    """Return the terms nearest to a misspelt one; empty if none is near."""
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
    found = process.extract(term, choices, scorer=OSA.distance, score_cutoff=slips, limit=None)
    nearest = min((distance for _, distance, _ in found), default=0)
    return [choice for choice, distance, _ in found if distance == nearest]
