"""Monitoring of a gateway: sources of its metrics, and its readiness."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from portico.app.readiness import Readiness
from portico.calls.cache import ResultCache
from portico.calls.services import CallServices
from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.events import EventBus
from portico.meta_tools.runtimes import Runtimes
from portico.observability.metric_sources import (
    CacheStatistics,
    CountTools,
    MetricSources,
    RequestLoad,
    ServerToolCounts,
    StoredItems,
)
from portico.observability.metrics import Metrics
from portico.results.services import ResultServices
from portico.results.store import ResultStore
from portico.server.profile_endpoint import ProfileEndpoint
from portico.server.requests.admission import AdmissionControl
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.supervisor import Upstream
from portico.usage.token_ledger import TokenLedger


@dataclass(frozen=True)
class GatewayMonitoring:
    """Metrics and readiness of one gateway."""

    metrics: Metrics
    readiness: Readiness

    @classmethod
    def create(
        cls,
        bus: EventBus,
        upstreams: Mapping[str, Upstream],
        catalog: Catalog,
        *,
        ledger: TokenLedger,
        pipeline: CallServices,
        result_services: ResultServices,
        runtimes: Runtimes,
        store: GatewayStore,
        get_endpoints: Callable[[], Iterable[ProfileEndpoint]],
        admission: AdmissionControl,
        is_listed: Callable[[], bool],
        get_config_problem: Callable[[], str],
        get_audit_problem: Callable[[], str],
    ) -> Self:
        """Build both; `is_listed` tells whether every server that starts with the gateway was
        listed."""
        sources = make_metric_sources(
            upstreams,
            catalog,
            ledger=ledger,
            cache=pipeline.cache,
            results=result_services.store,
            runtimes=runtimes,
            store=store,
            get_endpoints=get_endpoints,
            admission=admission,
        )
        sources = replace(
            sources,
            is_audit_usable=lambda: not get_audit_problem(),
            is_config_usable=lambda: not get_config_problem(),
        )
        return cls(
            Metrics(bus, sources),
            Readiness(is_listed, sources.statuses, store, get_config_problem, get_audit_problem),
        )


def make_metric_sources(
    upstreams: Mapping[str, Upstream],
    catalog: Catalog,
    *,
    ledger: TokenLedger,
    cache: ResultCache,
    results: ResultStore,
    runtimes: Runtimes,
    store: GatewayStore,
    get_endpoints: Callable[[], Iterable[ProfileEndpoint]],
    admission: AdmissionControl | None = None,
) -> MetricSources:
    """Return the sources that a scrape reads; `get_endpoints` returns the open endpoints."""
    return MetricSources(
        statuses=lambda: [upstream.get_status() for _, upstream in sorted(upstreams.items())],
        tokens=lambda: ledger.process_total,
        catalog=_CatalogSizeCounter(catalog),
        cache=lambda: CacheStatistics(
            cache.hits, cache.misses, StoredItems(len(cache), cache.size_bytes)
        ),
        results=lambda: StoredItems(len(results), results.size_bytes),
        workers=lambda: runtimes.scripts.worker_counts,
        clients=lambda: _count_clients(get_endpoints()),
        request_load=(lambda: _read_admission_load(admission)) if admission is not None else None,
        is_record_usable=lambda: not store.problem,
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


def _read_admission_load(admission: AdmissionControl) -> RequestLoad:
    return RequestLoad(
        admission.limiter.running, admission.limiter.waiting, admission.rejected_count
    )
