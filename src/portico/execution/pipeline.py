"""The pipeline of a gateway, put together from its configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from portico.catalog.sync import Catalog, Sync
from portico.config import BackendConfig
from portico.events import Bus, CatalogChanged, Searched, Shown, TokensRefused
from portico.execution.cache import Cache, CacheRule
from portico.execution.call import Calls
from portico.execution.changes import Changes
from portico.execution.learned import Shapes
from portico.execution.limiting import Limit
from portico.execution.retrying import RetryRule
from portico.observability.audit import Audit
from portico.storage.record import Record
from portico.upstream.supervisor import Upstream


@dataclass(frozen=True)
class Pipeline:
    """What calls go through, and what of it needs looking after."""

    calls: Calls
    cache: Cache
    shapes: Shapes
    longest: float
    """Seconds that any call may take."""

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
        audit: Audit | None = None,
    ) -> Self:
        """A pipeline over these servers; those that are not configured have no limits."""
        cache = Cache(_cache_rules(servers), _isolated(upstreams))
        changes, shapes = Changes(catalog, syncs), Shapes(record=record)
        bus.subscribe(cache.heard, CatalogChanged)
        bus.subscribe(changes.heard, Searched, Shown, CatalogChanged)
        if audit is not None:
            bus.subscribe(audit.write_refused_tokens, TokensRefused)
        calls = Calls(
            upstreams,
            _timeouts(servers, longest),
            bus,
            longest=longest,
            cache=cache,
            shapes=shapes,
            limits=_limits(servers),
            retries=_retries(servers),
            client_meta=_client_meta(servers),
            changes=changes,
            audit=audit,
        )
        return cls(calls, cache, shapes, longest)

    def configure(
        self, servers: Mapping[str, BackendConfig], upstreams: Mapping[str, Upstream], replaced: Iterable[str]
    ) -> None:
        """Go by what these servers' configuration says from now on; answers of those that were replaced are dropped."""
        for server in replaced:
            self.cache.forget(server)
        self.cache.configure(_cache_rules(servers), _isolated(upstreams))
        self.calls.configure(
            _timeouts(servers, self.longest), _limits(servers), _retries(servers), _client_meta(servers)
        )


def _cache_rules(servers: Mapping[str, BackendConfig]) -> dict[str, CacheRule]:
    return {name: CacheRule(server.cache.ttl_s, server.cache.tools) for name, server in servers.items()}


def _isolated(upstreams: Mapping[str, Upstream]) -> list[str]:
    return [name for name, upstream in upstreams.items() if upstream.isolated]


def _timeouts(servers: Mapping[str, BackendConfig], longest: float) -> dict[str, float]:
    return {name: min(server.timeouts.call_s, longest) for name, server in servers.items()}


def _limits(servers: Mapping[str, BackendConfig]) -> dict[str, Limit]:
    return {name: Limit(**server.limits.model_dump()) for name, server in servers.items()}


def _retries(servers: Mapping[str, BackendConfig]) -> dict[str, RetryRule]:
    return {name: RetryRule(**server.retry.model_dump()) for name, server in servers.items()}


def _client_meta(servers: Mapping[str, BackendConfig]) -> dict[str, tuple[str, ...]]:
    return {name: server.client_meta for name, server in servers.items()}
