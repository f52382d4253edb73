"""The weights of the ranking, and the order of scored slots, whatever way they are stored."""

import heapq
import importlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.vectors import Vectors
from portico.search.document_table import DocumentTable, Mask
from portico.search.lexical.bm25f import Scores

logger = logging.getLogger(__name__)

DENSE_SHARE = 0.70
"""Weight of the dense score; the lexical score has the rest."""
RankFunction = Callable[[str, Sequence[str], Scores, Scores], Any]
"""A function of one's own: query, addresses, scores by words (0 … 1) and by meaning (cosine).

It returns a score of 0 … 1 for each address; 0 is no match. An empty address is no tool."""
RankingMethod = Literal["words", "meaning", "both"] | RankFunction
MAX_DENSE_ONLY = 100
"""Number of documents that may match by vector alone, without a word of the query."""
SAME_NAME_SCORE = 2.0
SAME_ADDRESS_SCORE = 4.0
"""Above all other signals together: a typed name finds the tool of that name first."""
EXACT_SPELLING_SCORE = 4.0
"""`send_email` and `send-email` are the same name; the one that was typed comes first."""
MAX_BOOST = 0.5
"""Limits what use can add, so that a typed name counts more."""
PREFERRED_GROUP_SCORE = 0.02
"""Score of a document whose group is preferred: decides between equals and little else."""
DUPLICATE_SIMILARITY = 0.93
"""Similarity from which tools of two servers count as duplicates."""
SAME_NAME_DUPLICATE_SIMILARITY = 0.78
"""Threshold where the names are equal."""
_NEED_DECAY = 0.5
"""Factor on a need's weight each time a tool is placed for it."""
_GROUPING_LIMIT = 256
"""First ranks compared pairwise for duplicates."""
_SPARE_PLACES = 24
"""Ranks looked at beyond those requested, because duplicates lose theirs."""
_MAX_DUPLICATE_DISTANCE = 24
"""Largest distance in rank between a duplicate and the last member of its group, so that a page
shows all duplicates of its hits."""


def load_method(name: str) -> RankingMethod:
    """Return a method by its name, or a function by `module:function`; both, if that fails."""
    if name == "words" or name == "meaning" or name == "both":
        return name
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except Exception as error:  # somebody else's code: search goes on without it
        logger.error("search.ranking: %s cannot be imported: %s", name, error)
        return "both"


def select_top_slots(scores: NDArray[np.float32], ids: Sequence[str], places: int) -> list[int]:
    """Return the slots of the first `places` ranks by score, then id. A score of 0 has no rank."""
    found = np.flatnonzero(scores >= _find_score_floor(scores, places))
    ties: list[int] = []
    if places < len(found):
        last = np.partition(scores[found], len(found) - places)[len(found) - places]
        # Ids decide among those that tie with the last rank, which may be thousands.
        ties = found[scores[found] == last].tolist()
        found = found[scores[found] > last]
    first = sorted(found.tolist(), key=lambda slot: (-scores[slot], ids[slot]))
    return [*first, *heapq.nsmallest(places - len(first), ties, key=ids.__getitem__)]


def interleave_needs(
    ranked: Sequence[int],
    scores: NDArray[np.float32],
    needs: Sequence[NDArray[np.float32]],
    share: float,
) -> list[int]:
    """Reorder ranked slots so that every need is served early."""
    slots = np.array(ranked, dtype=np.int64)
    served = np.stack([need[slots] for need in needs])
    base = scores[slots] - share * served.max(axis=0)
    need_weights = np.ones(len(needs), dtype=np.float32)
    is_left = np.ones(len(slots), dtype=bool)
    order: list[int] = []
    for _ in ranked:
        weighted = served * need_weights[:, None]
        current = np.where(is_left, base + share * weighted.max(axis=0), -1)
        # The first ranked one on a tie.
        chosen = int(np.argmax(current))
        order.append(int(slots[chosen]))
        is_left[chosen] = False
        need_weights[int(np.argmax(weighted[:, chosen]))] *= _NEED_DECAY
    return order


def add_spare_places(places: int) -> int:
    """Return how many ranks to look at for so many ranks after grouping."""
    return 2 * places + _SPARE_PLACES


def group_duplicates(
    ranked: Sequence[int], vectors: Vectors, table: DocumentTable, named_groups: Collection[str]
) -> dict[int, list[int]]:
    """Return the leading slots with their duplicates from other groups.

    Tools of a group the query names are never duplicates. Beyond `_GROUPING_LIMIT` nothing is
    grouped.
    """
    found = _group_first_places(ranked[:_GROUPING_LIMIT], vectors, table, named_groups)
    duplicates = {slot for followers in found.values() for slot in followers}
    found.update((slot, []) for slot in ranked[_GROUPING_LIMIT:] if slot not in duplicates)
    return found


def count_required_ranks(
    ranked: Sequence[int], duplicates: Mapping[int, Sequence[int]], page: Sequence[int]
) -> int:
    """Return how many ranks to look at so that no later one can be a duplicate on this page."""
    ranks = {slot: rank for rank, slot in enumerate(ranked)}
    last = max(
        (ranks[slot] for leader in page for slot in (leader, *duplicates[leader])), default=-1
    )
    return min(last + _MAX_DUPLICATE_DISTANCE + 1, _GROUPING_LIMIT)


def _group_first_places(
    ranked: Sequence[int], vectors: Vectors, table: DocumentTable, named_groups: Collection[str]
) -> dict[int, list[int]]:
    if len(vectors.rows):
        similarity = vectors.compute_pairwise_similarity(ranked)
    else:
        similarity = np.zeros((len(ranked), len(ranked)), dtype=np.float32)
    names = table.name_keys[list(ranked)]
    copies = table.copy_keys[list(ranked)]
    groups = table.groups
    same_name = names[:, None] == names[None]
    is_duplicate = (similarity >= DUPLICATE_SIMILARITY) | (
        same_name & (similarity >= SAME_NAME_DUPLICATE_SIMILARITY)
    )
    is_duplicate |= (copies[:, None] == copies[None]) & (copies[:, None] != 0)
    duplicates: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    """Rank of each group's last member."""
    for rank, slot in enumerate(ranked):
        if groups[slot] in named_groups:
            duplicates[slot] = []
            last[slot] = rank
            continue
        leader = slot
        for position in np.flatnonzero(is_duplicate[rank, :rank]).tolist():
            earlier = ranked[position]
            if earlier not in duplicates or rank - last[earlier] > _MAX_DUPLICATE_DISTANCE:
                continue
            if all(groups[it] != groups[slot] for it in (earlier, *duplicates[earlier])):
                leader = earlier
                break
        if leader == slot:
            duplicates[slot] = []
        else:
            duplicates[leader].append(slot)
        last[leader] = rank
    return duplicates


def _find_score_floor(scores: NDArray[np.float32], places: int) -> np.float32:
    """Return a score that at least `places` slots reach, if so many match, to skip most of them."""
    best = scores.max(initial=0)
    for share in (2, 8, 32):
        if best and np.count_nonzero(scores >= best / share) >= places:
            return best / share
    return np.finfo(np.float32).smallest_subnormal


def score(
    method: RankingMethod,
    query: str,
    table: DocumentTable,
    lexical: Scores,
    dense: Scores | None,
    encoded: Mask,
    allowed: Mask | None,
) -> Scores:
    """Return one score per slot by a method; by both, if a function of one's own fails."""
    if not callable(method):
        share = 1.0 if method == "meaning" else DENSE_SHARE
        return fuse(lexical, dense, encoded, allowed, share)
    meaning = np.zeros_like(lexical) if dense is None else np.where(encoded, dense, 0)
    try:
        scores = np.asarray(method(query, table.ids, lexical, meaning), dtype=np.float32)
        if scores.shape != lexical.shape:
            raise ValueError(f"it returned {scores.shape} scores for {lexical.shape} tools")
    except Exception as error:  # somebody else's code: search goes on without it
        logger.error("the function of search.ranking failed: %s", error)
        return fuse(lexical, dense, encoded, allowed)
    visible = table.occupied_slots if allowed is None else allowed
    return np.where(visible, np.clip(np.nan_to_num(scores), 0, 1), 0).astype(np.float32)


def fuse(
    lexical: Scores,
    dense: Scores | None,
    encoded: Mask | None,
    allowed: Mask | None,
    dense_share: float = DENSE_SHARE,
) -> Scores:
    """Fuse lexical and dense scores: one per slot, 0 … 1; 0 where nothing matches or is allowed.

    Each is rescaled to 0 … 1 within the query, then weighted, which was measured to beat adding
    ranks. A document without a vector is scored by its words alone.

    `lexical` must be 0 where not allowed.
    """
    usable = encoded if encoded is None or allowed is None else encoded & allowed
    if dense is None or usable is None or not usable.any():
        return lexical.copy()
    words = _rescale(lexical, 0.0)
    similarity = dense[usable]
    meaning = np.zeros_like(words)
    meaning[usable] = _rescale(similarity, float(similarity.min()))
    fused = np.where(usable, dense_share * meaning + (1 - dense_share) * words, words)
    last = len(similarity) - min(MAX_DENSE_ONLY, len(similarity))
    cutoff = np.partition(similarity, last)[last]
    matches = (lexical > 0) | (usable & (dense >= cutoff))
    return np.where(matches, np.maximum(fused, 1e-6), 0).astype(np.float32)


def _rescale(scores: Scores, low: float) -> Scores:
    high = float(scores.max(initial=0))
    if high > low:
        return (scores - np.float32(low)) / np.float32(high - low)
    return np.zeros_like(scores)
