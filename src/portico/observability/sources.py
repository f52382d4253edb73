"""Where a gateway's gauges are read when somebody looks: functions, because what they read is in other rooms.

They are asked in the event loop and answer at once. What is left out is not shown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from portico.storage.rows import LedgerTotal
from portico.upstream.supervisor import Status


@dataclass(frozen=True, slots=True)
class Offer:
    """What one server has in the catalog."""

    tools: int
    unencoded: int
    """Those of them that are found by their words only, because they have no vector yet."""


Count = Callable[[], Mapping[str, Offer]]
"""Counts one moment's offers, by server, when and where there is time: with many tools that takes a while."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Things that are kept for a while, and how much room they take."""

    items: int
    size: int


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Answers that are given again."""

    hits: int
    misses: int
    kept: Kept


@dataclass(frozen=True, slots=True)
class Crowd:
    """Requests at the door."""

    in_flight: int
    waiting: int
    turned_away: int
    """Since the beginning."""


@dataclass(frozen=True)
class Sources:
    """Everything that is looked at."""

    statuses: Callable[[], Iterable[Status]] = tuple
    tokens: Callable[[], LedgerTotal] | None = None
    catalog: Callable[[], Count] | None = None
    cache: Callable[[], CacheUse] | None = None
    results: Callable[[], Kept] | None = None
    workers: Callable[[], Mapping[str, tuple[int, int | None]]] | None = None
    """By engine: sandbox processes that run a script, and those that wait for one, where that is known."""
    clients: Callable[[], Mapping[str, int]] | None = None
    """By protocol era."""
    crowd: Callable[[], Crowd] | None = None
    recorded: Callable[[], bool] | None = None
    """Whether what happens is written down."""
    audited: Callable[[], bool] | None = None
    """Whether every call has its line in the audit log."""
    configured: Callable[[], bool] | None = None
    """Whether the configuration on disk is the one that is in use, as far as that can be taken while running."""
