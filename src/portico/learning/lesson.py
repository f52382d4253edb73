"""What was learnt since the last write: summed up by scope, as habits to search with and as rows to keep."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from portico.learning.conversation import Search
from portico.search import Vector
from portico.search.habits import Followed, Habits, Hashes, Worn, hashed
from portico.storage.habit_rows import FollowedRow, Learnt, PairRow, UsedRow

Key = TypeVar("Key")

_MOST = 2_000
"""Things one lesson holds: more than comes together between two writes, unless somebody means harm."""
_RETRIED = 500
"""Of each kind that are put back when they could not be kept: a disk may be full for long."""
Query = frozenset[str]


@dataclass(eq=False)
class Lesson:
    """What one scope has learnt and not yet kept. Repetitions are summed up, so a busy scope is no larger."""

    _followed: dict[tuple[Query, str], Worn] = field(default_factory=dict[tuple[Query, str], Worn])
    _vectors: dict[Query, Vector] = field(default_factory=dict[Query, Vector])
    _together: dict[tuple[str, str], Worn] = field(default_factory=dict[tuple[str, str], Worn])
    _used: dict[str, Worn] = field(default_factory=dict[str, Worn])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self._used

    @property
    def calls(self) -> float:
        """How many calls taught it."""
        return sum(worn.weight for worn in self._used.values())

    def followed(self, search: Search, tool: str, at: float) -> None:
        """A tool was called after a search."""
        if _count(self._followed, (search.terms, tool), Worn(1, at)) and search.vector is not None:
            self._vectors[search.terms] = search.vector

    def together(self, tool: str, other: str, at: float) -> None:
        """Two tools were called in one session."""
        _count(self._together, (min(tool, other), max(tool, other)), Worn(1, at))

    def used(self, tool: str, at: float) -> None:
        """A tool was called."""
        _count(self._used, tool, Worn(1, at))

    def put_back(self, earlier: "Lesson") -> None:
        """Take in what could not be kept, as far as there is room."""
        for key, worn in earlier._followed.items():
            if _count(self._followed, key, worn, _RETRIED) and (vector := earlier._vectors.get(key[0])) is not None:
                self._vectors.setdefault(key[0], vector)
        for pair, worn in earlier._together.items():
            _count(self._together, pair, worn, _RETRIED)
        for tool, worn in earlier._used.items():
            _count(self._used, tool, worn, _RETRIED)

    def habits(self, half_life_s: float, key: bytes, earlier: Habits | None) -> Habits:
        """What was learnt, on top of what was known."""
        followed = tuple(
            Followed(hashed(query, key), tool, worn, self._vectors.get(query))
            for (query, tool), worn in self._followed.items()
        )
        return Habits(half_life_s, followed, dict(self._used), dict(self._together), earlier)

    def rows(self, key: bytes) -> Learnt:
        """What was learnt, to be kept: from here on, words are hashes."""
        return Learnt(
            tuple(
                FollowedRow(_packed(hashed(query, key)), tool, worn.weight, worn.at, _bytes(self._vectors.get(query)))
                for (query, tool), worn in self._followed.items()
            ),
            tuple(PairRow(*pair, worn.weight, worn.at) for pair, worn in self._together.items()),
            tuple(UsedRow(tool, worn.weight, worn.at) for tool, worn in self._used.items()),
        )


def _count(counts: dict[Key, Worn], key: Key, more: Worn, most: int = _MOST) -> bool:
    """Add to a count; whether there was room for it."""
    known = counts.get(key)
    if known is None and len(counts) >= most:
        return False
    counts[key] = more if known is None else Worn(known.weight + more.weight, max(known.at, more.at))
    return True


def kept(rows: Learnt, half_life_s: float, now: float) -> Habits:
    """Habits from what was kept, ready to be asked. What is dated ahead is from now."""

    def worn(row: FollowedRow | PairRow | UsedRow) -> Worn:
        return Worn(float(row.weight), min(float(row.at), now))

    return Habits(
        half_life_s,
        tuple(Followed(_unpacked(row.terms), row.tool, worn(row), _vector(row.vector)) for row in rows.followed),
        {row.tool: worn(row) for row in rows.used},
        {(row.one, row.other): worn(row) for row in rows.together},
    ).warmed()


def _bytes(vector: Vector | None) -> bytes | None:
    return None if vector is None else vector.tobytes()


def _vector(content: bytes | None) -> Vector | None:
    return np.frombuffer(content, dtype=np.int8) if content else None


def _packed(terms: Hashes) -> bytes:
    return np.array(sorted(terms), dtype="<u8").tobytes()


def _unpacked(terms: bytes) -> Hashes:
    return frozenset(np.frombuffer(terms[: len(terms) // 8 * 8], dtype="<u8").tolist())
