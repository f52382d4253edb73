"""Routes of servers and statistics. One changes something: it restarts a server."""

import asyncio
import time
from collections import Counter
from functools import partial
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from portico.api import models
from portico.api.activity_models import LogLine, ServerLogPage
from portico.api.gateway_services import GatewayServices
from portico.api.params import (
    UNLIMITED_TOKENS,
    BudgetParams,
    LogParams,
    NameInPath,
    NoParams,
    PagedList,
    PageParams,
    SessionLimitParams,
    fit_parts,
    quote_path_segment,
    render_list_page,
)
from portico.api.responses import (
    REVALIDATE,
    RenderedBody,
    ResponseCache,
    make_problem_response,
    make_response,
    make_uncached_response,
)
from portico.api.tiers import V1
from portico.api.tool_routes import NOT_FOUND_RESPONSE, STALE_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller
from portico.catalog.tool import sanitize_text
from portico.errors import BackendUnavailable, UnknownName
from portico.observability.audit import AuditEntry
from portico.profiles.json_objects import make_server_object, make_tool_object, to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.listing_cost import DefinitionCosts
from portico.rendering.tool_result import mask_secrets
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import LedgerRow, LedgerTotal
from portico.upstream.lifecycle.supervisor import Upstream
from portico.usage.tool_tiers import TIERS

MAX_MOST_USED = 10
_OPTIONAL_KEYS = ("tags", "description", "reason", "warnings", "instructions")
"""Keys of a server that may be long, in order of need."""


def server_routes(
    profile_state: ProfileState, store: GatewayStore, response_cache: ResponseCache
) -> APIRouter:
    """Build the routes `/servers` and `/stats`."""
    router = APIRouter()

    render_server_card = partial(make_server_object, profile_state)

    @router.get(
        "/servers",
        response_model=models.ServerList,
        summary="The servers",
        tags=["servers"],
        responses=STALE_RESPONSE,
    )
    async def list_servers(request: Request, params: Annotated[PageParams, Query()]) -> Response:
        """Every server with its number of tools and its state, by name."""
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
        """Its purpose, offers, state and own instructions."""
        entry = profile_state.snapshot.resolve_server(name)
        card = render_server_card(entry, detailed=True)
        tools = list(entry.tools.values())
        card["tokens"] = await asyncio.to_thread(DefinitionCosts().measure_all, tools)
        always = {key: value for key, value in card.items() if key not in _OPTIONAL_KEYS}
        parts = {key: card.get(key) for key in _OPTIONAL_KEYS}
        full_url = f"{V1}/servers/{quote_path_segment(entry.name)}?max_tokens={UNLIMITED_TOKENS}"
        body = fit_parts(always, parts, params.max_tokens, full_url)
        return make_response(request, RenderedBody.from_value(body), REVALIDATE)

    @router.get(
        "/stats",
        response_model=models.GatewayStats,
        summary="Statistics of the gateway",
        tags=["use"],
    )
    async def get_stats(_: Annotated[NoParams, Query()]) -> Response:
        """Numbers of servers, tools and categories; calls, and the most used tools."""
        return make_uncached_response(_compute_stats(profile_state, response_cache))

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
            models.TokenLedgerReport(
                total=models.TotalTokenCounts(
                    sessions=total.sessions,
                    listing=total.listing,
                    shown=total.shown,
                    saved=total.saved_tokens,
                    answers=total.answers,
                ),
                sessions=[_to_session_counts(row) for row in latest],
            )
        )

    return router


def restart_routes(profile_state: ProfileState, services: GatewayServices) -> APIRouter:
    """Build the routes `POST /servers/{name}/restart` and `GET /servers/{name}/log`."""
    router = APIRouter()
    upstreams = services.upstreams

    def find_upstream(name: str) -> Upstream:
        entry = profile_state.snapshot.resolve_server(name)
        if (upstream := upstreams.get(entry.name)) is None:
            raise UnknownName(f"there is no server {entry.name} that runs here")
        return upstream

    @router.get(
        "/servers/{name}/log",
        response_model=ServerLogPage,
        summary="The log of a server",
        tags=["servers"],
        responses=NOT_FOUND_RESPONSE,
    )
    async def read_log(name: NameInPath, params: Annotated[LogParams, Query()]) -> Response:
        """What it wrote to stderr, and how its state changed: the latest 300 lines, secrets
        masked. Not for a key of certain profiles."""
        upstream = find_upstream(name)
        entries = await upstream.read_log(params.after)

        def render() -> list[LogLine]:
            return [
                LogLine(
                    sequence=entry.sequence,
                    at=to_iso_time(entry.at),
                    state=entry.state,
                    text=" ".join(sanitize_text(mask_secrets(entry.text)).splitlines()),
                )
                for entry in entries
            ]

        lines = await asyncio.to_thread(render)
        return make_uncached_response(
            ServerLogPage(server=upstream.name, state=upstream.state, lines=lines)
        )

    @router.post(
        "/servers/{name}/restart",
        response_model=models.ServerRestart,
        summary="Restart a server",
        tags=["servers"],
        responses={
            **NOT_FOUND_RESPONSE,
            415: {"description": "Neither a token nor `Content-Type: application/json` was sent."},
            503: {"description": "It could not be started: why, and what it wrote last."},
        },
    )
    async def restart_server(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Ends a quarantine too. Calls in flight complete on the old one; new ones go to the new
        one. Takes no body.

        Without a token, send `Content-Type: application/json`: no page of another origin can.
        """
        if _is_possible_form_post(request):
            advice = "Send Content-Type: application/json."
            return make_problem_response(
                415, "the request does not say that it is JSON", advice=advice
            )
        upstream = find_upstream(name)
        outcome = "ok"
        started = time.perf_counter()
        try:
            await upstream.restart()
        except BackendUnavailable as error:
            outcome = error.kind
            stderr = upstream.get_status().stderr
            return make_problem_response(
                503,
                mask_secrets(error.message),
                kind=error.kind,
                advice=mask_secrets(error.advice),
                stderr=[sanitize_text(mask_secrets(line)) for line in stderr],
            )
        finally:
            if (log := services.get_audit()) is not None:
                seconds = time.perf_counter() - started
                principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
                restarted = AuditEntry("", "", None, outcome, via="rest", seconds=seconds)
                caller = Caller(name="rest", principal=principal)
                log.write(restarted._replace(method="restart", server=upstream.name, caller=caller))
        status = upstream.get_status()
        return make_uncached_response(
            models.ServerRestart(
                server=upstream.name,
                state=status.state,
                since=to_iso_time(status.state_since),
                restarts=status.restarts,
            )
        )

    return router


def _is_possible_form_post(request: Request) -> bool:
    """Return whether a page of another origin could send this request without a CORS preflight."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_token = request.headers.get("authorization", "").lower().startswith("bearer ")
    return media_type != "application/json" and not has_token


def _compute_stats(
    profile_state: ProfileState, response_cache: ResponseCache
) -> models.GatewayStats:
    ranked_catalog = profile_state.ranked_catalog
    snapshot = profile_state.snapshot
    used = profile_state.statistics_by_tool
    calls = sum(statistics.calls for statistics in used.values())
    success_rate = None
    if calls:
        successes = sum(statistics.successes for statistics in used.values())
        success_rate = round(successes / calls, 3)
    computed = None
    if ranked_catalog.computed_at:
        computed = to_iso_time(ranked_catalog.computed_at)
    most_used = sorted(
        used, key=lambda address: (-used[address].calls_30d, -used[address].calls, address)
    )[:MAX_MOST_USED]
    tiers = Counter(
        standing.tier
        for name, standing in ranked_catalog.standings.items()
        if name in snapshot.tools
    )
    tiers["cold"] = len(snapshot.tools) - sum(tiers[tier] for tier in TIERS[:-1])
    server_states = profile_state.get_server_states()
    states = Counter(
        state.state for name, state in server_states.items() if name in snapshot.servers
    )
    cards = [make_tool_object(profile_state, snapshot.tools[address]) for address in most_used]
    return models.GatewayStats(
        servers=len(snapshot.servers),
        tools=len(snapshot.tools),
        categories=len(ranked_catalog.categories),
        states=dict(sorted(states.items())),
        tiers={tier: tiers[tier] for tier in TIERS},
        tiers_computed=computed,
        tools_used=len(used),
        calls=calls,
        success_rate=success_rate,
        calls_7d=sum(statistics.calls_7d for statistics in used.values()),
        calls_30d=sum(statistics.calls_30d for statistics in used.values()),
        most_used=[models.ToolCard(**card) for card in cards],
        tier_caches={
            str(tier): models.CacheCounts(
                requests=requests,
                hits=response_cache.hits[tier],
                hit_rate=round(response_cache.hits[tier] / requests, 3),
            )
            for tier, requests in response_cache.requests.items()
        },
        version=ranked_catalog.version,
    )


def _to_session_counts(row: LedgerRow) -> models.SessionTokenCounts:
    # Without its id, which authenticates a session of the handshake era.
    return models.SessionTokenCounts(
        client=sanitize_text(row.client),
        profile=row.profile,
        started=to_iso_time(row.started_at),
        last=to_iso_time(row.last_at),
        listing=row.listing,
        shown=row.shown,
        saved=row.listing - row.shown,
        answers=row.answers,
    )
