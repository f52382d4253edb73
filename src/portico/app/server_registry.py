"""The servers behind the gateway: made from their configuration, replaced when that changes, let go
in peace.

Whoever has begun a call with a server that is replaced finishes it there: the old one goes when
nobody is at work with it any more, or when its time is up.
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
"""What holds of a server that is an object rather than configuration."""


def make_source(name: str, server: BackendConfig) -> ServerSource:
    """What the configuration says about a server's offer."""
    title = server.title
    description = server.description
    tags = server.tags
    return ServerSource(
        name, compute_fingerprint(server), title, description, tags, server.category, server.tools
    )


class ServerRegistry:
    """All of them, by name."""

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
        """`given` are servers that are objects rather than configuration: they stay whatever is configured."""
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
        """One more, or another in its place; nothing is started."""
        if name in self._given_backends:
            return
        backend = make_backend(
            name, server, self._limits, self._guard, self._mask.mask_text, self._data_dir
        )
        self._register(name, backend, server)

    def adjust(self, name: str, server: BackendConfig) -> None:
        """It stays; how long it is waited for and how it is looked after is another matter."""
        timeouts = server.timeouts
        if name in self._given_backends:
            return
        self.upstreams[name].configure(timeouts.start_s, server.restart, server.health)
        self.syncs[name].configure(timeouts.list_s, server.ttl_s)

    def _register(self, name: str, backend: Backend, server: BackendConfig) -> None:
        era = self._catalog.eras.get(name)
        if era == "modern":
            remembered: Era | None = "modern"
        elif era:
            remembered = "legacy"
        else:
            remembered = None
        isolated = server.isolation == "session" and server is not _GIVEN_BACKEND_CONFIG
        upstream = Upstream(
            name,
            backend,
            self._bus,
            start_timeout=server.timeouts.start_s,
            isolated=isolated,
            max_instances=server.max_instances if isolated else 0,
            era=remembered,
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
        """Take one away; calls under way are given time to end."""
        if name in self._given_backends:
            return
        upstream = self.upstreams.pop(name)
        sync = self.syncs.pop(name)
        going = asyncio.create_task(_retire(upstream, sync, drain_s), name=f"let {name} go")
        self._retire_tasks.add(going)
        going.add_done_callback(self._retire_tasks.discard)

    async def close(self) -> None:
        """Stop them all."""
        for going in self._retire_tasks:
            going.cancel()
        # In this order, in one go: a server that gets ready in between would be listed by nobody's
        # leave.
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
        # The gateway ends: there is no time to give.
        await upstream.stop()
        raise


def make_sources(config: Config, given_backends: Iterable[str]) -> list[ServerSource]:
    """Every server's, of those that are not switched off."""
    configured = [
        make_source(name, server) for name, server in config.servers.items() if not server.disabled
    ]
    return [*configured, *(ServerSource(name, "given") for name in given_backends)]
