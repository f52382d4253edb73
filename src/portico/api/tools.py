"""The routes of the four tiers and of search."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from portico.api import models, tiers
from portico.api.bodies import HOUR, REVALIDATE, Bodies, answer, fresh
from portico.api.finding import Finding
from portico.api.fitting import List
from portico.api.params import Budgeted, Name, Nothing, Onwards, Paged, ToolFilters
from portico.api.problems import Refused
from portico.api.tiers import V1
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.disclosure.question import Question
from portico.disclosure.sight import Sight
from portico.errors import UnknownName

HOT_S, CATEGORIES_S, CATEGORY_S, TOOL_S = HOUR, 6 * HOUR, HOUR, 300
WHILE_LISTING = "private, no-cache"
"""While a server has not been listed yet, what there is now is not what there will be in a moment."""
MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "It is not here; the nearest names are given."}}
STALE: dict[int | str, dict[str, Any]] = {409: {"description": "The list has changed since its first page."}}


def tool_routes(sight: Sight, finding: Finding, bodies: Bodies) -> APIRouter:
    """`/tools/…`."""
    router = APIRouter(tags=["tools"])
    kept = _Keeping(sight).control

    @router.get("/tools/hot", response_model=models.Hot, summary="T0: the tools to start with")
    async def hot(request: Request, _: Annotated[Nothing, Query()]) -> Response:
        """Pinned tools, then those that use has shown to matter; while nothing was used, one of each server."""
        body = bodies.get(("hot", sight.shelves.version), HOT_S, lambda: tiers.hot(sight))
        return answer(request, body, kept(HOT_S))

    @router.get(
        "/tools/categories", response_model=models.Categories, summary="T1: the kinds of tools", responses=STALE
    )
    async def categories(request: Request, asked: Annotated[Onwards, Query()]) -> Response:
        """Every category with how much is in it and what stands for it, the largest first."""
        List(f"{V1}/tools/categories", sight.shelves.version, {}).check(asked.version)
        key = ("categories", sight.shelves.version, asked.offset)
        body = bodies.get(key, CATEGORIES_S, lambda: tiers.categories(sight, asked.offset))
        return answer(request, body, kept(CATEGORIES_S))

    @router.get(
        "/tools/category/{name}",
        response_model=models.CategoryTools,
        summary="T2: the tools of a category",
        responses={**MISSING, **STALE},
    )
    async def category(request: Request, name: Name, asked: Annotated[Paged, Query()]) -> Response:
        """A line for each, hottest first."""
        shelf = sight.shelves.category(name)
        tiers.category_list(sight, shelf, asked.place).check(asked.version)
        key = ("category", sight.shelves.version, shelf.category.key, asked.place)
        body = bodies.get(key, CATEGORY_S, lambda: tiers.category(sight, shelf, asked.place))
        return answer(request, body, kept(CATEGORY_S))

    @router.get(
        "/tools/{server}/{tool:path}",
        response_model=models.ToolWhole,
        summary="T3: a tool, whole",
        responses=MISSING,
    )
    async def whole(request: Request, server: Name, tool: Name, asked: Annotated[Budgeted, Query()]) -> Response:
        """Its typed form, then everything else that is known of it, as far as it fits."""
        found = await _find(sight.snapshot, server, tool)
        # All that the answer is made from, so that it is new whenever one of them is.
        entry, state = sight.snapshot.servers[found.server], sight.states().get(found.server)
        use, version = sight.use(found.address), sight.shelves.version
        key = ("tool", version, found, entry.listed_at, state, use, asked.max_tokens)
        body = bodies.get(key, TOOL_S, lambda: tiers.whole_tool(sight, found, asked.max_tokens))
        return answer(request, body, REVALIDATE)

    @router.get(
        "/tools", response_model=models.Tools, summary="Search, or every tool that passes filters", responses=STALE
    )
    async def tools(asked: Annotated[ToolFilters, Query()]) -> Response:
        """With a query: ranked as for agents. Without: all tools, hottest first. Unknown names in filters are a 422."""
        given = asked.model_dump(exclude={"page", "offset", "max_tokens", "version"})
        listing = List(f"{V1}/tools", sight.shelves.version, given)
        listing.check(asked.version)
        question = Question(
            (asked.query or "").strip(),
            asked.server,
            tuple(asked.tags),
            asked.max_latency_ms,
            asked.min_success_rate,
            asked.limit,
            category=asked.category,
        )
        try:
            return fresh(await finding.page(question, asked.place, listing))
        except UnknownName as error:
            raise Refused(error) from error

    return router


class _Keeping:
    """How long clients may keep a tier: not while servers are on their first start, for their tools will join it."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._looked_at: Snapshot | None = None
        self._unlisted: tuple[str, ...] = ()

    def control(self, seconds: int) -> str:
        """The `Cache-Control` of a tier that is good for so long."""
        snapshot = self._sight.snapshot
        if snapshot is not self._looked_at:
            self._looked_at = snapshot
            self._unlisted = tuple(name for name, entry in snapshot.servers.items() if not entry.known)
        return WHILE_LISTING if self._unlisted and self._starting() else f"private, max-age={seconds}"

    def _starting(self) -> bool:
        states = self._sight.states()
        return any(states[name].state in ("configured", "starting") for name in self._unlisted if name in states)


async def _find(snapshot: Snapshot, server: str, name: str) -> Tool:
    """A tool by the two parts of its address, spelt forgivingly."""
    if (found := snapshot.tools.get(f"{server}.{name}")) is not None:
        return found
    try:
        entry = snapshot.server(server)
        if (found := entry.tools.get(name)) is not None:
            return found
    except UnknownName:
        pass
    return await snapshot.find_tool(f"{server}.{name}")
