"""Routes of servers, calls and statistics."""

from collections import Counter
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from portico.api import models
from portico.api.pagination import (
    UNLIMITED_TOKENS,
    PagedList,
    fit_parts,
    quote_path_segment,
    render_list_page,
)
from portico.api.params import (
    BudgetParams,
    CallFilters,
    NameInPath,
    NoParams,
    PageParams,
    SessionLimitParams,
)
from portico.api.response_cache import (
    REVALIDATE,
    RenderedBody,
    make_response,
    make_uncached_response,
)
from portico.api.tiers import V1, look_up_tool_card
from portico.api.tool_routes import NOT_FOUND_RESPONSE, STALE_RESPONSE
from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible_text import sanitize_text
from portico.profiles.cards import Card, make_server_card, to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.lines import ServerState
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallRow, LedgerRow, LedgerTotal
from portico.usage.tiers import TIERS

MAX_MOST_USED = 10
_OPTIONAL_KEYS = ("tags", "description", "reason", "warnings", "instructions")
"""Keys of a server that may be long, in order of need."""


def server_routes(profile_state: ProfileState, store: GatewayStore) -> APIRouter:
    """Build the routes `/servers`, `/calls` and `/stats`."""
    router = APIRouter()

    def render_server_card(entry: ServerEntry, *, detailed: bool = False) -> Card:
        state = profile_state.get_server_states().get(entry.name, ServerState("configured"))
        return make_server_card(
            entry, state, profile_state.snapshot.main_categories[entry.name], detailed=detailed
        )

    @router.get(
        "/servers",
        response_model=models.ServerList,
        summary="The servers",
        tags=["servers"],
        responses=STALE_RESPONSE,
    )
    async def list_servers(request: Request, params: Annotated[PageParams, Query()]) -> Response:
        """Every server with how much it has and how it is, by name."""
        listing = PagedList(
            f"{V1}/servers", profile_state.snapshot.version, {"page_size": params.page_size}
        )
        listing.check_version(params.version)
        entries = [entry for _, entry in sorted(profile_state.snapshot.servers.items())]
        body = render_list_page(
            "servers", entries, render_server_card, params.page_request, listing, {}
        )
        return make_response(request, RenderedBody.from_value(body), REVALIDATE)

    @router.get(
        "/servers/{name}",
        response_model=models.ServerDetails,
        summary="A server",
        tags=["servers"],
        responses=NOT_FOUND_RESPONSE,
    )
    async def get_server(
        request: Request, name: NameInPath, params: Annotated[BudgetParams, Query()]
    ) -> Response:
        """What it is for, what it offers, how it is, and what it says of itself."""
        entry = profile_state.snapshot.resolve_server(name)
        card = render_server_card(entry, detailed=True)
        always = {key: value for key, value in card.items() if key not in _OPTIONAL_KEYS}
        parts = {key: card.get(key) for key in _OPTIONAL_KEYS}
        full_url = f"{V1}/servers/{quote_path_segment(entry.name)}?max_tokens={UNLIMITED_TOKENS}"
        body = fit_parts(always, parts, params.max_tokens, full_url)
        return make_response(request, RenderedBody.from_value(body), REVALIDATE)

    @router.get("/calls", response_model=models.CallList, summary="The latest calls", tags=["use"])
    async def list_calls(params: Annotated[CallFilters, Query()]) -> Response:
        """Which tool, when, how long and how it went. What it was given and what came of it is not
        kept."""
        server, tool = _split_tool_address(params.server, params.tool)
        limit = params.limit
        rows = await store.load_calls(
            limit=limit + 1, before=params.before, server=server, tool=tool, ok=params.ok
        )
        body: Card = {"calls": [_render_call(row) for row in rows[:limit]]}
        if len(rows) > limit:
            query = params.model_dump(exclude={"before"})
            if params.ok is not None:
                query["ok"] = str(params.ok).lower()
            query["before"] = rows[limit - 1].id
            body["next"] = PagedList(f"{V1}/calls", "", query).url
        return make_uncached_response(body)

    @router.get(
        "/stats", response_model=models.GatewayStats, summary="The house in figures", tags=["use"]
    )
    async def get_stats(_: Annotated[NoParams, Query()]) -> Response:
        """Servers, tools and categories; how often tools were called, and which most."""
        return make_uncached_response(_render_stats(profile_state))

    @router.get(
        "/stats/tokens",
        response_model=models.TokenLedgerReport,
        summary="The token ledger",
        tags=["use"],
    )
    async def get_token_ledger(params: Annotated[SessionLimitParams, Query()]) -> Response:
        """Tokens that a full listing would have cost, that were shown, and that were saved: in all,
        and by session."""
        total = LedgerTotal()
        if profile_state.usage_data:
            total = profile_state.usage_data.ledger.total
        rows = {row.session: row for row in await store.load_ledger_sessions(params.limit)}
        if profile_state.usage_data:
            current = profile_state.usage_data.ledger.list_sessions()
            rows |= {row.session: row for row in islice(current, params.limit)}
        latest = sorted(rows.values(), key=lambda row: -row.last_at)[: params.limit]
        return make_uncached_response(
            {
                "total": _render_ledger_total(total),
                "sessions": [_render_ledger_session(row) for row in latest],
            }
        )

    return router


def _split_tool_address(server: str | None, tool: str | None) -> tuple[str | None, str | None]:
    """Split a tool's address as stored calls have it.

    Nothing is looked up, because the calls of removed tools are stored too.
    """
    if tool is not None and server is None and "." in tool:
        server, _, tool = tool.partition(".")
    elif tool is not None and server is not None:
        tool = tool.removeprefix(f"{server}.")
    return server, tool


def _render_call(row: CallRow) -> Card:
    card: Card = {
        "id": row.id,
        "at": to_iso_time(row.at),
        "tool": sanitize_text(f"{row.server}.{row.tool}"),
        "ok": row.ok,
        "ms": round(row.ms, 1),
        "cancelled": row.cancelled or None,
        "client": sanitize_text(row.client),
        "profile": row.profile,
    }
    return {key: value for key, value in card.items() if value not in (None, "")}


def _render_stats(profile_state: ProfileState) -> Card:
    ranked_catalog = profile_state.ranked_catalog
    statistics_by_tool = profile_state.statistics_by_tool
    calls = sum(statistics.calls for statistics in statistics_by_tool.values())
    success_rate = None
    if calls:
        successes = sum(statistics.successes for statistics in statistics_by_tool.values())
        success_rate = round(successes / calls, 3)
    most_used = sorted(
        statistics_by_tool,
        key=lambda address: (
            -statistics_by_tool[address].calls_30d,
            -statistics_by_tool[address].calls,
            address,
        ),
    )[:MAX_MOST_USED]
    tiers = Counter(
        standing.tier
        for name, standing in ranked_catalog.standings.items()
        if name in profile_state.snapshot.tools
    )
    tiers["cold"] = len(profile_state.snapshot.tools) - sum(tiers[tier] for tier in TIERS[:-1])
    states = Counter(
        state.state
        for name, state in profile_state.get_server_states().items()
        if name in profile_state.snapshot.servers
    )
    card: Card = {
        "servers": len(profile_state.snapshot.servers),
        "tools": len(profile_state.snapshot.tools),
        "categories": len(ranked_catalog.categories),
        "states": dict(sorted(states.items())),
        "tiers": {tier: tiers[tier] for tier in TIERS},
        "tiers_computed": to_iso_time(ranked_catalog.computed_at)
        if ranked_catalog.computed_at
        else None,
        "tools_used": len(statistics_by_tool),
        "calls": calls,
        "success_rate": success_rate,
        "calls_7d": sum(statistics.calls_7d for statistics in statistics_by_tool.values()),
        "calls_30d": sum(statistics.calls_30d for statistics in statistics_by_tool.values()),
        "most_used": [
            look_up_tool_card(profile_state, profile_state.snapshot.tools[address])
            for address in most_used
        ],
        "version": ranked_catalog.version,
    }
    return {key: value for key, value in card.items() if value is not None}


def _render_ledger_total(total: LedgerTotal) -> Card:
    return {
        "sessions": total.sessions,
        "listing": total.listing,
        "shown": total.shown,
        "saved": total.saved_tokens,
        "answers": total.answers,
    }


def _render_ledger_session(row: LedgerRow) -> Card:
    # Without its id, which authenticates a session of the handshake era.
    return {
        "client": sanitize_text(row.client),
        "profile": row.profile,
        "started": to_iso_time(row.started_at),
        "last": to_iso_time(row.last_at),
        "listing": row.listing,
        "shown": row.shown,
        "saved": row.listing - row.shown,
        "answers": row.answers,
    }
