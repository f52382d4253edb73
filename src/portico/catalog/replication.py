"""Shares listings with other gateways through the store: one writes, the others adopt.

Nothing waits for the store: listings are published locally first and written by a separate task. A
store that cannot be reached only stops the sharing.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

from portico.catalog.categories import to_category
from portico.catalog.heap import trim_heap
from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.storage.gateway_store import CategoryRow, GatewayStore, StoreUnavailable
from portico.storage.manifests import Manifest, ManifestStore
from portico.storage.rows import ChangeNotification, KnownServer, KnownTool

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""Seconds after a failure before the store is tried again."""
CATCH_UP_BATCH = 16
"""Servers whose manifests are read from disk at a time; all at once would take too much memory."""
FINAL_WRITE_TIMEOUT_S = 3.0
"""Seconds that the last write may take."""


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
        self.caught_up = asyncio.Event()
        """Set once the listings of others are adopted, or the store cannot be reached."""
        self.on_adopted: Callable[[str], None] | None = None
        self.on_tiers_changed: Callable[[], object] | None = None
        """Called when another gateway has recomputed the tiers."""
        catalog.on_listed = self._on_listed

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
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        await self._store.follow_changes(self._on_news, origin=self._origin)

    def _on_listed(self, manifests: Sequence[Manifest]) -> None:
        self._pending_manifests.update((manifest.server, manifest) for manifest in manifests)
        self._wake.set()

    def _on_news(self, news: ChangeNotification) -> None:
        if news.kind == "tiers":
            if self.on_tiers_changed is not None:
                self.on_tiers_changed()
            return
        self._changed_servers.update([news.server] if news.server else self._catalog.fingerprints)
        self._wake.set()

    async def _catch_up(self) -> None:
        fingerprints = self._catalog.fingerprints
        await self._adopt_servers(fingerprints)
        # Listings from before the store was open; `save_servers` skips what is unchanged.
        servers = list(fingerprints.items())
        is_any_saved = False
        for start in range(0, len(servers), CATCH_UP_BATCH):
            stored = await asyncio.to_thread(
                self._local.load, dict(servers[start : start + CATCH_UP_BATCH])
            )
            new = [
                manifest for name, manifest in stored.items() if name not in self._pending_manifests
            ]
            await self._save_manifests(new)
            is_any_saved = is_any_saved or bool(new)
        if is_any_saved:
            await self._save_categories()
        await self._write_pending()
        await asyncio.to_thread(trim_heap)

    async def _synchronize(self) -> None:
        await self._write_pending()
        changed = self._changed_servers
        self._changed_servers = set()
        try:
            await self._adopt_servers(changed)
        except BaseException:
            self._changed_servers |= changed
            raise

    async def _write_pending(self) -> None:
        pending = self._pending_manifests
        self._pending_manifests = {}
        try:
            if pending:
                await self._save_manifests(list(pending.values()))
                await self._save_categories()
        except BaseException:
            self._pending_manifests = {**pending, **self._pending_manifests}
            raise

    async def _save_manifests(self, manifests: Sequence[Manifest]) -> None:
        servers = await asyncio.to_thread(_build_known_servers, manifests, self._catalog.snapshot)
        if servers:
            await self._store.save_servers(servers, origin=self._origin)

    async def _save_categories(self) -> None:
        await self._store.save_categories(
            await asyncio.to_thread(_count_categories, self._catalog.snapshot)
        )

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


def _build_known_servers(manifests: Iterable[Manifest], snapshot: Snapshot) -> list[KnownServer]:
    return [
        _build_known_server(manifest, snapshot)
        for manifest in manifests
        if manifest.server in snapshot.servers
    ]


def _build_known_server(manifest: Manifest, snapshot: Snapshot) -> KnownServer:
    entry = snapshot.servers[manifest.server]
    tools = tuple(
        KnownTool(tool.name, tool.hash, snapshot.get_category(tool.address))
        for tool in entry.tools.values()
    )
    return KnownServer(manifest, entry.title, snapshot.main_categories[entry.name], tools)


def _count_categories(snapshot: Snapshot) -> list[CategoryRow]:
    tools = {
        key: sum(map(len, servers.values())) for key, servers in snapshot.tools_by_category.items()
    }
    servers = Counter(key for key in snapshot.main_categories.values())
    return [
        CategoryRow(key, to_category(key).title, to_category(key).description, number, servers[key])
        for key, number in sorted(tools.items())
    ]
