"""Counters of calls, searches, scripts and workflows, fed by events.

Plain numbers instead of a library's: a call takes a few microseconds, and a locked counter with
label lookup would be a good part of that. Used from one event loop. Labels are configured servers
and known error kinds; anything else is `other`, so that no text from a server becomes a label.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

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

OTHER_LABEL = "other"
TOOL_ERROR = "tool_error"
LATENCY_BOUNDS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""Bucket bounds in seconds, from an in-process function to a client's timeout."""
_MAX_KINDS = 32


class Histogram:
    """Counts of values up to each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: list[int] | None = None, total: float = 0.0) -> None:
        self.counts = counts or [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total = total

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        """Return a copy."""
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
        """Return a copy."""
        other = ServerCalls()
        other.ok = self.ok
        other.cancelled = self.cancelled
        other.cached = self.cached
        other.kinds = dict(self.kinds)
        other.seconds = self.seconds.copy()
        return other


@dataclass
class EventTotals:
    """Totals of all counted events."""

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
    """Subscribes to events and counts them."""

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
