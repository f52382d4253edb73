"""Use and tokens of a whole gateway as data. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from portico.access import Caller
from portico.catalog.visible import shown
from portico.disclosure.cards import Card, iso, use_card
from portico.disclosure.lines import ServerState
from portico.disclosure.sight import Sight
from portico.observability.statistics import Statistics
from portico.storage.rows import LedgerRow, LedgerTotal

MOST_USED = 10


def stats_card(sight: Sight, caller: Caller) -> Card:
    """How much is here, how it is used, and what clients were shown of it."""
    snapshot, states, used = sight.snapshot, sight.states(), sight.used
    servers: dict[str, int] = {}
    for name in snapshot.servers:
        state = states.get(name, ServerState("configured")).state
        servers[state] = servers.get(state, 0) + 1
    return {
        "tools": len(snapshot.tools),
        "servers": len(snapshot.servers),
        "server_states": dict(sorted(servers.items())),
        "use": _use(used),
        "most_used": [
            {"tool": shown(address), **use_card(used[address], sight.shelves.standing(address))}
            for address in _most_used(used)
        ],
        **(_tokens(sight, caller)),
    }


def _use(used: Mapping[str, Statistics]) -> Card:
    calls = sum(use.calls for use in used.values())
    return {
        "tools_used": len(used),
        "calls": calls,
        "successes": sum(use.successes for use in used.values()),
        "calls_7d": sum(use.week for use in used.values()),
        "calls_30d": sum(use.month for use in used.values()),
    }


def _most_used(used: Mapping[str, Statistics]) -> list[str]:
    return sorted(used, key=lambda address: (-used[address].month, -used[address].calls, address))[:MOST_USED]


def _tokens(sight: Sight, caller: Caller) -> Card:
    """What a full listing would have cost, what was shown instead, and the difference."""
    if sight.insight is None:
        return {}
    ledger, computed = sight.insight.ledger, sight.insight.standings.computed_at
    session = ledger.session(caller)
    card: dict[str, Any] = {
        "tokens": {
            "this_session": _account(session) if session else _account(LedgerTotal()),
            "total": asdict(ledger.total),
        }
    }
    card["tokens"]["total"]["saved"] = ledger.total.saved
    return {**card, "tiers_computed": iso(computed)} if computed else card


def _account(row: LedgerRow | LedgerTotal) -> Card:
    return {"listing": row.listing, "shown": row.shown, "saved": row.listing - row.shown, "answers": row.answers}
