"""Registry of the servers: created from their configuration, replaced when that changes, drained.

Calls in flight at a replaced server complete there: the old one is stopped when it is unused, or
after its drain time.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from portico.catalog.entries import ServerSource
from portico.catalog.sync import Catalog, ServerSync
from portico.config import BackendConfig, Config, LimitsConfig, compute_fingerprint
from portico.events import EventBus
from portico.upstream.backend import Backend, Era
from portico.upstream.backends.factory import UnusableBackend, make_backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle.start_slots import StartSlots
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.transports.process import ProcessGuard

logger = logging.getLogger(__name__)

_GIVEN_BACKEND_CONFIG = BackendConfig(functions="given")
"""Configuration of a server that is a backend object rather than configuration."""


def make_source(name: str, server: BackendConfig) -> ServerSource:
    """Return what the configuration says about a server's listing."""
    return ServerSource(
        name,
        compute_fingerprint(server),
        server.title,
        server.description,
        server.tags,
        server.category,
        server.tools,
    )


class ServerRegistry:
    """All servers, by name."""

    def __init__(
        self,
        limits: LimitsConfig,
        given_backends: Mapping[str, Backend],
        catalog: Catalog,
        bus: EventBus,
        guard: ProcessGuard,
        mask: ErrorMask,
        data_dir: Path | None = None,
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
        self._mask = mask
        self._data_dir = data_dir
        self._starts = StartSlots(limits.call_starts)
        self._retire_tasks: set[asyncio.Task[None]] = set()
        for name, backend in given_backends.items():
            self._register(name, backend, _GIVEN_BACKEND_CONFIG)

    def add(self, name: str, server: BackendConfig) -> None:
        """Add or replace a server; nothing is started."""
        if name in self._given_backends:
            return
        backend = make_backend(
            name, server, self._limits, self._guard, self._mask.mask_text, self._data_dir
        )
        self._register(name, backend, server)

    def adjust(self, name: str, server: BackendConfig) -> None:
        """Apply new timeouts, restart and health rules to a server that keeps running."""
        if name in self._given_backends:
            return
        self.upstreams[name].configure(server.timeouts.start_s, server.restart, server.health)
        self.syncs[name].configure(server.timeouts.list_s, server.ttl_s)

    def _register(self, name: str, backend: Backend, server: BackendConfig) -> None:
        stored_era = self._catalog.eras.get(name)
        if stored_era == "modern":
            known_era: Era | None = "modern"
        elif stored_era:
            known_era = "legacy"
        else:
            known_era = None
        isolated = server.isolation == "session" and server is not _GIVEN_BACKEND_CONFIG
        upstream = Upstream(
            name,
            backend,
            self._bus,
            start_timeout=server.timeouts.start_s,
            isolated=isolated,
            max_instances=server.max_instances if isolated else 0,
            era=known_era,
            has_listing=self._catalog.snapshot.servers[name].is_listed,
            restart=server.restart,
            health=server.health,
            start_slots=self._starts,
            mask=self._mask,
            max_call_s=min(server.timeouts.call_s, self._limits.call_s),
        )
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
        task = asyncio.create_task(_retire(upstream, sync, drain_s), name=f"retire {name}")
        self._retire_tasks.add(task)
        task.add_done_callback(self._retire_tasks.discard)

    async def close(self) -> None:
        """Stop all servers."""
        for task in self._retire_tasks:
            task.cancel()
        # In this order and together: a server that becomes ready in between would still be listed.
        await asyncio.gather(
            *(upstream.stop() for upstream in self.upstreams.values()),
            *(sync.close() for sync in self.syncs.values()),
        )
        if self._retire_tasks:
            await asyncio.wait(self._retire_tasks)


async def _retire(upstream: Upstream, sync: ServerSync, drain_s: float) -> None:
    try:
        await sync.close()
        await upstream.retire(drain_s)
    except asyncio.CancelledError:
        # The gateway is shutting down: stop without draining.
        await upstream.stop()
        raise


def make_sources(config: Config, given_backends: Iterable[str]) -> list[ServerSource]:
    """Return the sources of all servers that are not disabled."""
    configured = [
        make_source(name, server) for name, server in config.servers.items() if not server.disabled
    ]
    return [*configured, *(ServerSource(name, "given") for name in given_backends)]
