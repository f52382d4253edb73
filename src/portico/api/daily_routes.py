"""Routes of use by day, by client and by server, and of the load of each server."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from portico.api import activity_models as models
from portico.api.gateway_services import GatewayServices
from portico.api.params import DaysParams, NoParams
from portico.api.responses import make_uncached_response
from portico.catalog.tool import sanitize_text
from portico.profiles.json_objects import to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.token_budget import to_short_line
from portico.rendering.tool_result import mask_secrets
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import DailyRow, LedgerRow
from portico.usage.statistics import DAY_S, to_day

MAX_SESSIONS = 5_000
_MAX_NAMED = 50
_MAX_REASON_TOKENS = 60


def daily_routes(
    profile_state: ProfileState, store: GatewayStore, services: GatewayServices
) -> APIRouter:
    """Build the routes `/stats/daily` and `/load`."""
    router = APIRouter(tags=["use"])

    @router.get("/stats/daily", response_model=models.DailyUse, summary="Use by day")
    async def get_daily_use(params: Annotated[DaysParams, Query()]) -> Response:
        """Calls, failures and tokens of each day (UTC); calls by server, and tokens by client.

        A session's tokens are of the day when it was last active.
        """
        first_day = to_day(time.time()) - params.days + 1
        stored = await store.load_daily_usage(first_day)
        rows = [row for row in stored if not profile_state.hides_server(row.server)]
        sessions = {row.session: row for row in await store.load_ledger_sessions(MAX_SESSIONS)}
        if profile_state.usage_data:
            current = profile_state.usage_data.ledger.list_sessions()
            sessions |= {row.session: row for row in current}
        recent = [row for row in sessions.values() if to_day(row.last_at) >= first_day]
        use = summarize_use(first_day, params.days, rows, recent)
        saved = sum(client.saved for client in use.clients)
        use.savings = share_out(saved, services.get_listing_costs())
        return make_uncached_response(use)

    @router.get("/load", response_model=models.GatewayLoad, summary="The load of each server")
    async def get_load(_: Annotated[NoParams, Query()]) -> Response:
        """Calls, failures, latency and memory since the gateway's start, the worst first."""
        measured = await services.measure_load()
        loads = measured["servers"]
        costs = services.get_listing_costs()
        cards = [
            _to_load(load, costs.get(load["server"], 0))
            for load in loads
            if not profile_state.hides_server(load["server"])
        ]
        return make_uncached_response(
            models.GatewayLoad(
                memory_bytes=measured.get("memory_bytes", 0),
                servers=cards,
                left_out=measured.get("left_out") or None,
                disabled=[
                    name
                    for name, settings in services.get_config().config.servers.items()
                    if settings.disabled and not profile_state.hides_server(name)
                ],
            )
        )

    return router


def summarize_use(
    first_day: int, days: int, rows: Iterable[DailyRow], sessions: Iterable[LedgerRow]
) -> models.DailyUse:
    """Sum up calls by day and server, and tokens by day and client."""
    calls = Counter[int]()
    failures = Counter[int]()
    server_calls = Counter[str]()
    server_failures = Counter[str]()
    for row in rows:
        failed = row.calls - row.successes
        calls[row.day] += row.calls
        failures[row.day] += failed
        server_calls[row.server] += row.calls
        server_failures[row.server] += failed
    by_day: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    by_client: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for session in sessions:
        for sums in (by_day[to_day(session.last_at)], by_client[session.client]):
            sums[0] += 1
            sums[1] += session.listing
            sums[2] += session.shown
    clients = sorted(by_client.items(), key=lambda item: item[1][2] - item[1][1])
    return models.DailyUse(
        days=[
            models.DayUse(
                day=to_iso_time(day * DAY_S)[:10],
                calls=calls[day],
                failures=failures[day],
                listing=by_day[day][1],
                shown=by_day[day][2],
                saved=by_day[day][1] - by_day[day][2],
            )
            for day in range(first_day, first_day + days)
        ],
        servers=[
            models.ServerUse(server=server, calls=count, failures=server_failures[server])
            for server, count in server_calls.most_common(_MAX_NAMED)
        ],
        clients=[
            models.ClientUse(
                client=sanitize_text(client),
                sessions=sums[0],
                listing=sums[1],
                shown=sums[2],
                saved=sums[1] - sums[2],
            )
            for client, sums in clients[:_MAX_NAMED]
        ],
    )


def share_out(saved: int, costs: Mapping[str, int]) -> list[models.ServerSaving]:
    """Share saved tokens out among servers by what listing each of them costs."""
    whole = sum(costs.values())
    dearest = sorted(costs.items(), key=lambda item: (-item[1], item[0]))
    return [
        models.ServerSaving(server=server, definitions=cost, saved=round(saved * cost / whole))
        for server, cost in dearest[:_MAX_NAMED]
        if cost
    ]


def _to_load(load: Mapping[str, Any], definitions: int) -> models.ServerLoad:
    failure = load["last_error"]
    last_error = None
    if failure is not None:
        last_error = models.LastFailure(
            tool=sanitize_text(failure["tool"]),
            error=failure["error"],
            at=to_iso_time(failure["at"]),
        )
    reason = to_short_line(mask_secrets(load["reason"]), _MAX_REASON_TOKENS)
    figures: dict[str, Any] = {
        **load,
        "reason": reason,
        "last_error": last_error,
        "definitions": definitions,
    }
    return models.ServerLoad(**figures)
