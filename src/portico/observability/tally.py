"""Counts what is heard, in plain numbers: what a scrape shows of calls, searches, scripts and workflows.

Own sums instead of a library's: a call takes a few microseconds, and a counter behind a lock with its labels looked up
would be a good part of that. Every sum is one event loop's own. Servers are those that are configured and kinds are
those of our errors; whatever else comes is `other`, so that nothing from a server's wire can become a label.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from portico.errors import PorticoError
from portico.events import Bus, CallRefused, Event, ScriptRan, SearchEnded, ToolCalled, WorkflowRan

OTHER = "other"
TOOL_ERROR = "tool_error"
LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from a function in this process to what a client gives up on."""
_MOST_KINDS = 32


class Histogram:
    """How many values were up to each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: list[int] | None = None, total: float = 0.0) -> None:
        self.counts = counts or [0] * (len(LATENCIES) + 1)
        self.total = total

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(LATENCIES, value)] += 1
        self.total += value

    def copied(self) -> "Histogram":
        """As it is now."""
        return Histogram(self.counts[:], self.total)

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound with how many were not above it, the last without an end."""
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, LATENCIES), "+Inf"), self.counts, strict=True):
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
        """Of calls that ran to their end, well or not: neither kept answers nor calls that were taken back."""

    def copied(self) -> "ServerCalls":
        """As they are now."""
        other = ServerCalls()
        other.ok, other.cancelled, other.cached = self.ok, self.cancelled, self.cached
        other.kinds, other.seconds = dict(self.kinds), self.seconds.copied()
        return other


@dataclass
class Sums:
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

    def copied(self) -> "Sums":
        """As they are now: to be read elsewhere while these go on."""
        return Sums(
            {name: calls.copied() for name, calls in self.calls.items()},
            Counter(self.searches),
            self.search_seconds.copied(),
            Counter(self.scripts),
            {name: seconds.copied() for name, seconds in self.script_seconds.items()},
            Counter(self.workflows),
            self.workflow_seconds.copied(),
        )


class Tally:
    """Hears, and adds up."""

    def __init__(self, bus: Bus, servers: Callable[[], Collection[str]]) -> None:
        """`servers` names those that are configured now."""
        self.sums = Sums()
        self._servers = servers
        self._kinds: dict[str, str] = {}
        self._ends = (
            bus.subscribe(self._called, ToolCalled),
            bus.subscribe(self._refused, CallRefused),
            bus.subscribe(self._heard, SearchEnded, ScriptRan, WorkflowRan),
        )

    def end(self) -> None:
        """Hear no more."""
        for end in self._ends:
            end()

    def _called(self, event: Event) -> None:
        # On the way of every call: nothing here may look anything up but in a dictionary.
        assert isinstance(event, ToolCalled)
        server = event.tool.partition(".")[0]
        calls = self.sums.calls.get(server) or self._begun(server)
        if event.cancelled:
            calls.cancelled += 1
        elif event.cached:
            calls.cached += 1
        else:
            calls.seconds.add(event.seconds)
            if event.ok:
                calls.ok += 1
            else:
                kind = self._kinds.get(event.error) or self._kind(event.error)
                calls.kinds[kind] = calls.kinds.get(kind, 0) + 1

    def _refused(self, event: Event) -> None:
        assert isinstance(event, CallRefused)
        server = event.tool.partition(".")[0]
        calls = self.sums.calls.get(server) or self._begun(server)
        kind = self._kinds.get(event.error) or self._kind(event.error)
        calls.kinds[kind] = calls.kinds.get(kind, 0) + 1

    def _begun(self, server: str) -> ServerCalls:
        return self.sums.calls.setdefault(server if server in self._servers() else OTHER, ServerCalls())

    def _kind(self, error: str) -> str:
        kind = error if error in error_kinds() else OTHER
        if len(self._kinds) < _MOST_KINDS:
            self._kinds[error] = kind
        return kind

    def _heard(self, event: Event) -> None:
        sums = self.sums
        match event:
            case SearchEnded(seconds, found):
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


def error_kinds() -> frozenset[str]:
    """Every kind of failure that has a name: those of our errors, wherever they are defined, and a tool's own."""
    found, left = {TOOL_ERROR}, [PorticoError]
    while left:
        one = left.pop()
        found.add(one.kind)
        left += one.__subclasses__()
    return frozenset(found)
