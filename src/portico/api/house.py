"""The routes of the servers, the calls and the figures."""

from collections import Counter
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from portico.api import models
from portico.api.bodies import REVALIDATE, Body, answer, fresh
from portico.api.fitting import EVERYTHING, List, fitted, paged, segment
from portico.api.params import Budgeted, CallFilters, Name, Nothing, Paged, SessionLimit
from portico.api.tiers import V1, card_of
from portico.api.tools import MISSING, STALE
from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible import shown
from portico.disclosure.cards import Card, iso, server_card
from portico.disclosure.lines import ServerState
from portico.disclosure.sight import Sight
from portico.disclosure.tiers import TIERS
from portico.storage.record import Record
from portico.storage.rows import CallRow, LedgerRow, LedgerTotal

MOST_USED = 10
_NEEDED = ("tags", "description", "reason", "warnings", "instructions")
"""What of a server may be long, what is needed most first."""


def house_routes(sight: Sight, record: Record) -> APIRouter:
    """`/servers`, `/calls`, `/stats`."""
    router = APIRouter()

    def card(entry: ServerEntry, *, whole: bool = False) -> Card:
        state = sight.states().get(entry.name, ServerState("configured"))
        return server_card(entry, state, sight.snapshot.main_categories[entry.name], whole=whole)

    @router.get("/servers", response_model=models.Servers, summary="The servers", tags=["servers"], responses=STALE)
    async def servers(request: Request, asked: Annotated[Paged, Query()]) -> Response:
        """Every server with how much it has and how it is, by name."""
        listing = List(f"{V1}/servers", sight.snapshot.version, {"page_size": asked.page_size})
        listing.check(asked.version)
        entries = [entry for _, entry in sorted(sight.snapshot.servers.items())]
        return answer(request, Body.of(paged("servers", entries, card, asked.place, listing, {})), REVALIDATE)

    @router.get(
        "/servers/{name}", response_model=models.ServerWhole, summary="A server", tags=["servers"], responses=MISSING
    )
    async def server(request: Request, name: Name, asked: Annotated[Budgeted, Query()]) -> Response:
        """What it is for, what it offers, how it is, and what it says of itself."""
        entry = sight.snapshot.server(name)
        known = card(entry, whole=True)
        always = {key: value for key, value in known.items() if key not in _NEEDED}
        parts = {key: known.get(key) for key in _NEEDED}
        where = f"{V1}/servers/{segment(entry.name)}?max_tokens={EVERYTHING}"
        return answer(request, Body.of(fitted(always, parts, asked.max_tokens, where)), REVALIDATE)

    @router.get("/calls", response_model=models.Calls, summary="The latest calls", tags=["use"])
    async def calls(asked: Annotated[CallFilters, Query()]) -> Response:
        """Which tool, when, how long and how it went. What it was given and what came of it is not kept."""
        server, tool = _named(asked.server, asked.tool)
        limit = asked.limit
        rows = await record.calls(limit=limit + 1, before=asked.before, server=server, tool=tool, ok=asked.ok)
        body: Card = {"calls": [_call(row) for row in rows[:limit]]}
        if len(rows) > limit:
            given = asked.model_dump(exclude={"before"})
            given["ok"] = None if asked.ok is None else str(asked.ok).lower()
            body["next"] = List(f"{V1}/calls", "", {**given, "before": rows[limit - 1].id}).address
        return fresh(body)

    @router.get("/stats", response_model=models.Stats, summary="The house in figures", tags=["use"])
    async def stats(_: Annotated[Nothing, Query()]) -> Response:
        """Servers, tools and categories; how often tools were called, and which most."""
        return fresh(_figures(sight))

    @router.get("/stats/tokens", response_model=models.Tokens, summary="The token ledger", tags=["use"])
    async def tokens(asked: Annotated[SessionLimit, Query()]) -> Response:
        """Tokens that a full listing would have cost, that were shown, and that were saved: in all, and by session."""
        total = sight.insight.ledger.total if sight.insight else LedgerTotal()
        kept = {row.session: row for row in await record.ledger_sessions(asked.limit)}
        here = sight.insight.ledger.sessions() if sight.insight else []
        kept |= {row.session: row for row in islice(here, asked.limit)}
        latest = sorted(kept.values(), key=lambda row: -row.last_at)[: asked.limit]
        return fresh({"total": _total(total), "sessions": [_session(row) for row in latest]})

    return router


def _named(server: str | None, tool: str | None) -> tuple[str | None, str | None]:
    """Server and tool as the record has them: what is no longer here may still be on it, so nothing is looked up."""
    if tool is not None and server is None and "." in tool:
        server, _, tool = tool.partition(".")
    elif tool is not None and server is not None:
        tool = tool.removeprefix(f"{server}.")
    return server, tool


def _call(row: CallRow) -> Card:
    card: Card = {
        "id": row.id,
        "at": iso(row.at),
        "tool": shown(f"{row.server}.{row.tool}"),
        "ok": row.ok,
        "ms": round(row.ms, 1),
        "cancelled": row.cancelled or None,
        "client": shown(row.client),
        "profile": row.profile,
    }
    return {key: value for key, value in card.items() if value not in (None, "")}


def _figures(sight: Sight) -> Card:
    shelves, used = sight.shelves, sight.used
    calls = sum(use.calls for use in used.values())
    often = sorted(used, key=lambda address: (-used[address].month, -used[address].calls, address))[:MOST_USED]
    tiers = Counter(standing.tier for name, standing in shelves.standings.items() if name in sight.snapshot.tools)
    tiers["cold"] = len(sight.snapshot.tools) - sum(tiers[tier] for tier in TIERS[:-1])
    states = Counter(state.state for name, state in sight.states().items() if name in sight.snapshot.servers)
    card: Card = {
        "servers": len(sight.snapshot.servers),
        "tools": len(sight.snapshot.tools),
        "categories": len(shelves.categories),
        "states": dict(sorted(states.items())),
        "tiers": {tier: tiers[tier] for tier in TIERS},
        "tiers_computed": iso(shelves.computed_at) if shelves.computed_at else None,
        "tools_used": len(used),
        "calls": calls,
        "success_rate": round(sum(use.successes for use in used.values()) / calls, 3) if calls else None,
        "calls_7d": sum(use.week for use in used.values()),
        "calls_30d": sum(use.month for use in used.values()),
        "most_used": [card_of(sight, sight.snapshot.tools[address]) for address in often],
        "version": shelves.version,
    }
    return {key: value for key, value in card.items() if value is not None}


def _total(total: LedgerTotal) -> Card:
    return {
        "sessions": total.sessions,
        "listing": total.listing,
        "shown": total.shown,
        "saved": total.saved,
        "answers": total.answers,
    }


def _session(row: LedgerRow) -> Card:
    # Not by its id: whoever knows that of a session in the handshake era can speak in its name.
    return {
        "client": shown(row.client),
        "profile": row.profile,
        "started": iso(row.started_at),
        "last": iso(row.last_at),
        "listing": row.listing,
        "shown": row.shown,
        "saved": row.listing - row.shown,
        "answers": row.answers,
    }
