"""Lists each server when it is due, and shares listings with other gateways through the store.

Nothing waits for the store: listings are published locally first and written by a separate task. A
store that cannot be reached only stops the sharing.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from portico.catalog.catalog import Catalog, trim_heap
from portico.catalog.listing import fetch_listing
from portico.errors import PorticoError, SignInNeeded
from portico.events import EventBus, ListChangeAnnounced, ResourceUpdated
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.manifests import Manifest, ManifestStore
from portico.storage.rows import ChangeNotification
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream

logger = logging.getLogger(__name__)

DEBOUNCE_S = 0.05
LONGEST_DEBOUNCE_S = 0.4
"""A burst of list changes causes one listing; a server that keeps changing is listed at doubling
intervals up to this limit."""
CALM_PERIOD_S = 2.0
"""Seconds without a listing after which the debounce interval is reset."""
_ANNOUNCEMENTS = {
    f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")
}


PINS_TIMEOUT_S = 10.0
"""Seconds that a listing may wait for the pins that gateways share."""
RETRY_S = 5.0
"""Seconds after a failure before the store is tried again."""
CATCH_UP_BATCH = 16
"""Servers whose manifests are read from disk at a time; all at once would take too much memory."""
FINAL_WRITE_TIMEOUT_S = 3.0
"""Seconds that the last write may take."""


class ServerSync:
    """Lists one server on connect, on change notifications, and when its listing expires."""

    def __init__(
        self, upstream: Upstream, catalog: Catalog, bus: EventBus, *, timeout: float, ttl: float
    ) -> None:
        self._upstream = upstream
        self._catalog = catalog
        self._bus = bus
        self._timeout = timeout
        self._ttl = ttl
        self._is_listing_wanted = False
        self._announced_lists: set[str] = set()
        self._listing_task: asyncio.Task[None] | None = None
        self._debounce_s = DEBOUNCE_S
        self._listed_at = -CALM_PERIOD_S
        upstream.on_connected = self.request_listing
        upstream.on_notification = self._on_notification

    def configure(self, timeout: float, ttl: float) -> None:
        """Set the timeout of a listing and its time to live, in seconds."""
        self._timeout = timeout
        self._ttl = ttl

    async def refresh(self) -> None:
        """List now, starting the server if needed; concurrent callers share one listing."""
        if self._upstream.any_connection is None:
            await self._upstream.connect()
        if self._listing_task is None or self._listing_task.done():
            self.request_listing()
        assert self._listing_task is not None
        await asyncio.shield(self._listing_task)

    async def wait_for_listing(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for a running listing, without cancelling it."""
        listing = self._listing_task
        if listing is not None and not listing.done():
            await asyncio.wait({listing}, timeout=timeout)

    def request_listing(self) -> None:
        self._is_listing_wanted = True
        if self._listing_task is None or self._listing_task.done():
            self._listing_task = asyncio.create_task(
                self._run_listings(), name=f"list {self._upstream.name}"
            )

    def refresh_if_expired(self) -> None:
        """List again if the server is up, its listing has expired and none is running."""
        if self._listing_task is not None and not self._listing_task.done():
            return
        entry = self._catalog.snapshot.servers[self._upstream.name]
        if (
            self._upstream.state in ("ready", "degraded")
            and time.time() - entry.listed_at > self._ttl
        ):
            self.request_listing()

    async def close(self) -> None:
        if self._listing_task is not None:
            self._listing_task.cancel()
            await asyncio.wait({self._listing_task})

    def _on_notification(self, method: str, params: Raw, session: str) -> None:
        if method in _ANNOUNCEMENTS:
            self._announced_lists.add(_ANNOUNCEMENTS[method])
            self.request_listing()
        elif method == "notifications/resources/updated":
            self._bus.publish(
                ResourceUpdated(self._upstream.name, str(params.get("uri", "")), session)
            )

    def _compute_debounce(self) -> float:
        entry = self._catalog.snapshot.servers.get(self._upstream.name)
        if entry is None or not entry.is_listed:
            return 0
        self._debounce_s = min(2 * self._debounce_s, LONGEST_DEBOUNCE_S)
        if time.monotonic() - self._listed_at >= CALM_PERIOD_S:
            self._debounce_s = DEBOUNCE_S
        return self._debounce_s

    async def _run_listings(self) -> None:
        while self._is_listing_wanted:
            await asyncio.sleep(self._compute_debounce())
            # A change announced after this point requests another listing; earlier ones are
            # covered.
            self._is_listing_wanted = False
            announced = self._announced_lists
            self._announced_lists = set()
            connection = self._upstream.any_connection
            if connection is None:
                return  # disconnected; the next connect requests a listing
            try:
                listing = await fetch_listing(connection, self._timeout)
                self._listed_at = time.monotonic()
                self._upstream.mark_listed()
                await self._catalog.accept_listing(self._upstream.name, listing)
            except SignInNeeded as error:
                self._upstream.mark_sign_in_needed(error)
                continue
            except PorticoError as error:
                self._upstream.degrade(f"it could not be listed: {error.message}")
                logger.warning("%s could not be listed: %s", self._upstream.name, error.message)
                continue
            except Exception as error:  # input from a server must not break this task
                self._upstream.degrade(f"it could not be listed: {type(error).__name__}: {error}")
                logger.exception("%s could not be listed", self._upstream.name)
                continue
            for kind in sorted(announced):
                self._bus.publish(ListChangeAnnounced(self._upstream.name, kind))


class CatalogReplication:
    """Writes this gateway's listings to the store and adopts those of others."""

    def __init__(
        self, catalog: Catalog, local: ManifestStore, store: GatewayStore, *, origin: str
    ) -> None:
        """`origin` identifies this gateway's own change notifications."""
        self._catalog = catalog
        self._local = local
        self._store = store
        self._origin = origin
        self._pending_manifests: dict[str, Manifest] = {}
        self._changed_servers: set[str] = set()
        self._wake = asyncio.Event()
        self._pinned_servers: set[str] = set()
        self._pins_known = asyncio.Event()
        self.caught_up = asyncio.Event()
        """Set once the listings of others are adopted, or the store cannot be reached."""
        self.on_adopted: Callable[[str], None] | None = None
        self.on_tiers_changed: Callable[[], object] | None = None
        """Called when another gateway has recomputed the tiers."""
        catalog.on_listed = self._on_listed
        if store.is_shared:
            catalog.on_pinned = self._on_pinned

    async def wait_for_pins(self) -> None:
        """Wait until the shared pins are known, or cannot be read, for PINS_TIMEOUT_S at most."""
        if not self._pins_known.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pins_known.wait(), PINS_TIMEOUT_S)

    async def run(self) -> None:
        """Catch up, then synchronize until cancelled."""
        following = asyncio.create_task(
            self._retry_until_done(self._follow), name="follow the store"
        )
        try:
            await self._retry_until_done(self._catch_up)
            self.caught_up.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._retry_until_done(self._synchronize)
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def flush(self) -> None:
        """Write pending manifests, within `FINAL_WRITE_TIMEOUT_S`."""
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            await asyncio.wait_for(self._write_pending(), FINAL_WRITE_TIMEOUT_S)

    async def _retry_until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat `work` every `RETRY_S` seconds until it succeeds."""
        while True:
            try:
                await work()
                return
            except StoreUnavailable as error:
                logger.debug("the catalog cannot be shared now: %s", error.message)
            except Exception:  # a database error must not end the task
                logger.exception("the catalog could not be shared")
            self.caught_up.set()
            self._pins_known.set()
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        await self._store.follow_changes(self._on_news, origin=self._origin)

    def _on_listed(self, manifests: Sequence[Manifest]) -> None:
        self._pending_manifests.update((manifest.server, manifest) for manifest in manifests)
        self._wake.set()

    def _on_pinned(self, servers: Collection[str]) -> None:
        self._pinned_servers.update(servers)
        self._wake.set()

    def _on_news(self, news: ChangeNotification) -> None:
        if news.kind == "pins":
            self._on_pinned([news.server] if news.server else self._catalog.fingerprints)
            return
        if news.kind == "tiers":
            if self.on_tiers_changed is not None:
                self.on_tiers_changed()
            return
        self._changed_servers.update([news.server] if news.server else self._catalog.fingerprints)
        self._wake.set()

    async def _catch_up(self) -> None:
        fingerprints = self._catalog.fingerprints
        # Before any listing is trusted on first sight, here or in another gateway's manifest.
        await self._exchange_pins(fingerprints)
        self._pins_known.set()
        await self._adopt_servers(fingerprints)
        # Listings from before the store was open; `save_manifests` skips what is unchanged.
        servers = list(fingerprints.items())
        for start in range(0, len(servers), CATCH_UP_BATCH):
            stored = await asyncio.to_thread(
                self._local.load, dict(servers[start : start + CATCH_UP_BATCH])
            )
            new = [
                manifest for name, manifest in stored.items() if name not in self._pending_manifests
            ]
            await self._store.save_manifests(new, origin=self._origin)
        await self._write_pending()
        await asyncio.to_thread(trim_heap)

    async def _synchronize(self) -> None:
        pinned = self._pinned_servers
        self._pinned_servers = set()
        try:
            await self._exchange_pins(pinned)
        except BaseException:
            self._pinned_servers |= pinned
            raise
        await self._write_pending()
        changed = self._changed_servers
        self._changed_servers = set()
        try:
            await self._adopt_servers(changed)
        except BaseException:
            self._changed_servers |= changed
            raise

    async def _exchange_pins(self, names: Iterable[str]) -> None:
        """Share the pins of servers, and review these again by the pins of others."""
        servers = [name for name in names if name in self._catalog.fingerprints]
        if not servers or not self._store.is_shared:
            return
        pins = self._catalog.pin_store
        own = await asyncio.to_thread(pins.list_pins, servers)
        found = await self._store.exchange_pins(
            servers, own, lambda rows: asyncio.to_thread(pins.complete, rows), origin=self._origin
        )
        await asyncio.to_thread(pins.save, found.received)
        await asyncio.to_thread(pins.drop, found.overruled)
        differing = {row.server for row in (*found.received, *found.overruled)}
        self._pins_known.set()
        await self._catalog.review_again(sorted(differing))

    async def _write_pending(self) -> None:
        pending = self._pending_manifests
        self._pending_manifests = {}
        try:
            await self._store.save_manifests(list(pending.values()), origin=self._origin)
        except BaseException:
            self._pending_manifests = {**pending, **self._pending_manifests}
            raise

    async def _adopt_servers(self, servers: Iterable[str]) -> None:
        known = self._catalog.snapshot.servers
        wanted = {
            name: fingerprint
            for name, fingerprint in self._catalog.fingerprints.items()
            if name in set(servers)
        }
        if not wanted:
            return
        found = await self._store.load_manifests(
            wanted, {name: known[name].listed_at for name in wanted}
        )
        # Concurrently, because each alone would rebuild the whole index.
        async with asyncio.TaskGroup() as group:
            for manifest in found.values():
                group.create_task(self._adopt_manifest(manifest), name=f"adopt {manifest.server}")
                await asyncio.sleep(0)

    async def _adopt_manifest(self, manifest: Manifest) -> None:
        try:
            if await self._catalog.adopt_manifest(manifest) and self.on_adopted is not None:
                self.on_adopted(manifest.server)
        except Exception:  # one bad manifest must not affect the others
            logger.exception("the stored listing of %s cannot be used", manifest.server)
