"""Catalog: keeps the snapshot current, from disk at start and from listings afterwards.

A new listing is compared with the old one by hash. Only if it differs is a new snapshot built, off
the event loop, swapped in as a whole and published as `CatalogChanged`. Listings that arrive
together are built together.
"""

import asyncio
import contextlib
import ctypes
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from portico.catalog.embeddings import Embeddings, add_vectors, gather_batches
from portico.catalog.entries import (
    ServerSource,
    build_documents,
    build_entry,
    build_manifest,
    compare_entries,
    compute_document_hashes,
    create_unlisted_entry,
    link_twins,
    restore_entry,
)
from portico.catalog.listing import ServerListing, ServerOffers
from portico.catalog.pinning import DefinitionPins
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import sanitize_text
from portico.catalog.tool_overrides import apply_overrides
from portico.events import (
    CatalogChanged,
    EmbeddingsComputed,
    EventBus,
)
from portico.policy.definition_change import DefinitionChange
from portico.search import Index, RankingMethod
from portico.storage.manifests import Manifest, ManifestStore
from portico.storage.pin_store import PinStore, PinsUnavailable, ServerPins
from portico.storage.search_files import IndexFile, release_memory

logger = logging.getLogger(__name__)

ENCODE_FLUSH_S = 1.0
"""Seconds over which new vectors are collected before the index is updated."""


@dataclass(frozen=True)
class _PendingEntry:
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
        ranking: RankingMethod = "both",
        pins: PinStore | None = None,
    ) -> None:
        """`index_file` stores the search index; without `embeddings`, search is by words only."""
        self._pins = DefinitionPins(pins or PinStore(None))
        self._pins_version: int | None = None
        self.wait_for_pins: Callable[[], Awaitable[None]] | None = None
        """Waits, briefly, until the pins that gateways share are known."""
        self.on_pinned: Callable[[Collection[str]], None] | None = None
        """Called with the servers that have new pins."""
        self._sources = {source.name: source for source in sources}
        self._manifests = manifests
        self._bus = bus
        self._index_file = index_file or IndexFile(None)
        self._embeddings = embeddings
        self._ranking: RankingMethod = ranking
        self._encode_task: asyncio.Task[None] | None = None
        self._encode_error = ""
        self._change_lock = asyncio.Lock()
        self._listing_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
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
        return self._embeddings.count_missing(self.snapshot) if self._embeddings else 0

    @property
    def fingerprints(self) -> Mapping[str, str]:
        return {name: source.fingerprint for name, source in self._sources.items()}

    def load(self) -> None:
        """Load stored manifests and the stored index; contacts no server."""
        found = self._load_manifests(self._sources)
        servers = self._review_all(
            {name: restore_entry(source, found.get(name)) for name, source in self._sources.items()}
        )
        self.eras = {name: manifest.era for name, manifest in found.items()}
        self._saved_index = _load_index(self._index_file, self._embeddings, self._ranking)
        self.snapshot = _build_snapshot(servers, self._saved_index)

    def _load_manifests(self, sources: Mapping[str, ServerSource]) -> dict[str, Manifest]:
        return self._manifests.load({name: source.fingerprint for name, source in sources.items()})

    def _review_all(
        self,
        entries: Mapping[str, ServerEntry],
        sources: Mapping[str, ServerSource] | None = None,
    ) -> dict[str, ServerEntry]:
        """Hold back what was not trusted; servers whose pins cannot be read are not listed.

        What the configuration says in its place is added then: pins are of the server's own.
        """
        reviewed = self._compare_all_with_pins(entries, sources or self._sources)
        return {name: apply_overrides(entry) for name, entry in reviewed.items()}

    def _compare_all_with_pins(
        self, entries: Mapping[str, ServerEntry], sources: Mapping[str, ServerSource]
    ) -> dict[str, ServerEntry]:
        reviewed = dict(entries)
        if not any(entry.is_listed for entry in entries.values()):
            return reviewed
        try:
            pins = self._pins.load(entries)
            for name, entry in entries.items():
                known = pins.get(name, ServerPins())
                reviewed[name] = self._pins.review(entry, sources[name].trust, known)
        except PinsUnavailable as error:
            logger.error("%s: %s", error.message, error.advice)
            for name, source in sources.items():
                if name in reviewed and source.trust != "always":
                    reviewed[name] = create_unlisted_entry(source)
        return reviewed

    async def _review(self, source: ServerSource, entry: ServerEntry) -> ServerEntry:
        reviewed = await self._compare_with_pins(source, entry)
        if source.rules.override:
            return await asyncio.to_thread(apply_overrides, reviewed)
        return apply_overrides(reviewed)

    async def _compare_with_pins(self, source: ServerSource, entry: ServerEntry) -> ServerEntry:
        if self.wait_for_pins is not None:
            await self.wait_for_pins()
        reviewed = await asyncio.to_thread(self._pins.review, entry, source.trust)
        self._publish_pins()
        before = self.snapshot.servers.get(source.name)
        known = {change.digest for change in before.changes} if before else set[str]()
        for change in reviewed.changes:
            if change.is_held and change.digest not in known:
                logger.warning(
                    "%s: %s is held back (%s) until somebody has looked: portico trust %s",
                    source.name,
                    sanitize_text(change.label),
                    sanitize_text("; ".join(change.notes)),
                    source.name,
                )
        return reviewed

    async def trust(
        self, server: str, changes: Sequence[DefinitionChange], person: str = ""
    ) -> None:
        """Trust what a person has looked at; returns when the snapshot shows it.

        Raises PinsUnavailable.
        """
        await asyncio.to_thread(self._pins.accept, server, changes, person)
        self._publish_pins()
        if self._publish_task is not None and not self._publish_task.done():
            await asyncio.wait({self._publish_task})
        await self.review_again([server])

    def _publish_pins(self) -> None:
        pinned = self._pins.take_pinned_servers()
        if pinned and self.on_pinned is not None:
            self.on_pinned(pinned)

    @property
    def pin_store(self) -> PinStore:
        return self._pins.store

    async def follow_pins(self) -> None:
        """Review every server again if another gateway of this data folder has added pins."""
        version = await asyncio.to_thread(self._pins.store.read_version)
        if version != self._pins_version:
            self._pins_version = version
            await self.review_again(
                name for name, one in self.snapshot.servers.items() if one.changes
            )

    async def review_again(self, servers: Iterable[str]) -> None:
        """Review stored listings again, with the pins as they are now."""
        for name in servers:
            source = self._sources.get(name)
            if source is None:
                continue
            found = await asyncio.to_thread(self._load_manifests, {name: source})
            if (manifest := found.get(name)) is None:
                continue
            entry = await asyncio.to_thread(restore_entry, source, manifest)
            entry = await self._review(source, entry)
            if self._sources.get(name) is source:
                await self._enqueue(_PendingEntry(entry, manifest, is_listed_here=False))

    async def configure(self, sources: Iterable[ServerSource]) -> None:
        """Replace the set of servers; entries of unchanged servers are kept.

        A server with a changed backend shows its earlier offer until it has been listed again.
        """
        async with self._change_lock:
            before = self.snapshot
            old = self._sources
            new = {source.name: source for source in sources}
            earlier = await asyncio.to_thread(self._load_manifests, old)
            found = await asyncio.to_thread(self._load_manifests, new)
            restored = {
                name: restore_entry(source, found.get(name) or earlier.get(name))
                for name, source in new.items()
                if old.get(name) != source
            }
            reviewed = await asyncio.to_thread(self._review_all, restored, new)
            servers = {name: reviewed.get(name) or before.servers[name] for name in new}
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
        self._announce(changes)

    def _announce(self, changes: Iterable[CatalogChanged]) -> None:
        self.start_encoding()
        for change in changes:
            if change.tools_changed or change.resources_changed or change.prompts_changed:
                self._bus.publish(change)

    async def accept_listing(self, server: str, listing: ServerListing) -> None:
        """Publish a fresh listing; returns when the snapshot contains it."""
        source = self._sources.get(server)
        if source is None:
            return  # removed while it was being listed
        # One after another, so that of two listings the later is reviewed and shown last.
        async with self._listing_locks[server]:
            if not listing.is_large:
                pending = _build_pending_entry(source, listing)
            else:
                pending = await asyncio.to_thread(_build_pending_entry, source, listing)
            pending = replace(pending, entry=await self._review(source, pending.entry))
        if self._sources.get(server) is not source:
            return  # removed or reconfigured in the meantime
        self.eras[server] = listing.initialize_info.era
        await self._enqueue(pending)

    async def adopt_manifest(self, manifest: Manifest) -> bool:
        """Publish another gateway's newer listing; returns when the snapshot contains it."""
        source = self._find_source(manifest)
        if source is None:
            return False
        entry = await asyncio.to_thread(restore_entry, source, manifest)
        entry = await self._review(source, entry)
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
                if self._find_source(pending.manifest) is not None
            }
            servers = {**before.servers, **{name: pending.entry for name, pending in batch.items()}}
            snapshot = await asyncio.to_thread(_prepare_snapshot, servers, before)
            pairs = [(before.servers[name], pending.entry) for name, pending in batch.items()]
            changes = await asyncio.to_thread(_compare_all, pairs)
            self.snapshot = snapshot
        self._announce(changes)
        storable = [pending for pending in batch.values() if pending.manifest.hello]
        try:
            await asyncio.to_thread(self._save, [pending.manifest for pending in storable])
        except Exception:  # the listing is still in use; only the next start has to repeat it
            logger.exception("listings cannot be kept")
        own = [pending.manifest for pending in storable if pending.is_listed_here]
        if own and self.on_listed is not None:
            self.on_listed(own)

    def _find_source(self, manifest: Manifest) -> ServerSource | None:
        """Return the source that a manifest was made for; None if it was removed or changed."""
        source = self._sources.get(manifest.server)
        if source is None or source.fingerprint != manifest.fingerprint:
            return None
        return source

    def _save(self, manifests: list[Manifest]) -> None:
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
    servers = link_twins(servers)
    changed = {
        name: tuple(build_documents(entry))
        for name, entry in servers.items()
        if known.get(name) is not entry
        and not index.has_group(name, compute_document_hashes(entry))
    }
    changed.update((name, ()) for name in index.groups if name not in servers)
    return Snapshot(servers, index.replace(changed) if changed else index)


def _load_index(file: IndexFile, embeddings: Embeddings | None, ranking: RankingMethod) -> Index:
    encoder = embeddings.encoder if embeddings else None
    content = file.load()
    if content is not None:
        with contextlib.suppress(ValueError):  # written by another version, or damaged
            index = Index.load(content, encoder=encoder, method=ranking)
            # Verifying the checksum has read all of it; most is not needed again soon.
            release_memory(content)
            return index
    return Index.build((), encoder=encoder, method=ranking)


def trim_heap() -> None:
    """Release free heap memory (Linux with glibc only). Blocks for milliseconds."""
    if (trim := _find_malloc_trim()) is not None:
        trim(0)


@cache
def _find_malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return None
