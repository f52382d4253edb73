"""The pipeline of a gateway, put together from its configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from portico.catalog.sync import Catalog, Sync
from portico.config import BackendConfig
from portico.events import Bus, CatalogChanged, Searched, Shown
from portico.execution.cache import Cache, CacheRule
from portico.execution.call import Calls
from portico.execution.changes import Changes
from portico.execution.learned import Shapes
from portico.execution.limiting import Limit
from portico.execution.retrying import RetryRule
from portico.storage.record import Record
from portico.upstream.supervisor import Upstream


@dataclass(frozen=True)
class Pipeline:
    """What calls go through, and what of it needs looking after."""

    calls: Calls
    cache: Cache
    shapes: Shapes

    @classmethod
    def over(
        cls,
        servers: Mapping[str, BackendConfig],
        upstreams: Mapping[str, Upstream],
        catalog: Catalog,
        syncs: Mapping[str, Sync],
        record: Record,
        bus: Bus,
        *,
        longest: float,
    ) -> Self:
        """A pipeline over these servers; those that are not configured have no limits."""
        cache = Cache(
            {name: CacheRule(server.cache.ttl_s, server.cache.tools) for name, server in servers.items()},
            [name for name, upstream in upstreams.items() if upstream.isolated],
        )
        changes, shapes = Changes(catalog, syncs), Shapes(record=record)
        bus.subscribe(cache.heard, CatalogChanged)
        bus.subscribe(changes.heard, Searched, Shown)
        calls = Calls(
            upstreams,
            {name: min(server.timeouts.call_s, longest) for name, server in servers.items()},
            bus,
            longest=longest,
            cache=cache,
            shapes=shapes,
            limits={name: Limit(**server.limits.model_dump()) for name, server in servers.items()},
            retries={name: RetryRule(**server.retry.model_dump()) for name, server in servers.items()},
            changes=changes,
        )
        return cls(calls, cache, shapes)
