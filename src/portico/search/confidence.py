"""Estimates how likely a ranking serves the query, so that poor matches are reported as such.

Logistic in the similarity of the first hits, the share of the query's words in the first, and the
number of documents: the more there are, the nearer the nearest is by chance. Fitted on queries with
and without an answer, over large catalogs and small ones (`training/README.md`, "Knowing when
nothing fits").
"""

import math

_NEARNESS = 14.0
_COVERAGE = 1.4
_CHOICE = -0.56
_OFFSET = -3.1

WEAK = 0.12
"""Below this, nothing fits: true of most queries without a suitable tool, and of few with one."""
UNSURE = 0.35
"""Between the two thresholds most first hits are right but many are not, so the answer says so."""
WEAK_BY_WORDS = 0.2
"""Threshold for search by words alone, where confidence is the first hit's word coverage."""


def estimate_confidence(nearness: float, coverage: float, count: int) -> float:
    """Return a confidence of 0 … 1.

    `nearness` is the best cosine among the first hits, `coverage` the share of the query's words in
    the first, `count` the number of documents searched.
    """
    evidence = (
        _NEARNESS * nearness + _COVERAGE * coverage + _CHOICE * math.log(max(count, 1)) + _OFFSET
    )
    return 1 / (1 + math.exp(-evidence))
