"""Monitoring of a gateway: sources of its metrics, its readiness with the checks behind it, and the
load of each server, for `portico top`.

Load is counted from the gateway's start. One measurement is shared by everybody who asks within
`MIN_INTERVAL_S`; processes are inspected, and latencies sorted, in a thread.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from portico.catalog.catalog import Catalog
from portico.catalog.snapshot import Snapshot
from portico.config_file.mask import mask_text
from portico.events import Event, EventBus, ToolCalled
from portico.gateway.maintenance import FIRST_LISTING_S
from portico.observability.metrics import (
    CacheStatistics,
    CountTools,
    Metrics,
    MetricSources,
    RequestLoad,
    ServerToolCounts,
    StoredItems,
)
from portico.server.http.monitoring import GatewayHealth, Phase, ReadinessCheck
from portico.server.profile_endpoint import ProfileEndpoint
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.health_checks import (
    ProcessUsage,
    measure_own_memory,
    measure_processes,
)
from portico.upstream.lifecycle.status import TROUBLED_STATES, UpstreamStatus
from portico.upstream.lifecycle.supervisor import Upstream

if TYPE_CHECKING:
    from portico.gateway.runtime import GatewayRuntime

_MAX_NAMED_SERVERS = 10
MAX_RECENT_CALLS = 200
"""Calls of a server that latencies are computed from."""
RATE_WINDOW_S = 10.0
MIN_INTERVAL_S = 0.5
MAX_SERVERS = 500
"""Servers in one measurement: the worst and busiest."""


class GatewayMonitoring:
    def __init__(self, gateway: "GatewayRuntime") -> None:
        self.metrics = Metrics(gateway.bus, make_metric_sources(gateway))
        self.load = ServerLoadMonitor(gateway.bus, gateway.upstreams)
        self.readiness = Readiness(
            lambda: gateway.warmup.is_done,
            gateway.list_statuses,
            gateway.store,
            lambda: gateway.config_problem,
            lambda: gateway.audit_problem,
        )

    def unsubscribe(self) -> None:
        """Stop receiving events."""
        self.metrics.unsubscribe()
        self.load.unsubscribe()


def make_metric_sources(gateway: "GatewayRuntime") -> MetricSources:
    cache = gateway.calls.cache
    results = gateway.results.store
    admission = gateway.admission
    return MetricSources(
        statuses=gateway.list_statuses,
        tokens=lambda: gateway.usage_data.ledger.process_total,
        catalog=_CatalogSizeCounter(gateway.catalog),
        cache=lambda: CacheStatistics(
            cache.hits, cache.misses, StoredItems(len(cache), cache.size_bytes)
        ),
        results=lambda: StoredItems(len(results), results.size_bytes),
        workers=lambda: gateway.runtimes.scripts.worker_counts,
        clients=lambda: _count_clients(gateway.open_endpoints),
        request_load=lambda: RequestLoad(
            admission.limiter.running, admission.limiter.waiting, admission.rejected_count
        ),
        is_record_usable=lambda: not gateway.store.problem,
        is_audit_usable=lambda: not gateway.audit_problem,
        is_config_usable=lambda: not gateway.config_problem,
    )


class _CatalogSizeCounter:
    """Counts the catalog's tools once for each snapshot, because that visits every tool."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._last_count: tuple[Snapshot, Mapping[str, ServerToolCounts]] | None = None

    def __call__(self) -> CountTools:
        return partial(self._count, self._catalog.snapshot)

    def _count(self, snapshot: Snapshot) -> Mapping[str, ServerToolCounts]:
        if (last := self._last_count) is not None and last[0] is snapshot:
            return last[1]
        index = snapshot.index
        counts = {
            name: ServerToolCounts(len(entry.tools), len(index.list_unencoded(name)))
            for name, entry in snapshot.servers.items()
        }
        self._last_count = (snapshot, counts)
        return counts


def _count_clients(endpoints: Iterable[ProfileEndpoint]) -> Mapping[str, int]:
    """Count clients by era. A modern client over HTTP is only seen while it listens."""
    sessions = [endpoint.sessions for endpoint in endpoints]
    return {
        "legacy": sum(map(len, sessions)),
        "modern": sum(registry.listener_count for registry in sessions),
    }


class Readiness:
    """Phase of a gateway: starting until all servers were listed or `start_timeout_s` has passed,
    then serving until `drain`.

    A changed configuration starts servers too, but does not make the gateway unready.
    """

    def __init__(
        self,
        is_listed: Callable[[], bool],
        list_statuses: Callable[[], Iterable[UpstreamStatus]],
        store: GatewayStore,
        get_config_problem: Callable[[], str] = str,
        get_audit_problem: Callable[[], str] = str,
        *,
        start_timeout_s: float = FIRST_LISTING_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_listed`: every server that starts with the gateway was listed, or failed.

        `get_config_problem`: why the configuration on disk is not in use; `get_audit_problem`: why
        calls are not written to the audit log. Both return an empty text without a problem.
        """
        self._is_listed = is_listed
        self._list_statuses = list_statuses
        self._problems: Mapping[str, Callable[[], str]] = {
            "servers": self._describe_bad_servers,
            "record": lambda: mask_text(store.problem),
            "audit": lambda: mask_text(get_audit_problem()),
            "configuration": lambda: mask_text(get_config_problem()),
        }
        self._clock = clock
        self._serving_by = clock() + start_timeout_s
        self._is_serving = False
        self._is_draining = False

    def drain(self) -> None:
        self._is_draining = True

    def check_health(self) -> GatewayHealth:
        """Return the phase and all checks. None is required: calls are answered without each of
        them."""
        problems = {name: find_problem() for name, find_problem in self._problems.items()}
        return GatewayHealth(
            self._determine_phase(),
            tuple(
                ReadinessCheck(name, not problem, problem, required=False)
                for name, problem in problems.items()
            ),
        )

    def _determine_phase(self) -> Phase:
        if self._is_draining:
            return "draining"
        if not self._is_serving:
            self._is_serving = self._is_listed() or self._clock() >= self._serving_by
        return "serving" if self._is_serving else "starting"

    def _describe_bad_servers(self) -> str:
        statuses = list(self._list_statuses())
        bad = [status.name for status in statuses if status.state in TROUBLED_STATES]
        if not bad:
            return ""
        detail = f"{len(bad)} of {len(statuses)} cannot be used: "
        detail += ", ".join(bad[:_MAX_NAMED_SERVERS])
        if len(bad) > _MAX_NAMED_SERVERS:
            detail += f" and {len(bad) - _MAX_NAMED_SERVERS} more"
        return detail


class LastFailure(NamedTuple):
    """A call that failed."""

    tool: str
    error: str
    """Kind of failure, as in `ToolCalled.error`."""
    at: float
    """Wall-clock time."""


class RecentCalls:
    """Calls of one server's tools that ended; not cached or cancelled ones."""

    __slots__ = ("calls", "errors", "last_failure", "recent")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.last_failure: LastFailure | None = None
        self.recent: deque[tuple[float, float]] = deque(maxlen=MAX_RECENT_CALLS)
        """Monotonic time of the end and seconds of the latest calls."""

    def copy(self) -> "RecentCalls":
        other = RecentCalls()
        other.calls = self.calls
        other.errors = self.errors
        other.last_failure = self.last_failure
        other.recent = self.recent.copy()
        return other

    def add(self, event: ToolCalled, now: float) -> None:
        self.calls += 1
        self.recent.append((now, event.seconds))
        if not event.ok:
            self.errors += 1
            self.last_failure = LastFailure(event.tool, event.error, time.time())


class _ServerFacts(NamedTuple):
    """What the event loop knows of a server at one moment; the rest is computed in a thread."""

    upstream: Upstream
    state: str
    reason: str
    running: int
    pids: tuple[int, ...]
    calls: RecentCalls


class ServerLoadMonitor:
    """Counts calls, and measures the servers when somebody asks."""

    def __init__(
        self,
        bus: EventBus,
        upstreams: Mapping[str, Upstream],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstreams = upstreams
        self._clock = clock
        self._calls: dict[str, RecentCalls] = {}
        self._lock = asyncio.Lock()
        self._measured_at = -math.inf
        self._measurement: dict[str, Any] = {}
        self.unsubscribe = bus.subscribe(self._on_tool_called, ToolCalled)

    def _on_tool_called(self, event: Event) -> None:
        # Runs on every call: nothing slower than a dictionary lookup is allowed here.
        if isinstance(event, ToolCalled) and not event.cached and not event.cancelled:
            server = event.tool.partition(".")[0]
            calls = self._calls.get(server)
            if calls is None:
                calls = self._calls[server] = RecentCalls()
            calls.add(event, self._clock())

    async def measure(self) -> dict[str, Any]:
        """Return `{"memory_bytes" (the gateway's), "servers", "left_out"}`, the worst first."""
        async with self._lock:
            if self._clock() - self._measured_at >= MIN_INTERVAL_S:
                self._measurement = await self._measure()
                self._measured_at = self._clock()
            return self._measurement

    async def _measure(self) -> dict[str, Any]:
        upstreams = self._upstreams
        self._calls = {name: calls for name, calls in self._calls.items() if name in upstreams}
        names = sorted(upstreams, key=self._get_urgency)
        facts = [self._collect_facts(upstreams[name]) for name in names[:MAX_SERVERS]]
        loads = await asyncio.to_thread(_compute_loads, facts, self._clock())
        return {**loads, "left_out": len(names) - len(facts)}

    def _get_urgency(self, name: str) -> tuple[bool, int, int]:
        upstream = self._upstreams[name]
        calls = self._calls.get(name)
        is_troubled = upstream.state in TROUBLED_STATES
        return (not is_troubled, -upstream.pending_calls, -calls.calls if calls else 0)

    def _collect_facts(self, upstream: Upstream) -> _ServerFacts:
        calls = self._calls.get(upstream.name) or RecentCalls()
        return _ServerFacts(
            upstream,
            upstream.state,
            upstream.reason,
            upstream.pending_calls,
            upstream.list_pids(),
            calls.copy(),
        )


def _compute_loads(servers: Sequence[_ServerFacts], now: float) -> dict[str, Any]:
    usage = measure_processes([pid for server in servers for pid in server.pids])
    loads = [_compute_load(server, usage, now) for server in servers]
    loads.sort(key=_get_rank)
    return {"memory_bytes": measure_own_memory(), "servers": loads}


def _compute_load(
    server: _ServerFacts, usage: Mapping[int, ProcessUsage], now: float
) -> dict[str, Any]:
    calls = server.calls
    lately = [at for at, _ in calls.recent if now - at <= RATE_WINDOW_S]
    window_s = RATE_WINDOW_S
    if len(lately) == MAX_RECENT_CALLS:  # there were more, which are not kept
        window_s = max(now - lately[0], 0.001)
    durations = sorted(seconds for _, seconds in calls.recent)
    failure = calls.last_failure
    return {
        "server": server.upstream.name,
        "kind": server.upstream.backend.kind,
        "state": server.state,
        "reason": server.reason,
        "calls": calls.calls,
        "errors": calls.errors,
        "calls_per_s": round(len(lately) / window_s, 1),
        "p50_ms": _get_percentile_ms(durations, 0.50),
        "p95_ms": _get_percentile_ms(durations, 0.95),
        "running": server.running,
        "memory_bytes": sum(usage[pid].memory_bytes for pid in server.pids),
        "processes": sum(usage[pid].processes for pid in server.pids),
        "last_error": failure and failure._asdict(),
    }


def _get_percentile_ms(durations: Sequence[float], share: float) -> float | None:
    """Return the latency that this share of the calls did not exceed; None without calls."""
    if not durations:
        return None
    return round(durations[math.ceil(share * len(durations)) - 1] * 1_000, 1)


def _get_rank(load: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the place of a server: in trouble, then busy now, lately, ever."""
    is_troubled = load["state"] in TROUBLED_STATES
    busy = (-load["running"], -load["calls_per_s"], -load["errors"], -load["calls"])
    return (not is_troubled, *busy, load["server"])
