"""Search of tools and lists of filtered ones for clients of the API, with reasons."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from portico.api.params import (
    PagedList,
    PageRequest,
    render_list_page,
    render_page,
)
from portico.callers import Caller
from portico.catalog.address import find_nearest_names
from portico.catalog.tool import Tool, quote_text, sanitize_text
from portico.events import SearchCompleted, ToolsFound
from portico.meta_tools import search_explanation, search_page
from portico.meta_tools.search_page import detect_no_match, find_similar_names, render_unmatched
from portico.meta_tools.search_request import PreparedSearch, SearchRequest
from portico.meta_tools.search_tools import SearchService, run_search
from portico.profiles.json_objects import JsonObject, make_tool_object
from portico.profiles.profile_state import ProfileState
from portico.rendering.token_budget import to_short_line
from portico.search import Hit, Ranking, SearchFilters
from portico.usage.tool_tiers import RankedCatalog

REST_CALLER = Caller(name="rest")
_MAX_TWINS = 5
_MAX_DESCRIPTION_TOKENS = 30


@dataclass(frozen=True)
class Explain:
    """What a search says of its ranking."""

    shows_reasons: bool = False
    expected: str = ""
    """Address of a tool that should be found."""


@dataclass(frozen=True)
class ApiToolSearch:
    """Finds tools for clients of the API."""

    profile_state: ProfileState
    search_service: SearchService

    async def find_page(
        self,
        request: SearchRequest,
        page_request: PageRequest,
        listing: PagedList,
        explain: Explain = Explain(),  # noqa: B008 - it is immutable
    ) -> JsonObject:
        """Return a page of the tools found; raises UnknownName for an unknown name in a filter."""
        if request.query:
            return await self._rank(request, page_request, listing, explain)
        snapshot = self.profile_state.snapshot
        return await snapshot.run_scan(self._list_filtered, request, page_request, listing)

    async def _rank(
        self,
        request: SearchRequest,
        page_request: PageRequest,
        listing: PagedList,
        explain: Explain,
    ) -> JsonObject:
        started = time.perf_counter()
        vector, search = await self.search_service.prepare_search(
            self.profile_state.snapshot, request, REST_CALLER
        )
        if self.profile_state.usage_data is not None:
            # The statistics that the answer shows, so that filters agree with them.
            search = replace(search, facts=self.profile_state.usage_data.tool_usage.facts)
        body, found = await run_search(
            search,
            _render_search_page,
            self.profile_state,
            search,
            page_request,
            listing,
            explain,
        )
        bus = self.search_service.bus
        if bus is not None:
            bus.publish(SearchCompleted(time.perf_counter() - started, bool(found)))
        if found and bus is not None and bus.has_subscribers(ToolsFound):
            bus.publish(ToolsFound(request.query, found, REST_CALLER, vector))
        return body

    def _list_filtered(
        self, request: SearchRequest, page_request: PageRequest, listing: PagedList
    ) -> JsonObject:
        filters = request.build_filters(self.profile_state.snapshot)
        head = JsonObject()
        tools = _select_hottest_first(self.profile_state.ranked_catalog, filters)
        if filters.tags:
            wanted = set(map(str.casefold, filters.tags))
            tools = [
                tool
                for tool in tools
                if not wanted.isdisjoint(map(str.casefold, self._collect_tags(tool)))
            ]
        if filters.has_usage_limits:
            head["note"] = search_page.UNMEASURED_NOTE
            facts = self.profile_state.get_facts()
            tools = [
                tool
                for tool in tools
                if tool.address in facts and filters.admits_usage(facts[tool.address])
            ]
        return render_list_page(
            "tools",
            tools,
            partial(make_tool_object, self.profile_state),
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
    explain: Explain,
) -> tuple[JsonObject, tuple[str, ...]]:
    page = search_page.rank_page(search, page_request.size, page_request.start)
    ranking = page.ranking
    head: JsonObject = {"fit": "good"}
    if ranking.is_weak or not ranking.total:
        head["fit"] = "none"
    elif ranking.is_unsure:
        head["fit"] = "unsure"
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
    if search.filters.has_usage_limits:
        head["note"] = search_page.UNMEASURED_NOTE
    head["unlisted"] = [sanitize_text(name) for name in search.snapshot.unlisted_servers]
    head = {key: value for key, value in head.items() if value}

    if explain.shows_reasons:
        head["explanation"] = search_explanation.render_summary(search, ranking)
    if explain.expected:
        head["expected"] = _explain_expected(search, page.hits, ranking, explain.expected)

    def render_hit(hit: Hit) -> JsonObject:
        card = make_tool_object(profile_state, search.snapshot.tools[hit.id])
        if hit.duplicates:
            card["also"] = [sanitize_text(name) for name in hit.duplicates[:_MAX_TWINS]]
        if explain.shows_reasons:
            card["why"] = list(search_explanation.render_signals(hit))
        return card

    body = render_page(
        "tools",
        page.hits,
        render_hit,
        page_request,
        listing,
        head,
        {"total_count": ranking.total},
        lambda shown: shown > 0 and page.has_more(shown),
    )
    shown_hits = page.hits[: len(body["tools"])]
    return body, tuple(name for hit in shown_hits for name in (hit.id, *hit.duplicates))


def _explain_expected(
    search: PreparedSearch, hits: Sequence[Hit], ranking: Ranking, name: str
) -> list[str]:
    """Return where a tool ranks and why, in a few lines."""
    tools = search.snapshot.tools
    rank = None
    # What the caller's rules hide is indexed too, and does not exist for it.
    if name in tools:
        rank = search_explanation.rank_expected_tool(
            search, hits, name, compares_meaning=ranking.uses_embeddings
        )
    if rank is not None:
        return search_explanation.render_rank_lines(search, rank)
    nearest = find_nearest_names(name, list(tools), 3)
    lines = [f"There is no tool {quote_text(name)} here."]
    if nearest:
        lines.append(f"The nearest names: {', '.join(map(sanitize_text, nearest))}.")
    return lines


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
