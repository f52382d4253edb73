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
from portico.observability.event_counter import Histogram
from portico.observability.metrics import MetricsSnapshot
from portico.upstream.lifecycle.circuit_breaker import BreakerPhase
from portico.upstream.lifecycle.supervisor import LifecycleState


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
    """Collector of one snapshot."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Return nothing: each snapshot has its own registry, so names cannot collide."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield every metric."""
        snapshot = self._snapshot
        yield _make_gauge(
            "portico_build_info", "The version that runs.", ("version",), [((__version__,), 1)]
        )
        yield _make_gauge(
            "portico_event_loop_lag_seconds",
            "Longest delay of the event loop in the last 30 seconds.",
            value=snapshot.event_loop_lag_s,
        )
        for collect_part in (
            _collect_calls,
            _collect_backends,
            _collect_discovery,
            _collect_scripts_and_workflows,
            _collect_storage,
            _collect_requests,
        ):
            yield from collect_part(snapshot)


def _collect_calls(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    outcomes = CounterMetricFamily(
        "portico_calls", "Calls of tools, by how they ended.", labels=("server", "outcome")
    )
    errors = CounterMetricFamily(
        "portico_call_errors", "Calls of tools that failed.", labels=("server", "kind")
    )
    seconds = HistogramMetricFamily(
        "portico_call_seconds", "How long calls of tools took.", labels=("server",)
    )
    for server, calls in sorted(snapshot.totals.calls.items()):
        failed = sum(calls.kinds.values())
        counts = {
            "ok": calls.ok,
            "error": failed,
            "cancelled": calls.cancelled,
            "cached": calls.cached,
        }
        for outcome, count in counts.items():
            outcomes.add_metric((server, outcome), count)
        for kind, count in sorted(calls.kinds.items()):
            errors.add_metric((server, kind), count)
        _add_histogram(seconds, (server,), calls.seconds)
    yield from (outcomes, errors, seconds)


def _collect_backends(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    states = cast("tuple[str, ...]", get_args(LifecycleState))
    statuses = snapshot.statuses
    yield _make_gauge(
        "portico_backend_state",
        "1 for the state that a server is in.",
        ("server", "state"),
        [
            ((status.name, state), int(status.state == state))
            for status in statuses
            for state in states
        ],
    )
    yield _make_gauge(
        "portico_backend_state_since_seconds",
        "When a server's state was last another, in seconds since 1970.",
        ("server",),
        [((status.name,), status.state_since) for status in statuses],
    )
    yield _make_gauge(
        "portico_backend_breaker",
        "1 for what a server's circuit breaker is.",
        ("server", "state"),
        [
            ((status.name, _to_label(phase)), int(status.breaker_phase == phase))
            for status in statuses
            for phase in get_args(BreakerPhase)
        ],
    )
    requests = CounterMetricFamily(
        "portico_backend_requests", "Requests sent to a server.", labels=("server",)
    )
    restarts = CounterMetricFamily(
        "portico_backend_restarts", "Times a server was started anew.", labels=("server",)
    )
    for status in statuses:
        requests.add_metric((status.name,), status.calls)
        restarts.add_metric((status.name,), status.restarts)
    yield from (requests, restarts)
    rows = [((status.name,), status.failures) for status in statuses]
    yield _make_gauge(
        "portico_backend_failures", "How often a server failed lately.", ("server",), rows
    )
    rows = [((status.name,), status.memory_bytes) for status in statuses if status.memory_bytes]
    yield _make_gauge(
        "portico_backend_memory_bytes", "Memory of a server's processes.", ("server",), rows
    )
    rows = [
        ((status.name,), instances)
        for status in statuses
        if isinstance(instances := status.diagnostics.get("instances"), int)
    ]
    yield _make_gauge(
        "portico_backend_instances",
        "Clients that have a server for themselves now.",
        ("server",),
        rows,
    )


def _collect_discovery(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    if snapshot.catalog is not None:
        offers = sorted(snapshot.catalog().items())
        yield _make_gauge(
            "portico_catalog_servers", "Servers that are configured.", value=len(offers)
        )
        rows = [((name,), offer.tools) for name, offer in offers]
        yield _make_gauge(
            "portico_catalog_tools", "Tools that are known of a server.", ("server",), rows
        )
        yield _make_gauge(
            "portico_catalog_tools_unencoded",
            "Tools without a vector, which are found by their words only.",
            value=sum(offer.unencoded for _, offer in offers),
        )
    searches = CounterMetricFamily(
        "portico_searches", "Searches, by what they came to.", labels=("outcome",)
    )
    searches.add_metric(("found",), snapshot.totals.searches[True])
    searches.add_metric(("nothing",), snapshot.totals.searches[False])
    yield searches
    yield _make_histogram(
        "portico_search_seconds", "How long searches took.", snapshot.totals.search_seconds
    )
    if snapshot.tokens is not None:
        tokens = snapshot.tokens
        yield _make_counter(
            "portico_tokens_shown", "Tokens of our answers about tools.", tokens.shown
        )
        yield _make_counter(
            "portico_tokens_listing",
            "Tokens that listings of every tool would have been.",
            tokens.listing,
        )
        yield _make_gauge(
            "portico_tokens_saved",
            "The difference; below 0 where answers cost more.",
            value=tokens.saved_tokens,
        )
        yield _make_counter(
            "portico_answers", "Answers and listings that clients were shown.", tokens.answers
        )
        yield _make_counter("portico_sessions", "Client sessions that began.", tokens.sessions)


def _collect_scripts_and_workflows(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    scripts = CounterMetricFamily(
        "portico_scripts", "Scripts, by how they ended.", labels=("language", "outcome")
    )
    for (language, outcome), count in sorted(snapshot.totals.scripts.items()):
        scripts.add_metric((language, outcome), count)
    seconds = HistogramMetricFamily(
        "portico_script_seconds", "How long scripts took.", labels=("language",)
    )
    for language, histogram in sorted(snapshot.totals.script_seconds.items()):
        _add_histogram(seconds, (language,), histogram)
    workflows = CounterMetricFamily(
        "portico_workflows", "Workflows, by how they ended.", labels=("outcome",)
    )
    for outcome, count in sorted(snapshot.totals.workflows.items()):
        workflows.add_metric((outcome,), count)
    yield from (scripts, seconds, workflows)
    yield _make_histogram(
        "portico_workflow_seconds", "How long workflows took.", snapshot.totals.workflow_seconds
    )
    if snapshot.workers is not None:
        rows: list[tuple[tuple[str, ...], float]] = []
        for engine, (busy, idle) in sorted(snapshot.workers.items()):
            rows.append(((engine, "busy"), busy))
            if idle is not None:
                rows.append(((engine, "idle"), idle))
        yield _make_gauge(
            "portico_sandbox_workers", "Processes that run scripts.", ("engine", "state"), rows
        )


def _collect_storage(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    if snapshot.cache is not None:
        yield _make_counter(
            "portico_cache_hits", "Calls answered from the cache.", snapshot.cache.hits
        )
        yield _make_counter(
            "portico_cache_misses", "Calls that may be cached and were not.", snapshot.cache.misses
        )
        yield _make_gauge(
            "portico_cache_entries", "Answers in the cache.", value=snapshot.cache.stored.items
        )
        yield _make_gauge(
            "portico_cache_bytes", "Memory of the cache.", value=snapshot.cache.stored.size
        )
    if snapshot.results is not None:
        yield _make_gauge(
            "portico_results", "Large results that are kept.", value=snapshot.results.items
        )
        yield _make_gauge(
            "portico_results_bytes", "Disk that they take.", value=snapshot.results.size
        )
    if snapshot.is_record_usable is not None:
        yield _make_gauge(
            "portico_record_usable",
            "1 while what happens is written down.",
            value=int(snapshot.is_record_usable),
        )
    if snapshot.is_audit_usable is not None:
        yield _make_gauge(
            "portico_audit_usable",
            "1 while every call is in the audit log.",
            value=int(snapshot.is_audit_usable),
        )
    if snapshot.is_config_usable is not None:
        help_text = "1 while the configuration on disk is in use, 0 while it is refused."
        yield _make_gauge(
            "portico_configuration_usable", help_text, value=int(snapshot.is_config_usable)
        )


def _collect_requests(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    if snapshot.clients is not None:
        rows = [((era,), count) for era, count in sorted(snapshot.clients.items())]
        yield _make_gauge(
            "portico_clients", "Clients with an open conversation or stream.", ("era",), rows
        )
    if snapshot.request_load is not None:
        yield _make_gauge(
            "portico_requests_in_flight",
            "Requests that are worked on.",
            value=snapshot.request_load.in_flight,
        )
        yield _make_gauge(
            "portico_requests_waiting",
            "Requests that wait for their turn.",
            value=snapshot.request_load.waiting,
        )
        yield _make_counter(
            "portico_requests_turned_away",
            "Requests refused unheard.",
            snapshot.request_load.rejected,
        )


def _make_gauge(
    name: str,
    help_text: str,
    labels: tuple[str, ...] = (),
    rows: Iterable[tuple[tuple[str, ...], float]] = (),
    value: float | None = None,
) -> Metric:
    family = GaugeMetricFamily(
        name, help_text, value=value, labels=None if value is not None else labels
    )
    for row, number in rows:
        family.add_metric(row, number)
    return family


def _make_counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def _make_histogram(name: str, help_text: str, seconds: Histogram) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=())
    _add_histogram(family, (), seconds)
    return family


def _add_histogram(
    family: HistogramMetricFamily, labels: tuple[str, ...], seconds: Histogram
) -> None:
    family.add_metric(labels, seconds.list_buckets(), seconds.total)


def _to_label(phase: str) -> str:
    return phase.replace("-", "_")
