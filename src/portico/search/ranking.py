"""Scores to places: the best of many, in one order that never depends on how they were stored."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def leaders(scores: NDArray[np.float32], ids: Sequence[str], places: int) -> list[int]:
    """The slots on the first `places` by falling score, then id. A score of 0 has no place."""
    found = np.flatnonzero(scores >= _floor(scores, places))
    if places < len(found):
        # Everyone who ties with the last place stays in until ids decide.
        last = np.partition(scores[found], len(found) - places)[len(found) - places]
        found = found[scores[found] >= last]
    return sorted(found.tolist(), key=lambda slot: (-scores[slot], ids[slot]))[:places]


def _floor(scores: NDArray[np.float32], places: int) -> np.float32:
    """A score that at least `places` reach, if so many match: most of a large catalog is out at the first try."""
    best = scores.max(initial=0)
    for share in (2, 8, 32):
        if best and np.count_nonzero(scores >= best / share) >= places:
            return best / share
    return np.finfo(np.float32).smallest_subnormal
