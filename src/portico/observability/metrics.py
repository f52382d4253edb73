"""Prometheus metrics: events counted since start, and gauges read at scrape time.

metrics = Metrics(bus, sources)              # counts from now on; one per gateway
body, content_type = metrics.render(accept)

Tools are not a label: thousands of them would outnumber all other series, and the store has them
(`portico usage`, `/api/v1/calls`). prometheus_client is imported by the first scrape.

Counters are plain numbers: a call takes a few microseconds, and a library's locked counter would be
a good part of that. Servers and error kinds that are not known are counted as `other`.
"""

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields

from portico.errors import PorticoError
from portico.events import (
    CallRefused,
    Event,
    EventBus,
    ScriptRan,
    SearchCompleted,
    ToolCalled,
    WorkflowRan,
)
from portico.storage.rows import LedgerTotal
from portico.upstream.lifecycle.status import UpstreamStatus

OTHER_LABEL = "other"
TOOL_ERROR = "tool_error"
LATENCY_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Bucket bounds in seconds, from an in-process function to a client's timeout."""
_MAX_KINDS = 32
OPENMETRICS_TYPE = "application/openmetrics-text"
LAG_INTERVAL_S = 0.5
LAG_WINDOW_S = 30.0
"""Seconds over which the maximum is kept: a scrape now and then would miss most single delays."""


class Histogram:
    """Counts of values up to each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: list[int] | None = None, total: float = 0.0) -> None:
        self.counts = counts or [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total = total

    def add(self, value: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        return Histogram(self.counts[:], self.total)

    def list_buckets(self) -> list[tuple[str, float]]:
        """Return each bound with the cumulative count, the last being `+Inf`."""
        buckets: list[tuple[str, float]] = []
        cumulative = 0
        for bound, count in zip((*map(str, LATENCY_BOUNDS_S), "+Inf"), self.counts, strict=True):
            cumulative += count
            buckets.append((bound, cumulative))
        return buckets


class ServerCalls:
    """Calls of one server's tools."""

    __slots__ = ("cached", "cancelled", "kinds", "ok", "seconds")

    def __init__(self) -> None:
        self.ok = self.cancelled = self.cached = 0
        self.kinds: dict[str, int] = {}
        """Failures by kind."""
        self.seconds = Histogram()
        """Durations of completed calls, failed ones included; not of cached or cancelled ones."""

    def copy(self) -> "ServerCalls":
        other = ServerCalls()
        other.ok = self.ok
        other.cancelled = self.cancelled
        other.cached = self.cached
        other.kinds = dict(self.kinds)
        other.seconds = self.seconds.copy()
        return other


@dataclass
class EventTotals:
    calls: dict[str, ServerCalls] = field(default_factory=dict)
    searches: Counter[bool] = field(default_factory=lambda: Counter({True: 0, False: 0}))
    """Searches by whether they found anything."""
    search_seconds: Histogram = field(default_factory=Histogram)
    scripts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Scripts by language and outcome."""
    script_seconds: dict[str, Histogram] = field(default_factory=dict)
    workflows: Counter[str] = field(default_factory=Counter)
    workflow_seconds: Histogram = field(default_factory=Histogram)

    def copy(self) -> "EventTotals":
        """Return a copy that can be read elsewhere while counting continues."""
        return EventTotals(
            {name: calls.copy() for name, calls in self.calls.items()},
            Counter(self.searches),
            self.search_seconds.copy(),
            Counter(self.scripts),
            {name: seconds.copy() for name, seconds in self.script_seconds.items()},
            Counter(self.workflows),
            self.workflow_seconds.copy(),
        )


class EventCounter:
    def __init__(self, bus: EventBus, list_servers: Callable[[], Collection[str]]) -> None:
        """Subscribe; `list_servers` returns the names of the configured servers."""
        self.totals = EventTotals()
        self._list_servers = list_servers
        self._kind_by_error: dict[str, str] = {}
        self._unsubscribers = (
            bus.subscribe(self._on_tool_called, ToolCalled),
            bus.subscribe(self._on_call_refused, CallRefused),
            bus.subscribe(self._on_event, SearchCompleted, ScriptRan, WorkflowRan),
        )

    def unsubscribe(self) -> None:
        """Stop receiving events."""
        for unsubscribe in self._unsubscribers:
            unsubscribe()

    def _on_tool_called(self, event: Event) -> None:
        # Runs on every call: nothing slower than a dictionary lookup is allowed here.
        assert isinstance(event, ToolCalled)
        server = event.tool.partition(".")[0]
        calls = self.totals.calls.get(server) or self._get_server_calls(server)
        if event.cancelled:
            calls.cancelled += 1
        elif event.cached:
            calls.cached += 1
        else:
            calls.seconds.add(event.seconds)
            if event.ok:
                calls.ok += 1
            else:
                kind = self._kind_by_error.get(event.error) or self._classify_error(event.error)
                calls.kinds[kind] = calls.kinds.get(kind, 0) + 1

    def _on_call_refused(self, event: Event) -> None:
        assert isinstance(event, CallRefused)
        server = event.tool.partition(".")[0]
        calls = self.totals.calls.get(server) or self._get_server_calls(server)
        kind = self._kind_by_error.get(event.error) or self._classify_error(event.error)
        calls.kinds[kind] = calls.kinds.get(kind, 0) + 1

    def _get_server_calls(self, server: str) -> ServerCalls:
        return self.totals.calls.setdefault(
            server if server in self._list_servers() else OTHER_LABEL, ServerCalls()
        )

    def _classify_error(self, error: str) -> str:
        if error in list_error_kinds():
            kind = error
        else:
            kind = OTHER_LABEL
        if len(self._kind_by_error) < _MAX_KINDS:
            self._kind_by_error[error] = kind
        return kind

    def _on_event(self, event: Event) -> None:
        totals = self.totals
        match event:
            case SearchCompleted(seconds, found):
                totals.searches[found] += 1
                totals.search_seconds.add(seconds)
            case ScriptRan(language, seconds, outcome):
                totals.scripts[language, outcome] += 1
                totals.script_seconds.setdefault(language, Histogram()).add(seconds)
            case WorkflowRan(seconds, outcome):
                totals.workflows[outcome] += 1
                totals.workflow_seconds.add(seconds)
            case _:
                return


def list_error_kinds() -> frozenset[str]:
    """Return every error kind: those of all PorticoError subclasses, and a tool's own."""
    kinds = {TOOL_ERROR}
    pending = [PorticoError]
    while pending:
        error_class = pending.pop()
        kinds.add(error_class.kind)
        pending += error_class.__subclasses__()
    return frozenset(kinds)


@dataclass(frozen=True, slots=True)
class ServerToolCounts:
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
    """Functions that gauges are read from at scrape time, because the data is in other packages.

    They are called in the event loop and must not block. A missing one hides its gauges.
    """

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


class EventLoopLag:
    """Measures how late a periodic sleep wakes up."""

    def __init__(self) -> None:
        self._delays: deque[tuple[float, float]] = deque(maxlen=int(LAG_WINDOW_S / LAG_INTERVAL_S))

    @property
    def max_delay_s(self) -> float:
        """The longest delay within the window, in seconds."""
        since = time.monotonic() - LAG_WINDOW_S
        return max((delay for at, delay in self._delays if at >= since), default=0.0)

    async def measure(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            now = time.monotonic()
            self._delays.append((now, max(0.0, now - due)))


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
        readers = {
            field.name: getattr(self._sources, field.name) for field in fields(MetricSources)
        }
        figures = {name: read() for name, read in readers.items() if read is not None}
        figures["statuses"] = tuple(figures["statuses"])
        return MetricsSnapshot(
            self._event_counter.totals.copy(), **figures, event_loop_lag_s=self._lag.max_delay_s
        )

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the text and content type for an Accept header: OpenMetrics or Prometheus."""
        return self.take_snapshot().render(accept)

    def _list_servers(self) -> Collection[str]:
        return {status.name for status in self._sources.statuses()}
