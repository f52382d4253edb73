"""What was learnt since the last write: summed up by scope, as habits to search with and as rows to
keep."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from portico.search import Vector
from portico.search.usage_patterns import (
    DecayedWeight,
    SearchFollowUp,
    TermHashes,
    UsagePatterns,
    hash_terms,
)
from portico.storage.learning_rows import FollowedRow, LearnedRows, PairRow, UsedRow
from portico.usage.session_activity import SearchRecord

Key = TypeVar("Key")

_MAX_COUNTS = 2_000
"""Things one lesson holds: more than comes together between two writes, unless somebody means harm.
"""
_MAX_RESTORED = 500
"""Of each kind that are put back when they could not be kept: a disk may be full for long."""
QueryTerms = frozenset[str]


@dataclass(eq=False)
class PendingCounts:
    """What one scope has learnt and not yet kept. Repetitions are summed up, so a busy scope is no
    larger."""

    _followed_searches: dict[tuple[QueryTerms, str], DecayedWeight] = field(
        default_factory=dict[tuple[QueryTerms, str], DecayedWeight]
    )
    _vectors: dict[QueryTerms, Vector] = field(default_factory=dict[QueryTerms, Vector])
    _pairs: dict[tuple[str, str], DecayedWeight] = field(
        default_factory=dict[tuple[str, str], DecayedWeight]
    )
    _calls: dict[str, DecayedWeight] = field(default_factory=dict[str, DecayedWeight])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self._calls

    @property
    def call_count(self) -> float:
        """How many calls taught it."""
        return sum(worn.weight for worn in self._calls.values())

    def add_followed_search(self, search: SearchRecord, tool: str, at: float) -> None:
        """A tool was called after a search."""
        if (
            _add_count(self._followed_searches, (search.terms, tool), DecayedWeight(1, at))
            and search.vector is not None
        ):
            self._vectors[search.terms] = search.vector

    def add_pair(self, tool: str, other: str, at: float) -> None:
        """Two tools were called in one session."""
        _add_count(self._pairs, (min(tool, other), max(tool, other)), DecayedWeight(1, at))

    def add_call(self, tool: str, at: float) -> None:
        """A tool was called."""
        _add_count(self._calls, tool, DecayedWeight(1, at))

    def restore(self, unwritten: "PendingCounts") -> None:
        """Take in what could not be kept, as far as there is room."""
        for key, worn in unwritten._followed_searches.items():
            if (
                _add_count(self._followed_searches, key, worn, _MAX_RESTORED)
                and (vector := unwritten._vectors.get(key[0])) is not None
            ):
                self._vectors.setdefault(key[0], vector)
        for pair, worn in unwritten._pairs.items():
            _add_count(self._pairs, pair, worn, _MAX_RESTORED)
        for tool, worn in unwritten._calls.items():
            _add_count(self._calls, tool, worn, _MAX_RESTORED)

    def to_usage_patterns(
        self, half_life_s: float, key: bytes, earlier: UsagePatterns | None
    ) -> UsagePatterns:
        """What was learnt, on top of what was known."""
        followed = tuple(
            SearchFollowUp(hash_terms(query, key), tool, worn, self._vectors.get(query))
            for (query, tool), worn in self._followed_searches.items()
        )
        return UsagePatterns(half_life_s, followed, dict(self._calls), dict(self._pairs), earlier)

    def to_rows(self, key: bytes) -> LearnedRows:
        """What was learnt, to be kept: from here on, words are hashes."""
        return LearnedRows(
            tuple(
                FollowedRow(
                    _pack_terms(hash_terms(query, key)),
                    tool,
                    worn.weight,
                    worn.timestamp,
                    _to_bytes(self._vectors.get(query)),
                )
                for (query, tool), worn in self._followed_searches.items()
            ),
            tuple(
                PairRow(*pair, worn.weight, worn.timestamp) for pair, worn in self._pairs.items()
            ),
            tuple(UsedRow(tool, worn.weight, worn.timestamp) for tool, worn in self._calls.items()),
        )


def _add_count(
    counts: dict[Key, DecayedWeight], key: Key, added: DecayedWeight, limit: int = _MAX_COUNTS
) -> bool:
    """Add to a count; whether there was room for it."""
    known = counts.get(key)
    if known is None and len(counts) >= limit:
        return False
    counts[key] = (
        added
        if known is None
        else DecayedWeight(known.weight + added.weight, max(known.timestamp, added.timestamp))
    )
    return True


def from_rows(rows: LearnedRows, half_life_s: float, now: float) -> UsagePatterns:
    """Habits from what was kept, ready to be asked. What is dated ahead is from now."""

    def to_weight(row: FollowedRow | PairRow | UsedRow) -> DecayedWeight:
        return DecayedWeight(float(row.weight), min(float(row.at), now))

    return UsagePatterns(
        half_life_s,
        tuple(
            SearchFollowUp(
                _unpack_terms(row.terms), row.tool, to_weight(row), _to_vector(row.vector)
            )
            for row in rows.followed
        ),
        {row.tool: to_weight(row) for row in rows.used},
        {(row.one, row.other): to_weight(row) for row in rows.together},
    ).warm_up()


def _to_bytes(vector: Vector | None) -> bytes | None:
    if vector is None:
        return None
    return vector.tobytes()


def _to_vector(content: bytes | None) -> Vector | None:
    if content:
        return np.frombuffer(content, dtype=np.int8)
    return None


def _pack_terms(terms: TermHashes) -> bytes:
    return np.array(sorted(terms), dtype="<u8").tobytes()


def _unpack_terms(terms: bytes) -> TermHashes:
    return frozenset(np.frombuffer(terms[: len(terms) // 8 * 8], dtype="<u8").tolist())
