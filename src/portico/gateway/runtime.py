"""One running Portico: all parts composed from a configuration, opened, maintained and closed.

async with GatewayRuntime(config) as gateway:
    await gateway.wait_until_listed()    # every server has been listed, or has failed
    tool = gateway.get_view().snapshot.tools["demo.add"]
    await gateway.calls.call(tool, {"a": 1, "b": 2})
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from portico.auth.authenticator import KeyRing
from portico.auth.token_verifier import TokenVerifier
from portico.callers import Caller
from portico.calls.approvals import Approvals
from portico.calls.call_recorder import CallRecorder
from portico.calls.pipeline import CallPipeline, CallSettings
from portico.calls.rule_enforcement import build_rules
from portico.catalog.catalog import Catalog
from portico.catalog.listing_sync import CatalogReplication
from portico.catalog.snapshot import Snapshot
from portico.config import Config
from portico.events import ConfigApplied, ConfigRejected, Event, EventBus, UpstreamReady
from portico.gateway import maintenance
from portico.gateway.config_diff import ConfigChange, diff_configs, get_enabled_servers
from portico.gateway.data_folder import DataFolder
from portico.gateway.maintenance import ServerWarmup
from portico.gateway.server_registry import ServerRegistry, build_profile_settings, make_sources
from portico.meta_tools.runtimes import Runtimes
from portico.profiles.profile_state import ProfileState
from portico.profiles.view import ProfileView
from portico.rendering import cursor
from portico.rendering.listing_cost import ListingCostCounter
from portico.rendering.token_budget import count_tokens
from portico.results.reader import ResultServices
from portico.search.ranking import load_method
from portico.server.admission import AdmissionControl
from portico.server.pending_requests import PendingRequests
from portico.server.profile_endpoint import ProfileEndpoint
from portico.server.sessions import SubscriptionRegistry
from portico.storage.gateway_store import StoreUnavailable
from portico.storage.manifests import ManifestStore
from portico.upstream.backend import Backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle.status import UpstreamStatus
from portico.upstream.transports.process import ProcessGuard
from portico.usage.learner import Learner
from portico.usage.recorder import UsageRecorder
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_tiers import Standings, UsageData
from portico.usage.tool_usage import ToolUsage

if TYPE_CHECKING:
    from portico.auth.proxy.authorization_server import AuthorizationServer
    from portico.gateway.monitoring import GatewayMonitoring

CANCEL_GRACE_S = 1.0
"""Seconds for callers to receive the error of calls that were cancelled at shutdown."""
TOKEN_COUNT_WAIT_S = 0.5
"""Seconds that shutdown may wait to count the tokens that a short session has saved."""


class GatewayRuntime:
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
        self.config_problem = ""
        """Why the configuration on disk is not in use; empty if it is."""
        self.bus = EventBus()
        self._data = data = DataFolder(config, persistent=manifests is None)
        self._manifests = manifests or data.open_manifests()
        self._pins = data.open_pins()
        self._given_backends = dict(backends or {})
        self._guard = ProcessGuard()
        self._mask = ErrorMask(lambda: self.config)
        method = load_method(config.search.ranking)
        self.catalog = Catalog(
            make_sources(config, self._given_backends),
            self._manifests,
            self.bus,
            index_file=data.open_index(),
            embeddings=None if method == "words" else data.open_embeddings(),
            ranking=method,
            pins=self._pins,
        )
        self.catalog.load()
        self.servers = ServerRegistry(
            config.limits,
            self._given_backends,
            self.catalog,
            self.bus,
            self._guard,
            self._mask,
            data.path,
            data.open_credential_store(),
        )
        for name, server in get_enabled_servers(config).items():
            self.servers.add(name, server)
        self.upstreams = self.servers.upstreams
        self.warmup = ServerWarmup(self.servers, self.bus, config.limits.start_concurrency)
        self.store = data.open_store()
        self.keys = KeyRing(data.open_key_store())
        self.verifiers: tuple[TokenVerifier, ...] = ()
        self.authorization_server: AuthorizationServer | None = None
        self._usage_reader = data.open_usage_reader()
        self.calls = CallPipeline.create(
            self.upstreams,
            CallSettings(
                get_enabled_servers(config),
                config.limits.call_s,
                build_rules(config),
                self.servers.secrets,
            ),
            CallRecorder(self.bus, data.open_audit_log()),
            self.catalog,
            self.servers.syncs,
            self.store,
        )
        self.approvals = Approvals(
            data.open_approval_store(),
            config.approvals,
            self.bus,
            lambda: self.calls.recorder.audit,
        )
        self.calls.enforcement.approver = self.approvals
        self.calls.tickets.configure(config.limits.task_answer_s, config.limits.tasks)
        self.calls.masking.mask_configured = self._mask.mask_result
        self.results = ResultServices.create(
            data.results_folder, config.results, count_tokens, cursor
        )
        self.learner = Learner(config.learning.scope, data.open_learning_store(), self.bus)
        self.runtimes = Runtimes(
            self.calls, self.calls.shapes, config, self.learner, self.store, self.bus
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._listing_cost_counter = ListingCostCounter(self.catalog, self.bus)
        self._make_usage_services()
        self._endpoints: dict[str, ProfileEndpoint] = {}
        self.admission = AdmissionControl(config.limits)
        self.pending_requests = PendingRequests(
            config.limits.elicitation_s, config.limits.elicitations
        )
        self.subscription_registry = SubscriptionRegistry()
        self._monitoring: GatewayMonitoring | None = None
        self._apply_lock = asyncio.Lock()
        self.bus.subscribe(self._on_event, UpstreamReady)

    def _make_usage_services(self) -> None:
        gateway_id = secrets.token_hex(8)
        retention = self.config.usage
        usage = ToolUsage(self.store, self.bus, retention)
        ledger = TokenLedger(self.store, self.bus, self._count_listing_tokens, count=count_tokens)
        standings = Standings(
            usage, self.store, gateway_id=gateway_id, persistent=retention.daily_days > 0
        )
        shapes = self.calls.shapes
        self.usage_data = UsageData(usage, standings, ledger, shapes)
        self._usage_recorder = UsageRecorder(
            self.store,
            usage,
            ledger,
            retention,
            maintenance_tasks=(
                lambda: maintenance.update_standings(self),
                shapes.sync_with_storage,
            ),
        )
        self.catalog_replication = CatalogReplication(
            self.catalog, self._manifests, self.store, origin=gateway_id
        )
        self.catalog_replication.on_adopted = lambda name: self.upstreams[name].mark_known()
        self.catalog_replication.on_tiers_changed = lambda: self._start_task(
            self._usage_recorder.reload()
        )

    async def __aenter__(self) -> Self:
        if self.store.is_shared:
            self.catalog.wait_for_pins = self.catalog_replication.wait_for_pins
        for work in (
            self.usage_data.start_restoring(self._usage_reader),
            maintenance.run_maintenance(self),
            maintenance.load_encoder(self),
            self._listing_cost_counter.run(),
            maintenance.replicate_catalog(self),
        ):
            self._start_task(work)
        self._usage_recorder.start(maintenance.RECORD_OPEN_DELAY_S)
        self.warmup.set_startup_task(self._start_task(maintenance.start_servers(self)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def ensure_monitoring(self) -> "GatewayMonitoring":
        """Return metrics and readiness; metrics are counted from the first call on."""
        if self._monitoring is None:
            # Imported late: a gateway on stdio has no monitoring.
            from portico.gateway.monitoring import GatewayMonitoring

            self._monitoring = GatewayMonitoring(self)
            self._start_task(self._monitoring.metrics.measure_lag())
        return self._monitoring

    async def load_keys(self) -> None:
        """Read the keys that open the gateway over HTTP, and keep them current from now on."""
        await self.keys.load()
        self._start_task(self.keys.follow())

    def open_verifiers(self) -> tuple[TokenVerifier, ...]:
        """Return what verifies the tokens of the configured issuers over HTTP."""
        if self.config.auth and not self.verifiers:
            from portico.auth.verifiers import make_verifiers  # late: for HTTP only

            own = self._data.open_authorization_server(lambda name: name in self.config.profiles)
            self.authorization_server = own
            self.verifiers = make_verifiers(self.config, own)
        return self.verifiers

    async def drain(self) -> None:
        """Admit no new calls, and wait up to `limits.drain_s` for those in flight; then cancel
        them."""
        if self._monitoring is not None:
            self._monitoring.readiness.drain()
        self.calls.tickets.begin_closing()
        if not await self.admission.drain(self.config.limits.drain_s):
            # Waiting callers get an error while their connections are still open.
            await self.pending_requests.close()
            await self.servers.close()
            await self.admission.drain(CANCEL_GRACE_S)

    async def close(self) -> None:
        """Stop everything; when this returns, no process, socket or task of the gateway is left."""
        await self.calls.close()
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
        await self.runtimes.close()
        await self.pending_requests.close()
        await self.servers.close()
        if self._monitoring is not None:
            self._monitoring.unsubscribe()
        for endpoint in self._endpoints.values():
            await endpoint.close()
        await self.catalog.close()
        await asyncio.to_thread(self.results.store.close)
        if is_store_open:
            await self.calls.shapes.flush()
            await self.catalog_replication.flush()
        if self.calls.recorder.audit is not None:
            await asyncio.to_thread(self.calls.recorder.audit.close)
        await self.keys.close()
        for verifier in self.verifiers:
            await verifier.close()
        await self.approvals.close()
        await self.store.close()
        self._manifests.close()
        self._pins.close()
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
            servers = self.servers
            enabled = get_enabled_servers(config)
            rules = build_rules(config)
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
            has_new_rules = (before.rules, before.default) != (config.rules, config.default)
            self.calls.enforcement.rules = rules
            self.approvals.configure(config.approvals)
            self.calls.configure(enabled, (*change.removed, *change.restarted))
            limits = config.limits
            self.calls.tickets.configure(limits.task_answer_s, limits.tasks)
            self.admission.configure(limits)
            self.pending_requests.configure(limits.elicitation_s, limits.elicitations)
            for name, endpoint in list(self._endpoints.items()):
                if not name or name in config.profiles:
                    settings = build_profile_settings(config, name or None)
                    endpoint.apply(settings, has_new_rules=has_new_rules)
                else:
                    self._start_task(self._endpoints.pop(name).close())
            starting = maintenance.select_servers_to_start(self, (*change.added, *change.restarted))
            self.warmup.set_startup_task(self._start_task(self.warmup.start_and_list(starting)))
            self.bus.publish(ConfigApplied(str(change)))
            return change

    def reject_config(self, reason: str) -> None:
        """Record why a changed configuration cannot be used; the current one stays in use."""
        self.config_problem = self._mask.mask_text(reason)
        self.bus.publish(ConfigRejected(self.config_problem))

    def get_view(self, profile: str | None = None, caller: Caller | None = None) -> ProfileView:
        """Return a profile's view; with a caller, what that one sees of it."""
        view = self.get_endpoint(profile).view
        return view if caller is None else view.select_for(caller)

    def get_endpoint(self, profile: str | None = None) -> ProfileEndpoint:
        """Return the endpoint of a profile; the empty name is the default one."""
        key = profile or ""
        if key not in self._endpoints:
            state = ProfileState(
                build_profile_settings(self.config, profile),
                self.catalog,
                self.upstreams,
                self.usage_data,
                self.bus,
                self.results,
            )
            view = ProfileView(
                state,
                self.calls,
                wait_for_listing=self.warmup.wait_for_first_listing,
                learner=self.learner,
                runtimes=self.runtimes,
            )
            self._endpoints[key] = ProfileEndpoint(
                view,
                self.upstreams,
                self.bus,
                self.subscription_registry,
                self.admission,
                self.pending_requests,
            )
        return self._endpoints[key]

    def get_endpoints(self) -> dict[str, ProfileEndpoint]:
        """Return all endpoints: the default one under the empty name, and one per profile."""
        return {
            "": self.get_endpoint(),
            **{name: self.get_endpoint(name) for name in self.config.profiles},
        }

    @property
    def open_endpoints(self) -> Collection[ProfileEndpoint]:
        return self._endpoints.values()

    @property
    def audit_problem(self) -> str:
        """Why calls are not written to the audit log; empty if they are, or if there is none."""
        return self.calls.recorder.get_audit_problem()

    def list_statuses(self) -> list[UpstreamStatus]:
        return [upstream.get_status() for _, upstream in sorted(self.upstreams.items())]

    async def wait_until_listed(self) -> None:
        """Wait until every server that starts with the gateway has been listed or has failed."""
        await self.warmup.wait_until_listed()

    async def refresh(
        self, servers: Iterable[str] | None = None, on_done: Callable[[str], None] | None = None
    ) -> None:
        """List these servers (default: all) again; `on_done` is called with each name as it is
        done."""
        await self.warmup.start_and_list(
            list(servers if servers is not None else self.upstreams), on_done
        )

    # --- stored usage

    async def load_usage(self) -> None:
        """Load stored usage, for a command that only reads; without a database, only that of this
        process."""
        with contextlib.suppress(StoreUnavailable):
            await self.store.open()
            await self.usage_data.tool_usage.load()
            await self.usage_data.ledger.load()
            await self.usage_data.standings.load()

    def _count_listing_tokens(self, profile: str) -> int:
        # A profile that was removed meanwhile counts like the default one.
        return self._listing_cost_counter.get_listing_cost(
            self.get_view(profile if profile in self.config.profiles else None).snapshot
        )

    def get_listing_costs(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the tokens of listing each server's tools; 0 until they are counted."""
        return self._listing_cost_counter.get_server_costs(snapshot)

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
        if upstream and self.subscription_registry.list_subscriptions(event.server):
            self._start_task(
                self.subscription_registry.resubscribe(upstream, maintenance.MAINTENANCE_INTERVAL_S)
            )
