"""Tool search of the API: ranked as for agents with a query, else hottest first."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from portico.access import Caller
from portico.api.pagination import (
    PagedList,
    PageRequest,
    add_continuation,
    render_list_page,
    take_fitting_cards,
    to_json_text,
)
from portico.api.tiers import look_up_tool_card
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.events import SearchCompleted, ToolsFound
from portico.meta_tools import search_page
from portico.meta_tools.no_match import detect_no_match, find_similar_names, render_unmatched
from portico.meta_tools.search_request import PreparedSearch, SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.profiles.cards import Card
from portico.profiles.profile_state import ProfileState
from portico.rendering.lines import compute_remaining_tokens, to_short_line
from portico.search import SearchFilters
from portico.usage.ranked_catalog import RankedCatalog
from portico.usage.statistics import Statistics

REST_CALLER = Caller(name="rest")
_MAX_TWINS = 5
_MAX_DESCRIPTION_TOKENS = 30


@dataclass(frozen=True)
class ApiToolSearch:
    """Finds tools for clients of the API."""

    profile_state: ProfileState
    search_service: SearchService

    async def find_page(
        self, request: SearchRequest, page_request: PageRequest, listing: PagedList
    ) -> Card:
        """Return a page of the tools found; raises UnknownName for an unknown name in a filter."""
        if request.query:
            return await self._rank(request, page_request, listing)
        return self._list_filtered(request, page_request, listing)

    async def _rank(
        self, request: SearchRequest, page_request: PageRequest, listing: PagedList
    ) -> Card:
        started = time.perf_counter()
        vector, search = await self.search_service.prepare_search(
            self.profile_state.snapshot, request, REST_CALLER
        )
        if self.profile_state.usage_data is not None:
            # The statistics that the answer shows, so that filters agree with them.
            search = replace(search, facts=self.profile_state.usage_data.tool_usage.facts)
        body, found = _render_search_page(self.profile_state, search, page_request, listing)
        bus = self.search_service.bus
        if bus is not None:
            bus.publish(SearchCompleted(time.perf_counter() - started, bool(found)))
        if found and bus is not None and bus.has_subscribers(ToolsFound):
            bus.publish(ToolsFound(request.query, found, REST_CALLER, vector))
        return body

    def _list_filtered(
        self, request: SearchRequest, page_request: PageRequest, listing: PagedList
    ) -> Card:
        filters = request.build_filters(self.profile_state.snapshot)
        head = Card()
        tools = _select_hottest_first(self.profile_state.ranked_catalog, filters)
        if filters.tags:
            wanted = set(map(str.casefold, filters.tags))
            tools = [
                tool
                for tool in tools
                if not wanted.isdisjoint(map(str.casefold, self._collect_tags(tool)))
            ]
        if filters.max_latency_ms is not None or filters.min_success_rate is not None:
            statistics_by_tool = self.profile_state.statistics_by_tool
            if not statistics_by_tool:
                head["note"] = search_page.UNMEASURED_NOTE
            tools = [
                tool
                for tool in tools
                if (statistics := statistics_by_tool.get(tool.address)) is None
                or _is_within_filters(statistics, filters)
            ]
        return render_list_page(
            "tools",
            tools,
            lambda tool: look_up_tool_card(self.profile_state, tool),
            page_request,
            listing,
            head,
        )

    def _collect_tags(self, tool: Tool) -> tuple[str, ...]:
        return (*self.profile_state.snapshot.servers[tool.server].tags, *tool.tags)


def _render_search_page(
    profile_state: ProfileState,
    search: PreparedSearch,
    page_request: PageRequest,
    listing: PagedList,
) -> tuple[Card, tuple[str, ...]]:
    page = search_page.rank_page(search, page_request.size, page_request.start)
    ranking = page.ranking
    if ranking.is_weak or not ranking.total:
        fit = "none"
    elif ranking.is_unsure:
        fit = "unsure"
    else:
        fit = "good"
    head: Card = {"fit": fit}
    no_match = detect_no_match(
        search, ranking, tuple(name for hit in page.hits for name in (hit.id, *hit.duplicates))
    )
    if no_match is not None:
        near_servers = [
            {
                "server": server.name,
                "description": to_short_line(server.description, _MAX_DESCRIPTION_TOKENS),
            }
            for server in no_match.servers
        ]
        head |= {
            "verdict": no_match.verdict,
            "near_servers": near_servers,
            "nearest": [sanitize_text(name) for name in no_match.similar_names],
        }
    elif not ranking.total:
        head |= {
            "verdict": render_unmatched(search),
            "nearest": [sanitize_text(name) for name in find_similar_names(search)],
        }
    if search.is_unmeasured:
        head["note"] = search_page.UNMEASURED_NOTE
    head = {key: value for key, value in head.items() if value}
    pagination = {
        "page": page_request.start // page_request.size + 1,
        "page_size": page_request.size,
        "total_count": ranking.total,
    }
    longest = {
        **head,
        "tools": [],
        "pagination": pagination,
        "left_out": 100,
        "next": listing.build_next_url(page_request, page_request.size),
    }
    remaining = compute_remaining_tokens(
        page_request.max_tokens, to_json_text(longest), listing.version
    )

    def render_hit(position: int) -> Card:
        hit = page.hits[position]
        duplicates = [sanitize_text(name) for name in hit.duplicates[:_MAX_TWINS]]
        card = look_up_tool_card(profile_state, search.snapshot.tools[hit.id])
        if duplicates:
            return {**card, "also": duplicates}
        return card

    cards = take_fitting_cards(map(render_hit, range(len(page.hits))), remaining)
    body: Card = {"tools": cards, **head, "pagination": pagination}
    found = tuple(name for hit in page.hits[: len(cards)] for name in (hit.id, *hit.duplicates))
    return add_continuation(
        body,
        page_request,
        listing,
        len(cards),
        len(page.hits),
        page.has_more(len(cards)) and bool(cards),
    ), found


def _select_hottest_first(ranked_catalog: RankedCatalog, filters: SearchFilters) -> Sequence[Tool]:
    """Return the tools of the server or the category, or all, from the narrowest sorted list."""
    if filters.groups:
        tools = [tool for name in filters.groups for tool in ranked_catalog.list_server_tools(name)]
        wanted = set(filters.categories)
        get_category = ranked_catalog.snapshot.get_category
        if wanted:
            return [tool for tool in tools if get_category(tool.address) in wanted]
        return tools
    if filters.categories:
        return [
            tool
            for key in filters.categories
            if key in ranked_catalog.categories
            for tool in ranked_catalog.categories[key].tools
        ]
    return ranked_catalog.all_tools


def _is_within_filters(statistics: Statistics, filters: SearchFilters) -> bool:
    is_fast = filters.max_latency_ms is None or statistics.p50_ms <= filters.max_latency_ms
    return is_fast and (
        filters.min_success_rate is None or statistics.success_rate >= filters.min_success_rate
    )
