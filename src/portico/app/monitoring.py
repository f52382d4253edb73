"""What a platform asks of a gateway: its figures, read in its rooms, and whether it may be sent
work."""

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
    """A gateway, as seen by who watches over it."""

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
        """Over these rooms; `listed` says whether every server that starts with it was heard."""
        read = make_metric_sources(
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
        read = replace(
            read,
            is_audit_usable=lambda: not get_audit_problem(),
            is_config_usable=lambda: not get_config_problem(),
        )
        return cls(
            Metrics(bus, read),
            Readiness(is_listed, read.statuses, store, get_config_problem, get_audit_problem),
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
    """Everything that a scrape looks at; `doors` are those that are open now, `admission` counts
    who is let in."""
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
    """The catalog's size, counted once for each snapshot: that goes through every tool."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._last_count: tuple[Snapshot, Mapping[str, ServerToolCounts]] | None = None

    def __call__(self) -> CountTools:
        return partial(self._count, self._catalog.snapshot)

    def _count(self, snapshot: Snapshot) -> Mapping[str, ServerToolCounts]:
        if (known := self._last_count) is not None and known[0] is snapshot:
            return known[1]
        index = snapshot.index
        offers = {
            name: ServerToolCounts(len(one.tools), len(index.list_unencoded(name)))
            for name, one in snapshot.servers.items()
        }
        self._last_count = (snapshot, offers)
        return offers


def _count_clients(endpoints: Iterable[ProfileEndpoint]) -> Mapping[str, int]:
    """A modern client over HTTP has no connection of its own: what is seen of it is that it
    listens."""
    found = [door.sessions for door in endpoints]
    return {"legacy": sum(map(len, found)), "modern": sum(one.listener_count for one in found)}


def _read_admission_load(admission: AdmissionControl) -> RequestLoad:
    return RequestLoad(
        admission.limiter.running, admission.limiter.waiting, admission.rejected_count
    )
