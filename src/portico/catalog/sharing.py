"""Shares what is known of servers with other gateways: what one lists is on record, and the others adopt it.

Nobody waits for the record: listings show here first, and are written by a task of their own. A record that cannot be
reached costs only the sharing.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

from portico.catalog.categories import category_of
from portico.catalog.snapshot import Snapshot
from portico.catalog.spare_memory import give_back
from portico.catalog.sync import Catalog
from portico.storage.manifests import Manifest, Manifests
from portico.storage.record import CategoryRow, Record, RecordUnavailable
from portico.storage.rows import KnownServer, KnownTool, News

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""How long after a failure the record is tried again."""
CAUGHT_UP = 16
"""Servers whose manifests are read from disk again at a time, to be put on record: all at once would be as much memory
as everything that is known."""
END_PATIENCE_S = 3.0
"""How long the last write may take."""


class Sharing:
    """One gateway's part in what all know."""

    def __init__(self, catalog: Catalog, local: Manifests, record: Record, *, origin: str) -> None:
        """`origin` tells our own news from others'."""
        self._catalog = catalog
        self._local = local
        self._record = record
        self._origin = origin
        self._listed: dict[str, Manifest] = {}
        self._news: set[str] = set()
        self._wake = asyncio.Event()
        self.caught_up = asyncio.Event()
        """What others know is known here, or cannot be had now."""
        self.on_adopted: Callable[[str], None] | None = None
        self.on_tiers: Callable[[], object] | None = None
        """Another gateway computed the tiers anew."""
        catalog.on_listed = self._heard_listing

    async def run(self) -> None:
        """Catch up, then share until cancelled."""
        following = asyncio.create_task(self._persist(self._follow), name="follow the record")
        try:
            await self._persist(self._catch_up)
            self.caught_up.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._persist(self._exchange)
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def finish(self) -> None:
        """Write what is still waiting to be written, but not for long."""
        with contextlib.suppress(RecordUnavailable, TimeoutError):
            await asyncio.wait_for(self._write(), END_PATIENCE_S)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Try until it is done."""
        while True:
            try:
                await work()
                return
            except RecordUnavailable as error:
                logger.debug("what is known cannot be shared now: %s", error.message)
            except Exception:  # whatever a database says, the gateway goes on
                logger.exception("what is known could not be shared")
            self.caught_up.set()
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        await self._record.follow(self._heard_news, origin=self._origin)

    def _heard_listing(self, manifests: Sequence[Manifest]) -> None:
        self._listed.update((manifest.server, manifest) for manifest in manifests)
        self._wake.set()

    def _heard_news(self, news: News) -> None:
        if news.kind == "tiers":
            if self.on_tiers is not None:
                self.on_tiers()
            return
        self._news.update([news.server] if news.server else self._catalog.fingerprints)
        self._wake.set()

    async def _catch_up(self) -> None:
        fingerprints = self._catalog.fingerprints
        await self._adopt(fingerprints)
        # What was listed before anybody could be told: the record leaves alone what it has.
        servers, saved = list(fingerprints.items()), False
        for at in range(0, len(servers), CAUGHT_UP):
            kept = await asyncio.to_thread(self._local.load, dict(servers[at : at + CAUGHT_UP]))
            new = [manifest for name, manifest in kept.items() if name not in self._listed]
            await self._save(new)
            saved = saved or bool(new)
        if saved:
            await self._save_categories()
        await self._write()
        await asyncio.to_thread(give_back)

    async def _exchange(self) -> None:
        await self._write()
        news, self._news = self._news, set()
        try:
            await self._adopt(news)
        except BaseException:
            self._news |= news
            raise

    async def _write(self) -> None:
        waiting, self._listed = self._listed, {}
        try:
            if waiting:
                await self._save(list(waiting.values()))
                await self._save_categories()
        except BaseException:
            self._listed = {**waiting, **self._listed}
            raise

    async def _save(self, manifests: Sequence[Manifest]) -> None:
        servers = await asyncio.to_thread(_all_known, manifests, self._catalog.snapshot)
        if servers:
            await self._record.save_servers(servers, origin=self._origin)

    async def _save_categories(self) -> None:
        await self._record.save_categories(await asyncio.to_thread(_counted, self._catalog.snapshot))

    async def _adopt(self, servers: Iterable[str]) -> None:
        known = self._catalog.snapshot.servers
        wanted = {name: print_ for name, print_ in self._catalog.fingerprints.items() if name in set(servers)}
        if not wanted:
            return
        found = await self._record.manifests(wanted, {name: known[name].listed_at for name in wanted})
        # Together: one after the other, each would have the whole index built anew.
        async with asyncio.TaskGroup() as adopting:
            for manifest in found.values():
                adopting.create_task(self._adopt_one(manifest), name=f"adopt {manifest.server}")
                await asyncio.sleep(0)

    async def _adopt_one(self, manifest: Manifest) -> None:
        try:
            if await self._catalog.adopt(manifest) and self.on_adopted is not None:
                self.on_adopted(manifest.server)
        except Exception:  # what is wrong with one costs no other
            logger.exception("what another gateway listed of %s cannot be used", manifest.server)


def _all_known(manifests: Iterable[Manifest], snapshot: Snapshot) -> list[KnownServer]:
    return [_known(manifest, snapshot) for manifest in manifests if manifest.server in snapshot.servers]


def _known(manifest: Manifest, snapshot: Snapshot) -> KnownServer:
    entry = snapshot.servers[manifest.server]
    tools = tuple(KnownTool(tool.name, tool.hash, snapshot.category(tool.address)) for tool in entry.tools.values())
    return KnownServer(manifest, entry.title, snapshot.main_categories[entry.name], tools)


def _counted(snapshot: Snapshot) -> list[CategoryRow]:
    tools = {key: sum(map(len, servers.values())) for key, servers in snapshot.by_category.items()}
    servers = Counter(key for key in snapshot.main_categories.values())
    return [
        CategoryRow(key, category_of(key).title, category_of(key).description, number, servers[key])
        for key, number in sorted(tools.items())
    ]
