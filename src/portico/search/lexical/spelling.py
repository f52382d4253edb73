"""Misspelt words: what was probably meant, among the terms that documents here really have.

Only a word no document has is looked at, and only terms that begin with its letter and differ by
one slip (two in a long word): a swapped pair of letters, one missing, doubled or wrong. Fingers
seldom slip on a first letter.
"""

from collections.abc import Iterable, Mapping
from heapq import nlargest

_MIN_CHARS = 4
_MAX_CHARS = 24
_TWO_SLIPS_FROM = 8
"""From here on, two slips are forgiven."""
_MAX_CANDIDATES = 400
"""Terms of one first letter and length that are looked at, the commonest: whoever fills an index
with made-up words makes no search slower."""

SpellingCandidates = Mapping[tuple[str, int], list[str]]
"""The terms that can be meant, by first letter and length."""


def group_candidates(vocabulary: Iterable[tuple[str, int]]) -> SpellingCandidates:
    """The terms that a misspelt word could mean, of a vocabulary with the number of documents that
    have each."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for term, having in vocabulary:
        if (
            having
            and _MIN_CHARS <= len(term) <= _MAX_CHARS + 2
            and term.isascii()
            and term.isalpha()
        ):
            found.setdefault((term[0], len(term)), []).append((having, term))
    return {
        key: [term for _, term in nlargest(_MAX_CANDIDATES, terms)] for key, terms in found.items()
    }


def find_corrections(term: str, candidates: SpellingCandidates) -> list[str]:
    """The terms nearest to a misspelt one, none if nothing is near."""
    if not (_MIN_CHARS <= len(term) <= _MAX_CHARS and term.isascii() and term.isalpha()):
        return []
    # Needed for misspelt words only, so right ones do not pay for the import.
    try:
        from rapidfuzz import process
        from rapidfuzz.distance import OSA
    except ImportError:
        return []
    if len(term) >= _TWO_SLIPS_FROM:
        slips = 2
    else:
        slips = 1
    lengths = range(len(term) - slips, len(term) + slips + 1)
    choices = [choice for length in lengths for choice in candidates.get((term[0], length), ())]
    found = process.extract(term, choices, scorer=OSA.distance, score_cutoff=slips, limit=None)
    nearest = min((distance for _, distance, _ in found), default=0)
    return [choice for choice, distance, _ in found if distance == nearest]
