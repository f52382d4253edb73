"""Searches on somebody's behalf: what the query means, what use has taught, and who hears of it.
All that awaits."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from portico.access import Caller
from portico.catalog.snapshot import Snapshot
from portico.events import EventBus, SearchCompleted, ToolsFound
from portico.meta_tools import search_page
from portico.meta_tools.search_request import PreparedSearch, SearchRequest
from portico.rendering.lines import ServerStates
from portico.search import Boost, UsageFacts, Vector
from portico.usage.learner import Learner
from portico.usage.popularity import merge_popularity_boosts

_LONG_QUERY_CHARS = 200
"""Characters; nearly every query is shorter, and takes a few milliseconds."""


@dataclass(frozen=True)
class SearchService:
    """Searches with what use has taught, and tells what callers were shown."""

    learner: Learner | None = None
    bus: EventBus | None = None
    get_facts: Callable[[], Mapping[str, UsageFacts]] = dict
    """How the calls of each tool went."""
    get_popularity_boosts: Callable[[], Mapping[str, Boost]] = dict
    """What everybody's use adds to the tools' scores."""
    get_standings_version: Callable[[], str] = str
    """When that was last worked out."""

    async def search(
        self,
        snapshot: Snapshot,
        request: SearchRequest,
        caller: Caller,
        states: ServerStates,
        budget: int,
        meta_tools: Collection[str],
    ) -> search_page.RenderedSearchPage:
        """A page of tools, as this caller is told; whoever learns from searches hears of it."""
        started = time.perf_counter()
        vector, search = await self.prepare_search(snapshot, request, caller)
        found = await snapshot.run_scan(
            search_page.render_search_page, search, states, budget, meta_tools
        )
        if self.bus is not None:
            self.bus.publish(SearchCompleted(time.perf_counter() - started, bool(found.addresses)))
        if found.addresses and self.bus is not None and self.bus.has_subscribers(ToolsFound):
            self.bus.publish(ToolsFound(request.query, found.addresses, caller, vector))
        return found

    async def prepare_search(
        self, snapshot: Snapshot, request: SearchRequest, caller: Caller
    ) -> tuple[Vector | None, PreparedSearch]:
        """What the query means, where it can be worked out; and the search, ready to be answered."""
        filters = request.build_filters(snapshot)
        vector = await _encode_query(snapshot, request.query)
        if self.learner is not None:
            lifts = await self.learner.compute_boosts(caller, request.query, vector)
        else:
            lifts = {}
        known = (
            merge_popularity_boosts(lifts, self.get_popularity_boosts()),
            self.get_facts(),
            self.get_standings_version(),
        )
        return vector, PreparedSearch(snapshot, request, filters, *known)


async def _encode_query(snapshot: Snapshot, query: str) -> Vector | None:
    index = snapshot.index
    ready = index.encoder is None or index.encoder.is_loaded or index.encoder.problem
    if ready and len(query) <= _LONG_QUERY_CHARS:
        return index.encode_query(query)
    # The model is read first, which takes a second, or has much to read: everybody else is served
    # meanwhile.
    return await asyncio.to_thread(index.encode_query, query)
