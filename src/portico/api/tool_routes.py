"""Routes of the four tiers and of search."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from portico.api import models, tiers
from portico.api.pagination import PagedList
from portico.api.params import (
    BudgetParams,
    NameInPath,
    NoParams,
    OffsetParams,
    PageParams,
    ToolFilters,
)
from portico.api.problems import InvalidRequest
from portico.api.response_cache import (
    HOUR_S,
    REVALIDATE,
    ResponseCache,
    make_response,
    make_uncached_response,
)
from portico.api.tiers import V1
from portico.api.tool_search import ApiToolSearch
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.errors import UnknownName
from portico.meta_tools.search_request import SearchRequest
from portico.profiles.profile_state import ProfileState

HOT_S = HOUR_S
CATEGORIES_S = 6 * HOUR_S
CATEGORY_S = HOUR_S
TOOL_S = 300
CACHE_WHILE_LISTING = "private, no-cache"
"""Used while a server has not been listed yet, because its tools will be added in a moment."""
NOT_FOUND_RESPONSE: dict[int | str, dict[str, Any]] = {
    404: {"description": "It is not here; the nearest names are given."}
}
STALE_RESPONSE: dict[int | str, dict[str, Any]] = {
    409: {"description": "The list has changed since its first page."}
}


def tool_routes(
    profile_state: ProfileState, tool_search: ApiToolSearch, response_cache: ResponseCache
) -> APIRouter:
    """Build the routes under `/tools`."""
    router = APIRouter(tags=["tools"])
    build_cache_header = _TierCacheControl(profile_state).build_header

    @router.get("/tools/hot", response_model=models.HotTools, summary="T0: the tools to start with")
    async def list_hot_tools(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Pinned tools, then those that use has shown to matter; while nothing was used, one of
        each server."""
        body = response_cache.get_or_render(
            ("hot", profile_state.ranked_catalog.version),
            HOT_S,
            lambda: tiers.render_hot_tools(profile_state),
        )
        return make_response(request, body, build_cache_header(HOT_S))

    @router.get(
        "/tools/categories",
        response_model=models.CategoryList,
        summary="T1: the kinds of tools",
        responses=STALE_RESPONSE,
    )
    async def list_categories(
        request: Request, params: Annotated[OffsetParams, Query()]
    ) -> Response:
        """Every category with how much is in it and what stands for it, the largest first."""
        PagedList(f"{V1}/tools/categories", profile_state.ranked_catalog.version, {}).check_version(
            params.version
        )
        key = ("categories", profile_state.ranked_catalog.version, params.offset)
        body = response_cache.get_or_render(
            key, CATEGORIES_S, lambda: tiers.render_categories(profile_state, params.offset)
        )
        return make_response(request, body, build_cache_header(CATEGORIES_S))

    @router.get(
        "/tools/category/{name}",
        response_model=models.CategoryTools,
        summary="T2: the tools of a category",
        responses={**NOT_FOUND_RESPONSE, **STALE_RESPONSE},
    )
    async def list_category_tools(
        request: Request, name: NameInPath, params: Annotated[PageParams, Query()]
    ) -> Response:
        """A line for each, hottest first."""
        ranked = profile_state.ranked_catalog.find_category(name)
        tiers.make_category_list(profile_state, ranked, params.page_request).check_version(
            params.version
        )
        key = (
            "category",
            profile_state.ranked_catalog.version,
            ranked.category.key,
            params.page_request,
        )
        body = response_cache.get_or_render(
            key,
            CATEGORY_S,
            lambda: tiers.render_category_page(profile_state, ranked, params.page_request),
        )
        return make_response(request, body, build_cache_header(CATEGORY_S))

    @router.get(
        "/tools/{server}/{tool:path}",
        response_model=models.ToolDetails,
        summary="T3: a tool, whole",
        responses=NOT_FOUND_RESPONSE,
    )
    async def get_tool(
        request: Request,
        server: NameInPath,
        tool: NameInPath,
        params: Annotated[BudgetParams, Query()],
    ) -> Response:
        """Its typed form, then everything else that is known of it, as far as it fits."""
        resolved = await _find_tool(profile_state.snapshot, server, tool)
        # Everything that the answer depends on, so that a change of any of them is a new key.
        entry = profile_state.snapshot.servers[resolved.server]
        state = profile_state.get_server_states().get(resolved.server)
        statistics = profile_state.get_statistics(resolved.address)
        version = profile_state.ranked_catalog.version
        key = ("tool", version, resolved, entry.listed_at, state, statistics, params.max_tokens)
        body = response_cache.get_or_render(
            key,
            TOOL_S,
            lambda: tiers.render_tool_details(profile_state, resolved, params.max_tokens),
        )
        return make_response(request, body, REVALIDATE)

    @router.get(
        "/tools",
        response_model=models.ToolList,
        summary="Search, or every tool that passes filters",
        responses=STALE_RESPONSE,
    )
    async def find_tools(params: Annotated[ToolFilters, Query()]) -> Response:
        """With a query: ranked as for agents. Without: all tools, hottest first. Unknown names in
        filters are a 422."""
        query = params.model_dump(exclude={"page", "offset", "max_tokens", "version"})
        listing = PagedList(f"{V1}/tools", profile_state.ranked_catalog.version, query)
        listing.check_version(params.version)
        search_request = SearchRequest(
            (params.query or "").strip(),
            params.server,
            tuple(params.tags),
            params.max_latency_ms,
            params.min_success_rate,
            params.limit,
            category=params.category,
        )
        try:
            return make_uncached_response(
                await tool_search.find_page(search_request, params.page_request, listing)
            )
        except UnknownName as error:
            raise InvalidRequest(error) from error

    return router


class _TierCacheControl:
    """`Cache-Control` of the tiers: uncached while servers start for the first time."""

    def __init__(self, profile_state: ProfileState) -> None:
        self._profile_state = profile_state
        self._seen_snapshot: Snapshot | None = None
        self._unlisted: tuple[str, ...] = ()

    def build_header(self, max_age_s: int) -> str:
        """Return the header of a tier that is valid for `max_age_s` seconds."""
        snapshot = self._profile_state.snapshot
        if snapshot is not self._seen_snapshot:
            self._seen_snapshot = snapshot
            self._unlisted = tuple(
                name for name, entry in snapshot.servers.items() if not entry.is_listed
            )
        if self._unlisted and self._has_starting_server():
            return CACHE_WHILE_LISTING
        return f"private, max-age={max_age_s}"

    def _has_starting_server(self) -> bool:
        states = self._profile_state.get_server_states()
        return any(
            states[name].state in ("configured", "starting")
            for name in self._unlisted
            if name in states
        )


async def _find_tool(snapshot: Snapshot, server: str, name: str) -> Tool:
    """Find a tool by server and name, tolerating other spellings. Raises UnknownName."""
    if (found := snapshot.tools.get(f"{server}.{name}")) is not None:
        return found
    try:
        entry = snapshot.resolve_server(server)
        if (found := entry.tools.get(name)) is not None:
            return found
    except UnknownName:
        pass
    return await snapshot.find_tool(f"{server}.{name}")
