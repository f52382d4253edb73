"""Hears searches and calls, and knows what each scope has learnt from them.

What is heard counts at once, in memory; it is written in batches, in a thread, when the house is
kept and when it closes. Neither a call nor a search ever waits for the disk, but for the first
search of a scope, and that not long.
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
"""A first search waits so long for what its scope has learnt; then it goes without."""
_MAX_SESSIONS = 1_000
_MAX_PENDING_SCOPES = 1_000
"""Scopes that may learn between two writes."""
_MAX_IDLE_SCOPES = 64
"""Scopes that stay in memory after a write, what they learnt being on disk."""
_MAX_NAME_CHARS = 80
SHARED_SCOPE = "*"
_DAMAGED_ROW_ERRORS = (TypeError, ValueError, OverflowError)
"""What rows raise that say something else than we wrote."""


@dataclass(eq=False)
class _LearningScope:
    """What one scope knows: kept on disk, on its way there, and heard since."""

    stored: UsagePatterns | None = None
    writing: PendingCounts = field(default_factory=PendingCounts)
    pending: PendingCounts = field(default_factory=PendingCounts)
    merged: UsagePatterns | None = None
    """All three as one; None when something was heard since."""


@dataclass(frozen=True)
class _StoredPatterns:
    """What was read from disk."""

    version: int
    epoch: int | None
    key: bytes
    patterns: Mapping[str, UsagePatterns]


@dataclass(frozen=True)
class _FlushResult:
    """What a write came to."""

    is_written: bool = True
    rejected_scopes: Set[str] = frozenset()
    """The scopes that there is no room for yet."""
    stored: _StoredPatterns | None = None


class Learner:
    """What use teaches. With learning off it hears nothing, knows nothing and opens no file."""

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
        """Of the file, when every scope in memory was last as it is there."""
        self._epoch: int | None = None
        """Of the file, when what is in memory was heard: in another, it is to be forgotten."""
        self._key = b""
        self._flush_lock = asyncio.Lock()
        if self.is_enabled:
            self._unsubscribe = bus.subscribe(self._on_event, ToolsFound, ToolCalled)
        else:
            self._unsubscribe = None

    @property
    def is_enabled(self) -> bool:
        """Whether anything is learnt at all."""
        return self._mode != "off"

    def to_scope_key(self, caller: Caller) -> str:
        """Who learns together with this caller."""
        if self._mode == "shared":
            return SHARED_SCOPE
        return f"{caller.profile}/{caller.name[:_MAX_NAME_CHARS]}"

    def read_key(self) -> bytes:
        """What the words of queries are hashed with; may read a file."""
        return self._store.get_key()

    async def compute_boosts(
        self, caller: Caller, query: str, vector: Vector | None = None
    ) -> Mapping[str, Boost]:
        """What this caller's habits add to the tools' scores for a query."""
        if not self.is_enabled:
            return {}
        habits = await self._get_patterns(key := self.to_scope_key(caller))
        now = self._clock()
        talk = self._sessions.get((key, caller.session))
        terms = hash_terms(extract_query_terms(query), self._key)
        return habits.compute_boosts(
            terms, vector, talk.list_recent_tools(now) if talk else (), now
        )

    async def compute_pair_weights(self, caller: Caller) -> Mapping[tuple[str, str], float]:
        """How often this caller used tools together."""
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
            for lesson in (scope.writing, scope.pending):
                scope.merged = lesson.to_usage_patterns(
                    self._half_life_s, self._key, scope.merged or scope.stored
                )
        assert scope.merged is not None
        return scope.merged

    async def flush(self) -> None:
        """Write what was heard, and read what other gateways wrote."""
        if self.is_enabled:
            # Whoever stops waiting for it does not stop it: what is half written would be lost, or
            # written twice.
            self._flush_tasks.add(work := asyncio.create_task(self._flush(), name="keep habits"))
            work.add_done_callback(self._flush_tasks.discard)
            await asyncio.shield(work)

    async def _flush(self) -> None:
        async with self._flush_lock:
            for scope in self._scopes.values():
                scope.writing = scope.pending
                scope.pending = PendingCounts()
            lessons = {
                key: scope.writing
                for key, scope in self._scopes.items()
                if not scope.writing.is_empty
            }
            searched = [key for key, scope in self._scopes.items() if scope.stored is not None]
            settled = await asyncio.to_thread(self._write_and_read, lessons, searched)
            self._restore_pending(settled.rejected_scopes if settled.is_written else lessons.keys())
            if settled.stored is not None:
                self._apply_stored(settled.stored)
            for scope in self._scopes.values():
                scope.writing = PendingCounts()
                scope.merged = None
            self._drop_idle_scopes()

    async def close(self) -> None:
        """Hear no more, write what was heard, and close the file."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if underway := {*self._load_tasks.values(), *self._flush_tasks}:
            await asyncio.wait(underway)
        await self.flush()
        await asyncio.to_thread(self._store.close)

    # --- hearing

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
        followed, beside = self._get_session(caller).add_call(tool, now)
        scope = self._get_scope(self.to_scope_key(caller))
        scope.pending.add_call(tool, now)
        if followed is not None:
            scope.pending.add_followed_search(followed, tool, now)
        for other in beside:
            scope.pending.add_pair(tool, other, now)
        scope.merged = None

    def _get_session(self, caller: Caller) -> SessionActivity:
        key = (self.to_scope_key(caller), caller.session)
        talk = self._sessions.setdefault(key, SessionActivity())
        self._sessions.move_to_end(key)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return talk

    def _get_scope(self, key: str) -> _LearningScope:
        scope = self._scopes.setdefault(key, _LearningScope())
        self._scopes.move_to_end(key)
        if len(self._scopes) > _MAX_PENDING_SCOPES:
            # Of those that learnt least the latest: whoever comes under ever new names takes room
            # from themselves.
            others = list(self._scopes)[-2::-1]
            del self._scopes[min(others, key=lambda other: self._scopes[other].pending.call_count)]
        return scope

    # --- memory and disk

    async def _load_within_timeout(self, key: str) -> None:
        task = self._load_tasks.get(key) or self._start_loading(key)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), LOAD_TIMEOUT_S)

    def _start_loading(self, key: str) -> asyncio.Task[None]:
        task = self._load_tasks[key] = asyncio.create_task(self._load(key), name="read habits")
        task.add_done_callback(lambda _: self._load_tasks.pop(key, None))
        return task

    async def _load(self, key: str) -> None:
        async with self._flush_lock:
            read = await asyncio.to_thread(self._read_stored, [key], None)
            # Other scopes may have been read before another gateway wrote: the next flush has to
            # look.
            self._apply_stored(
                read if self._version is None else replace(read, version=self._version)
            )

    def _write_and_read(
        self, pending_counts: Mapping[str, PendingCounts], keys: Sequence[str]
    ) -> _FlushResult:
        if not pending_counts and self._version is None:
            return _FlushResult()
        version = self._store.read_version()
        as_we_left_it = version == self._version
        if not pending_counts:
            if as_we_left_it:
                return _FlushResult()
            return _FlushResult(stored=self._read_stored(keys, version))
        turned_away = self._write_counts(pending_counts)
        # The version from before: what others wrote meanwhile is read next time, not missed.
        read = self._read_stored(
            [key for key in keys if key in pending_counts] if as_we_left_it else keys, version
        )
        return _FlushResult(turned_away is not None, turned_away or frozenset(), read)

    def _write_counts(self, pending_counts: Mapping[str, PendingCounts]) -> Set[str] | None:
        if self._epoch is None:
            epoch = self._store.read_epoch()
        else:
            epoch = self._epoch
        key = self._store.get_key()
        learnt = {scope: lesson.to_rows(key) for scope, lesson in pending_counts.items()}
        try:
            return self._store.record(learnt, now=self._clock(), epoch=epoch)
        except _DAMAGED_ROW_ERRORS as error:
            logger.warning("what was learnt could not be kept: %r", error)
            return frozenset()

    def _read_stored(self, keys: Sequence[str], version: int | None) -> _StoredPatterns:
        # In this order: what is written, or forgotten, while we read is then read once more, not
        # missed.
        if version is None:
            version = self._store.read_version()
        else:
            version = version
        epoch = self._store.read_epoch()
        key = self._store.get_key()
        now = self._clock()
        habits = {scope: self._load_patterns(scope, now) for scope in keys}
        return _StoredPatterns(version, epoch, key, habits)

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
        for key, habits in stored.patterns.items():
            scope = self._get_scope(key)
            scope.stored = habits
            scope.merged = None

    def _forget(self) -> None:
        """Somebody forgot what is on disk: what was heard until now belongs to that."""
        self._sessions.clear()
        self._scopes.clear()

    def _restore_pending(self, keys: Collection[str]) -> None:
        """What could not be written is tried again with what was heard since."""
        if keys:
            self._drop_idle_scopes()  # those of whom nothing was heard since: a disk may be full for long
        for key in keys:
            if (scope := self._scopes.get(key)) is not None:
                scope.pending.restore(scope.writing)

    def _drop_idle_scopes(self) -> None:
        for key in list(self._scopes)[: max(0, len(self._scopes) - _MAX_IDLE_SCOPES)]:
            if self._scopes[key].pending.is_empty:
                del self._scopes[key]
