"""One running Portico: all parts composed from a configuration, opened, maintained and closed.

async with GatewayRuntime(config) as gateway:
    await gateway.wait_until_listed()    # every server has been listed, or has failed
    tool = gateway.get_view().snapshot.tools["demo.add"]
    await gateway.calls.call(tool, {"a": 1, "b": 2})
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from portico.app.audit_log import open_audit_log
from portico.app.config_diff import ConfigChange, diff_configs, get_enabled_servers
from portico.app.data_files import (
    HABITS_FILE,
    INDEX_FILE,
    MANIFEST_FILE,
    RECORD_FILE,
    RESULTS_FOLDER,
    VECTOR_FILE,
)
from portico.app.profile_settings import build_profile_settings
from portico.app.server_registry import ServerRegistry, make_sources
from portico.app.warmup import ServerWarmup
from portico.calls.services import CallServices
from portico.catalog.embeddings import Embeddings
from portico.catalog.heap import trim_heap
from portico.catalog.replication import CatalogReplication
from portico.catalog.sync import Catalog
from portico.config import Config
from portico.events import (
    ConfigApplied,
    ConfigRejected,
    Event,
    EventBus,
    StandingsChanged,
    UpstreamReady,
)
from portico.meta_tools.runtimes import Runtimes
from portico.profiles.listing_cost_counter import ListingCostCounter
from portico.profiles.view import ProfileView
from portico.rendering import cursor
from portico.rendering.token_count import count_tokens
from portico.results.services import ResultServices
from portico.search import VECTOR_WIDTH, EncoderUnavailable, shipped_encoder
from portico.server.profile_endpoint import ProfileEndpoint
from portico.server.requests.admission import AdmissionControl
from portico.server.requests.pending_requests import PendingRequests
from portico.server.sessions import SubscriptionRegistry
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.index_file import IndexFile
from portico.storage.learning_store import LearningLimits, LearningStore
from portico.storage.manifests import ManifestStore
from portico.storage.rows import Retention
from portico.storage.vector_file import VectorFile
from portico.upstream.backend import Backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle.supervisor import UpstreamStatus
from portico.upstream.transports.process import ProcessGuard
from portico.usage.learner import Learner
from portico.usage.recorder import UsageRecorder
from portico.usage.standings import Standings
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_usage import ToolUsage
from portico.usage.usage_data import UsageData

if TYPE_CHECKING:
    from portico.app.monitoring import GatewayMonitoring

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL_S = 15.0
ENCODER_LOAD_DELAY_S = 2.0
"""Seconds after the start until the encoder's model is loaded, so that it does not delay the first
handshake."""
RECORD_OPEN_DELAY_S = 1.0
"""Seconds after the start until the database is opened, for the same reason; a call opens it at
once."""
CANCEL_GRACE_S = 1.0
"""Seconds for callers to receive the error of calls that were cancelled at shutdown."""
TOKEN_COUNT_WAIT_S = 0.5
"""Seconds that shutdown may wait to count the tokens that a short session has saved."""
SHARED_CATALOG_WAIT_S = 3.0
"""Seconds that the start of servers without a listing waits for listings of other gateways."""


class GatewayRuntime:
    """One running Portico."""

    def __init__(
        self,
        config: Config,
        *,
        backends: Mapping[str, Backend] | None = None,
        manifests: ManifestStore | None = None,
    ) -> None:
        """`backends` adds servers that are objects rather than configuration.

        `manifests` replaces the files on disk: with it, the gateway persists nothing.
        """
        self.config = config
        data_dir = config.data_dir if manifests is None else None
        self.bus = EventBus()
        self._guard = ProcessGuard()
        self._manifests = manifests or ManifestStore(config.data_dir / MANIFEST_FILE)
        self._given_backends = dict(backends or {})
        self.catalog = Catalog(
            make_sources(config, self._given_backends),
            self._manifests,
            self.bus,
            index_file=IndexFile(data_dir and data_dir / INDEX_FILE),
            embeddings=Embeddings(
                shipped_encoder(), VectorFile(data_dir and data_dir / VECTOR_FILE, VECTOR_WIDTH)
            ),
        )
        self.catalog.load()
        self._mask = ErrorMask(lambda: self.config)
        self._servers = ServerRegistry(
            config.limits,
            self._given_backends,
            self.catalog,
            self.bus,
            self._guard,
            self._mask,
            data_dir,
        )
        for name, server in get_enabled_servers(config).items():
            self._servers.add(name, server)
        self.upstreams = self._servers.upstreams
        self._syncs = self._servers.syncs
        self._warmup = ServerWarmup(self._servers, self.bus, config.limits.start_concurrency)
        url = None
        if config.database_url is not None:
            url = config.database_url.get_secret_value()
        self.store = GatewayStore(url, data_dir and data_dir / RECORD_FILE)
        audit = None
        if manifests is None or config.audit.file is not None:
            audit = open_audit_log(config)
        self._pipeline = CallServices.create(
            get_enabled_servers(config),
            self.upstreams,
            self.catalog,
            self._syncs,
            self.store,
            self.bus,
            max_call_s=float(config.limits.call_s),
            audit=audit,
        )
        self.calls = self._pipeline.calls
        self._result_services = ResultServices.create(
            data_dir and data_dir / RESULTS_FOLDER, config.results, count_tokens, cursor
        )
        learning = config.learning
        learning_limits = LearningLimits(
            learning.half_life_days * 86_400, learning.max_followed, learning.max_together
        )
        self._habits = LearningStore(data_dir and data_dir / HABITS_FILE, learning_limits)
        self.learner = Learner(learning.scope, self._habits, self.bus)
        self._runtimes = Runtimes(
            self.calls, self._pipeline.shapes, config, self.learner, self.store, self.bus
        )
        self._listing_cost_counter = ListingCostCounter(self.catalog, self.bus)
        origin = secrets.token_hex(8)
        self.usage_data, self._usage_recorder = self._make_usage_services(origin)
        self._catalog_replication = CatalogReplication(
            self.catalog, self._manifests, self.store, origin=origin
        )
        self._catalog_replication.on_adopted = self._on_catalog_adopted
        self._catalog_replication.on_tiers_changed = lambda: self._start_task(
            self._usage_recorder.reload()
        )
        self._endpoints: dict[str, ProfileEndpoint] = {}
        self._admission = AdmissionControl(config.limits)
        self._pending_requests = PendingRequests(config.limits.question_s, config.limits.questions)
        self._monitoring: GatewayMonitoring | None = None
        self._subscription_registry = SubscriptionRegistry()
        self._tasks: set[asyncio.Task[None]] = set()
        self.bus.subscribe(self._on_event)
        self._apply_lock = asyncio.Lock()
        self.config_problem = ""
        """Why the configuration on disk is not in use; empty if it is."""

    def _make_usage_services(self, origin: str) -> tuple[UsageData, UsageRecorder]:
        retention = Retention(**self.config.usage.model_dump())
        usage = ToolUsage(self.store, self.bus, retention)
        ledger = TokenLedger(self.store, self.bus, self._count_listing_tokens, count=count_tokens)
        usage_data = UsageData(
            usage,
            Standings(usage, self.store, gateway_id=origin, persistent=retention.daily_days > 0),
            ledger,
            self._pipeline.shapes,
        )
        return usage_data, UsageRecorder(
            self.store,
            self.bus,
            usage,
            ledger,
            retention,
            maintenance_tasks=(self._update_standings, self._pipeline.shapes.sync_with_storage),
        )

    async def __aenter__(self) -> Self:
        for work in (
            self._run_maintenance(),
            self._load_encoder(),
            self._listing_cost_counter.run(),
            self._replicate_catalog(),
        ):
            self._start_task(work)
        self._usage_recorder.start(RECORD_OPEN_DELAY_S)
        self._warmup.set_startup_task(self._start_task(self._start_servers()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def ensure_monitoring(self) -> "GatewayMonitoring":
        """Return metrics and readiness; metrics are counted from the first call on."""
        if self._monitoring is None:
            # Imported late: a gateway on stdio has no monitoring.
            from portico.app.monitoring import GatewayMonitoring

            self._monitoring = GatewayMonitoring.create(
                self.bus,
                self.upstreams,
                self.catalog,
                ledger=self.usage_data.ledger,
                pipeline=self._pipeline,
                result_services=self._result_services,
                runtimes=self._runtimes,
                store=self.store,
                get_endpoints=self._endpoints.values,
                admission=self._admission,
                is_listed=lambda: self._warmup.is_done,
                get_config_problem=lambda: self.config_problem,
                get_audit_problem=lambda: (
                    self.calls.audit.problem if self.calls.audit is not None else ""
                ),
            )
            self._start_task(self._monitoring.metrics.measure_lag())
        return self._monitoring

    async def drain(self) -> None:
        """Admit no new calls, and wait up to `limits.drain_s` for those in flight; then cancel
        them."""
        if self._monitoring is not None:
            self._monitoring.readiness.drain()
        if not await self._admission.drain(self.config.limits.drain_s):
            # Waiting callers get an error while their connections are still open.
            await self._pending_requests.close()
            await self._servers.close()
            await self._admission.drain(CANCEL_GRACE_S)

    async def close(self) -> None:
        """Stop everything; when this returns, no process, socket or task of the gateway is left."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.usage_data.ledger.has_uncharged_listings:
            await self._listing_cost_counter.finish_within(TOKEN_COUNT_WAIT_S)
        # Before calls are cancelled, which must not count as failures of their tools.
        await self.learner.close()
        is_store_open = await self._usage_recorder.close()
        await self._runtimes.close()
        await self._pending_requests.close()
        await self._servers.close()
        if self._monitoring is not None:
            self._monitoring.metrics.unsubscribe()
        for endpoint in self._endpoints.values():
            await endpoint.close()
        await self.catalog.close()
        await asyncio.to_thread(self._result_services.store.close)
        if is_store_open:
            await self._pipeline.shapes.flush()
            await self._catalog_replication.flush()
        if self.calls.audit is not None:
            self.calls.audit.close()
        await self.store.close()
        self._manifests.close()
        self._guard.close()

    # --- configuration

    async def apply(self, config: Config) -> ConfigChange:
        """Apply another configuration: only what it changes is touched, and calls in flight
        complete.

        Settings that only take effect with a restart (addresses, data folder) are named in the
        result.
        """
        async with self._apply_lock:
            change = diff_configs(self.config, config)
            self.config_problem = ""
            if not change:
                return change
            before = self.config
            servers = self._servers
            enabled = get_enabled_servers(config)
            await self.catalog.configure(make_sources(config, self._given_backends))
            # No await until all parts have the new configuration, so that no call sees a mixture.
            self.config = config
            self._mask.reset(before)
            for name in (*change.removed, *change.restarted):
                servers.remove(name, before.servers[name].restart.drain_s)
            for name in (*change.added, *change.restarted):
                servers.add(name, enabled[name])
            for name in change.adjusted:
                servers.adjust(name, enabled[name])
            self._pipeline.configure(enabled, self.upstreams, (*change.removed, *change.restarted))
            self._admission.configure(config.limits)
            self._pending_requests.configure(config.limits.question_s, config.limits.questions)
            for name, endpoint in list(self._endpoints.items()):
                if not name or name in config.profiles:
                    endpoint.apply(build_profile_settings(config, name or None))
                else:
                    self._start_task(self._endpoints.pop(name).close())
            starting = self._select_servers_to_start((*change.added, *change.restarted))
            self._warmup.set_startup_task(self._start_task(self._warmup.start_and_list(starting)))
            self.bus.publish(ConfigApplied(str(change)))
            return change

    def reject_config(self, reason: str) -> None:
        """Record why a changed configuration cannot be used; the current one stays in use."""
        self.config_problem = self._mask.mask_text(reason)
        self.bus.publish(ConfigRejected(self.config_problem))

    def get_view(self, profile: str | None = None) -> ProfileView:
        """Return the view of a profile."""
        return self.get_endpoint(profile).view

    def get_endpoint(self, profile: str | None = None) -> ProfileEndpoint:
        """Return the endpoint of a profile; the empty name is the default one."""
        key = profile or ""
        if key not in self._endpoints:
            view = ProfileView(
                build_profile_settings(self.config, profile),
                self.catalog,
                self.calls,
                self.upstreams,
                self._warmup.wait_for_first_listing,
                self.learner,
                self.bus,
                self.usage_data,
                self._result_services,
                self._runtimes,
            )
            self._endpoints[key] = ProfileEndpoint(
                view,
                self.upstreams,
                self.bus,
                self._subscription_registry,
                self._admission,
                self._pending_requests,
            )
        return self._endpoints[key]

    def get_endpoints(self) -> dict[str, ProfileEndpoint]:
        """Return all endpoints: the default one under the empty name, and one per profile."""
        return {
            "": self.get_endpoint(),
            **{name: self.get_endpoint(name) for name in self.config.profiles},
        }

    def list_statuses(self) -> list[UpstreamStatus]:
        """Return the status of every server, by name."""
        return [upstream.get_status() for _, upstream in sorted(self.upstreams.items())]

    async def wait_until_listed(self) -> None:
        """Wait until every server that starts with the gateway has been listed or has failed."""
        await self._warmup.wait_until_listed()

    async def refresh(
        self, servers: Iterable[str] | None = None, on_done: Callable[[str], None] | None = None
    ) -> None:
        """List these servers (default: all) again; `on_done` is called with each name as it is
        done."""
        await self._warmup.start_and_list(
            list(servers if servers is not None else self.upstreams), on_done
        )

    async def _start_servers(self) -> None:
        if self.store.is_shared and any(
            upstream.state == "configured" for upstream in self.upstreams.values()
        ):
            # Listings of another gateway save the start of servers that were never listed here.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._catalog_replication.caught_up.wait(), SHARED_CATALOG_WAIT_S
                )
        await self._warmup.start_and_list(self._select_servers_to_start(self.upstreams))

    def _select_servers_to_start(self, names: Iterable[str]) -> list[str]:
        """Select the servers to start without a call: `start: boot`, never listed, or subscribed
        to."""
        configured = self.config.servers
        return [
            name
            for name in names
            if self.upstreams[name].state == "configured"
            or (name in configured and configured[name].start == "boot")
            or self._subscription_registry.list_subscriptions(name)
        ]

    async def _load_encoder(self) -> None:
        """Load the encoder before the first search, and compute missing embeddings of known
        tools."""
        await asyncio.sleep(ENCODER_LOAD_DELAY_S)
        index = self.catalog.snapshot.index
        if index.encoder is not None and len(index):
            with contextlib.suppress(EncoderUnavailable):
                await asyncio.to_thread(index.encoder.load)
                self.catalog.start_encoding()

    async def _run_maintenance(self) -> None:
        await asyncio.sleep(MAINTENANCE_INTERVAL_S)
        await asyncio.to_thread(trim_heap)  # frees what only start-up needed
        while True:
            # Concurrently: one server that does not stop must not delay the others.
            self._pipeline.cache.expire()
            self._runtimes.expire()
            jobs = {
                "learning": self.learner.flush(),
                "large results": asyncio.to_thread(self._result_services.store.sweep),
                **{name: self._maintain_server(name) for name in self.upstreams},
            }
            outcomes = await asyncio.gather(*jobs.values(), return_exceptions=True)
            for name, outcome in zip(jobs, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    logger.error("maintenance of %s failed: %r", name, outcome)
            await asyncio.sleep(MAINTENANCE_INTERVAL_S)

    async def _maintain_server(self, name: str) -> None:
        upstream = self.upstreams[name]
        server = self.config.servers.get(name)
        watchers = self._subscription_registry.list_session_ids(name)
        self._syncs[name].refresh_if_expired()
        # An unlisted server has no tools to call, so no call would ever start it again.
        keeps_running = not self.catalog.snapshot.servers[name].is_listed or (
            server is not None and server.start == "boot"
        )
        await upstream.maintain(restart_if_down=bool(watchers) or keeps_running)
        if (
            server is not None
            and server.idle_s
            and (upstream.backend.kind == "stdio" or upstream.isolated)
        ):
            await upstream.stop_if_idle(server.idle_s, watchers)

    # --- stored usage

    async def load_usage(self) -> None:
        """Load stored usage, for a command that only reads; without a database, only that of this
        process."""
        with contextlib.suppress(StoreUnavailable):
            await self.store.open()
            await self.usage_data.tool_usage.load()
            await self.usage_data.ledger.load()
            await self.usage_data.standings.load()

    async def _replicate_catalog(self) -> None:
        await asyncio.sleep(0 if self.store.is_shared else RECORD_OPEN_DELAY_S)
        await self._catalog_replication.run()

    def _on_catalog_adopted(self, server: str) -> None:
        self.upstreams[server].mark_known()

    async def _update_standings(self) -> None:
        before = self.usage_data.standings.computed_at
        await self.usage_data.standings.maintain()
        if self.usage_data.standings.computed_at != before:
            self.bus.publish(StandingsChanged())

    def _count_listing_tokens(self, profile: str) -> int:
        # A profile that was removed meanwhile counts like the default one.
        return self._listing_cost_counter.get_listing_cost(
            self.get_view(profile if profile in self.config.profiles else None).snapshot
        )

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        name = work.__name__.strip("_").replace("_", " ")
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, UpstreamReady):
            return
        upstream = self.upstreams.get(event.server)
        if upstream and self._subscription_registry.list_subscriptions(event.server):
            self._start_task(
                self._subscription_registry.resubscribe(upstream, MAINTENANCE_INTERVAL_S)
            )
