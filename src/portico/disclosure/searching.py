"""Searches on somebody's behalf: what the query means, what use has taught, and who hears of it. All that awaits."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from portico.access import Caller
from portico.catalog.snapshot import Snapshot
from portico.disclosure import results
from portico.disclosure.lines import States
from portico.disclosure.popular import with_popular
from portico.disclosure.question import Question, Search
from portico.events import Bus, Searched, SearchEnded
from portico.learning import Learner
from portico.search import Facts, Lift, Vector

_LONG_QUERY = 200
"""Characters; nearly every query is shorter, and takes a few milliseconds."""


@dataclass(frozen=True)
class Searching:
    """Searches with what use has taught, and tells what callers were shown."""

    learner: Learner | None = None
    bus: Bus | None = None
    facts: Callable[[], Mapping[str, Facts]] = dict
    """How the calls of each tool went."""
    popular: Callable[[], Mapping[str, Lift]] = dict
    """What everybody's use adds to the tools' scores."""
    computed: Callable[[], str] = str
    """When that was last worked out."""

    async def answer(
        self,
        snapshot: Snapshot,
        question: Question,
        caller: Caller,
        states: States,
        budget: int,
        there: Collection[str],
    ) -> results.Answer:
        """A page of tools, as this caller is told; whoever learns from searches hears of it."""
        started = time.perf_counter()
        vector, search = await self.prepared(snapshot, question, caller)
        found = await snapshot.look_through(results.answer, search, states, budget, there)
        if self.bus is not None:
            self.bus.publish(SearchEnded(time.perf_counter() - started, bool(found.shown)))
        if found.shown and self.bus is not None and self.bus.asked_for(Searched):
            self.bus.publish(Searched(question.query, found.shown, caller, vector))
        return found

    async def prepared(self, snapshot: Snapshot, question: Question, caller: Caller) -> tuple[Vector | None, Search]:
        """What the query means, where it can be worked out; and the search, ready to be answered."""
        filters = question.filters(snapshot)
        vector = await _meaning(snapshot, question.query)
        lifts = await self.learner.lifts(caller, question.query, vector) if self.learner is not None else {}
        known = (with_popular(lifts, self.popular()), self.facts(), self.computed())
        return vector, Search(snapshot, question, filters, *known)


async def _meaning(snapshot: Snapshot, query: str) -> Vector | None:
    index = snapshot.index
    ready = index.encoder is None or index.encoder.loaded or index.encoder.problem
    if ready and len(query) <= _LONG_QUERY:
        return index.meaning(query)
    # The model is read first, which takes a second, or has much to read: everybody else is served meanwhile.
    return await asyncio.to_thread(index.meaning, query)
