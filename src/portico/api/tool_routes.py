"""Routes of the four tiers and of search."""

from collections.abc import Callable, Hashable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from portico.api import models, tiers
from portico.api.gateway_services import GatewayServices
from portico.api.params import (
    BudgetParams,
    NameInPath,
    NoParams,
    OffsetParams,
    PagedList,
    PageParams,
    ToolFilters,
)
from portico.api.responses import (
    HOUR_S,
    REVALIDATE,
    InvalidRequest,
    ResponseCache,
    make_response,
    make_uncached_response,
)
from portico.api.tiers import V1
from portico.api.tool_search import ApiToolSearch, Explain
from portico.auth.permissions import can_administer
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller, Principal
from portico.catalog.rule_filter import make_tool_target
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool, sanitize_text
from portico.errors import UnknownName
from portico.meta_tools.search_request import SearchRequest
from portico.profiles.json_objects import JsonObject
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
    profile_state: ProfileState,
    tool_search: ApiToolSearch,
    response_cache: ResponseCache,
    services: GatewayServices,
) -> APIRouter:
    """Build the routes under `/tools`."""
    router = APIRouter(tags=["tools"])
    build_cache_header = _TierCacheControl(profile_state).build_header

    def answer(
        request: Request, ttl_s: int, render: Callable[[], JsonObject], *key: Hashable
    ) -> Response:
        """Answer with a tier, from the cache while `key` and the version are the same."""
        version = profile_state.ranked_catalog.version
        body = response_cache.get_or_render((*key, version), ttl_s, render)
        return make_response(request, body, build_cache_header(ttl_s))

    def find_hiding_rule(request: Request, address: str) -> str:
        """Return which rule hides a tool, for who may see the rules; empty: none, or it is not
        for this caller to know."""
        principal: Principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        if services.rules is None or not can_administer(principal):
            return ""
        whole = services.rules.get_snapshot("", None)
        tool = whole.tools.get(address)
        if tool is None or address in profile_state.snapshot.tools:
            return ""
        target = make_tool_target(tool, whole.get_category(address))
        own = services.rules.get_rules().select_for(Caller(principal=principal))
        if own.can_see(target):
            return ""
        named = [rule.decision.rule for rule in own.list_applicable(target)] or ["default"]
        return f"{sanitize_text(address)} exists, and {', '.join(named)} hides it from you"

    @router.get(
        "/tools/hot",
        response_model=models.HotTools,
        summary="The tools to start with (the hot list)",
    )
    async def list_hot_tools(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Pinned tools, then the most used; while nothing was used, some of each server."""
        return answer(request, HOT_S, lambda: tiers.render_hot_tools(profile_state), "hot")

    @router.get(
        "/tools/categories",
        response_model=models.CategoryList,
        summary="The categories of tools",
        responses=STALE_RESPONSE,
    )
    async def list_categories(
        request: Request, params: Annotated[OffsetParams, Query()]
    ) -> Response:
        """Every category with its number of tools and examples, the largest first."""
        version = profile_state.ranked_catalog.version
        PagedList(f"{V1}/tools/categories", version, {}).check_version(params.version)
        return answer(
            request,
            CATEGORIES_S,
            lambda: tiers.render_categories(profile_state, params.offset),
            "categories",
            params.offset,
        )

    @router.get(
        "/tools/category/{name}",
        response_model=models.CategoryTools,
        summary="The tools of a category",
        responses={**NOT_FOUND_RESPONSE, **STALE_RESPONSE},
    )
    async def list_category_tools(
        request: Request, name: NameInPath, params: Annotated[PageParams, Query()]
    ) -> Response:
        """A line for each, hottest first."""
        page = params.page_request
        ranked = profile_state.ranked_catalog.find_category(name)
        tiers.make_category_list(profile_state, ranked, page).check_version(params.version)
        return answer(
            request,
            CATEGORY_S,
            lambda: tiers.render_category_page(profile_state, ranked, page),
            "category",
            ranked.category.key,
            page,
        )

    @router.get(
        "/tools/{server}/{tool:path}",
        response_model=models.ToolDetails,
        summary="A tool with all its parts",
        responses=NOT_FOUND_RESPONSE,
    )
    async def get_tool(
        request: Request,
        server: NameInPath,
        tool: NameInPath,
        params: Annotated[BudgetParams, Query()],
    ) -> Response:
        """Its typed form, then everything else that is known of it, as far as it fits."""
        if problem := find_hiding_rule(request, f"{server}.{tool}"):
            raise UnknownName(problem, advice="GET /api/v1/rules lists the rules.")
        found = await _find_tool(profile_state.snapshot, server, tool)
        # Everything that the answer depends on, so that a change of any of them is a new key.
        entry = profile_state.snapshot.servers[found.server]
        state = profile_state.get_server_states().get(found.server)
        statistics = profile_state.get_statistics(found.address)
        version = profile_state.ranked_catalog.version
        body = response_cache.get_or_render(
            ("tool", version, found, entry.listed_at, state, statistics, params.max_tokens),
            TOOL_S,
            lambda: tiers.render_tool_details(profile_state, found, params.max_tokens),
        )
        return make_response(request, body, REVALIDATE)

    @router.get(
        "/tools",
        response_model=models.ToolList,
        summary="Search, or every tool that passes filters",
        responses=STALE_RESPONSE,
    )
    async def find_tools(request: Request, params: Annotated[ToolFilters, Query()]) -> Response:
        """With a query: ranked as for agents. Without: all tools, hottest first. Unknown names in
        filters are a 422."""
        query = params.model_dump(exclude={"page", "offset", "max_tokens", "version"})
        query["explain"] = "true" if params.explain else None
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
            body = await tool_search.find_page(
                search_request,
                params.page_request,
                listing,
                Explain(params.explain, params.expect or ""),
            )
        except UnknownName as error:
            raise InvalidRequest(error) from error
        if "expected" in body and (problem := find_hiding_rule(request, params.expect or "")):
            body["expected"] = [f"{problem}."]
        return make_uncached_response(body)

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
