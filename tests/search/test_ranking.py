"""Ranks by score, then id."""

import numpy as np

from portico.search.ranking import select_top_slots


def test_ids_decide_among_thousands_who_tie_with_the_last_place():
    ids = [f"t{number:05}" for number in reversed(range(5_000))]
    scores = np.ones(5_000, dtype=np.float32)
    scores[[7, 4_000]] = 2.0
    best = sorted((7, 4_000), key=ids.__getitem__)
    rest = sorted(set(range(5_000)) - {7, 4_000}, key=ids.__getitem__)
    for places in (1, 2, 3, 100, 5_000, 6_000):
        assert select_top_slots(scores, ids, places) == [*best, *rest][:places]
