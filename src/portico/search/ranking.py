"""Scores to places: the best of many, in one order that never depends on how they were stored."""

import heapq
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.vectors import Vectors
from portico.search.document_table import DocumentTable

DUPLICATE_SIMILARITY = 0.93
"""Tools of two servers whose texts are this near say the same in other words."""
SAME_NAME_DUPLICATE_SIMILARITY = 0.78
"""Where the names are the same, less is enough."""
_NEED_DECAY = 0.5
"""What is left of a need's weight each time a tool is placed for it."""
_GROUPING_LIMIT = 256
"""First places within which twins are looked for: it takes comparing each with each."""
_SPARE_PLACES = 24
"""Places looked at beyond those asked for, because twins give theirs up."""
_MAX_DUPLICATE_DISTANCE = 24
"""A twin stands at most so many ranks behind the last of its group: whoever shows a place knows all
who share it."""


def select_top_slots(scores: NDArray[np.float32], ids: Sequence[str], places: int) -> list[int]:
    """The slots on the first `places` by falling score, then id. A score of 0 has no place."""
    found = np.flatnonzero(scores >= _find_score_floor(scores, places))
    ties: list[int] = []
    if places < len(found):
        last = np.partition(scores[found], len(found) - places)[len(found) - places]
        # Ids decide among those who tie with the last place, who may be thousands.
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
    """The ranked slots in an order that serves every need early: a need that has its tool waits for
    the others."""
    slots = np.array(ranked, dtype=np.int64)
    served = np.stack([need[slots] for need in needs])
    rest = scores[slots] - share * served.max(axis=0)
    patience = np.ones(len(needs), dtype=np.float32)
    left = np.ones(len(slots), dtype=bool)
    order: list[int] = []
    for _ in ranked:
        worth = served * patience[:, None]
        now = np.where(left, rest + share * worth.max(axis=0), -1)
        # Of equals the one that was ranked first.
        chosen = int(np.argmax(now))
        order.append(int(slots[chosen]))
        left[chosen] = False
        patience[int(np.argmax(worth[:, chosen]))] *= _NEED_DECAY
    return order


def add_spare_places(places: int) -> int:
    """How many leaders to look at for so many places after grouping."""
    return 2 * places + _SPARE_PLACES


def group_duplicates(
    ranked: Sequence[int], vectors: Vectors, table: DocumentTable, named_groups: Collection[str]
) -> dict[int, list[int]]:
    """The leaders with their twins: a slot that says the same as a better one of another group
    stands behind it.

    Not a tool of a group that was `named`: that one was meant. Far down the list everyone keeps a
    place.
    """
    found = _group_first_places(ranked[:_GROUPING_LIMIT], vectors, table, named_groups)
    behind = {slot for twins in found.values() for slot in twins}
    found.update((slot, []) for slot in ranked[_GROUPING_LIMIT:] if slot not in behind)
    return found


def count_required_ranks(
    ranked: Sequence[int], duplicates: Mapping[int, Sequence[int]], page: Sequence[int]
) -> int:
    """How many ranks to look at, so that nobody beyond them can belong to a place of this page."""
    ranks = {slot: rank for rank, slot in enumerate(ranked)}
    last = max(
        (ranks[slot] for leader in page for slot in (leader, *duplicates[leader])), default=-1
    )
    return min(last + _MAX_DUPLICATE_DISTANCE + 1, _GROUPING_LIMIT)


def _group_first_places(
    ranked: Sequence[int], vectors: Vectors, table: DocumentTable, named_groups: Collection[str]
) -> dict[int, list[int]]:
    if len(vectors.rows):
        alike = vectors.compute_pairwise_similarity(ranked)
    else:
        alike = np.zeros((len(ranked), len(ranked)), dtype=np.float32)
    names = table.name_keys[list(ranked)]
    copies = table.copy_keys[list(ranked)]
    groups = table.groups
    same_name = names[:, None] == names[None]
    twins = (alike >= DUPLICATE_SIMILARITY) | (
        same_name & (alike >= SAME_NAME_DUPLICATE_SIMILARITY)
    )
    twins |= (copies[:, None] == copies[None]) & (copies[:, None] != 0)
    found: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    """The rank of each group's last member."""
    for place, slot in enumerate(ranked):
        if groups[slot] in named_groups:
            found[slot], last[slot] = [], place
            continue
        before = np.flatnonzero(twins[place, :place]).tolist()
        candidates = (
            at
            for at in before
            if ranked[at] in found and place - last[ranked[at]] <= _MAX_DUPLICATE_DISTANCE
        )
        first = next(
            (
                ranked[at]
                for at in candidates
                if all(groups[other] != groups[slot] for other in (ranked[at], *found[ranked[at]]))
            ),
            None,
        )
        if first is None:
            found[slot] = []
        else:
            found[first].append(slot)
        last[slot if first is None else first] = place
    return found


def _find_score_floor(scores: NDArray[np.float32], places: int) -> np.float32:
    """A score that at least `places` reach, if so many match: most of a large catalog is out at the
    first try."""
    best = scores.max(initial=0)
    for share in (2, 8, 32):
        if best and np.count_nonzero(scores >= best / share) >= places:
            return best / share
    return np.finfo(np.float32).smallest_subnormal
