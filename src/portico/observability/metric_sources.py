"""Functions that gauges are read from at scrape time, because the data is in other packages.

They are called in the event loop and must not block. A missing one hides its gauges.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from portico.storage.rows import LedgerTotal
from portico.upstream.lifecycle.supervisor import UpstreamStatus


@dataclass(frozen=True, slots=True)
class ServerToolCounts:
    """Tool counts of one server."""

    tools: int
    unencoded: int
    """Tools without an embedding, which only lexical search finds."""


CountTools = Callable[[], Mapping[str, ServerToolCounts]]
"""Counts the tools by server. Takes a while with many tools, so it may run in a thread."""


@dataclass(frozen=True, slots=True)
class StoredItems:
    """Number and size of temporarily stored items."""

    items: int
    size: int


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Figures of the result cache."""

    hits: int
    misses: int
    stored: StoredItems


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """Requests in admission control."""

    in_flight: int
    waiting: int
    rejected: int
    """Total since start."""


@dataclass(frozen=True)
class MetricSources:
    """All sources of gauges."""

    statuses: Callable[[], Iterable[UpstreamStatus]] = tuple
    tokens: Callable[[], LedgerTotal] | None = None
    catalog: Callable[[], CountTools] | None = None
    cache: Callable[[], CacheStatistics] | None = None
    results: Callable[[], StoredItems] | None = None
    workers: Callable[[], Mapping[str, tuple[int, int | None]]] | None = None
    """By engine: busy and, if known, idle sandbox processes."""
    clients: Callable[[], Mapping[str, int]] | None = None
    """Open clients by protocol era."""
    request_load: Callable[[], RequestLoad] | None = None
    is_record_usable: Callable[[], bool] | None = None
    """Whether usage is being stored."""
    is_audit_usable: Callable[[], bool] | None = None
    """Whether the audit log is being written."""
    is_config_usable: Callable[[], bool] | None = None
    """Whether the configuration on disk is in use, as far as it can be applied while running."""
