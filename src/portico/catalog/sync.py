"""Keeps the snapshot current: from disk at start, from servers on connect, change and expiry.

A new listing is compared with the old one by hash. Only if it differs is a new snapshot built, off
the event loop, swapped in as a whole and published as `CatalogChanged`. Listings that arrive
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
"""A burst of list changes causes one listing; a server that keeps changing is listed at doubling
intervals up to this limit."""
CALM_PERIOD_S = 2.0
"""Seconds without a listing after which the debounce interval is reset."""
ENCODE_FLUSH_S = 1.0
"""Seconds over which new vectors are collected before the index is updated."""
_ANNOUNCEMENTS = {
    f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")
}


@dataclass(frozen=True)
class _PendingEntry:
    """A server entry waiting to be published in the snapshot."""

    entry: ServerEntry
    manifest: Manifest
    is_listed_here: bool = True
    """Listed by this gateway, so other gateways do not know it yet."""


class Catalog:
    """Holds the snapshot and is the only writer of it."""

    def __init__(
        self,
        sources: Iterable[ServerSource],
        manifests: ManifestStore,
        bus: EventBus,
        *,
        index_file: IndexFile | None = None,
        embeddings: Embeddings | None = None,
    ) -> None:
        """`index_file` stores the search index; without `embeddings`, search is by words only."""
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
        """Called with the manifests listed by this gateway, once the snapshot contains them."""
        self.snapshot = Snapshot(
            {name: create_unlisted_entry(source) for name, source in self._sources.items()}
        )
        self._saved_index = self.snapshot.index

    @property
    def unencoded_count(self) -> int:
        """Number of tools without a vector."""
        if self._embeddings:
            return self._embeddings.count_missing(self.snapshot)
        return 0

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Configuration fingerprint of every server."""
        return {name: source.fingerprint for name, source in self._sources.items()}

    def load(self) -> None:
        """Load stored manifests and the stored index; contacts no server."""
        found = self._manifests.load(dict(self.fingerprints))
        servers = {
            name: restore_entry(source, found.get(name)) for name, source in self._sources.items()
        }
        self.eras = {name: manifest.era for name, manifest in found.items()}
        self._saved_index = _load_index(self._index_file, self._embeddings)
        self.snapshot = _build_snapshot(servers, self._saved_index)

    async def configure(self, sources: Iterable[ServerSource]) -> None:
        """Replace the set of servers; entries of unchanged servers are kept.

        A server with a changed backend shows its earlier offer until it has been listed again.
        """
        async with self._change_lock:
            before = self.snapshot
            old = self._sources
            new = {source.name: source for source in sources}
            old_prints = {name: source.fingerprint for name, source in old.items()}
            new_prints = {name: source.fingerprint for name, source in new.items()}
            earlier = await asyncio.to_thread(self._manifests.load, old_prints)
            found = await asyncio.to_thread(self._manifests.load, new_prints)
            servers = {
                name: before.servers[name]
                if old.get(name) == source
                else restore_entry(source, found.get(name) or earlier.get(name))
                for name, source in new.items()
            }
            snapshot = await asyncio.to_thread(_prepare_snapshot, servers, before)
            removed = {
                name: replace(before.servers[name], tools={}, offers=ServerOffers())
                for name in old
                if name not in new
            }
            pairs = [
                (before.servers.get(name) or create_unlisted_entry(new[name]), servers[name])
                for name in servers
            ]
            pairs += [(before.servers[name], entry) for name, entry in removed.items()]
            changes = await asyncio.to_thread(_compare_all, pairs)
            # No await from here on: callers update dependent state in the same step.
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
        """Publish a fresh listing; returns when the snapshot contains it."""
        source = self._sources.get(server)
        if source is None:
            return  # removed while it was being listed
        if not listing.is_large:
            pending = _build_pending_entry(source, listing)
        else:
            pending = await asyncio.to_thread(_build_pending_entry, source, listing)
            if self._sources.get(server) is not source:
                return  # removed or reconfigured in the meantime
        self.eras[server] = listing.initialize_info.era
        await self._enqueue(pending)

    async def adopt_manifest(self, manifest: Manifest) -> bool:
        """Publish another gateway's newer listing; returns when the snapshot contains it."""
        source = self._sources.get(manifest.server)
        if source is None or source.fingerprint != manifest.fingerprint:
            return False
        entry = await asyncio.to_thread(restore_entry, source, manifest)
        if self._sources.get(source.name) is not source:
            return False  # removed or reconfigured in the meantime
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
        """Finish publishing, and stop encoding."""
        if self._embeddings is not None and self._encode_task is not None:
            # Not cancelled, because its thread would keep running.
            self._embeddings.stop()
            await asyncio.wait({self._encode_task}, timeout=10)
        if self._publish_task is not None and not self._publish_task.done():
            await asyncio.wait({self._publish_task}, timeout=10)

    def start_encoding(self) -> asyncio.Task[None] | None:
        """Start encoding missing vectors; the task ends when nothing is left to encode."""
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
        except Exception as error:  # search by words still works, and the next listing tries again
            reason = f"{type(error).__name__}: {error}"
            if reason != self._encode_error:
                logger.exception(
                    "some tools cannot be searched by meaning yet: they could not be encoded"
                )
            self._encode_error = reason

    async def _add_missing_vectors(self, embeddings: Embeddings) -> None:
        while embeddings.count_missing(snapshot := self.snapshot):
            batches = embeddings.generate_vectors(snapshot)
            is_any_added = False
            wait = 0.0  # stored vectors are available at once
            while vectors := await asyncio.to_thread(gather_batches, batches, wait):
                is_any_added = True
                wait = ENCODE_FLUSH_S
                async with self._change_lock:
                    current = self.snapshot
                    self.snapshot = current.with_index(
                        await asyncio.to_thread(add_vectors, current, snapshot, vectors)
                    )
            if not is_any_added:
                return
            if not embeddings.count_missing(self.snapshot):
                # Checked again: tools listed in the meantime have no other trigger.
                await asyncio.to_thread(self._save_index)
                await asyncio.to_thread(trim_heap)

    async def _publish_pending(self) -> None:
        while self._pending_entries:
            batch = self._pending_entries
            self._pending_entries = {}
            try:
                await self._apply_batch(batch)
            except Exception:  # retried one by one, so that only the faulty entry is left out
                for name, pending in batch.items():
                    try:
                        await self._apply_batch({name: pending})
                    except Exception as error:
                        self._failed_entries[name] = error

    async def _apply_batch(self, batch: Mapping[str, _PendingEntry]) -> None:
        # Serialised, so that one change does not undo another.
        async with self._change_lock:
            before = self.snapshot
            # Servers reconfigured or removed since the listing are skipped.
            batch = {
                name: pending
                for name, pending in batch.items()
                if self._is_expected(pending.manifest)
            }
            servers = {**before.servers, **{name: pending.entry for name, pending in batch.items()}}
            snapshot = await asyncio.to_thread(_prepare_snapshot, servers, before)
            pairs = [(before.servers[name], pending.entry) for name, pending in batch.items()]
            changes = await asyncio.to_thread(_compare_all, pairs)
            self.snapshot = snapshot
        self.start_encoding()
        for change in changes:
            if change.tools_changed or change.resources_changed or change.prompts_changed:
                self._bus.publish(change)
        try:
            await asyncio.to_thread(
                self._save_manifests,
                [pending.manifest for pending in batch.values() if pending.manifest.hello],
            )
        except Exception:  # the listing is still in use; only the next start has to repeat it
            logger.exception("listings cannot be kept")
        own = [
            pending.manifest
            for pending in batch.values()
            if pending.is_listed_here and pending.manifest.hello
        ]
        if own and self.on_listed is not None:
            self.on_listed(own)

    def _is_expected(self, manifest: Manifest) -> bool:
        source = self._sources.get(manifest.server)
        return source is not None and source.fingerprint == manifest.fingerprint

    def _save_manifests(self, manifests: list[Manifest]) -> None:
        for manifest in manifests:
            self._manifests.save(manifest)
        # Saved once per burst: entries still pending save it again.
        if not self._pending_entries:
            self._save_index()

    def _save_index(self) -> None:
        # Serialised, so that an older index is never written over a newer one.
        with self._save_lock:
            index = self.snapshot.index
            if index is not self._saved_index:
                self._index_file.save(index.dump())
                self._saved_index = index


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
        """Schedule a listing."""
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


def _build_pending_entry(source: ServerSource, listing: ServerListing) -> _PendingEntry:
    manifest = build_manifest(source, listing)
    return _PendingEntry(build_entry(source, listing, manifest), manifest)


def _compare_all(pairs: Iterable[tuple[ServerEntry, ServerEntry]]) -> list[CatalogChanged]:
    return [compare_entries(before, after) for before, after in pairs]


def _prepare_snapshot(servers: Mapping[str, ServerEntry], before: Snapshot) -> Snapshot:
    """Build the next snapshot with its common lookups computed."""
    snapshot = _build_snapshot(servers, before.index, before.servers)
    snapshot.prepare(before)
    return snapshot


def _build_snapshot(
    servers: Mapping[str, ServerEntry],
    index: Index,
    before: Mapping[str, ServerEntry] | None = None,
) -> Snapshot:
    """Build a snapshot with an updated index; only servers that differ are indexed again.

    `before` are the entries the index was made from; identical ones are not compared.
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
    encoder = embeddings.encoder if embeddings else None
    content = file.load()
    if content is not None:
        with contextlib.suppress(ValueError):  # written by another version, or damaged
            index = Index.load(content, encoder=encoder)
            # Verifying the checksum has read all of it; most is not needed again soon.
            release_memory(content)
            return index
    return Index.build((), encoder=encoder)
