"""Hears searches and calls, and knows what each scope has learnt from them.

What is heard counts at once, in memory; it is written in batches, in a thread, when the house is kept and when it
closes. Neither a call nor a search ever waits for the disk, but for the first search of a scope, and that not long.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from portico.access import Caller
from portico.config import Learning
from portico.events import Bus, Event, Searched, ToolCalled
from portico.learning.conversation import Conversation, Search
from portico.learning.lesson import Lesson, kept
from portico.search import Lift, Vector
from portico.search.habits import Habits, hashed, query_terms
from portico.storage.habits import HabitStore

logger = logging.getLogger(__name__)

LOAD_PATIENCE_S = 0.25
"""A first search waits so long for what its scope has learnt; then it goes without."""
_CONVERSATIONS = 1_000
_HEARD = 1_000
"""Scopes that may learn between two writes."""
_REMEMBERED = 64
"""Scopes that stay in memory after a write, what they learnt being on disk."""
_LONGEST_NAME = 80
EVERYBODY = "*"
_DAMAGED = (TypeError, ValueError, OverflowError)
"""What rows raise that say something else than we wrote."""


@dataclass(eq=False)
class _Scope:
    """What one scope knows: kept on disk, on its way there, and heard since."""

    known: Habits | None = None
    writing: Lesson = field(default_factory=Lesson)
    lesson: Lesson = field(default_factory=Lesson)
    current: Habits | None = None
    """All three as one; None when something was heard since."""


@dataclass(frozen=True)
class _Read:
    """What was read from disk."""

    version: int
    epoch: int | None
    key: bytes
    habits: Mapping[str, Habits]


@dataclass(frozen=True)
class _Settled:
    """What a write came to."""

    kept: bool = True
    turned_away: Set[str] = frozenset()
    """The scopes that there is no room for yet."""
    read: _Read | None = None


class Learner:
    """What use teaches. With learning off it hears nothing, knows nothing and opens no file."""

    def __init__(self, learning: Learning, store: HabitStore, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._learning = learning
        self._store = store
        self._clock = clock
        self._half_life_s = store.keeping.half_life_s
        self._conversations: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._version: int | None = None
        """Of the file, when every scope in memory was last as it is there."""
        self._epoch: int | None = None
        """Of the file, when what is in memory was heard: in another, it is to be forgotten."""
        self._key = b""
        self._flushing = asyncio.Lock()
        self._end = bus.subscribe(self._heard, Searched, ToolCalled) if self.listening else None

    @property
    def listening(self) -> bool:
        """Whether anything is learnt at all."""
        return self._learning != "off"

    def scope(self, caller: Caller) -> str:
        """Who learns together with this caller."""
        if self._learning == "shared":
            return EVERYBODY
        return f"{caller.profile}/{caller.name[:_LONGEST_NAME]}"

    def key(self) -> bytes:
        """What the words of queries are hashed with; may read a file."""
        return self._store.key()

    async def lifts(self, caller: Caller, query: str, vector: Vector | None = None) -> Mapping[str, Lift]:
        """What this caller's habits add to the tools' scores for a query."""
        if not self.listening:
            return {}
        habits, now = await self._habits(key := self.scope(caller)), self._clock()
        talk = self._conversations.get((key, caller.session))
        terms = hashed(query_terms(query), self._key)
        return habits.lifts(terms, vector, talk.recent(now) if talk else (), now)

    async def together(self, caller: Caller) -> Mapping[tuple[str, str], float]:
        """How often this caller used tools together."""
        return (await self._habits(self.scope(caller))).pairs(self._clock()) if self.listening else {}

    async def _habits(self, key: str) -> Habits:
        if self._scope(key).known is None:
            await self._load_soon(key)
        scope = self._scope(key)
        if scope.current is None:
            for lesson in (scope.writing, scope.lesson):
                scope.current = lesson.habits(self._half_life_s, self._key, scope.current or scope.known)
        assert scope.current is not None
        return scope.current

    async def flush(self) -> None:
        """Write what was heard, and read what other gateways wrote."""
        if self.listening:
            # Whoever stops waiting for it does not stop it: what is half written would be lost, or written twice.
            self._work.add(work := asyncio.create_task(self._flush(), name="keep habits"))
            work.add_done_callback(self._work.discard)
            await asyncio.shield(work)

    async def _flush(self) -> None:
        async with self._flushing:
            for scope in self._scopes.values():
                scope.writing, scope.lesson = scope.lesson, Lesson()
            lessons = {key: scope.writing for key, scope in self._scopes.items() if not scope.writing.empty}
            searched = [key for key, scope in self._scopes.items() if scope.known is not None]
            settled = await asyncio.to_thread(self._settle, lessons, searched)
            self._put_back(settled.turned_away if settled.kept else lessons.keys())
            if settled.read is not None:
                self._take(settled.read)
            for scope in self._scopes.values():
                scope.writing, scope.current = Lesson(), None
            self._drop_scopes()

    async def close(self) -> None:
        """Hear no more, write what was heard, and close the file."""
        if self._end is not None:
            self._end()
        if underway := {*self._loading.values(), *self._work}:
            await asyncio.wait(underway)
        await self.flush()
        await asyncio.to_thread(self._store.close)

    # --- hearing

    def _heard(self, event: Event) -> None:
        if isinstance(event, Searched):
            if event.shown and (terms := query_terms(event.query)):
                search = Search(terms, frozenset(event.shown), self._clock(), event.vector)
                self._conversation(event.caller).searched(search)
        elif isinstance(event, ToolCalled) and event.ok:
            self._learn(event.tool, event.caller, self._clock())
            if self._epoch is None and not self._loading:
                self._start_loading(self.scope(event.caller))

    def _learn(self, tool: str, caller: Caller, now: float) -> None:
        followed, beside = self._conversation(caller).called(tool, now)
        scope = self._scope(self.scope(caller))
        scope.lesson.used(tool, now)
        if followed is not None:
            scope.lesson.followed(followed, tool, now)
        for other in beside:
            scope.lesson.together(tool, other, now)
        scope.current = None

    def _conversation(self, caller: Caller) -> Conversation:
        key = (self.scope(caller), caller.session)
        talk = self._conversations.setdefault(key, Conversation())
        self._conversations.move_to_end(key)
        if len(self._conversations) > _CONVERSATIONS:
            self._conversations.popitem(last=False)
        return talk

    def _scope(self, key: str) -> _Scope:
        scope = self._scopes.setdefault(key, _Scope())
        self._scopes.move_to_end(key)
        if len(self._scopes) > _HEARD:
            # Of those that learnt least the latest: whoever comes under ever new names takes room from themselves.
            others = list(self._scopes)[-2::-1]
            del self._scopes[min(others, key=lambda other: self._scopes[other].lesson.calls)]
        return scope

    # --- memory and disk

    async def _load_soon(self, key: str) -> None:
        task = self._loading.get(key) or self._start_loading(key)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), LOAD_PATIENCE_S)

    def _start_loading(self, key: str) -> asyncio.Task[None]:
        task = self._loading[key] = asyncio.create_task(self._load(key), name="read habits")
        task.add_done_callback(lambda _: self._loading.pop(key, None))
        return task

    async def _load(self, key: str) -> None:
        async with self._flushing:
            read = await asyncio.to_thread(self._read, [key], None)
            # Other scopes may have been read before another gateway wrote: the next flush has to look.
            self._take(read if self._version is None else replace(read, version=self._version))

    def _settle(self, lessons: Mapping[str, Lesson], keys: Sequence[str]) -> _Settled:
        if not lessons and self._version is None:
            return _Settled()
        version = self._store.version()
        as_we_left_it = version == self._version
        if not lessons:
            return _Settled() if as_we_left_it else _Settled(read=self._read(keys, version))
        turned_away = self._record(lessons)
        # The version from before: what others wrote meanwhile is read next time, not missed.
        read = self._read([key for key in keys if key in lessons] if as_we_left_it else keys, version)
        return _Settled(turned_away is not None, turned_away or frozenset(), read)

    def _record(self, lessons: Mapping[str, Lesson]) -> Set[str] | None:
        epoch = self._store.epoch() if self._epoch is None else self._epoch
        key = self._store.key()
        learnt = {scope: lesson.rows(key) for scope, lesson in lessons.items()}
        try:
            return self._store.record(learnt, now=self._clock(), epoch=epoch)
        except _DAMAGED as error:
            logger.warning("what was learnt could not be kept: %r", error)
            return frozenset()

    def _read(self, keys: Sequence[str], version: int | None) -> _Read:
        # In this order: what is written, or forgotten, while we read is then read once more, not missed.
        version = self._store.version() if version is None else version
        epoch = self._store.epoch()
        key, now = self._store.key(), self._clock()
        habits = {scope: self._kept(scope, now) for scope in keys}
        return _Read(version, epoch, key, habits)

    def _kept(self, key: str, now: float) -> Habits:
        try:
            return kept(self._store.load(key), self._half_life_s, now)
        except _DAMAGED as error:
            logger.warning("what was learnt cannot be used: %r", error)
            return Habits(self._half_life_s)

    def _take(self, read: _Read) -> None:
        if read.epoch is not None:
            if self._epoch not in (None, read.epoch):
                self._forget()
            self._epoch = read.epoch
        if read.key != self._key:
            self._key = read.key
            for scope in self._scopes.values():
                scope.current = None
        self._version = read.version
        for key, habits in read.habits.items():
            scope = self._scope(key)
            scope.known, scope.current = habits, None

    def _forget(self) -> None:
        """Somebody forgot what is on disk: what was heard until now belongs to that."""
        self._conversations.clear()
        self._scopes.clear()

    def _put_back(self, keys: Collection[str]) -> None:
        """What could not be written is tried again with what was heard since."""
        if keys:
            self._drop_scopes()  # those of whom nothing was heard since: a disk may be full for long
        for key in keys:
            if (scope := self._scopes.get(key)) is not None:
                scope.lesson.put_back(scope.writing)

    def _drop_scopes(self) -> None:
        for key in list(self._scopes)[: max(0, len(self._scopes) - _REMEMBERED)]:
            if self._scopes[key].lesson.empty:
                del self._scopes[key]
