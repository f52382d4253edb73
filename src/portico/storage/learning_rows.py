"""Rows of the learning store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FollowedRow:
    """A tool that was called after a search."""

    terms: bytes
    """Sorted 64-bit hashes of the query's terms, made with the store's key."""
    tool: str
    weight: float
    at: float
    vector: bytes | None = None


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two tools that were called in one session, in alphabetical order."""

    one: str
    other: str
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class UsedRow:
    """A tool that was called."""

    tool: str
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class LearnedRows:
    """Rows learnt in one scope."""

    followed: tuple[FollowedRow, ...] = ()
    together: tuple[PairRow, ...] = ()
    used: tuple[UsedRow, ...] = ()
