"""Keeps the snapshot true: from disk at once, from each server when it connects, says so, or was
not asked for long.

A new listing is compared with the old one by hash. Only if something differs is a new snapshot
built, off the event loop, swapped in whole, and told as `CatalogChanged`. Listings that arrive
together are built together.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from portico.catalog.embeddings import Embeddings, add_vectors, gather_batches
from portico.catalog.entries import (
    ServerSource,
    build_entry,
    build_manifest,
    compare_entries,
    create_unlisted_entry,
    restore_entry,
)
from portico.catalog.heap import trim_heap
from portico.catalog.listing import ServerListing, ServerOffers, fetch_listing
from portico.catalog.search_documents import build_documents, compute_document_hashes
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.errors import PorticoError
from portico.events import (
    CatalogChanged,
    EmbeddingsComputed,
    EventBus,
    ListChangeAnnounced,
    ResourceUpdated,
)
from portico.search import Index
from portico.storage.index_file import IndexFile, release_memory
from portico.storage.manifests import Manifest, ManifestStore
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream

logger = logging.getLogger(__name__)

DEBOUNCE_S = 0.05
LONGEST_DEBOUNCE_S = 0.4
"""A burst of list changes is one listing. A server that goes on is listed at longer and longer
intervals."""
CALM_PERIOD_S = 2.0
"""After so long without a listing, the next change is listed soon again."""
ENCODE_FLUSH_S = 1.0
"""Vectors that come within this time are put into the index together."""
_ANNOUNCEMENTS = {
    f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")
}


@dataclass(frozen=True)
class _PendingEntry:
    """A server's offer on its way into the snapshot."""

    entry: ServerEntry
    manifest: Manifest
    is_listed_here: bool = True
    """We listed it ourselves: others do not know it yet."""


class Catalog:
    """Holds the snapshot, and the only one who replaces it."""

    def __init__(
        self,
        sources: Iterable[ServerSource],
        manifests: ManifestStore,
        bus: EventBus,
        *,
        index_file: IndexFile | None = None,
        embeddings: Embeddings | None = None,
    ) -> None:
        """`index_file` keeps the search index from start to start; without `meanings`, words alone are searched."""
        self._sources = {source.name: source for source in sources}
        self._manifests = manifests
        self._bus = bus
        self._index_file = index_file or IndexFile(None)
        self._embeddings = embeddings
        self._encode_task: asyncio.Task[None] | None = None
        self._encode_error = ""
        self._change_lock = asyncio.Lock()
        self._save_lock = threading.Lock()
        self._pending_entries: dict[str, _PendingEntry] = {}
        self._publish_task: asyncio.Task[None] | None = None
        self._failed_entries: dict[str, Exception] = {}
        self.eras: dict[str, str] = {}
        self.on_listed: Callable[[Sequence[Manifest]], None] | None = None
        """Told what was listed here, when the snapshot shows it."""
        self.snapshot = Snapshot(
            {name: create_unlisted_entry(source) for name, source in self._sources.items()}
        )
        self._saved_index = self.snapshot.index

    @property
    def unencoded_count(self) -> int:
        """How many tools cannot be searched by meaning yet."""
        if self._embeddings:
            return self._embeddings.count_missing(self.snapshot)
        return 0

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Every server with the fingerprint of its configuration."""
        return {name: source.fingerprint for name, source in self._sources.items()}

    def load(self) -> None:
        """Take what is on disk; no server is asked."""
        found = self._manifests.load(dict(self.fingerprints))
        servers = {
            name: restore_entry(source, found.get(name)) for name, source in self._sources.items()
        }
        self.eras = {name: manifest.era for name, manifest in found.items()}
        self._saved_index = _load_index(self._index_file, self._embeddings)
        self.snapshot = _build_snapshot(servers, self._saved_index)

    async def configure(self, sources: Iterable[ServerSource]) -> None:
        """Know these servers from now on, and no others; what is known of those that stay is kept.

        One that is reached otherwise than before shows what it offered until it has been listed
        again.
        """
        async with self._change_lock:
            before = self.snapshot
            old = self._sources
            new = {source.name: source for source in sources}
            wanted = [
                {name: one.fingerprint for name, one in known.items()} for known in (old, new)
            ]
            earlier, found = [
                await asyncio.to_thread(self._manifests.load, prints) for prints in wanted
            ]
            servers = {
                name: before.servers[name]
                if old.get(name) == source
                else restore_entry(source, found.get(name) or earlier.get(name))
                for name, source in new.items()
            }
            snapshot = await asyncio.to_thread(_prepare_snapshot, servers, before)
            gone = {
                name: replace(before.servers[name], tools={}, offers=ServerOffers())
                for name in old
                if name not in new
            }
            pairs = [
                (before.servers.get(name) or create_unlisted_entry(new[name]), servers[name])
                for name in servers
            ]
            pairs += [(before.servers[name], entry) for name, entry in gone.items()]
            changes = await asyncio.to_thread(_compare_all, pairs)
            # From here on nothing is awaited: whoever configures the catalog goes on with what
            # hangs on it.
            self._sources = new
            self.snapshot = snapshot
            self.eras = {name: era for name, era in self.eras.items() if name in new} | {
                name: manifest.era for name, manifest in found.items() if name not in old
            }
        self.start_encoding()
        for change in changes:
            if change.tools_changed or change.resources_changed or change.prompts_changed:
                self._bus.publish(change)

    async def accept_listing(self, server: str, listing: ServerListing) -> None:
        """Take a fresh listing; returns when the snapshot shows it."""
        source = self._sources.get(server)
        if source is None:
            return  # it was taken away while it was listed
        if not listing.is_large:
            arrived = _build_pending_entry(source, listing)
        else:
            arrived = await asyncio.to_thread(_build_pending_entry, source, listing)
            if self._sources.get(server) is not source:
                return  # it was taken away, or configured otherwise, meanwhile
        self.eras[server] = listing.initialize_info.era
        await self._enqueue(arrived)

    async def adopt_manifest(self, manifest: Manifest) -> bool:
        """Take what another gateway listed, if it is news here; returns when the snapshot shows it."""
        source = self._sources.get(manifest.server)
        if source is None or source.fingerprint != manifest.fingerprint:
            return False
        entry = await asyncio.to_thread(restore_entry, source, manifest)
        if self._sources.get(source.name) is not source:
            return False  # it was taken away, or configured otherwise, meanwhile
        if entry.listed_at <= self.snapshot.servers[source.name].listed_at:
            return False
        self.eras.setdefault(source.name, manifest.era)
        await self._enqueue(_PendingEntry(entry, manifest, is_listed_here=False))
        return True

    async def _enqueue(self, pending: _PendingEntry) -> None:
        server = pending.entry.name
        self._pending_entries[server] = pending
        if self._publish_task is None or self._publish_task.done():
            self._publish_task = asyncio.create_task(
                self._publish_pending(), name="publish the catalog"
            )
        await asyncio.shield(self._publish_task)
        if (error := self._failed_entries.pop(server, None)) is not None:
            raise error

    async def close(self) -> None:
        """Finish what is being published, and stop encoding."""
        if self._embeddings is not None and self._encode_task is not None:
            # Not cancelled: that would leave its thread at work.
            self._embeddings.stop()
            await asyncio.wait({self._encode_task}, timeout=10)
        if self._publish_task is not None and not self._publish_task.done():
            await asyncio.wait({self._publish_task}, timeout=10)

    def start_encoding(self) -> asyncio.Task[None] | None:
        """See to it that every tool gets its vector; the task ends when all have, or none can be
        made."""
        if self._embeddings is None:
            return None
        if self._encode_task is None or self._encode_task.done():
            self._encode_task = asyncio.create_task(
                self._encode(self._embeddings), name="encode the catalog"
            )
        return self._encode_task

    async def _encode(self, embeddings: Embeddings) -> None:
        try:
            await self._add_missing_vectors(embeddings)
            self._bus.publish(EmbeddingsComputed())
        except Exception as error:  # words still work, and the next listing tries again
            reason = f"{type(error).__name__}: {error}"
            if reason != self._encode_error:
                logger.exception(
                    "some tools cannot be searched by meaning yet: they could not be encoded"
                )
            self._encode_error = reason

    async def _add_missing_vectors(self, embeddings: Embeddings) -> None:
        while embeddings.count_missing(snapshot := self.snapshot):
            brought = embeddings.generate_vectors(snapshot)
            came = False
            wait = 0.0  # what was kept is there at once
            while vectors := await asyncio.to_thread(gather_batches, brought, wait):
                came = True
                wait = ENCODE_FLUSH_S
                async with self._change_lock:
                    now = self.snapshot
                    self.snapshot = now.with_index(
                        await asyncio.to_thread(add_vectors, now, snapshot, vectors)
                    )
            if not came:
                return
            if not embeddings.count_missing(self.snapshot):
                # Whatever is listed meanwhile is looked for once more: nobody else would.
                await asyncio.to_thread(self._save_index)
                await asyncio.to_thread(trim_heap)

    async def _publish_pending(self) -> None:
        while self._pending_entries:
            batch = self._pending_entries
            self._pending_entries = {}
            try:
                await self._apply_batch(batch)
            except (
                Exception
            ):  # one of them is no good: each alone, so that only that one is left out
                for name, arrived in batch.items():
                    try:
                        await self._apply_batch({name: arrived})
                    except Exception as error:
                        self._failed_entries[name] = error

    async def _apply_batch(self, batch: Mapping[str, _PendingEntry]) -> None:
        # One change at a time, or one would undo the other.
        async with self._change_lock:
            before = self.snapshot
            # Whoever was configured otherwise, or away, since it was listed is listed again, or not
            # at all.
            batch = {name: one for name, one in batch.items() if self._is_expected(one.manifest)}
            servers = {**before.servers, **{name: one.entry for name, one in batch.items()}}
            snapshot = await asyncio.to_thread(_prepare_snapshot, servers, before)
            pairs = [(before.servers[name], one.entry) for name, one in batch.items()]
            changes = await asyncio.to_thread(_compare_all, pairs)
            self.snapshot = snapshot
        self.start_encoding()
        for change in changes:
            if change.tools_changed or change.resources_changed or change.prompts_changed:
                self._bus.publish(change)
        try:
            await asyncio.to_thread(
                self._save_manifests, [one.manifest for one in batch.values() if one.manifest.hello]
            )
        except (
            Exception
        ):  # what cannot be kept is still known; only the next start has to ask again
            logger.exception("what was listed cannot be kept")
        own = [one.manifest for one in batch.values() if one.is_listed_here and one.manifest.hello]
        if own and self.on_listed is not None:
            self.on_listed(own)

    def _is_expected(self, manifest: Manifest) -> bool:
        source = self._sources.get(manifest.server)
        return source is not None and source.fingerprint == manifest.fingerprint

    def _save_manifests(self, manifests: list[Manifest]) -> None:
        for manifest in manifests:
            self._manifests.save(manifest)
        # Saved once for all that come in together: whoever waits is built next.
        if not self._pending_entries:
            self._save_index()

    def _save_index(self) -> None:
        # One at a time, or an older index could be written over a newer one.
        with self._save_lock:
            index = self.snapshot.index
            if index is not self._saved_index:
                self._index_file.save(index.dump())
                self._saved_index = index


class ServerSync:
    """Lists one server whenever there is reason to."""

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
        """How long a listing may take, and how long it is trusted."""
        self._timeout = timeout
        self._ttl = ttl

    async def refresh(self) -> None:
        """List now, starting the server if need be; whoever asks meanwhile waits for the same
        listing."""
        if self._upstream.any_connection is None:
            await self._upstream.connect()
        if self._listing_task is None or self._listing_task.done():
            self.request_listing()
        assert self._listing_task is not None
        await asyncio.shield(self._listing_task)

    async def wait_for_listing(self, timeout: float) -> None:
        """Wait for a listing that is under way, but not longer; whoever gives up does not stop it."""
        listing = self._listing_task
        if listing is not None and not listing.done():
            await asyncio.wait({listing}, timeout=timeout)

    def request_listing(self) -> None:
        """List soon."""
        self._is_listing_wanted = True
        if self._listing_task is None or self._listing_task.done():
            self._listing_task = asyncio.create_task(
                self._run_listings(), name=f"list {self._upstream.name}"
            )

    def refresh_if_expired(self) -> None:
        """List again if the server is up and its listing is old; one that is being listed is not
        asked for another."""
        if self._listing_task is not None and not self._listing_task.done():
            return
        entry = self._catalog.snapshot.servers[self._upstream.name]
        if (
            self._upstream.state in ("ready", "degraded")
            and time.time() - entry.listed_at > self._ttl
        ):
            self.request_listing()

    async def close(self) -> None:
        """Stop listing."""
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
        calm = time.monotonic() - self._listed_at >= CALM_PERIOD_S
        if calm:
            self._debounce_s = DEBOUNCE_S
        else:
            self._debounce_s = min(2 * self._debounce_s, LONGEST_DEBOUNCE_S)
        return self._debounce_s

    async def _run_listings(self) -> None:
        while self._is_listing_wanted:
            await asyncio.sleep(self._compute_debounce())
            # From here on whatever changes wants another listing; what was said before, this one
            # shows.
            self._is_listing_wanted = False
            announced = self._announced_lists
            self._announced_lists = set()
            connection = self._upstream.any_connection
            if connection is None:
                return  # it has gone meanwhile; whoever starts it again has it listed
            try:
                listing = await fetch_listing(connection, self._timeout)
                self._listed_at = time.monotonic()
                self._upstream.mark_listed()
                await self._catalog.accept_listing(self._upstream.name, listing)
            except PorticoError as error:
                self._upstream.degrade(f"it could not be listed: {error.message}")
                logger.warning("%s could not be listed: %s", self._upstream.name, error.message)
                continue
            except (
                Exception
            ) as error:  # a listing is anyone's: whatever is wrong with it, the others stay listed
                self._upstream.degrade(f"it could not be listed: {type(error).__name__}: {error}")
                logger.exception("%s could not be listed", self._upstream.name)
                continue
            for kind in sorted(announced):
                self._bus.publish(ListChangeAnnounced(self._upstream.name, kind))


def _build_pending_entry(source: ServerSource, listing: ServerListing) -> _PendingEntry:
    manifest = build_manifest(source, listing)
    return _PendingEntry(build_entry(source, listing, manifest), manifest)


def _compare_all(pairs: Iterable[tuple[ServerEntry, ServerEntry]]) -> list[CatalogChanged]:
    return [compare_entries(before, after) for before, after in pairs]


def _prepare_snapshot(servers: Mapping[str, ServerEntry], before: Snapshot) -> Snapshot:
    """The snapshot that comes after another one, with what nearly every question asks of it worked
    out already."""
    snapshot = _build_snapshot(servers, before.index, before.servers)
    snapshot.prepare(before)
    return snapshot


def _build_snapshot(
    servers: Mapping[str, ServerEntry],
    index: Index,
    before: Mapping[str, ServerEntry] | None = None,
) -> Snapshot:
    """A snapshot whose index is brought up to date: only servers that differ are read again.

    `before` is what the index was made from: whoever is the same there is not even compared.
    """
    known = before or {}
    changed = {
        name: tuple(build_documents(entry))
        for name, entry in servers.items()
        if known.get(name) is not entry
        and not index.has_group(name, compute_document_hashes(entry))
    }
    changed.update((name, ()) for name in index.groups if name not in servers)
    return Snapshot(servers, index.replace(changed) if changed else index)


def _load_index(file: IndexFile, embeddings: Embeddings | None) -> Index:
    if embeddings:
        encoder = embeddings.encoder
    else:
        encoder = None
    body = file.load()
    if body is not None:
        with contextlib.suppress(ValueError):  # by another version, or damaged
            index = Index.load(body, encoder=encoder)
            release_memory(
                body
            )  # its checksum was worked out: most of it is not looked at again soon
            return index
    return Index.build((), encoder=encoder)
