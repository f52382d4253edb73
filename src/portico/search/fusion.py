"""Two opinions into one: words and meaning, each on its own scale, become one score per slot.

Each is stretched over 0 … 1 within the query, then weighed. Measured here and elsewhere, that beats
adding ranks. A document that has no vector yet is judged by its words alone.
"""

import numpy as np

from portico.search.document_table import Mask
from portico.search.lexical.bm25f import Scores

DENSE_SHARE = 0.70
"""What meaning counts; words count the rest."""
MAX_DENSE_ONLY = 100
"""So many documents match by meaning alone, though they share no word with the query."""


def fuse(
    lexical: Scores, dense: Scores | None, encoded: Mask | None, allowed: Mask | None
) -> Scores:
    """One score per slot, 0 … 1; 0 where nothing matches or it is not allowed. `lexical` is 0 where
    not allowed."""
    if encoded is None or allowed is None:
        seen = encoded
    else:
        seen = encoded & allowed
    if dense is None or seen is None or not seen.any():
        return lexical.copy()
    words = _rescale(lexical, 0.0)
    likeness = dense[seen]
    meaning = np.zeros_like(words)
    meaning[seen] = _rescale(likeness, float(likeness.min()))
    fused = np.where(seen, DENSE_SHARE * meaning + (1 - DENSE_SHARE) * words, words)
    places = min(MAX_DENSE_ONLY, len(likeness))
    near = np.partition(likeness, len(likeness) - places)[len(likeness) - places]
    return np.where((lexical > 0) | (seen & (dense >= near)), np.maximum(fused, 1e-6), 0).astype(
        np.float32
    )


def _rescale(scores: Scores, low: float) -> Scores:
    high = float(scores.max(initial=0))
    if high > low:
        return (scores - np.float32(low)) / np.float32(high - low)
    return np.zeros_like(scores)
