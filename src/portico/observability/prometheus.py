"""Metrics in Prometheus' format: names, help texts and labels; see docs/reference/metrics.md.

Label values are configured names and fixed words, never text from a server or client.
"""

from collections.abc import Iterable, Iterator
from typing import cast, get_args

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_text
from prometheus_client.registry import Collector

from portico import __version__
from portico.observability.metrics import Histogram, MetricsSnapshot
from portico.upstream.lifecycle.restart_circuit_breaker import BreakerPhase
from portico.upstream.lifecycle.status import LifecycleState

Rows = Iterable[tuple[tuple[str, ...], float]]


def render_metrics(snapshot: MetricsSnapshot, *, openmetrics: bool) -> tuple[bytes, str]:
    """Return the text of a scrape and its content type."""
    registry = CollectorRegistry()
    registry.register(_SnapshotCollector(snapshot))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    if openmetrics:
        body: bytes = openmetrics_text.generate_latest(registry)
        return body, openmetrics_text.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Return nothing: each snapshot has its own registry, so names cannot collide."""
        return ()

    def collect(self) -> Iterable[Metric]:
        snapshot = self._snapshot
        yield _gauges("build_info", "The version that runs.", "version", [((__version__,), 1)])
        yield _gauge(
            "event_loop_lag_seconds",
            "Longest delay of the event loop in the last 30 seconds.",
            snapshot.event_loop_lag_s,
        )
        yield from _collect_calls(snapshot)
        yield from _collect_servers(snapshot)
        yield from _collect_discovery(snapshot)
        yield from _collect_scripts_and_workflows(snapshot)
        yield from _collect_storage(snapshot)
        yield from _collect_requests(snapshot)


def _collect_calls(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    outcomes: list[tuple[tuple[str, ...], float]] = []
    errors: list[tuple[tuple[str, ...], float]] = []
    durations: list[tuple[tuple[str, ...], Histogram]] = []
    for server, calls in sorted(snapshot.totals.calls.items()):
        outcomes.append(((server, "ok"), calls.ok))
        outcomes.append(((server, "error"), sum(calls.kinds.values())))
        outcomes.append(((server, "cancelled"), calls.cancelled))
        outcomes.append(((server, "cached"), calls.cached))
        errors += [((server, kind), count) for kind, count in sorted(calls.kinds.items())]
        durations.append(((server,), calls.seconds))
    yield _counters("calls", "Calls of tools, by how they ended.", "server outcome", outcomes)
    yield _counters("call_errors", "Calls of tools that failed.", "server kind", errors)
    yield _histograms("call_seconds", "How long calls of tools took.", "server", durations)


def _collect_servers(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    statuses = snapshot.statuses
    yield _gauges(
        "backend_state",
        "1 for the state that a server is in.",
        "server state",
        [
            ((status.name, state), int(status.state == state))
            for status in statuses
            for state in cast("tuple[str, ...]", get_args(LifecycleState))
        ],
    )
    yield _gauges(
        "backend_state_since_seconds",
        "When a server's state was last another, in seconds since 1970.",
        "server",
        [((status.name,), status.state_since) for status in statuses],
    )
    yield _gauges(
        "backend_breaker",
        "1 for what a server's circuit breaker is.",
        "server state",
        [
            ((status.name, phase.replace("-", "_")), int(status.breaker_phase == phase))
            for status in statuses
            for phase in cast("tuple[str, ...]", get_args(BreakerPhase))
        ],
    )
    rows: Rows = [((status.name,), status.calls) for status in statuses]
    yield _counters("backend_requests", "Requests sent to a server.", "server", rows)
    rows = [((status.name,), status.restarts) for status in statuses]
    yield _counters("backend_restarts", "Times a server was restarted.", "server", rows)
    rows = [((status.name,), status.failures) for status in statuses]
    yield _gauges("backend_failures", "How often a server failed lately.", "server", rows)
    rows = [((status.name,), status.memory_bytes) for status in statuses if status.memory_bytes]
    yield _gauges("backend_memory_bytes", "Memory of a server's processes.", "server", rows)
    rows = [
        ((status.name,), instances)
        for status in statuses
        if isinstance(instances := status.diagnostics.get("instances"), int)
    ]
    help_text = "Clients that have a server for themselves now."
    yield _gauges("backend_instances", help_text, "server", rows)


def _collect_discovery(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    if snapshot.catalog is not None:
        offers = sorted(snapshot.catalog().items())
        yield _gauge("catalog_servers", "Servers that are configured.", len(offers))
        rows = [((name,), offer.tools) for name, offer in offers]
        yield _gauges("catalog_tools", "Tools that are known of a server.", "server", rows)
        yield _gauge(
            "catalog_tools_unencoded",
            "Tools without a vector, which are found by their words only.",
            sum(offer.unencoded for _, offer in offers),
        )
    found = snapshot.totals.searches
    rows = [(("found",), found[True]), (("nothing",), found[False])]
    yield _counters("searches", "Searches, by what they came to.", "outcome", rows)
    durations = [((), snapshot.totals.search_seconds)]
    yield _histograms("search_seconds", "How long searches took.", "", durations)
    if (tokens := snapshot.tokens) is not None:
        yield _counter("tokens_shown", "Tokens of our answers about tools.", tokens.shown)
        yield _counter(
            "tokens_listing", "Tokens that listings of every tool would have been.", tokens.listing
        )
        yield _gauge(
            "tokens_saved", "The difference; below 0 where answers cost more.", tokens.saved_tokens
        )
        yield _counter("answers", "Answers and listings that clients were shown.", tokens.answers)
        yield _counter("sessions", "Client sessions that began.", tokens.sessions)


def _collect_scripts_and_workflows(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    totals = snapshot.totals
    rows: Rows = sorted(totals.scripts.items())
    yield _counters("scripts", "Scripts, by how they ended.", "language outcome", rows)
    durations = [((language,), took) for language, took in sorted(totals.script_seconds.items())]
    yield _histograms("script_seconds", "How long scripts took.", "language", durations)
    rows = [((outcome,), count) for outcome, count in sorted(totals.workflows.items())]
    yield _counters("workflows", "Workflows, by how they ended.", "outcome", rows)
    durations = [((), totals.workflow_seconds)]
    yield _histograms("workflow_seconds", "How long workflows took.", "", durations)
    if snapshot.workers is not None:
        workers: list[tuple[tuple[str, ...], float]] = []
        for engine, (busy, idle) in sorted(snapshot.workers.items()):
            workers.append(((engine, "busy"), busy))
            if idle is not None:
                workers.append(((engine, "idle"), idle))
        yield _gauges("sandbox_workers", "Processes that run scripts.", "engine state", workers)


def _collect_storage(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    if (cache := snapshot.cache) is not None:
        yield _counter("cache_hits", "Calls answered from the cache.", cache.hits)
        yield _counter("cache_misses", "Calls that may be cached and were not.", cache.misses)
        yield _gauge("cache_entries", "Answers in the cache.", cache.stored.items)
        yield _gauge("cache_bytes", "Memory of the cache.", cache.stored.size)
    if snapshot.results is not None:
        yield _gauge("results", "Large results that are kept.", snapshot.results.items)
        yield _gauge("results_bytes", "Disk that they take.", snapshot.results.size)
    for name, help_text, is_usable in (
        ("record_usable", "1 while usage is stored.", snapshot.is_record_usable),
        ("audit_usable", "1 while every call is in the audit log.", snapshot.is_audit_usable),
        (
            "configuration_usable",
            "1 while the configuration on disk is in use, 0 while it is refused.",
            snapshot.is_config_usable,
        ),
    ):
        if is_usable is not None:
            yield _gauge(name, help_text, int(is_usable))


def _collect_requests(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    if snapshot.clients is not None:
        rows = [((era,), count) for era, count in sorted(snapshot.clients.items())]
        yield _gauges("clients", "Clients with an open conversation or stream.", "era", rows)
    if (load := snapshot.request_load) is not None:
        yield _gauge("requests_in_flight", "Requests that are worked on.", load.in_flight)
        yield _gauge("requests_waiting", "Requests that are queued.", load.waiting)
        yield _counter("requests_turned_away", "Requests that were rejected.", load.rejected)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"portico_{name}", help_text, value=value)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"portico_{name}", help_text, value=value)


def _gauges(name: str, help_text: str, labels: str, rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"portico_{name}", help_text, labels=labels.split())
    for row, number in rows:
        family.add_metric(row, number)
    return family


def _counters(name: str, help_text: str, labels: str, rows: Rows) -> Metric:
    family = CounterMetricFamily(f"portico_{name}", help_text, labels=labels.split())
    for row, number in rows:
        family.add_metric(row, number)
    return family


def _histograms(
    name: str, help_text: str, labels: str, rows: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Metric:
    family = HistogramMetricFamily(f"portico_{name}", help_text, labels=labels.split())
    for row, histogram in rows:
        family.add_metric(row, histogram.list_buckets(), histogram.total)
    return family
