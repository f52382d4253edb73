"""Scores to places: the best of many, in one order that never depends on how they were stored."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def leaders(scores: NDArray[np.float32], ids: Sequence[str], places: int) -> list[int]:
    """The slots on the first `places` by falling score, then id. A score of 0 has no place."""
    matched = np.flatnonzero(scores)
    if places < len(matched):
        found = scores[matched]
        # Everyone who ties with the last place stays in until ids decide.
        last = np.partition(found, len(found) - places)[len(found) - places]
        matched = matched[found >= last]
    return sorted(matched.tolist(), key=lambda slot: (-scores[slot], ids[slot]))[:places]
