"""The meta-tool `search_tools`: query embedding, boosts from use, ranking and events.

Everything that awaits is here; requests, ranking and pages are pure.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from portico.callers import Caller
from portico.catalog.snapshot import Snapshot
from portico.events import EventBus, SearchCompleted, ToolsFound
from portico.meta_tools import search_page
from portico.meta_tools.search_request import PreparedSearch, SearchRequest
from portico.rendering.server_lines import ServerStates
from portico.search import Boost, UsageFacts, Vector
from portico.search.usage_patterns import LONG_QUERY_CHARS
from portico.usage.learner import Learner
from portico.usage.tool_tiers import merge_popularity_boosts

_MAX_NOTICED_SESSIONS = 1_000
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class SearchService:
    """Searches with boosts from use, and publishes what callers were shown."""

    learner: Learner | None = None
    bus: EventBus | None = None
    get_facts: Callable[[], Mapping[str, UsageFacts]] = dict
    """Returns latency and success facts per tool."""
    get_popularity_boosts: Callable[[], Mapping[str, Boost]] = dict
    """Returns the score boosts that come from everybody's use."""
    get_standings_version: Callable[[], str] = str
    """Returns the time at which the standings were last computed."""
    _unlisted_notices: "UnlistedNotices" = field(default_factory=lambda: UnlistedNotices())

    async def search(
        self,
        snapshot: Snapshot,
        request: SearchRequest,
        caller: Caller,
        states: ServerStates,
        budget: int,
        meta_tools: Collection[str],
    ) -> search_page.RenderedSearchPage:
        started = time.perf_counter()
        vector, search = await self.prepare_search(snapshot, request, caller)
        found = await run_search(
            search,
            search_page.render_search_page,
            search,
            states,
            budget,
            meta_tools,
            self._unlisted_notices.select_unnamed(caller, snapshot.unlisted_servers),
        )
        if self.bus is not None:
            self.bus.publish(SearchCompleted(time.perf_counter() - started, bool(found.addresses)))
        if found.addresses and self.bus is not None and self.bus.has_subscribers(ToolsFound):
            self.bus.publish(ToolsFound(request.query, found.addresses, caller, vector))
        return found

    async def prepare_search(
        self, snapshot: Snapshot, request: SearchRequest, caller: Caller
    ) -> tuple[Vector | None, PreparedSearch]:
        """Return the query's embedding, or None, and the search with filters and boosts."""
        filters = request.build_filters(snapshot)
        vector = await _encode_query(snapshot, request.query)
        boosts: Mapping[str, Boost] = {}
        used_servers: frozenset[str] = frozenset()
        if self.learner is not None:
            boosts = await self.learner.compute_boosts(caller, request.query, vector)
            used_servers = await self.learner.list_used_servers(caller)
        return vector, PreparedSearch(
            snapshot,
            request,
            filters,
            merge_popularity_boosts(boosts, self.get_popularity_boosts()),
            self.get_facts(),
            self.get_standings_version(),
            used_servers,
        )


class UnlistedNotices:
    """Which unlisted servers each session has been told of, so that each is named once."""

    def __init__(self) -> None:
        self._named: OrderedDict[str, set[str]] = OrderedDict()

    def select_unnamed(self, caller: Caller, unlisted: Sequence[str]) -> Sequence[str]:
        """Return the servers to name to this caller now; without a session, all of them."""
        if not unlisted or not caller.session:
            return unlisted
        named = self._named.setdefault(caller.session, set())
        self._named.move_to_end(caller.session)
        if len(self._named) > _MAX_NOTICED_SESSIONS:
            self._named.popitem(last=False)
        unnamed = [name for name in unlisted if name not in named]
        named.update(unnamed)
        return unnamed


async def run_search(search: PreparedSearch, work: Callable[..., _Found], *args: Any) -> _Found:
    """Run `work`, which ranks, in a thread if the query is long or the catalog large."""
    if len(search.request.query) > LONG_QUERY_CHARS:
        return await asyncio.to_thread(work, *args)
    return await search.snapshot.run_scan(work, *args)


async def _encode_query(snapshot: Snapshot, query: str) -> Vector | None:
    index = snapshot.index
    ready = index.encoder is None or index.encoder.is_loaded or index.encoder.problem
    if ready and len(query) <= LONG_QUERY_CHARS:
        return index.encode_query(query)
    # Loading the model takes a second and a long text takes long: neither may block the event loop.
    return await asyncio.to_thread(index.encode_query, query)
