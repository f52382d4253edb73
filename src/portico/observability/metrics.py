"""Prometheus metrics: event totals since start, and gauges read at scrape time.

metrics = Metrics(bus, sources)              # counts from now on; one per gateway
body, content_type = metrics.render(accept)

Tools are not a label: thousands of them would outnumber all other series, and the store has them
(`portico usage`, `/api/v1/calls`). prometheus_client is imported by the first scrape.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from portico.events import EventBus
from portico.observability.event_counter import EventCounter, EventTotals
from portico.observability.event_loop_lag import EventLoopLag
from portico.observability.metric_sources import (
    CacheStatistics,
    CountTools,
    MetricSources,
    RequestLoad,
    StoredItems,
)
from portico.storage.rows import LedgerTotal
from portico.upstream.lifecycle.supervisor import UpstreamStatus

OPENMETRICS_TYPE = "application/openmetrics-text"


@dataclass(frozen=True)
class MetricsSnapshot:
    """All figures at one moment; immutable, so that any thread may render it."""

    totals: EventTotals
    statuses: tuple[UpstreamStatus, ...] = ()
    tokens: LedgerTotal | None = None
    catalog: CountTools | None = None
    cache: CacheStatistics | None = None
    results: StoredItems | None = None
    workers: Mapping[str, tuple[int, int | None]] | None = None
    clients: Mapping[str, int] | None = None
    request_load: RequestLoad | None = None
    is_record_usable: bool | None = None
    is_audit_usable: bool | None = None
    is_config_usable: bool | None = None
    event_loop_lag_s: float = 0.0

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition text and its content type.

        Takes milliseconds, the first time a tenth of a second: not for the event loop.
        """
        from portico.observability.prometheus import render_metrics

        return render_metrics(self, openmetrics=OPENMETRICS_TYPE in accept.lower())


class Metrics:
    """Metrics of a gateway. Used from its event loop."""

    def __init__(self, bus: EventBus, sources: MetricSources | None = None) -> None:
        self._sources = sources or MetricSources()
        self._event_counter = EventCounter(bus, self._list_servers)
        self._lag = EventLoopLag()

    async def measure_lag(self) -> None:
        """Measure the event loop lag until cancelled; it is reported as 0 otherwise."""
        await self._lag.measure()

    def unsubscribe(self) -> None:
        """Stop receiving events."""
        self._event_counter.unsubscribe()

    def take_snapshot(self) -> MetricsSnapshot:
        """Return the current figures."""
        sources = self._sources
        return MetricsSnapshot(
            self._event_counter.totals.copy(),
            tuple(sources.statuses()),
            sources.tokens() if sources.tokens is not None else None,
            sources.catalog() if sources.catalog is not None else None,
            sources.cache() if sources.cache is not None else None,
            sources.results() if sources.results is not None else None,
            sources.workers() if sources.workers is not None else None,
            sources.clients() if sources.clients is not None else None,
            sources.request_load() if sources.request_load is not None else None,
            sources.is_record_usable() if sources.is_record_usable is not None else None,
            sources.is_audit_usable() if sources.is_audit_usable is not None else None,
            sources.is_config_usable() if sources.is_config_usable is not None else None,
            self._lag.max_delay_s,
        )

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the text and content type for an Accept header: OpenMetrics or Prometheus."""
        return self.take_snapshot().render(accept)

    def _list_servers(self) -> Collection[str]:
        return {status.name for status in self._sources.statuses()}
