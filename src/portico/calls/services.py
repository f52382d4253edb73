"""Construction and reconfiguration of a gateway's call pipeline."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from portico.calls.cache import CacheRule, ResultCache
from portico.calls.definition_tracker import DefinitionTracker
from portico.calls.pipeline import CallPipeline
from portico.calls.retry import RetryRule
from portico.calls.server_limiter import Limit
from portico.catalog.sync import Catalog, ServerSync
from portico.config import BackendConfig
from portico.events import CatalogChanged, EventBus, TokensRefused, ToolsFound, ToolsShown
from portico.observability.audit import AuditLog
from portico.results.learned_shapes import LearnedShapes
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.supervisor import Upstream


@dataclass(frozen=True)
class CallServices:
    """The call pipeline with its result cache and learned shapes."""

    calls: CallPipeline
    cache: ResultCache
    shapes: LearnedShapes
    max_call_s: float
    """Maximum duration of any call, in seconds."""

    @classmethod
    def create(
        cls,
        servers: Mapping[str, BackendConfig],
        upstreams: Mapping[str, Upstream],
        catalog: Catalog,
        syncs: Mapping[str, ServerSync],
        store: GatewayStore,
        bus: EventBus,
        *,
        max_call_s: float,
        audit: AuditLog | None = None,
    ) -> Self:
        """Build the pipeline and subscribe its parts to the bus."""
        cache = ResultCache(_build_cache_rules(servers), _list_isolated(upstreams))
        changes = DefinitionTracker(catalog, syncs)
        shapes = LearnedShapes(store=store)
        bus.subscribe(cache.handle_event, CatalogChanged)
        bus.subscribe(changes.handle_event, ToolsFound, ToolsShown, CatalogChanged)
        if audit is not None:
            bus.subscribe(audit.write_refused_tokens, TokensRefused)
        calls = CallPipeline(
            upstreams,
            _build_timeouts(servers, max_call_s),
            bus,
            max_call_s=max_call_s,
            cache=cache,
            shapes=shapes,
            limits=_build_limits(servers),
            retries=_build_retry_rules(servers),
            client_meta=_collect_client_meta(servers),
            changes=changes,
            audit=audit,
        )
        return cls(calls, cache, shapes, max_call_s)

    def configure(
        self,
        servers: Mapping[str, BackendConfig],
        upstreams: Mapping[str, Upstream],
        replaced: Iterable[str],
    ) -> None:
        """Apply a changed server configuration and invalidate cached results of replaced
        servers."""
        for server in replaced:
            self.cache.invalidate(server)
        self.cache.configure(_build_cache_rules(servers), _list_isolated(upstreams))
        self.calls.configure(
            _build_timeouts(servers, self.max_call_s),
            _build_limits(servers),
            _build_retry_rules(servers),
            _collect_client_meta(servers),
        )


def _build_cache_rules(servers: Mapping[str, BackendConfig]) -> dict[str, CacheRule]:
    return {
        name: CacheRule(server.cache.ttl_s, server.cache.tools) for name, server in servers.items()
    }


def _list_isolated(upstreams: Mapping[str, Upstream]) -> list[str]:
    return [name for name, upstream in upstreams.items() if upstream.isolated]


def _build_timeouts(servers: Mapping[str, BackendConfig], max_call_s: float) -> dict[str, float]:
    return {name: min(server.timeouts.call_s, max_call_s) for name, server in servers.items()}


def _build_limits(servers: Mapping[str, BackendConfig]) -> dict[str, Limit]:
    return {name: Limit(**server.limits.model_dump()) for name, server in servers.items()}


def _build_retry_rules(servers: Mapping[str, BackendConfig]) -> dict[str, RetryRule]:
    return {name: RetryRule(**server.retry.model_dump()) for name, server in servers.items()}


def _collect_client_meta(servers: Mapping[str, BackendConfig]) -> dict[str, tuple[str, ...]]:
    return {name: server.client_meta for name, server in servers.items()}
