"""Work in the background of a running gateway: first starts, the encoder, and regular upkeep."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from portico.catalog.catalog import trim_heap
from portico.errors import PorticoError
from portico.events import EventBus, StandingsChanged
from portico.gateway.server_registry import ServerRegistry
from portico.search import EncoderUnavailable

if TYPE_CHECKING:
    from portico.gateway.runtime import GatewayRuntime

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL_S = 15.0
ENCODER_LOAD_DELAY_S = 2.0
"""Seconds after the start until the encoder's model is loaded, so that it does not delay the first
handshake."""
RECORD_OPEN_DELAY_S = 1.0
"""Seconds after the start until the database is opened, for the same reason; a call opens it at
once."""
_REMOTE_KINDS = ("stdio", "http")
"""Kinds of servers whose start takes a process or a connection."""
SHARED_CATALOG_WAIT_S = 3.0
"""Seconds that the start of servers without a listing waits for listings of other gateways."""
FIRST_LISTING_S = 5.0
"""Seconds after the gateway's start within which a search waits for servers that were never
listed."""
FIRST_START_DELAY_S = 2.0
"""Seconds after the gateway's start until servers that were never listed are started, where others
are known, so that they do not delay the first handshake and the first answer."""
START_SLOT_S = 5.0
"""Seconds for which a start counts against `limits.start_concurrency`."""


async def start_servers(gateway: "GatewayRuntime") -> None:
    is_any_unlisted = any(it.state == "configured" for it in gateway.upstreams.values())
    if gateway.store.is_shared and is_any_unlisted:
        # Listings of another gateway save the start of servers that were never listed here.
        caught_up = gateway.catalog_replication.caught_up
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(caught_up.wait(), SHARED_CATALOG_WAIT_S)
    upstreams = gateway.upstreams
    names = select_servers_to_start(gateway, upstreams)
    late = [
        name
        for name in names
        if upstreams[name].state == "configured" and upstreams[name].backend.kind in _REMOTE_KINDS
    ]
    if len(late) == len(upstreams):
        late = []  # nothing is known yet, so that the first answer waits for them
    await asyncio.gather(
        gateway.warmup.start_and_list(name for name in names if name not in late),
        gateway.warmup.start_and_list_late(late),
    )


def select_servers_to_start(gateway: "GatewayRuntime", names: Iterable[str]) -> list[str]:
    """Select the servers to start without a call: `start: boot`, never listed, or subscribed to."""
    configured = gateway.config.servers
    return [
        name
        for name in names
        if gateway.upstreams[name].state == "configured"
        or (name in configured and configured[name].start == "boot")
        or gateway.subscription_registry.list_subscriptions(name)
    ]


async def load_encoder(gateway: "GatewayRuntime") -> None:
    """Load the encoder before the first search, and compute missing embeddings of known tools."""
    await asyncio.sleep(ENCODER_LOAD_DELAY_S)
    index = gateway.catalog.snapshot.index
    if index.encoder is not None and len(index):
        with contextlib.suppress(EncoderUnavailable):
            await asyncio.to_thread(index.encoder.load)
            gateway.catalog.start_encoding()


async def replicate_catalog(gateway: "GatewayRuntime") -> None:
    """Exchange listings with the database, once it is open."""
    if not gateway.store.is_shared:
        await asyncio.sleep(RECORD_OPEN_DELAY_S)
    await gateway.catalog_replication.run()


async def run_maintenance(gateway: "GatewayRuntime") -> None:
    await asyncio.sleep(MAINTENANCE_INTERVAL_S)
    await asyncio.to_thread(trim_heap)  # frees what only start-up needed
    reported: dict[str, str] = {}
    while True:
        gateway.calls.cache.expire()
        gateway.runtimes.expire()
        # Concurrently: one server that does not stop must not delay the others.
        jobs = {
            "learning": gateway.learner.flush(),
            "pins": gateway.catalog.follow_pins(),
            "large results": asyncio.to_thread(gateway.results.store.sweep),
            **{name: _maintain_server(gateway, name) for name in gateway.upstreams},
        }
        outcomes = await asyncio.gather(*jobs.values(), return_exceptions=True)
        for name, outcome in zip(jobs, outcomes, strict=True):
            problem = repr(outcome) if isinstance(outcome, Exception) else ""
            if problem and problem != reported.get(name):
                logger.error("maintenance of %s failed: %s", name, problem)
            reported[name] = problem
        await asyncio.sleep(MAINTENANCE_INTERVAL_S)


async def _maintain_server(gateway: "GatewayRuntime", name: str) -> None:
    upstream = gateway.upstreams[name]
    server = gateway.config.servers.get(name)
    watchers = gateway.subscription_registry.list_session_ids(name)
    gateway.servers.syncs[name].refresh_if_expired()
    # An unlisted server has no tools to call, so no call would ever start it again.
    keeps_running = not gateway.catalog.snapshot.servers[name].is_listed or (
        server is not None and server.start == "boot"
    )
    await upstream.maintain(restart_if_down=bool(watchers) or keeps_running)
    can_stop = upstream.backend.kind == "stdio" or upstream.isolated
    if server is not None and server.idle_s and can_stop:
        await upstream.stop_if_idle(server.idle_s, watchers)


async def update_standings(gateway: "GatewayRuntime") -> None:
    """Recompute tiers if it is time, and publish that they changed."""
    standings = gateway.usage_data.standings
    before = standings.computed_at
    await standings.maintain()
    if standings.computed_at != before:
        gateway.bus.publish(StandingsChanged())


class ServerWarmup:
    """Starts and lists servers that no client has called."""

    def __init__(self, servers: ServerRegistry, bus: EventBus, concurrency: int) -> None:
        self._servers = servers
        self._bus = bus
        self._concurrency = concurrency
        self._started_at = time.monotonic()
        self._startup_task: asyncio.Task[None] | None = None
        self._is_awaited = asyncio.Event()
        """Set when somebody waits for first listings."""

    def set_startup_task(self, task: "asyncio.Task[None]") -> None:
        """Set the task that starts servers after the gateway's start or a new configuration."""
        self._started_at = time.monotonic()
        self._startup_task = task

    @property
    def is_done(self) -> bool:
        """Whether all servers of the startup task have been listed or have failed."""
        return self._startup_task is not None and self._startup_task.done()

    async def start_and_list(
        self, names: Iterable[str], on_done: Callable[[str], None] | None = None
    ) -> None:
        """Start and list these servers; `on_done` is called with each name as it is done."""
        slots = asyncio.Semaphore(self._concurrency)

        async def start_and_list_one(name: str) -> None:
            try:
                # Only this startup is limited: a call to any of these servers starts it at once.
                async with slots:
                    # Servers that never answer must not block the others until they time out.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(
                            self._servers.upstreams[name].connect(), START_SLOT_S
                        )
                await self._servers.syncs[name].refresh()
            except PorticoError as error:
                logger.info("%s was not started: %s", name, error.message)
            except KeyError:
                logger.debug("%s was removed before it was started", name)
            except Exception:  # boundary: one server's failure must not affect the others
                logger.exception("%s could not be started or listed", name)
            if on_done is not None:
                on_done(name)

        await asyncio.gather(*(start_and_list_one(name) for name in names))

    async def start_and_list_late(self, names: Collection[str]) -> None:
        """Start and list these servers after a moment, or as soon as somebody waits for them."""
        if names:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_awaited.wait(), FIRST_START_DELAY_S)
            await self.start_and_list(names)

    async def wait_until_listed(self) -> None:
        """Wait until every server that starts with the gateway has been listed or has failed."""
        self._is_awaited.set()
        if self._startup_task is not None:
            await asyncio.shield(self._startup_task)

    async def wait_for_first_listing(self, is_enough: Callable[[], bool]) -> None:
        """Wait until `is_enough`, at most `FIRST_LISTING_S` after the start: one server that never
        answers must not delay searches for long."""
        self._is_awaited.set()
        timeout_s = self._started_at + FIRST_LISTING_S - time.monotonic()
        startup = self._startup_task
        if startup is None or timeout_s <= 0:
            return
        changed = asyncio.Event()
        wake: Callable[[object], None] = lambda _: changed.set()  # noqa: E731
        unsubscribe = self._bus.subscribe(wake)
        startup.add_done_callback(wake)
        try:
            async with asyncio.timeout(timeout_s):
                while not startup.done() and not is_enough():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            unsubscribe()
            startup.remove_done_callback(wake)
