"""What a platform asks of a gateway: its figures, read in its rooms, and whether it may be sent work."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from portico.app.readiness import Readiness
from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.events import Bus
from portico.execution.cache import Cache
from portico.execution.large import Large
from portico.execution.means import Means
from portico.execution.pipeline import Pipeline
from portico.execution.results import ResultStore
from portico.observability.ledger import Ledger
from portico.observability.metrics import Metrics
from portico.observability.sources import CacheUse, Count, Crowd, Kept, Offer, Sources
from portico.server.admission import Admission
from portico.server.door import Door
from portico.storage.record import Record
from portico.upstream.supervisor import Upstream


@dataclass(frozen=True)
class Watched:
    """A gateway, as seen by who watches over it."""

    metrics: Metrics
    readiness: Readiness

    @classmethod
    def of(
        cls,
        bus: Bus,
        upstreams: Mapping[str, Upstream],
        catalog: Catalog,
        *,
        ledger: Ledger,
        pipeline: Pipeline,
        large: Large,
        means: Means,
        record: Record,
        doors: Callable[[], Iterable[Door]],
        admission: Admission,
        listed: Callable[[], bool],
        refused: Callable[[], str],
        unaudited: Callable[[], str],
    ) -> Self:
        """Over these rooms; `listed` says whether every server that starts with it was heard."""
        read = sources(
            upstreams,
            catalog,
            ledger=ledger,
            cache=pipeline.cache,
            results=large.store,
            means=means,
            record=record,
            doors=doors,
            admission=admission,
        )
        read = replace(read, audited=lambda: not unaudited(), configured=lambda: not refused())
        return cls(Metrics(bus, read), Readiness(listed, read.statuses, record, refused, unaudited))


def sources(
    upstreams: Mapping[str, Upstream],
    catalog: Catalog,
    *,
    ledger: Ledger,
    cache: Cache,
    results: ResultStore,
    means: Means,
    record: Record,
    doors: Callable[[], Iterable[Door]],
    admission: Admission | None = None,
) -> Sources:
    """Everything that a scrape looks at; `doors` are those that are open now, `admission` counts who is let in."""
    return Sources(
        statuses=lambda: [upstream.status() for _, upstream in sorted(upstreams.items())],
        tokens=lambda: ledger.here,
        catalog=_Counted(catalog),
        cache=lambda: CacheUse(cache.hits, cache.misses, Kept(len(cache), cache.held_bytes)),
        results=lambda: Kept(len(results), results.held_bytes),
        workers=lambda: means.scripts.workers,
        clients=lambda: _clients(doors()),
        crowd=(lambda: _crowd(admission)) if admission is not None else None,
        recorded=lambda: not record.problem,
    )


class _Counted:
    """The catalog's size, counted once for each snapshot: that goes through every tool."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: tuple[Snapshot, Mapping[str, Offer]] | None = None

    def __call__(self) -> Count:
        return partial(self._count, self._catalog.snapshot)

    def _count(self, snapshot: Snapshot) -> Mapping[str, Offer]:
        if (known := self._known) is not None and known[0] is snapshot:
            return known[1]
        index = snapshot.index
        offers = {name: Offer(len(one.tools), len(index.unencoded(name))) for name, one in snapshot.servers.items()}
        self._known = (snapshot, offers)
        return offers


def _clients(doors: Iterable[Door]) -> Mapping[str, int]:
    """A modern client over HTTP has no connection of its own: what is seen of it is that it listens."""
    found = [door.sessions for door in doors]
    return {"legacy": sum(map(len, found)), "modern": sum(one.listeners for one in found)}


def _crowd(admission: Admission) -> Crowd:
    return Crowd(admission.turns.running, admission.turns.waiting, admission.turned_away)
