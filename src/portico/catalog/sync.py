"""Keeps the snapshot true: from disk at once, from each server when it connects, says so, or was not asked for long.

A new listing is compared with the old one by hash. Only if something differs is a new snapshot built, off the event
loop, swapped in whole, and told as `CatalogChanged`. Listings that arrive together are built together.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from portico.catalog.documents import document_hashes, documents
from portico.catalog.entries import Source, difference, listed, manifest_of, remembered, unknown
from portico.catalog.listing import Listing, Offers, fetch
from portico.catalog.meanings import Meanings, gathered, with_vectors
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.spare_memory import give_back
from portico.errors import PorticoError
from portico.events import Bus, CatalogChanged, ListAnnounced, MeaningsKnown, ResourceUpdated
from portico.search import Index
from portico.storage.index_file import IndexFile, unload
from portico.storage.manifests import Manifest, Manifests
from portico.upstream.backend import Raw
from portico.upstream.supervisor import Upstream

logger = logging.getLogger(__name__)

DEBOUNCE_S, LONGEST_DEBOUNCE_S = 0.05, 0.4
"""A burst of list changes is one listing. A server that goes on is listed at longer and longer intervals."""
CALM_S = 2.0
"""After so long without a listing, the next change is listed soon again."""
ENCODED_S = 1.0
"""Vectors that come within this time are put into the index together."""
_ANNOUNCEMENTS = {f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")}


@dataclass(frozen=True)
class _Arrived:
    """A server's offer on its way into the snapshot."""

    entry: ServerEntry
    manifest: Manifest
    ours: bool = True
    """We listed it ourselves: others do not know it yet."""


class Catalog:
    """Holds the snapshot, and the only one who replaces it."""

    def __init__(
        self,
        sources: Iterable[Source],
        manifests: Manifests,
        bus: Bus,
        *,
        index_file: IndexFile | None = None,
        meanings: Meanings | None = None,
    ) -> None:
        """`index_file` keeps the search index from start to start; without `meanings`, words alone are searched."""
        self._sources = {source.name: source for source in sources}
        self._manifests = manifests
        self._bus = bus
        self._index_file = index_file or IndexFile(None)
        self._meanings = meanings
        self._encoding: asyncio.Task[None] | None = None
        self._not_encoded_because = ""
        self._changing = asyncio.Lock()
        self._saving = threading.Lock()
        self._arrived: dict[str, _Arrived] = {}
        self._publishing: asyncio.Task[None] | None = None
        self._unusable: dict[str, Exception] = {}
        self.eras: dict[str, str] = {}
        self.on_listed: Callable[[Sequence[Manifest]], None] | None = None
        """Told what was listed here, when the snapshot shows it."""
        self.snapshot = Snapshot({name: unknown(source) for name, source in self._sources.items()})
        self._stored = self.snapshot.index

    @property
    def unencoded(self) -> int:
        """How many tools cannot be searched by meaning yet."""
        return self._meanings.missing(self.snapshot) if self._meanings else 0

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Every server with the fingerprint of its configuration."""
        return {name: source.fingerprint for name, source in self._sources.items()}

    def load(self) -> None:
        """Take what is on disk; no server is asked."""
        found = self._manifests.load(dict(self.fingerprints))
        servers = {name: remembered(source, found.get(name)) for name, source in self._sources.items()}
        self.eras = {name: manifest.era for name, manifest in found.items()}
        self._stored = _stored_index(self._index_file, self._meanings)
        self.snapshot = _indexed(servers, self._stored)

    async def configure(self, sources: Iterable[Source]) -> None:
        """Know these servers from now on, and no others; what is known of those that stay is kept.

        One that is reached otherwise than before shows what it offered until it has been listed again.
        """
        async with self._changing:
            before, old = self.snapshot, self._sources
            new = {source.name: source for source in sources}
            wanted = [{name: one.fingerprint for name, one in known.items()} for known in (old, new)]
            earlier, found = [await asyncio.to_thread(self._manifests.load, prints) for prints in wanted]
            servers = {
                name: before.servers[name]
                if old.get(name) == source
                else remembered(source, found.get(name) or earlier.get(name))
                for name, source in new.items()
            }
            snapshot = await asyncio.to_thread(_prepared, servers, before)
            gone = {name: replace(before.servers[name], tools={}, offers=Offers()) for name in old if name not in new}
            pairs = [(before.servers.get(name) or unknown(new[name]), servers[name]) for name in servers]
            pairs += [(before.servers[name], entry) for name, entry in gone.items()]
            changes = await asyncio.to_thread(_differences, pairs)
            # From here on nothing is awaited: whoever configures the catalog goes on with what hangs on it.
            self._sources, self.snapshot = new, snapshot
            self.eras = {name: era for name, era in self.eras.items() if name in new} | {
                name: manifest.era for name, manifest in found.items() if name not in old
            }
        self.encode()
        for change in changes:
            if change.tools or change.resources or change.prompts:
                self._bus.publish(change)

    async def accept(self, server: str, listing: Listing) -> None:
        """Take a fresh listing; returns when the snapshot shows it."""
        source = self._sources.get(server)
        if source is None:
            return  # it was taken away while it was listed
        if not listing.is_large:
            arrived = _take_in(source, listing)
        else:
            arrived = await asyncio.to_thread(_take_in, source, listing)
            if self._sources.get(server) is not source:
                return  # it was taken away, or configured otherwise, meanwhile
        self.eras[server] = listing.hello.era
        await self._arrive(arrived)

    async def adopt(self, manifest: Manifest) -> bool:
        """Take what another gateway listed, if it is news here; returns when the snapshot shows it."""
        source = self._sources.get(manifest.server)
        if source is None or source.fingerprint != manifest.fingerprint:
            return False
        entry = await asyncio.to_thread(remembered, source, manifest)
        if self._sources.get(source.name) is not source:
            return False  # it was taken away, or configured otherwise, meanwhile
        if entry.listed_at <= self.snapshot.servers[source.name].listed_at:
            return False
        self.eras.setdefault(source.name, manifest.era)
        await self._arrive(_Arrived(entry, manifest, ours=False))
        return True

    async def _arrive(self, arrived: _Arrived) -> None:
        server = arrived.entry.name
        self._arrived[server] = arrived
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish(), name="publish the catalog")
        await asyncio.shield(self._publishing)
        if (error := self._unusable.pop(server, None)) is not None:
            raise error

    async def close(self) -> None:
        """Finish what is being published, and stop encoding."""
        if self._meanings is not None and self._encoding is not None:
            # Not cancelled: that would leave its thread at work.
            self._meanings.stop()
            await asyncio.wait({self._encoding}, timeout=10)
        if self._publishing is not None and not self._publishing.done():
            await asyncio.wait({self._publishing}, timeout=10)

    def encode(self) -> asyncio.Task[None] | None:
        """See to it that every tool gets its vector; the task ends when all have, or none can be made."""
        if self._meanings is None:
            return None
        if self._encoding is None or self._encoding.done():
            self._encoding = asyncio.create_task(self._encode(self._meanings), name="encode the catalog")
        return self._encoding

    async def _encode(self, meanings: Meanings) -> None:
        try:
            await self._bring(meanings)
            self._bus.publish(MeaningsKnown())
        except Exception as error:  # words still work, and the next listing tries again
            reason = f"{type(error).__name__}: {error}"
            if reason != self._not_encoded_because:
                logger.exception("some tools cannot be searched by meaning yet: they could not be encoded")
            self._not_encoded_because = reason

    async def _bring(self, meanings: Meanings) -> None:
        while meanings.missing(snapshot := self.snapshot):
            brought, came = meanings.bring(snapshot), False
            wait = 0.0  # what was kept is there at once
            while vectors := await asyncio.to_thread(gathered, brought, wait):
                came, wait = True, ENCODED_S
                async with self._changing:
                    now = self.snapshot
                    self.snapshot = now.with_index(await asyncio.to_thread(with_vectors, now, snapshot, vectors))
            if not came:
                return
            if not meanings.missing(self.snapshot):
                # Whatever is listed meanwhile is looked for once more: nobody else would.
                await asyncio.to_thread(self._save_index)
                await asyncio.to_thread(give_back)

    async def _publish(self) -> None:
        while self._arrived:
            batch, self._arrived = self._arrived, {}
            try:
                await self._take(batch)
            except Exception:  # one of them is no good: each alone, so that only that one is left out
                for name, arrived in batch.items():
                    try:
                        await self._take({name: arrived})
                    except Exception as error:
                        self._unusable[name] = error

    async def _take(self, batch: Mapping[str, _Arrived]) -> None:
        # One change at a time, or one would undo the other.
        async with self._changing:
            before = self.snapshot
            # Whoever was configured otherwise, or away, since it was listed is listed again, or not at all.
            batch = {name: one for name, one in batch.items() if self._expects(one.manifest)}
            servers = {**before.servers, **{name: one.entry for name, one in batch.items()}}
            snapshot = await asyncio.to_thread(_prepared, servers, before)
            pairs = [(before.servers[name], one.entry) for name, one in batch.items()]
            changes = await asyncio.to_thread(_differences, pairs)
            self.snapshot = snapshot
        self.encode()
        for change in changes:
            if change.tools or change.resources or change.prompts:
                self._bus.publish(change)
        try:
            await asyncio.to_thread(self._save, [one.manifest for one in batch.values() if one.manifest.hello])
        except Exception:  # what cannot be kept is still known; only the next start has to ask again
            logger.exception("what was listed cannot be kept")
        own = [one.manifest for one in batch.values() if one.ours and one.manifest.hello]
        if own and self.on_listed is not None:
            self.on_listed(own)

    def _expects(self, manifest: Manifest) -> bool:
        source = self._sources.get(manifest.server)
        return source is not None and source.fingerprint == manifest.fingerprint

    def _save(self, manifests: list[Manifest]) -> None:
        for manifest in manifests:
            self._manifests.save(manifest)
        # Saved once for all that come in together: whoever waits is built next.
        if not self._arrived:
            self._save_index()

    def _save_index(self) -> None:
        # One at a time, or an older index could be written over a newer one.
        with self._saving:
            index = self.snapshot.index
            if index is not self._stored:
                self._index_file.save(index.dump())
                self._stored = index


class Sync:
    """Lists one server whenever there is reason to."""

    def __init__(self, upstream: Upstream, catalog: Catalog, bus: Bus, *, timeout: float, ttl: float) -> None:
        self._upstream = upstream
        self._catalog = catalog
        self._bus = bus
        self._timeout = timeout
        self._ttl = ttl
        self._wanted = False
        self._announced: set[str] = set()
        self._listing: asyncio.Task[None] | None = None
        self._pause, self._listed_at = DEBOUNCE_S, -CALM_S
        upstream.on_connected = self.request
        upstream.on_notified = self._heard

    def configure(self, timeout: float, ttl: float) -> None:
        """How long a listing may take, and how long it is trusted."""
        self._timeout, self._ttl = timeout, ttl

    async def refresh(self) -> None:
        """List now, starting the server if need be; whoever asks meanwhile waits for the same listing."""
        if self._upstream.live is None:
            await self._upstream.connect()
        if self._listing is None or self._listing.done():
            self.request()
        assert self._listing is not None
        await asyncio.shield(self._listing)

    async def settled(self, patience: float) -> None:
        """Wait for a listing that is under way, but not longer; whoever gives up does not stop it."""
        listing = self._listing
        if listing is not None and not listing.done():
            await asyncio.wait({listing}, timeout=patience)

    def request(self) -> None:
        """List soon."""
        self._wanted = True
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._list(), name=f"list {self._upstream.name}")

    def expire(self) -> None:
        """List again if the server is up and its listing is old; one that is being listed is not asked for another."""
        if self._listing is not None and not self._listing.done():
            return
        entry = self._catalog.snapshot.servers[self._upstream.name]
        if self._upstream.state in ("ready", "degraded") and time.time() - entry.listed_at > self._ttl:
            self.request()

    async def close(self) -> None:
        """Stop listing."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait({self._listing})

    def _heard(self, method: str, params: Raw, session: str) -> None:
        if method in _ANNOUNCEMENTS:
            self._announced.add(_ANNOUNCEMENTS[method])
            self.request()
        elif method == "notifications/resources/updated":
            self._bus.publish(ResourceUpdated(self._upstream.name, str(params.get("uri", "")), session))

    def _debounce(self) -> float:
        entry = self._catalog.snapshot.servers.get(self._upstream.name)
        if entry is None or not entry.known:
            return 0
        calm = time.monotonic() - self._listed_at >= CALM_S
        self._pause = DEBOUNCE_S if calm else min(2 * self._pause, LONGEST_DEBOUNCE_S)
        return self._pause

    async def _list(self) -> None:
        while self._wanted:
            await asyncio.sleep(self._debounce())
            # From here on whatever changes wants another listing; what was said before, this one shows.
            self._wanted = False
            announced, self._announced = self._announced, set()
            connection = self._upstream.live
            if connection is None:
                return  # it has gone meanwhile; whoever starts it again has it listed
            try:
                listing = await fetch(connection, self._timeout)
                self._listed_at = time.monotonic()
                self._upstream.mark_listed()
                await self._catalog.accept(self._upstream.name, listing)
            except PorticoError as error:
                self._upstream.degrade(f"it could not be listed: {error.message}")
                logger.warning("%s could not be listed: %s", self._upstream.name, error.message)
                continue
            except Exception as error:  # a listing is anyone's: whatever is wrong with it, the others stay listed
                self._upstream.degrade(f"it could not be listed: {type(error).__name__}: {error}")
                logger.exception("%s could not be listed", self._upstream.name)
                continue
            for kind in sorted(announced):
                self._bus.publish(ListAnnounced(self._upstream.name, kind))


def _take_in(source: Source, listing: Listing) -> _Arrived:
    manifest = manifest_of(source, listing)
    return _Arrived(listed(source, listing, manifest), manifest)


def _differences(pairs: Iterable[tuple[ServerEntry, ServerEntry]]) -> list[CatalogChanged]:
    return [difference(before, after) for before, after in pairs]


def _prepared(servers: Mapping[str, ServerEntry], before: Snapshot) -> Snapshot:
    """The snapshot that comes after another one, with what nearly every question asks of it worked out already."""
    snapshot = _indexed(servers, before.index, before.servers)
    snapshot.prepare(before)
    return snapshot


def _indexed(
    servers: Mapping[str, ServerEntry], index: Index, before: Mapping[str, ServerEntry] | None = None
) -> Snapshot:
    """A snapshot whose index is brought up to date: only servers that differ are read again.

    `before` is what the index was made from: whoever is the same there is not even compared.
    """
    known = before or {}
    changed = {
        name: tuple(documents(entry))
        for name, entry in servers.items()
        if known.get(name) is not entry and not index.holds(name, document_hashes(entry))
    }
    changed.update((name, ()) for name in index.groups if name not in servers)
    return Snapshot(servers, index.replace(changed) if changed else index)


def _stored_index(file: IndexFile, meanings: Meanings | None) -> Index:
    encoder = meanings.encoder if meanings else None
    body = file.load()
    if body is not None:
        with contextlib.suppress(ValueError):  # by another version, or damaged
            index = Index.load(body, encoder=encoder)
            unload(body)  # its checksum was worked out: most of it is not looked at again soon
            return index
    return Index.build((), encoder=encoder)
