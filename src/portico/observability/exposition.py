"""A reading in Prometheus' words: every metric's name, help and labels. docs/reference/metrics.md explains them.

Label values are names from the configuration and words of our own, never anything that a server or client said.
"""

from collections.abc import Iterable, Iterator
from typing import cast, get_args

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_text
from prometheus_client.registry import Collector

from portico import __version__
from portico.observability.metrics import Reading
from portico.observability.tally import Histogram
from portico.upstream.breaker import Phase
from portico.upstream.supervisor import State


def text_of(reading: Reading, *, openmetrics: bool) -> tuple[bytes, str]:
    """The text of a scrape and its content type."""
    registry = CollectorRegistry()
    registry.register(_Read(reading))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    if openmetrics:
        body: bytes = openmetrics_text.generate_latest(registry)
        return body, openmetrics_text.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Read(Collector):
    """A reading as a collector."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry is this reading's own, so no name can be taken."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Every metric."""
        one = self._reading
        yield _gauge("portico_build_info", "The version that runs.", ("version",), [((__version__,), 1)])
        yield _gauge(
            "portico_event_loop_lag_seconds", "Longest delay of the event loop in the last 30 seconds.", value=one.lag
        )
        for part in (_calls, _backends, _discovery, _doing, _keeping, _door):
            yield from part(one)


def _calls(one: Reading) -> Iterator[Metric]:
    outcomes = CounterMetricFamily("portico_calls", "Calls of tools, by how they ended.", labels=("server", "outcome"))
    errors = CounterMetricFamily("portico_call_errors", "Calls of tools that failed.", labels=("server", "kind"))
    seconds = HistogramMetricFamily("portico_call_seconds", "How long calls of tools took.", labels=("server",))
    for server, calls in sorted(one.sums.calls.items()):
        failed = sum(calls.kinds.values())
        counts = {"ok": calls.ok, "error": failed, "cancelled": calls.cancelled, "cached": calls.cached}
        for outcome, count in counts.items():
            outcomes.add_metric((server, outcome), count)
        for kind, count in sorted(calls.kinds.items()):
            errors.add_metric((server, kind), count)
        _add(seconds, (server,), calls.seconds)
    yield from (outcomes, errors, seconds)


def _backends(one: Reading) -> Iterator[Metric]:
    states = cast("tuple[str, ...]", get_args(State))
    known = one.statuses
    yield _gauge(
        "portico_backend_state",
        "1 for the state that a server is in.",
        ("server", "state"),
        [((status.name, state), int(status.state == state)) for status in known for state in states],
    )
    yield _gauge(
        "portico_backend_state_since_seconds",
        "When a server's state was last another, in seconds since 1970.",
        ("server",),
        [((status.name,), status.since) for status in known],
    )
    yield _gauge(
        "portico_backend_breaker",
        "1 for what a server's circuit breaker is.",
        ("server", "state"),
        [((status.name, _word(phase)), int(status.breaker == phase)) for status in known for phase in get_args(Phase)],
    )
    requests = CounterMetricFamily("portico_backend_requests", "Requests sent to a server.", labels=("server",))
    restarts = CounterMetricFamily("portico_backend_restarts", "Times a server was started anew.", labels=("server",))
    for status in known:
        requests.add_metric((status.name,), status.calls)
        restarts.add_metric((status.name,), status.restarts)
    yield from (requests, restarts)
    rows = [((status.name,), status.failures) for status in known]
    yield _gauge("portico_backend_failures", "How often a server failed lately.", ("server",), rows)
    rows = [((status.name,), status.memory) for status in known if status.memory]
    yield _gauge("portico_backend_memory_bytes", "Memory of a server's processes.", ("server",), rows)
    rows = [
        ((status.name,), found) for status in known if isinstance(found := status.diagnostics.get("instances"), int)
    ]
    yield _gauge("portico_backend_instances", "Clients that have a server for themselves now.", ("server",), rows)


def _discovery(one: Reading) -> Iterator[Metric]:
    if one.catalog is not None:
        offers = sorted(one.catalog().items())
        yield _gauge("portico_catalog_servers", "Servers that are configured.", value=len(offers))
        rows = [((name,), offer.tools) for name, offer in offers]
        yield _gauge("portico_catalog_tools", "Tools that are known of a server.", ("server",), rows)
        yield _gauge(
            "portico_catalog_tools_unencoded",
            "Tools without a vector, which are found by their words only.",
            value=sum(offer.unencoded for _, offer in offers),
        )
    searches = CounterMetricFamily("portico_searches", "Searches, by what they came to.", labels=("outcome",))
    searches.add_metric(("found",), one.sums.searches[True])
    searches.add_metric(("nothing",), one.sums.searches[False])
    yield searches
    yield _histogram("portico_search_seconds", "How long searches took.", one.sums.search_seconds)
    if one.tokens is not None:
        told = one.tokens
        yield _counter("portico_tokens_shown", "Tokens of our answers about tools.", told.shown)
        yield _counter("portico_tokens_listing", "Tokens that listings of every tool would have been.", told.listing)
        yield _gauge("portico_tokens_saved", "The difference; below 0 where answers cost more.", value=told.saved)
        yield _counter("portico_answers", "Answers and listings that clients were shown.", told.answers)
        yield _counter("portico_sessions", "Client sessions that began.", told.sessions)


def _doing(one: Reading) -> Iterator[Metric]:
    scripts = CounterMetricFamily("portico_scripts", "Scripts, by how they ended.", labels=("language", "outcome"))
    for (language, outcome), count in sorted(one.sums.scripts.items()):
        scripts.add_metric((language, outcome), count)
    seconds = HistogramMetricFamily("portico_script_seconds", "How long scripts took.", labels=("language",))
    for language, histogram in sorted(one.sums.script_seconds.items()):
        _add(seconds, (language,), histogram)
    workflows = CounterMetricFamily("portico_workflows", "Workflows, by how they ended.", labels=("outcome",))
    for outcome, count in sorted(one.sums.workflows.items()):
        workflows.add_metric((outcome,), count)
    yield from (scripts, seconds, workflows)
    yield _histogram("portico_workflow_seconds", "How long workflows took.", one.sums.workflow_seconds)
    if one.workers is not None:
        rows: list[tuple[tuple[str, ...], float]] = []
        for engine, (busy, idle) in sorted(one.workers.items()):
            rows.append(((engine, "busy"), busy))
            if idle is not None:
                rows.append(((engine, "idle"), idle))
        yield _gauge("portico_sandbox_workers", "Processes that run scripts.", ("engine", "state"), rows)


def _keeping(one: Reading) -> Iterator[Metric]:
    if one.cache is not None:
        yield _counter("portico_cache_hits", "Calls answered from the cache.", one.cache.hits)
        yield _counter("portico_cache_misses", "Calls that may be cached and were not.", one.cache.misses)
        yield _gauge("portico_cache_entries", "Answers in the cache.", value=one.cache.kept.items)
        yield _gauge("portico_cache_bytes", "Memory of the cache.", value=one.cache.kept.size)
    if one.results is not None:
        yield _gauge("portico_results", "Large results that are kept.", value=one.results.items)
        yield _gauge("portico_results_bytes", "Disk that they take.", value=one.results.size)
    if one.recorded is not None:
        yield _gauge("portico_record_usable", "1 while what happens is written down.", value=int(one.recorded))
    if one.audited is not None:
        yield _gauge("portico_audit_usable", "1 while every call is in the audit log.", value=int(one.audited))
    if one.configured is not None:
        said = "1 while the configuration on disk is in use, 0 while it is refused."
        yield _gauge("portico_configuration_usable", said, value=int(one.configured))


def _door(one: Reading) -> Iterator[Metric]:
    if one.clients is not None:
        rows = [((era,), count) for era, count in sorted(one.clients.items())]
        yield _gauge("portico_clients", "Clients with an open conversation or stream.", ("era",), rows)
    if one.crowd is not None:
        yield _gauge("portico_requests_in_flight", "Requests that are worked on.", value=one.crowd.in_flight)
        yield _gauge("portico_requests_waiting", "Requests that wait for their turn.", value=one.crowd.waiting)
        yield _counter("portico_requests_turned_away", "Requests refused unheard.", one.crowd.turned_away)


def _gauge(
    name: str,
    words: str,
    labels: tuple[str, ...] = (),
    rows: Iterable[tuple[tuple[str, ...], float]] = (),
    value: float | None = None,
) -> Metric:
    family = GaugeMetricFamily(name, words, value=value, labels=None if value is not None else labels)
    for row, number in rows:
        family.add_metric(row, number)
    return family


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(name, words, value=value)


def _histogram(name: str, words: str, seconds: Histogram) -> Metric:
    family = HistogramMetricFamily(name, words, labels=())
    _add(family, (), seconds)
    return family


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], seconds: Histogram) -> None:
    family.add_metric(labels, seconds.buckets(), seconds.total)


def _word(phase: str) -> str:
    return phase.replace("-", "_")
