"""Fuses lexical and dense scores into one score per slot.

Each is rescaled to 0 … 1 within the query, then weighted, which was measured to beat adding ranks.
A document without a vector is scored by its words alone.
"""

import numpy as np

from portico.search.document_table import Mask
from portico.search.lexical.bm25f import Scores

DENSE_SHARE = 0.70
"""Weight of the dense score; the lexical score has the rest."""
MAX_DENSE_ONLY = 100
"""Number of documents that may match by vector alone, without a word of the query."""


def fuse(
    lexical: Scores, dense: Scores | None, encoded: Mask | None, allowed: Mask | None
) -> Scores:
    """Return one score per slot, 0 … 1; 0 where nothing matches or it is not allowed.

    `lexical` must be 0 where not allowed.
    """
    if encoded is None or allowed is None:
        usable = encoded
    else:
        usable = encoded & allowed
    if dense is None or usable is None or not usable.any():
        return lexical.copy()
    words = _rescale(lexical, 0.0)
    similarity = dense[usable]
    meaning = np.zeros_like(words)
    meaning[usable] = _rescale(similarity, float(similarity.min()))
    fused = np.where(usable, DENSE_SHARE * meaning + (1 - DENSE_SHARE) * words, words)
    rank_count = min(MAX_DENSE_ONLY, len(similarity))
    cutoff = np.partition(similarity, len(similarity) - rank_count)[len(similarity) - rank_count]
    return np.where(
        (lexical > 0) | (usable & (dense >= cutoff)), np.maximum(fused, 1e-6), 0
    ).astype(np.float32)


def _rescale(scores: Scores, low: float) -> Scores:
    high = float(scores.max(initial=0))
    if high > low:
        return (scores - np.float32(low)) / np.float32(high - low)
    return np.zeros_like(scores)
