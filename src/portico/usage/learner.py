"""Learner: counts searches and calls, and boosts tools by what each scope did before.

Events count at once, in memory; they are written in batches in a thread, at maintenance and at
shutdown. Calls and searches never wait for the disk, except the first search of a scope, for at
most LOAD_TIMEOUT_S.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from portico.access import Caller
from portico.config import LearningMode
from portico.events import Event, EventBus, ToolCalled, ToolsFound
from portico.search import Boost, Vector
from portico.search.usage_patterns import UsagePatterns, extract_query_terms, hash_terms
from portico.storage.learning_store import LearningStore
from portico.usage.pending_counts import PendingCounts, from_rows
from portico.usage.session_activity import SearchRecord, SessionActivity

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 0.25
"""Seconds that the first search of a scope waits for its stored patterns."""
_MAX_SESSIONS = 1_000
_MAX_PENDING_SCOPES = 1_000
"""Maximum number of scopes with unwritten counts."""
_MAX_IDLE_SCOPES = 64
"""Scopes kept in memory after a write."""
_MAX_NAME_CHARS = 80
SHARED_SCOPE = "*"
_DAMAGED_ROW_ERRORS = (TypeError, ValueError, OverflowError)
"""Errors that damaged rows raise."""


@dataclass(eq=False)
class _LearningScope:
    """Counts of one scope: stored, being written, and pending."""

    stored: UsagePatterns | None = None
    writing: PendingCounts = field(default_factory=PendingCounts)
    pending: PendingCounts = field(default_factory=PendingCounts)
    merged: UsagePatterns | None = None
    """All three merged; None if outdated."""


@dataclass(frozen=True)
class _StoredPatterns:
    """Patterns that were read from disk."""

    version: int
    epoch: int | None
    key: bytes
    patterns: Mapping[str, UsagePatterns]


@dataclass(frozen=True)
class _FlushResult:
    """Outcome of a write."""

    is_written: bool = True
    rejected_scopes: Set[str] = frozenset()
    """Scopes that the store has no space for yet."""
    stored: _StoredPatterns | None = None


class Learner:
    """Learns from use. With learning off it subscribes to nothing and opens no file."""

    def __init__(
        self,
        mode: LearningMode,
        store: LearningStore,
        bus: EventBus,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mode = mode
        self._store = store
        self._clock = clock
        self._half_life_s = store.limits.half_life_s
        self._sessions: OrderedDict[tuple[str, str], SessionActivity] = OrderedDict()
        self._scopes: OrderedDict[str, _LearningScope] = OrderedDict()
        self._load_tasks: dict[str, asyncio.Task[None]] = {}
        self._flush_tasks: set[asyncio.Task[None]] = set()
        self._version: int | None = None
        """Version of the file with which the scopes in memory agree."""
        self._epoch: int | None = None
        """Epoch of the file that the counts in memory belong to; they are dropped in another."""
        self._key = b""
        self._flush_lock = asyncio.Lock()
        if self.is_enabled:
            self._unsubscribe = bus.subscribe(self._on_event, ToolsFound, ToolCalled)
        else:
            self._unsubscribe = None

    @property
    def is_enabled(self) -> bool:
        """Whether anything is learned at all."""
        return self._mode != "off"

    def to_scope_key(self, caller: Caller) -> str:
        """Return the scope that this caller shares its counts with."""
        if self._mode == "shared":
            return SHARED_SCOPE
        return f"{caller.profile}/{caller.name[:_MAX_NAME_CHARS]}"

    def read_key(self) -> bytes:
        """Return the key that query words are hashed with; may read a file."""
        return self._store.get_key()

    async def compute_boosts(
        self, caller: Caller, query: str, vector: Vector | None = None
    ) -> Mapping[str, Boost]:
        """Return the boosts from this caller's earlier use for a query."""
        if not self.is_enabled:
            return {}
        patterns = await self._get_patterns(key := self.to_scope_key(caller))
        now = self._clock()
        session = self._sessions.get((key, caller.session))
        terms = hash_terms(extract_query_terms(query), self._key)
        return patterns.compute_boosts(
            terms, vector, session.list_recent_tools(now) if session else (), now
        )

    async def compute_pair_weights(self, caller: Caller) -> Mapping[tuple[str, str], float]:
        """Return how often this caller used tools together."""
        if self.is_enabled:
            return (await self._get_patterns(self.to_scope_key(caller))).compute_pair_weights(
                self._clock()
            )
        return {}

    async def _get_patterns(self, key: str) -> UsagePatterns:
        if self._get_scope(key).stored is None:
            await self._load_within_timeout(key)
        scope = self._get_scope(key)
        if scope.merged is None:
            for counts in (scope.writing, scope.pending):
                scope.merged = counts.to_usage_patterns(
                    self._half_life_s, self._key, scope.merged or scope.stored
                )
        assert scope.merged is not None
        return scope.merged

    async def flush(self) -> None:
        """Write pending counts, and read what other gateways wrote."""
        if self.is_enabled:
            # Shielded from cancellation: a half-done write would be lost or repeated.
            self._flush_tasks.add(
                task := asyncio.create_task(self._flush(), name="write learned counts")
            )
            task.add_done_callback(self._flush_tasks.discard)
            await asyncio.shield(task)

    async def _flush(self) -> None:
        async with self._flush_lock:
            for scope in self._scopes.values():
                scope.writing = scope.pending
                scope.pending = PendingCounts()
            counts = {
                key: scope.writing
                for key, scope in self._scopes.items()
                if not scope.writing.is_empty
            }
            loaded_keys = [key for key, scope in self._scopes.items() if scope.stored is not None]
            result = await asyncio.to_thread(self._write_and_read, counts, loaded_keys)
            self._restore_pending(result.rejected_scopes if result.is_written else counts.keys())
            if result.stored is not None:
                self._apply_stored(result.stored)
            for scope in self._scopes.values():
                scope.writing = PendingCounts()
                scope.merged = None
            self._drop_idle_scopes()

    async def close(self) -> None:
        """Unsubscribe, write pending counts, and close the file."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if tasks := {*self._load_tasks.values(), *self._flush_tasks}:
            await asyncio.wait(tasks)
        await self.flush()
        await asyncio.to_thread(self._store.close)

    # --- events

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ToolsFound):
            if event.shown and (terms := extract_query_terms(event.query)):
                search = SearchRecord(terms, frozenset(event.shown), self._clock(), event.vector)
                self._get_session(event.caller).add_search(search)
        elif isinstance(event, ToolCalled) and event.ok:
            self._learn(event.tool, event.caller, self._clock())
            if self._epoch is None and not self._load_tasks:
                self._start_loading(self.to_scope_key(event.caller))

    def _learn(self, tool: str, caller: Caller, now: float) -> None:
        followed, paired = self._get_session(caller).add_call(tool, now)
        scope = self._get_scope(self.to_scope_key(caller))
        scope.pending.add_call(tool, now)
        if followed is not None:
            scope.pending.add_followed_search(followed, tool, now)
        for other in paired:
            scope.pending.add_pair(tool, other, now)
        scope.merged = None

    def _get_session(self, caller: Caller) -> SessionActivity:
        key = (self.to_scope_key(caller), caller.session)
        session = self._sessions.setdefault(key, SessionActivity())
        self._sessions.move_to_end(key)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _get_scope(self, key: str) -> _LearningScope:
        scope = self._scopes.setdefault(key, _LearningScope())
        self._scopes.move_to_end(key)
        if len(self._scopes) > _MAX_PENDING_SCOPES:
            # Drops the latest of those with the fewest counts: a client with ever new names evicts
            # only itself.
            others = list(self._scopes)[-2::-1]
            del self._scopes[min(others, key=lambda other: self._scopes[other].pending.call_count)]
        return scope

    # --- storage

    async def _load_within_timeout(self, key: str) -> None:
        task = self._load_tasks.get(key) or self._start_loading(key)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), LOAD_TIMEOUT_S)

    def _start_loading(self, key: str) -> asyncio.Task[None]:
        task = self._load_tasks[key] = asyncio.create_task(
            self._load(key), name="read learned counts"
        )
        task.add_done_callback(lambda _: self._load_tasks.pop(key, None))
        return task

    async def _load(self, key: str) -> None:
        async with self._flush_lock:
            stored = await asyncio.to_thread(self._read_stored, [key], None)
            # Keeps the older version: other scopes may predate another gateway's write, and the
            # next flush must read them again.
            self._apply_stored(
                stored if self._version is None else replace(stored, version=self._version)
            )

    def _write_and_read(
        self, pending_counts: Mapping[str, PendingCounts], keys: Sequence[str]
    ) -> _FlushResult:
        if not pending_counts and self._version is None:
            return _FlushResult()
        version = self._store.read_version()
        is_unchanged = version == self._version
        if not pending_counts:
            if is_unchanged:
                return _FlushResult()
            return _FlushResult(stored=self._read_stored(keys, version))
        rejected = self._write_counts(pending_counts)
        # With the version from before: what others wrote meanwhile is read next time, not missed.
        stored = self._read_stored(
            [key for key in keys if key in pending_counts] if is_unchanged else keys, version
        )
        return _FlushResult(rejected is not None, rejected or frozenset(), stored)

    def _write_counts(self, pending_counts: Mapping[str, PendingCounts]) -> Set[str] | None:
        if self._epoch is None:
            epoch = self._store.read_epoch()
        else:
            epoch = self._epoch
        key = self._store.get_key()
        rows = {scope: counts.to_rows(key) for scope, counts in pending_counts.items()}
        try:
            return self._store.record(rows, now=self._clock(), epoch=epoch)
        except _DAMAGED_ROW_ERRORS as error:
            logger.warning("what was learnt could not be kept: %r", error)
            return frozenset()

    def _read_stored(self, keys: Sequence[str], version: int | None) -> _StoredPatterns:
        # In this order: what changes during the read is then read again, not missed.
        if version is None:
            version = self._store.read_version()
        epoch = self._store.read_epoch()
        key = self._store.get_key()
        now = self._clock()
        patterns = {scope: self._load_patterns(scope, now) for scope in keys}
        return _StoredPatterns(version, epoch, key, patterns)

    def _load_patterns(self, key: str, now: float) -> UsagePatterns:
        try:
            return from_rows(self._store.load(key), self._half_life_s, now)
        except _DAMAGED_ROW_ERRORS as error:
            logger.warning("what was learnt cannot be used: %r", error)
            return UsagePatterns(self._half_life_s)

    def _apply_stored(self, stored: _StoredPatterns) -> None:
        if stored.epoch is not None:
            if self._epoch not in (None, stored.epoch):
                self._forget()
            self._epoch = stored.epoch
        if stored.key != self._key:
            self._key = stored.key
            for scope in self._scopes.values():
                scope.merged = None
        self._version = stored.version
        for key, patterns in stored.patterns.items():
            scope = self._get_scope(key)
            scope.stored = patterns
            scope.merged = None

    def _forget(self) -> None:
        """Drop everything in memory after the stored data was deleted."""
        self._sessions.clear()
        self._scopes.clear()

    def _restore_pending(self, keys: Collection[str]) -> None:
        """Merge counts that could not be written back into the pending ones."""
        if keys:
            # A disk may be full for long: scopes without new counts are dropped first.
            self._drop_idle_scopes()
        for key in keys:
            if (scope := self._scopes.get(key)) is not None:
                scope.pending.restore(scope.writing)

    def _drop_idle_scopes(self) -> None:
        for key in list(self._scopes)[: max(0, len(self._scopes) - _MAX_IDLE_SCOPES)]:
            if self._scopes[key].pending.is_empty:
                del self._scopes[key]
