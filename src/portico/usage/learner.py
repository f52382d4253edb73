"""Learner: counts searches and calls, and boosts tools by what each scope did before.

Events are counted in memory when a search or a write needs the counts, and written in batches in a
thread, at maintenance and at shutdown. Calls and searches never wait for the disk, except the first
search of a scope, for at most LOAD_TIMEOUT_S.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from portico.callers import Caller
from portico.config import LearningMode
from portico.events import Event, EventBus, ToolCalled, ToolsFound
from portico.search import Boost, Vector
from portico.search.usage_patterns import (
    LONG_QUERY_CHARS,
    PendingCounts,
    SearchRecord,
    SessionActivity,
    UsagePatterns,
    extract_query_terms,
    hash_terms,
)
from portico.storage.learning_store import LearningStore
from portico.storage.rows import FollowedRow, LearnedRows, PairRow, UsedRow

logger = logging.getLogger(__name__)

Row = TypeVar("Row", FollowedRow, PairRow, UsedRow)

LOAD_TIMEOUT_S = 0.25
"""Seconds that the first search of a scope waits for its stored patterns."""
_MAX_SESSIONS = 1_000
_MAX_PENDING_SCOPES = 1_000
"""Maximum number of scopes with unwritten counts."""
_MAX_IDLE_SCOPES = 64
"""Scopes kept in memory after a write."""
_MAX_NAME_CHARS = 80
_MAX_EVENTS = 200
"""Events that may wait to be counted."""
SHARED_SCOPE = "*"


@dataclass(eq=False)
class _LearningScope:
    """Counts of one scope: stored, being written, and pending."""

    stored: UsagePatterns | None = None
    writing: PendingCounts = field(default_factory=PendingCounts)
    pending: PendingCounts = field(default_factory=PendingCounts)


@dataclass(frozen=True)
class _StoredPatterns:
    version: int
    epoch: int | None
    key: bytes
    patterns: Mapping[str, UsagePatterns]


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
        self._half_life_s = store.half_life_s
        self._sessions: OrderedDict[tuple[str, str], SessionActivity] = OrderedDict()
        self._scopes: OrderedDict[str, _LearningScope] = OrderedDict()
        self._events: list[tuple[float, Event]] = []
        """Searches and calls that are not counted yet, with their time."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._load_tasks: dict[str, asyncio.Task[None]] = {}
        self._version: int | None = None
        """Version of the file with which the scopes in memory agree."""
        self._epoch: int | None = None
        """Epoch of the file that the counts in memory belong to; they are dropped in another."""
        self._key = b""
        self._lock = asyncio.Lock()
        self._unsubscribe: Callable[[], None] = lambda: None
        if self.is_enabled:
            self._unsubscribe = bus.subscribe(self._on_event, ToolsFound, ToolCalled)

    @property
    def is_enabled(self) -> bool:
        return self._mode != "off"

    def to_scope_key(self, caller: Caller) -> str:
        if self._mode == "shared":
            return SHARED_SCOPE
        if not caller.principal.is_shared:
            # No claimed name has a line break in front of the profile.
            return f"{caller.principal.id}\n{caller.profile}"
        return f"{caller.profile}/{caller.name[:_MAX_NAME_CHARS]}"

    def read_key(self) -> bytes:
        """Return the key that query words are hashed with; may read a file."""
        return self._store.get_key()

    async def compute_boosts(
        self, caller: Caller, query: str, vector: Vector | None = None
    ) -> Mapping[str, Boost]:
        if not self.is_enabled:
            return {}
        self._count_events()
        key = self.to_scope_key(caller)
        patterns = await self._get_patterns(key)
        now = self._clock()
        session = self._sessions.get((key, caller.session))
        recent = session.list_recent_tools(now) if session else ()
        if len(query) > LONG_QUERY_CHARS:
            terms = hash_terms(await asyncio.to_thread(extract_query_terms, query), self._key)
        else:
            terms = hash_terms(extract_query_terms(query), self._key)
        return patterns.compute_boosts(terms, vector, recent, now)

    async def list_used_servers(self, caller: Caller) -> frozenset[str]:
        """Return the servers of the tools that were called in this caller's scope."""
        if not self.is_enabled:
            return frozenset()
        self._count_events()
        return (await self._get_patterns(self.to_scope_key(caller))).list_used_groups()

    async def _get_patterns(self, key: str) -> UsagePatterns:
        if self._get_scope(key).stored is None:
            task = self._load_tasks.get(key) or self._start_loading(key)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), LOAD_TIMEOUT_S)
        scope = self._get_scope(key)
        patterns = scope.stored or UsagePatterns(self._half_life_s)
        for counts in (scope.writing, scope.pending):
            if not counts.is_empty:
                patterns = UsagePatterns(self._half_life_s, counts.to_rows(self._key), patterns)
        return patterns

    async def flush(self) -> None:
        """Write pending counts, and read what other gateways wrote."""
        if self.is_enabled:
            # Shielded from cancellation: a half-done write would be lost or repeated.
            await asyncio.shield(self._start_task(self._flush()))

    async def close(self) -> None:
        """Unsubscribe, write pending counts, and close the file."""
        self._unsubscribe()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.flush()
        await asyncio.to_thread(self._store.close)

    # --- events

    def _on_event(self, event: Event) -> None:
        self._events.append((self._clock(), event))
        if len(self._events) >= _MAX_EVENTS or self._epoch is None:
            self._count_events()

    def _count_events(self) -> None:
        """Count the events since the last time: only who needs the counts pays for them."""
        events = self._events
        self._events = []
        for at, event in events:
            if isinstance(event, ToolsFound):
                if event.shown and (terms := extract_query_terms(event.query)):
                    search = SearchRecord(terms, frozenset(event.shown), at, event.vector)
                    self._get_session(event.caller).add_search(search)
            elif isinstance(event, ToolCalled) and event.ok:
                followed, paired = self._get_session(event.caller).add_call(event.tool, at)
                key = self.to_scope_key(event.caller)
                self._get_scope(key).pending.add_call(event.tool, followed, paired, at)
                if self._epoch is None and not self._load_tasks:
                    self._start_loading(key)

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

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="learned counts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start_loading(self, key: str) -> asyncio.Task[None]:
        task = self._load_tasks[key] = self._start_task(self._load(key))
        task.add_done_callback(lambda _: self._load_tasks.pop(key, None))
        return task

    async def _load(self, key: str) -> None:
        async with self._lock:
            stored = await asyncio.to_thread(self._read_stored, [key])
            version = self._version
            self._apply_stored(stored)
            # Keeps the older version: other scopes may predate another gateway's write, and the
            # next flush must read them again.
            self._version = stored.version if version is None else version

    async def _flush(self) -> None:
        async with self._lock:
            self._count_events()
            for scope in self._scopes.values():
                scope.writing = scope.pending
                scope.pending = PendingCounts()
            scopes = self._scopes.items()
            counts = {key: scope.writing for key, scope in scopes if not scope.writing.is_empty}
            loaded = [key for key, scope in self._scopes.items() if scope.stored is not None]
            unwritten, stored = await asyncio.to_thread(self._write_and_read, counts, loaded)
            if unwritten:
                # A disk may be full for long: scopes without new counts are dropped first.
                self._drop_idle_scopes()
            for key in self._scopes.keys() & unwritten:
                self._scopes[key].pending.restore(self._scopes[key].writing)
            if stored is not None:
                self._apply_stored(stored)
            for scope in self._scopes.values():
                scope.writing = PendingCounts()
            self._drop_idle_scopes()

    def _write_and_read(
        self, counts: Mapping[str, PendingCounts], loaded: Sequence[str]
    ) -> tuple[Collection[str], _StoredPatterns | None]:
        """Return the scopes that could not be written, and what is stored now if it changed."""
        if not counts and self._version is None:
            return (), None
        # Read first: what others write meanwhile is read next time, not missed.
        version = self._store.read_version()
        is_unchanged = version == self._version
        if not counts:
            return (), None if is_unchanged else self._read_stored(loaded, version)
        epoch = self._store.read_epoch() if self._epoch is None else self._epoch
        key = self._store.get_key()
        rows = {scope: pending.to_rows(key) for scope, pending in counts.items()}
        rejected = self._store.record(rows, now=self._clock(), epoch=epoch)
        unwritten = counts.keys() if rejected is None else rejected
        changed = [scope for scope in loaded if scope in counts or not is_unchanged]
        return unwritten, self._read_stored(changed, version)

    def _read_stored(self, keys: Sequence[str], version: int | None = None) -> _StoredPatterns:
        # In this order: what changes during the read is then read again, not missed.
        if version is None:
            version = self._store.read_version()
        epoch = self._store.read_epoch()
        key = self._store.get_key()
        now = self._clock()
        patterns: dict[str, UsagePatterns] = {}
        for scope in keys:
            try:
                rows = _check_rows(self._store.load(scope), now)
                patterns[scope] = UsagePatterns(self._half_life_s, rows).warm_up()
            except (TypeError, ValueError, OverflowError) as error:
                logger.warning("what was learnt cannot be used: %r", error)
                patterns[scope] = UsagePatterns(self._half_life_s)
        return _StoredPatterns(version, epoch, key, patterns)

    def _apply_stored(self, stored: _StoredPatterns) -> None:
        if stored.epoch is not None:
            self._count_events()
            if self._epoch not in (None, stored.epoch):
                # The stored data was deleted, so that in memory is dropped too.
                self._sessions.clear()
                self._scopes.clear()
            self._epoch = stored.epoch
        self._key = stored.key
        self._version = stored.version
        for key, patterns in stored.patterns.items():
            self._get_scope(key).stored = patterns

    def _drop_idle_scopes(self) -> None:
        for key in list(self._scopes)[:-_MAX_IDLE_SCOPES]:
            if self._scopes[key].pending.is_empty:
                del self._scopes[key]


def _check_rows(rows: LearnedRows, now: float) -> LearnedRows:
    """Raise TypeError or ValueError for damaged rows; future times become `now`."""

    def check(row: Row) -> Row:
        return replace(row, weight=float(row.weight), at=min(float(row.at), now))

    return LearnedRows(
        tuple(map(check, rows.followed)),
        tuple(map(check, rows.together)),
        tuple(map(check, rows.used)),
    )
