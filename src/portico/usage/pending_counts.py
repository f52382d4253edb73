"""Learned counts since the last write, by scope: as patterns for search and as rows to store."""

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
"""Maximum entries per kind: more than arrives between two writes, short of abuse."""
_MAX_RESTORED = 500
"""Maximum entries per kind that are restored after a failed write: a disk may be full for long."""
QueryTerms = frozenset[str]


@dataclass(eq=False)
class PendingCounts:
    """Unwritten counts of one scope. Repetitions are summed, so a busy scope is no larger."""

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
        """Whether there is nothing to write."""
        return not self._calls

    @property
    def call_count(self) -> float:
        """Number of calls that were counted."""
        return sum(weight.weight for weight in self._calls.values())

    def add_followed_search(self, search: SearchRecord, tool: str, at: float) -> None:
        """Count a call that followed a search."""
        if (
            _add_count(self._followed_searches, (search.terms, tool), DecayedWeight(1, at))
            and search.vector is not None
        ):
            self._vectors[search.terms] = search.vector

    def add_pair(self, tool: str, other: str, at: float) -> None:
        """Count two tools that were called in one session."""
        _add_count(self._pairs, (min(tool, other), max(tool, other)), DecayedWeight(1, at))

    def add_call(self, tool: str, at: float) -> None:
        """Count a call."""
        _add_count(self._calls, tool, DecayedWeight(1, at))

    def restore(self, unwritten: "PendingCounts") -> None:
        """Merge counts that could not be written, within limits."""
        for key, weight in unwritten._followed_searches.items():
            if (
                _add_count(self._followed_searches, key, weight, _MAX_RESTORED)
                and (vector := unwritten._vectors.get(key[0])) is not None
            ):
                self._vectors.setdefault(key[0], vector)
        for pair, weight in unwritten._pairs.items():
            _add_count(self._pairs, pair, weight, _MAX_RESTORED)
        for tool, weight in unwritten._calls.items():
            _add_count(self._calls, tool, weight, _MAX_RESTORED)

    def to_usage_patterns(
        self, half_life_s: float, key: bytes, earlier: UsagePatterns | None
    ) -> UsagePatterns:
        """Return these counts as patterns, on top of `earlier` ones."""
        followed = tuple(
            SearchFollowUp(hash_terms(query, key), tool, weight, self._vectors.get(query))
            for (query, tool), weight in self._followed_searches.items()
        )
        return UsagePatterns(half_life_s, followed, dict(self._calls), dict(self._pairs), earlier)

    def to_rows(self, key: bytes) -> LearnedRows:
        """Return rows to store; query words are hashed from here on."""
        return LearnedRows(
            tuple(
                FollowedRow(
                    _pack_terms(hash_terms(query, key)),
                    tool,
                    weight.weight,
                    weight.timestamp,
                    _to_bytes(self._vectors.get(query)),
                )
                for (query, tool), weight in self._followed_searches.items()
            ),
            tuple(
                PairRow(*pair, weight.weight, weight.timestamp)
                for pair, weight in self._pairs.items()
            ),
            tuple(
                UsedRow(tool, weight.weight, weight.timestamp)
                for tool, weight in self._calls.items()
            ),
        )


def _add_count(
    counts: dict[Key, DecayedWeight], key: Key, added: DecayedWeight, limit: int = _MAX_COUNTS
) -> bool:
    """Add to a count; return whether the limit allowed it."""
    known = counts.get(key)
    if known is None and len(counts) >= limit:
        return False
    if known is not None:
        latest = max(known.timestamp, added.timestamp)
        added = DecayedWeight(known.weight + added.weight, latest)
    counts[key] = added
    return True


def from_rows(rows: LearnedRows, half_life_s: float, now: float) -> UsagePatterns:
    """Build patterns from stored rows, ready for queries; future timestamps become `now`."""

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
