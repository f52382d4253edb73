"""What a scrape shows: sums of what was heard since the start, and gauges that are read when
somebody looks.

metrics = Metrics(bus, sources)              # counts from now on; one for each gateway
body, content_type = metrics.rendered(accept)

No tool is a label: with thousands of tools that would be more series than all the rest, and the
record has them (`portico usage`, `/api/v1/calls`). What speaks Prometheus is loaded by the first
scrape.
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
    """One moment, which may be written out anywhere: nothing in it changes any more."""

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
        """The text and its type. Takes milliseconds, the first time a tenth of a second: not for
        the event loop."""
        from portico.observability.prometheus import render_metrics

        return render_metrics(self, openmetrics=OPENMETRICS_TYPE in accept.lower())


class Metrics:
    """A gateway's figures. Heard and read in its event loop."""

    def __init__(self, bus: EventBus, sources: MetricSources | None = None) -> None:
        self._sources = sources or MetricSources()
        self._event_counter = EventCounter(bus, self._list_servers)
        self._lag = EventLoopLag()

    async def measure_lag(self) -> None:
        """Measure how late the event loop is, until cancelled; without it, that is told as 0."""
        await self._lag.measure()

    def unsubscribe(self) -> None:
        """Hear no more."""
        self._event_counter.unsubscribe()

    def take_snapshot(self) -> MetricsSnapshot:
        """How everything stands now."""
        one = self._sources
        return MetricsSnapshot(
            self._event_counter.totals.copy(),
            tuple(one.statuses()),
            one.tokens() if one.tokens is not None else None,
            one.catalog() if one.catalog is not None else None,
            one.cache() if one.cache is not None else None,
            one.results() if one.results is not None else None,
            one.workers() if one.workers is not None else None,
            one.clients() if one.clients is not None else None,
            one.request_load() if one.request_load is not None else None,
            one.is_record_usable() if one.is_record_usable is not None else None,
            one.is_audit_usable() if one.is_audit_usable is not None else None,
            one.is_config_usable() if one.is_config_usable is not None else None,
            self._lag.max_delay_s,
        )

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its type, for whoever asks for it in this way: OpenMetrics, or Prometheus'
        own."""
        return self.take_snapshot().render(accept)

    def _list_servers(self) -> Collection[str]:
        return {status.name for status in self._sources.statuses()}
