"""Registry of the servers: created from their configuration, replaced when that changes, drained.

Calls in flight at a replaced server complete there: the old one is stopped when it is unused, or
after its drain time.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from portico.catalog.catalog import Catalog
from portico.catalog.entries import ServerSource
from portico.catalog.listing_sync import ServerSync
from portico.config import (
    BackendConfig,
    Config,
    LimitsConfig,
    ToolRules,
    Trust,
    compute_fingerprint,
)
from portico.events import EventBus
from portico.profiles.view import ProfileSettings
from portico.storage.credential_store import CredentialStore
from portico.upstream.backend import Backend, Era
from portico.upstream.backends.factory import UnusableBackend, make_backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle.connection_attempt import StartSlots
from portico.upstream.lifecycle.server_lifecycle import UpstreamOptions
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.oauth.server_accounts import ServerAccounts
from portico.upstream.oauth.sign_in_service import SignInService
from portico.upstream.oauth.token_store import TokenStore
from portico.upstream.secret_reader import SecretReader
from portico.upstream.server_log import ServerLog
from portico.upstream.transports.process import ProcessGuard
from portico.visibility import Globs, OfferRules, Scope

logger = logging.getLogger(__name__)

MAX_PERSONAL_INSTANCES = 1_000
"""Open connections to a server at which each person uses an own account; none has a process."""

_GIVEN_BACKEND_CONFIG = BackendConfig(functions="given")
"""Configuration of a server that is a backend object rather than configuration."""


def make_source(name: str, server: BackendConfig, trust: Trust = "first") -> ServerSource:
    """Return what the configuration says about a server's listing."""
    return ServerSource(
        name,
        compute_fingerprint(server),
        server.title,
        server.description,
        server.kind,
        server.tags,
        server.category,
        server.tools,
        server.get_trust(trust),
    )


class ServerRegistry:
    def __init__(
        self,
        limits: LimitsConfig,
        given_backends: Mapping[str, Backend],
        catalog: Catalog,
        bus: EventBus,
        guard: ProcessGuard,
        mask: ErrorMask,
        data_dir: Path | None = None,
        credentials: CredentialStore | None = None,
    ) -> None:
        """`given_backends` are servers that are objects rather than configuration; they always
        stay."""
        self._given_backends = given_backends
        self.upstreams: dict[str, Upstream] = {}
        self.syncs: dict[str, ServerSync] = {}
        self._limits = limits
        self._catalog = catalog
        self._bus = bus
        self._guard = guard
        self.secrets = SecretReader(guard)
        store = credentials or CredentialStore(None, None)
        self.accounts = ServerAccounts(TokenStore(store, self.secrets))
        self.sign_ins = SignInService(self.accounts.store, self._restart, bus.publish)
        self._mask = mask
        self._data_dir = data_dir
        self._starts = StartSlots(limits.call_starts)
        self._logs: dict[str, ServerLog] = {}
        """By server; each outlives the replacement of its server."""
        self._retire_tasks: set[asyncio.Task[None]] = set()
        for name, backend in given_backends.items():
            self._register(name, backend, _GIVEN_BACKEND_CONFIG)

    def add(self, name: str, server: BackendConfig) -> None:
        """Add or replace a server; nothing is started."""
        if name in self._given_backends:
            return
        backend = make_backend(
            name,
            server,
            self._limits,
            self._guard,
            self._mask.mask_text,
            self._data_dir,
            log=self._logs.setdefault(name, ServerLog()),
            secrets=self.secrets,
            accounts=self.accounts,
        )
        self._register(name, backend, server)

    async def _restart(self, name: str) -> None:
        if (upstream := self.upstreams.get(name)) is not None:
            await upstream.restart()

    def adjust(self, name: str, server: BackendConfig) -> None:
        """Apply new timeouts, restart and health rules to a server that keeps running."""
        if name in self._given_backends:
            return
        self.upstreams[name].configure(server.timeouts.start_s, server.restart, server.health)
        self.syncs[name].configure(server.timeouts.list_s, server.ttl_s)

    def _register(self, name: str, backend: Backend, server: BackendConfig) -> None:
        known_era: Era | None = None
        if stored_era := self._catalog.eras.get(name):
            known_era = "modern" if stored_era == "modern" else "legacy"
        isolated = server.is_isolated
        options = UpstreamOptions(
            start_timeout=server.timeouts.start_s,
            isolated=isolated,
            personal=server.is_personal,
            max_instances=_get_max_instances(server),
            era=known_era,
            has_listing=self._catalog.snapshot.servers[name].is_listed,
            restart=server.restart,
            health=server.health,
            start_slots=self._starts,
            mask=self._mask,
            log=self._logs.setdefault(name, ServerLog()),
            max_call_s=min(server.timeouts.call_s, self._limits.call_s),
        )
        upstream = Upstream(name, backend, self._bus, options)
        if isinstance(backend, UnusableBackend):
            upstream.set_state("disabled", backend.problem)
        self.upstreams[name] = upstream
        self.syncs[name] = ServerSync(
            upstream, self._catalog, self._bus, timeout=server.timeouts.list_s, ttl=server.ttl_s
        )

    def remove(self, name: str, drain_s: float) -> None:
        """Remove a server; calls in flight have `drain_s` seconds to complete."""
        if name in self._given_backends:
            return
        upstream = self.upstreams.pop(name)
        sync = self.syncs.pop(name)
        if name not in self._catalog.snapshot.servers:
            self._logs.pop(name, None)
        task = asyncio.create_task(_retire(upstream, sync, drain_s), name=f"retire {name}")
        self._retire_tasks.add(task)
        task.add_done_callback(self._retire_tasks.discard)

    async def close(self) -> None:
        for task in self._retire_tasks:
            task.cancel()
        # In this order and together: a server that becomes ready in between would still be listed.
        await asyncio.gather(
            *(upstream.stop() for upstream in self.upstreams.values()),
            *(sync.close() for sync in self.syncs.values()),
        )
        if self._retire_tasks:
            await asyncio.wait(self._retire_tasks)
        await self.sign_ins.close()
        await self.accounts.close()


def _get_max_instances(server: BackendConfig) -> int:
    if server.is_personal and "max_instances" not in server.model_fields_set:
        return MAX_PERSONAL_INSTANCES
    return server.max_instances


async def _retire(upstream: Upstream, sync: ServerSync, drain_s: float) -> None:
    try:
        await sync.close()
        await upstream.retire(drain_s)
    except asyncio.CancelledError:
        # The gateway is shutting down: stop without draining.
        await upstream.stop()
        raise


def make_sources(config: Config, given_backends: Mapping[str, Backend]) -> list[ServerSource]:
    configured = [
        make_source(name, server, config.trust)
        for name, server in config.servers.items()
        if not server.disabled
    ]
    # A backend object is code of this program, which is trusted unless it says otherwise.
    given = [
        ServerSource(
            name,
            "given",
            kind=one.kind,
            rules=config.servers[name].tools if name in config.servers else ToolRules(),
            trust=getattr(one, "trust", "always"),
        )
        for name, one in given_backends.items()
    ]
    return [*configured, *given]


def build_profile_settings(config: Config, profile: str | None) -> ProfileSettings:
    resolved = config.resolve_profile(profile)
    rules = [_build_offer_rules(name, server) for name, server in config.servers.items()]
    scope = Scope(
        resolved.servers,
        resolved.tools,
        resolved.resources,
        resolved.prompts,
        tuple(rule for rule in rules if rule.allows_unlisted or not rule.is_unrestricted),
    )
    return ProfileSettings(
        **vars(resolved),
        scope=scope,
        prefixed=config.prefix == "always",
        languages=config.code.languages,
        pins=config.pins,
        list_pins=config.list_pins,
        disabled_servers=tuple(
            name
            for name, server in config.servers.items()
            if server.disabled and scope.can_see_server(name)
        ),
        # What is not listed cannot be overridden.
        allows_unlisted=replace(scope, servers=("*",)).is_unrestricted
        and not any(server.tools.gives_other_names for server in config.servers.values()),
    )


def _build_offer_rules(name: str, server: BackendConfig) -> OfferRules:
    return OfferRules(
        name,
        has_hidden_tools="*" not in server.tools.allow or bool(server.tools.deny),
        resources=Globs(server.resources.allow, server.resources.deny),
        prompts=Globs(server.prompts.allow, server.prompts.deny),
        allows_unlisted=server.resources.unlisted,
    )
