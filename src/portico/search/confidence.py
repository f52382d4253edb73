"""How sure a ranking is that it serves the query: a calibrated guess, so that nothing is called a
find that is none.

Logistic in how near the first hits are in meaning, how much of the query's words the first has, and
how many documents there were to choose from: the more there are, the nearer the nearest is by
chance. Fitted on questions with and without an answer, over whole catalogs and small ones
(`training/README.md`, "Knowing when nothing fits").
"""

import math

_NEARNESS = 14.0
_COVERAGE = 1.4
_CHOICE = -0.56
_OFFSET = -3.1

WEAK = 0.12
"""Below, nothing fits: true of most queries that nothing serves, and of few that something does."""
UNSURE = 0.35
"""Between the two, most first hits are right and many are not: say so."""
WEAK_BY_WORDS = 0.2
"""The same where words alone were searched, and confidence is the share of the query's words in the
first hit."""


def estimate_confidence(nearness: float, coverage: float, count: int) -> float:
    """0 … 1, from the best cosine among the first hits, the share of the query's words in the
    first, of so many."""
    evidence = (
        _NEARNESS * nearness + _COVERAGE * coverage + _CHOICE * math.log(max(count, 1)) + _OFFSET
    )
    return 1 / (1 + math.exp(-evidence))
