"""The routes of the servers, the calls and the figures."""

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
"""What of a server may be long, what is needed most first."""


def server_routes(profile_state: ProfileState, store: GatewayStore) -> APIRouter:
    """`/servers`, `/calls`, `/stats`."""
    router = APIRouter()

    def render_server_card(entry: ServerEntry, *, whole: bool = False) -> Card:
        state = profile_state.get_server_states().get(entry.name, ServerState("configured"))
        return make_server_card(
            entry, state, profile_state.snapshot.main_categories[entry.name], detailed=whole
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
        return make_response(
            request,
            RenderedBody.from_value(
                render_list_page(
                    "servers", entries, render_server_card, params.page_request, listing, {}
                )
            ),
            REVALIDATE,
        )

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
        known = render_server_card(entry, whole=True)
        always = {key: value for key, value in known.items() if key not in _OPTIONAL_KEYS}
        parts = {key: known.get(key) for key in _OPTIONAL_KEYS}
        where = f"{V1}/servers/{quote_path_segment(entry.name)}?max_tokens={UNLIMITED_TOKENS}"
        return make_response(
            request,
            RenderedBody.from_value(fit_parts(always, parts, params.max_tokens, where)),
            REVALIDATE,
        )

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
            given = params.model_dump(exclude={"before"})
            given["ok"] = None if params.ok is None else str(params.ok).lower()
            body["next"] = PagedList(f"{V1}/calls", "", {**given, "before": rows[limit - 1].id}).url
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
        if profile_state.usage_data:
            total = profile_state.usage_data.ledger.total
        else:
            total = LedgerTotal()
        kept = {row.session: row for row in await store.load_ledger_sessions(params.limit)}
        if profile_state.usage_data:
            here = profile_state.usage_data.ledger.list_sessions()
        else:
            here = []
        kept |= {row.session: row for row in islice(here, params.limit)}
        latest = sorted(kept.values(), key=lambda row: -row.last_at)[: params.limit]
        return make_uncached_response(
            {
                "total": _render_ledger_total(total),
                "sessions": [_render_ledger_session(row) for row in latest],
            }
        )

    return router


def _split_tool_address(server: str | None, tool: str | None) -> tuple[str | None, str | None]:
    """Server and tool as the record has them: what is no longer here may still be on it, so nothing
    is looked up."""
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
    shelves = profile_state.ranked_catalog
    used = profile_state.statistics_by_tool
    calls = sum(use.calls for use in used.values())
    often = sorted(
        used, key=lambda address: (-used[address].calls_30d, -used[address].calls, address)
    )[:MAX_MOST_USED]
    tiers = Counter(
        standing.tier
        for name, standing in shelves.standings.items()
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
        "categories": len(shelves.categories),
        "states": dict(sorted(states.items())),
        "tiers": {tier: tiers[tier] for tier in TIERS},
        "tiers_computed": to_iso_time(shelves.computed_at) if shelves.computed_at else None,
        "tools_used": len(used),
        "calls": calls,
        "success_rate": round(sum(use.successes for use in used.values()) / calls, 3)
        if calls
        else None,
        "calls_7d": sum(use.calls_7d for use in used.values()),
        "calls_30d": sum(use.calls_30d for use in used.values()),
        "most_used": [
            look_up_tool_card(profile_state, profile_state.snapshot.tools[address])
            for address in often
        ],
        "version": shelves.version,
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
    # Not by its id: whoever knows that of a session in the handshake era can speak in its name.
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
