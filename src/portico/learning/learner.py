"""Hears searches and calls, and knows what each scope has learnt from them.

What is heard counts at once, in memory; it is written in batches, in a thread, when the house is kept and when it
closes. Neither a call nor a search ever waits for the disk, but for the first search of a scope, and that not long.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from portico.access import Caller
from portico.config import Learning
from portico.events import Bus, Event, Searched, ToolCalled
from portico.learning.conversation import Conversation, Search
from portico.learning.lesson import Lesson, Outcomes, facts, kept
from portico.search.habits import Facts, Habits, Lift, hashed, query_terms
from portico.storage.habits import HabitStore, Learnt, OutcomeRow

logger = logging.getLogger(__name__)

LOAD_PATIENCE_S = 0.25
"""A first search waits so long for what its scope has learnt; then it goes without."""
_CONVERSATIONS = 1_000
_SCOPES = 64
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
    habits: Mapping[str, Habits]
    facts: Mapping[str, Facts]


class Learner:
    """What use teaches. With learning off it hears nothing, knows nothing and opens no file."""

    def __init__(self, learning: Learning, store: HabitStore, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._learning = learning
        self.store = store
        self._clock = clock
        self._half_life_s = store.keeping.half_life_s
        self._conversations: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._outcomes = Outcomes()
        self._version: int | None = None
        """Of the file, when every scope in memory was last as it is there."""
        self._flushing = asyncio.Lock()
        self.facts: Mapping[str, Facts] = {}
        """How the calls of each tool went, as far as it was written or read."""
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

    async def lifts(self, caller: Caller, query: str, vector: bytes | None = None) -> Mapping[str, Lift]:
        """What this caller's habits add to the tools' scores for a query."""
        if not self.listening:
            return {}
        key = self.scope(caller)
        if (scope := self._scope(key)).known is None:
            await self._load_soon(key)
        if scope.current is None:
            scope.current = scope.writing.habits(self._half_life_s, scope.known)
            scope.current = scope.lesson.habits(self._half_life_s, scope.current)
        now = self._clock()
        talk = self._conversations.get((key, caller.session))
        meant = None if vector is None else np.frombuffer(vector, dtype=np.int8)
        return scope.current.lifts(query_terms(query), meant, talk.recent(now) if talk else (), now)

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
            lessons = {key: scope.writing.rows() for key, scope in self._scopes.items() if not scope.writing.empty}
            outcomes, self._outcomes = self._outcomes.rows(), Outcomes()
            searched = [key for key, scope in self._scopes.items() if scope.known is not None]
            if (read := await asyncio.to_thread(self._settle, lessons, outcomes, searched)) is not None:
                self._take(read)
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
        await asyncio.to_thread(self.store.close)

    # --- hearing

    def _heard(self, event: Event) -> None:
        if isinstance(event, Searched):
            if event.shown and (terms := hashed(query_terms(event.query))):
                search = Search(terms, frozenset(event.shown), self._clock(), event.vector)
                self._conversation(event.caller).searched(search)
        elif isinstance(event, ToolCalled) and not event.cancelled:
            now = self._clock()
            self._outcomes.add(event.tool, event.ok, event.seconds, now)
            if event.ok:
                self._learn(event.tool, event.caller, now)

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
        if len(self._scopes) > _CONVERSATIONS:
            self._scopes.popitem(last=False)
        return scope

    # --- memory and disk

    async def _load_soon(self, key: str) -> None:
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.create_task(self._load(key), name="read habits")
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), LOAD_PATIENCE_S)

    async def _load(self, key: str) -> None:
        async with self._flushing:
            read = await asyncio.to_thread(self._read, [key])
            # Other scopes may have been read before another gateway wrote: the next flush has to look.
            self._take(read if self._version is None else replace(read, version=self._version))

    def _settle(
        self, lessons: Mapping[str, Learnt], outcomes: Sequence[OutcomeRow], keys: Sequence[str]
    ) -> _Read | None:
        if not (lessons or outcomes or keys):
            return None
        as_we_left_it = self.store.version() == self._version
        if lessons or outcomes:
            try:
                self.store.record(lessons, outcomes)
            except _DAMAGED as error:
                logger.warning("what was learnt could not be kept: %r", error)
        elif as_we_left_it:
            return None
        return self._read([key for key in keys if key in lessons] if as_we_left_it else keys)

    def _read(self, keys: Sequence[str]) -> _Read:
        # The version first: what is written while we read is then read once more, not missed.
        version = self.store.version()
        habits = {key: self._kept(key) for key in keys}
        return _Read(version, habits, facts(self.store.outcomes(self._clock())))

    def _kept(self, key: str) -> Habits:
        try:
            return kept(self.store.load(key), self._half_life_s)
        except _DAMAGED as error:
            logger.warning("what was learnt cannot be used: %r", error)
            return Habits(self._half_life_s)

    def _take(self, read: _Read) -> None:
        self._version, self.facts = read.version, read.facts
        for key, habits in read.habits.items():
            scope = self._scope(key)
            scope.known, scope.current = habits, None

    def _drop_scopes(self) -> None:
        for key in list(self._scopes)[: max(0, len(self._scopes) - _SCOPES)]:
            if self._scopes[key].lesson.empty:
                del self._scopes[key]
