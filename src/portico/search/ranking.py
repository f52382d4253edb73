"""Ranks scored slots in an order that does not depend on how they are stored."""

import heapq
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.vectors import Vectors
from portico.search.document_table import DocumentTable

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
        earlier = np.flatnonzero(is_duplicate[rank, :rank]).tolist()
        candidates = (
            position
            for position in earlier
            if ranked[position] in duplicates
            and rank - last[ranked[position]] <= _MAX_DUPLICATE_DISTANCE
        )
        first = next(
            (
                ranked[position]
                for position in candidates
                if all(
                    groups[other] != groups[slot]
                    for other in (ranked[position], *duplicates[ranked[position]])
                )
            ),
            None,
        )
        if first is None:
            duplicates[slot] = []
        else:
            duplicates[first].append(slot)
        last[slot if first is None else first] = rank
    return duplicates


def _find_score_floor(scores: NDArray[np.float32], places: int) -> np.float32:
    """Return a score that at least `places` slots reach, if so many match, to skip most of them."""
    best = scores.max(initial=0)
    for share in (2, 8, 32):
        if best and np.count_nonzero(scores >= best / share) >= places:
            return best / share
    return np.finfo(np.float32).smallest_subnormal
