"""What was learnt since the last write: summed up by scope, as habits to search with and as rows to keep."""

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from portico.learning.conversation import Search
from portico.search.habits import Facts, Followed, Habits, Hashes, Worn
from portico.storage.habits import FollowedRow, Learnt, OutcomeRow, PairRow, UsedRow

Key = TypeVar("Key")

_MOST = 2_000
"""Things one lesson holds: more than comes together between two writes, unless somebody means harm."""


@dataclass(eq=False)
class Lesson:
    """What one scope has learnt and not yet kept. Repetitions are summed up, so a busy scope is no larger."""

    _followed: dict[tuple[Hashes, str], Followed] = field(default_factory=dict[tuple[Hashes, str], Followed])
    _together: dict[tuple[str, str], Worn] = field(default_factory=dict[tuple[str, str], Worn])
    _used: dict[str, Worn] = field(default_factory=dict[str, Worn])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self._used

    def followed(self, search: Search, tool: str, at: float) -> None:
        """A tool was called after a search."""
        key = (search.terms, tool)
        known = self._followed.get(key)
        if known is not None or len(self._followed) < _MOST:
            weight = known.worn.weight if known else 0.0
            self._followed[key] = Followed(search.terms, tool, Worn(weight + 1, at), search.vector)

    def together(self, tool: str, other: str, at: float) -> None:
        """Two tools were called in one session."""
        _count(self._together, (min(tool, other), max(tool, other)), at)

    def used(self, tool: str, at: float) -> None:
        """A tool was called."""
        _count(self._used, tool, at)

    def habits(self, half_life_s: float, earlier: Habits | None) -> Habits:
        """What was learnt, on top of what was known."""
        return Habits(half_life_s, tuple(self._followed.values()), dict(self._used), dict(self._together), earlier)

    def rows(self) -> Learnt:
        """What was learnt, to be kept."""
        return Learnt(
            tuple(
                FollowedRow(_packed(one.terms), one.tool, one.worn.weight, one.worn.at, one.vector)
                for one in self._followed.values()
            ),
            tuple(PairRow(*pair, worn.weight, worn.at) for pair, worn in self._together.items()),
            tuple(UsedRow(tool, worn.weight, worn.at) for tool, worn in self._used.items()),
        )


def _count(counts: dict[Key, Worn], key: Key, at: float) -> None:
    known = counts.get(key)
    if known is not None or len(counts) < _MOST:
        counts[key] = Worn((known.weight if known else 0.0) + 1, at)


def kept(rows: Learnt, half_life_s: float) -> Habits:
    """Habits from what was kept, ready to be asked."""
    return Habits(
        half_life_s,
        tuple(Followed(_unpacked(row.terms), row.tool, _worn(row), row.vector) for row in rows.followed),
        {row.tool: _worn(row) for row in rows.used},
        {(row.one, row.other): _worn(row) for row in rows.together},
    ).warmed()


def _worn(row: FollowedRow | PairRow | UsedRow) -> Worn:
    return Worn(float(row.weight), float(row.at))


def _packed(terms: Hashes) -> bytes:
    return np.array(sorted(terms), dtype="<u8").tobytes()


def _unpacked(terms: bytes) -> Hashes:
    return frozenset(np.frombuffer(terms[: len(terms) // 8 * 8], dtype="<u8").tolist())


@dataclass(eq=False)
class Outcomes:
    """How calls went since the last write, by tool."""

    _rows: dict[str, OutcomeRow] = field(default_factory=dict[str, OutcomeRow])

    def add(self, tool: str, ok: bool, seconds: float, at: float) -> None:
        """A call ended."""
        known = self._rows.get(tool) or OutcomeRow(tool, 0, 0, 0.0, at)
        if known.calls or len(self._rows) < _MOST:
            latency = known.latency_ms
            if ok:
                new, share = max(seconds * 1_000, 1e-3), 1 / (known.successes + 1)
                latency = math.exp((1 - share) * math.log(latency or new) + share * math.log(new))
            self._rows[tool] = OutcomeRow(tool, known.calls + 1, known.successes + ok, latency, at)

    def rows(self) -> tuple[OutcomeRow, ...]:
        """They, to be kept."""
        return tuple(self._rows.values())


def facts(rows: tuple[OutcomeRow, ...]) -> dict[str, Facts]:
    """What filters want to know of each tool."""
    return {row.tool: Facts(row.calls, row.successes, row.latency_ms) for row in rows}
