"""Did you mean …: the names spelt most like a wrong one."""

from portico.search.document_table import DocumentTable
from portico.search.lexical.tokens import squash

_MIN_SIMILARITY = 60.0
"""rapidfuzz's 0 … 100. Below this, a guess helps nobody."""
_MAX_NAME = 256


def find_nearest_names(name: str, table: DocumentTable, limit: int) -> list[str]:
    """The ids of the nearest names and addresses, nearest first, equals by id."""
    try:
        # Needed for wrong names only, so right ones do not pay for the import.
        from rapidfuzz import fuzz, process
    except (ImportError, OSError):  # without it there is no guess, and still an answer
        return []

    wrong = squash(name[:_MAX_NAME])
    likeness: dict[int, float] = {}
    for spellings in (table.squashed_ids, table.squashed_names) if wrong else ():
        near = process.extract(
            wrong, spellings, scorer=fuzz.ratio, limit=4 * limit, score_cutoff=_MIN_SIMILARITY
        )
        for _, points, slot in near:
            likeness[slot] = max(likeness.get(slot, 0.0), points)
    ranked = sorted(likeness, key=lambda slot: (-likeness[slot], table.ids[slot]))
    return [table.ids[slot] for slot in ranked[:limit]]
