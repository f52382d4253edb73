"""Counts what is heard, in plain numbers: what a scrape shows of calls, searches, scripts and
workflows.

Own sums instead of a library's: a call takes a few microseconds, and a counter behind a lock with
its labels looked up would be a good part of that. Every sum is one event loop's own. Servers are
those that are configured and kinds are those of our errors; whatever else comes is `other`, so that
nothing from a server's wire can become a label.
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
"""Seconds: from a function in this process to what a client gives up on."""
_MAX_KINDS = 32


class Histogram:
    """How many values were up to each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: list[int] | None = None, total: float = 0.0) -> None:
        self.counts = counts or [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total = total

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        """As it is now."""
        return Histogram(self.counts[:], self.total)

    def list_buckets(self) -> list[tuple[str, float]]:
        """Each bound with how many were not above it, the last without an end."""
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, LATENCY_BOUNDS_S), "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


class ServerCalls:
    """The calls of one server's tools."""

    __slots__ = ("cached", "cancelled", "kinds", "ok", "seconds")

    def __init__(self) -> None:
        self.ok = self.cancelled = self.cached = 0
        self.kinds: dict[str, int] = {}
        """Failures, by their kind."""
        self.seconds = Histogram()
        """Of calls that ran to their end, well or not: neither kept answers nor calls that were
        taken back."""

    def copy(self) -> "ServerCalls":
        """As they are now."""
        other = ServerCalls()
        other.ok = self.ok
        other.cancelled = self.cancelled
        other.cached = self.cached
        other.kinds = dict(self.kinds)
        other.seconds = self.seconds.copy()
        return other


@dataclass
class EventTotals:
    """Everything that was heard."""

    calls: dict[str, ServerCalls] = field(default_factory=dict)
    searches: Counter[bool] = field(default_factory=lambda: Counter({True: 0, False: 0}))
    """By whether they found anything."""
    search_seconds: Histogram = field(default_factory=Histogram)
    scripts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By language and outcome."""
    script_seconds: dict[str, Histogram] = field(default_factory=dict)
    workflows: Counter[str] = field(default_factory=Counter)
    workflow_seconds: Histogram = field(default_factory=Histogram)

    def copy(self) -> "EventTotals":
        """As they are now: to be read elsewhere while these go on."""
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
    """Hears, and adds up."""

    def __init__(self, bus: EventBus, list_servers: Callable[[], Collection[str]]) -> None:
        """`servers` names those that are configured now."""
        self.totals = EventTotals()
        self._list_servers = list_servers
        self._kind_by_error: dict[str, str] = {}
        self._unsubscribers = (
            bus.subscribe(self._on_tool_called, ToolCalled),
            bus.subscribe(self._on_call_refused, CallRefused),
            bus.subscribe(self._on_event, SearchCompleted, ScriptRan, WorkflowRan),
        )

    def unsubscribe(self) -> None:
        """Hear no more."""
        for end in self._unsubscribers:
            end()

    def _on_tool_called(self, event: Event) -> None:
        # On the way of every call: nothing here may look anything up but in a dictionary.
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
        sums = self.totals
        match event:
            case SearchCompleted(seconds, found):
                sums.searches[found] += 1
                sums.search_seconds.add(seconds)
            case ScriptRan(language, seconds, outcome):
                sums.scripts[language, outcome] += 1
                sums.script_seconds.setdefault(language, Histogram()).add(seconds)
            case WorkflowRan(seconds, outcome):
                sums.workflows[outcome] += 1
                sums.workflow_seconds.add(seconds)
            case _:
                return


def list_error_kinds() -> frozenset[str]:
    """Every kind of failure that has a name: those of our errors, wherever they are defined, and a
    tool's own."""
    found = {TOOL_ERROR}
    left = [PorticoError]
    while left:
        one = left.pop()
        found.add(one.kind)
        left += one.__subclasses__()
    return frozenset(found)
