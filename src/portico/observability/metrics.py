"""What a scrape shows: sums of what was heard since the start, and gauges that are read when somebody looks.

metrics = Metrics(bus, sources)              # counts from now on; one for each gateway
body, content_type = metrics.rendered(accept)

No tool is a label: with thousands of tools that would be more series than all the rest, and the record has them
(`portico usage`, `/api/v1/calls`). What speaks Prometheus is loaded by the first scrape.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from portico.events import Bus
from portico.observability.lag import Lag
from portico.observability.sources import CacheUse, Count, Crowd, Kept, Sources
from portico.observability.tally import Sums, Tally
from portico.storage.rows import LedgerTotal
from portico.upstream.supervisor import Status

OPENMETRICS = "application/openmetrics-text"


@dataclass(frozen=True)
class Reading:
    """One moment, which may be written out anywhere: nothing in it changes any more."""

    sums: Sums
    statuses: tuple[Status, ...] = ()
    tokens: LedgerTotal | None = None
    catalog: Count | None = None
    cache: CacheUse | None = None
    results: Kept | None = None
    workers: Mapping[str, tuple[int, int | None]] | None = None
    clients: Mapping[str, int] | None = None
    crowd: Crowd | None = None
    recorded: bool | None = None
    audited: bool | None = None
    configured: bool | None = None
    lag: float = 0.0

    def rendered(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its type. Takes milliseconds, the first time a tenth of a second: not for the event loop."""
        from portico.observability.exposition import text_of

        return text_of(self, openmetrics=OPENMETRICS in accept.lower())


class Metrics:
    """A gateway's figures. Heard and read in its event loop."""

    def __init__(self, bus: Bus, sources: Sources | None = None) -> None:
        self._sources = sources or Sources()
        self._tally = Tally(bus, self._servers)
        self._lag = Lag()

    async def watch(self) -> None:
        """Measure how late the event loop is, until cancelled; without it, that is told as 0."""
        await self._lag.watch()

    def end(self) -> None:
        """Hear no more."""
        self._tally.end()

    def reading(self) -> Reading:
        """How everything stands now."""
        one = self._sources
        return Reading(
            self._tally.sums.copied(),
            tuple(one.statuses()),
            one.tokens() if one.tokens is not None else None,
            one.catalog() if one.catalog is not None else None,
            one.cache() if one.cache is not None else None,
            one.results() if one.results is not None else None,
            one.workers() if one.workers is not None else None,
            one.clients() if one.clients is not None else None,
            one.crowd() if one.crowd is not None else None,
            one.recorded() if one.recorded is not None else None,
            one.audited() if one.audited is not None else None,
            one.configured() if one.configured is not None else None,
            self._lag.worst,
        )

    def rendered(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its type, for whoever asks for it in this way: OpenMetrics, or Prometheus' own."""
        return self.reading().rendered(accept)

    def _servers(self) -> Collection[str]:
        return {status.name for status in self._sources.statuses()}
