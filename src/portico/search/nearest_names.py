"""Finds the names spelt most like a wrong one."""

from portico.search.document_table import DocumentTable
from portico.search.lexical.tokens import squash

_MIN_SIMILARITY = 60.0
"""On rapidfuzz's scale of 0 … 100; a worse suggestion does not help."""
_MAX_NAME = 256


def find_nearest_names(name: str, table: DocumentTable, limit: int) -> list[str]:
    """Return the ids of the nearest names and addresses, nearest first, ties by id."""
    try:
        # Imported late: only wrong names need it.
        from rapidfuzz import fuzz, process
    except (ImportError, OSError):  # optional: without it there are no suggestions
        return []

    folded = squash(name[:_MAX_NAME])
    likeness: dict[int, float] = {}
    for spellings in (table.squashed_ids, table.squashed_names) if folded else ():
        near = process.extract(
            folded, spellings, scorer=fuzz.ratio, limit=4 * limit, score_cutoff=_MIN_SIMILARITY
        )
        for _, points, slot in near:
            likeness[slot] = max(likeness.get(slot, 0.0), points)
    ranked = sorted(likeness, key=lambda slot: (-likeness[slot], table.ids[slot]))
    return [table.ids[slot] for slot in ranked[:limit]]
