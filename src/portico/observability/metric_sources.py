"""Where a gateway's gauges are read when somebody looks: functions, because what they read is in
other rooms.

They are asked in the event loop and answer at once. What is left out is not shown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from portico.storage.rows import LedgerTotal
from portico.upstream.lifecycle.supervisor import UpstreamStatus


@dataclass(frozen=True, slots=True)
class ServerToolCounts:
    """What one server has in the catalog."""

    tools: int
    unencoded: int
    """Those of them that are found by their words only, because they have no vector yet."""


CountTools = Callable[[], Mapping[str, ServerToolCounts]]
"""Counts one moment's offers, by server, when and where there is time: with many tools that takes a
while."""


@dataclass(frozen=True, slots=True)
class StoredItems:
    """Things that are kept for a while, and how much room they take."""

    items: int
    size: int


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Answers that are given again."""

    hits: int
    misses: int
    stored: StoredItems


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """Requests at the door."""

    in_flight: int
    waiting: int
    rejected: int
    """Since the beginning."""


@dataclass(frozen=True)
class MetricSources:
    """Everything that is looked at."""

    statuses: Callable[[], Iterable[UpstreamStatus]] = tuple
    tokens: Callable[[], LedgerTotal] | None = None
    catalog: Callable[[], CountTools] | None = None
    cache: Callable[[], CacheStatistics] | None = None
    results: Callable[[], StoredItems] | None = None
    workers: Callable[[], Mapping[str, tuple[int, int | None]]] | None = None
    """By engine: sandbox processes that run a script, and those that wait for one, where that is
    known."""
    clients: Callable[[], Mapping[str, int]] | None = None
    """By protocol era."""
    request_load: Callable[[], RequestLoad] | None = None
    is_record_usable: Callable[[], bool] | None = None
    """Whether what happens is written down."""
    is_audit_usable: Callable[[], bool] | None = None
    """Whether every call has its line in the audit log."""
    is_config_usable: Callable[[], bool] | None = None
    """Whether the configuration on disk is the one that is in use, as far as that can be taken
    while running."""
