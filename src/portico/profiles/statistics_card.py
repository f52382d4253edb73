"""Use and token figures of a whole gateway as data. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from portico.access import Caller
from portico.catalog.visible_text import sanitize_text
from portico.profiles.cards import Card, make_usage_card, to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.lines import ServerState
from portico.storage.rows import LedgerRow, LedgerTotal
from portico.usage.statistics import Statistics

MAX_MOST_USED = 10


def make_statistics_card(profile_state: ProfileState, caller: Caller) -> Card:
    """Return counts, server states, use, and the tokens that clients were shown."""
    snapshot = profile_state.snapshot
    states = profile_state.get_server_states()
    used = profile_state.statistics_by_tool
    state_counts: dict[str, int] = {}
    for name in snapshot.servers:
        state = states.get(name, ServerState("configured")).state
        state_counts[state] = state_counts.get(state, 0) + 1
    return {
        "tools": len(snapshot.tools),
        "servers": len(snapshot.servers),
        "server_states": dict(sorted(state_counts.items())),
        "use": _make_usage_totals(used),
        "most_used": [
            {
                "tool": sanitize_text(address),
                **make_usage_card(
                    used[address], profile_state.ranked_catalog.get_standing(address)
                ),
            }
            for address in _list_most_used(used)
        ],
        **_make_token_figures(profile_state, caller),
    }


def _make_usage_totals(statistics_by_tool: Mapping[str, Statistics]) -> Card:
    calls = sum(use.calls for use in statistics_by_tool.values())
    return {
        "tools_used": len(statistics_by_tool),
        "calls": calls,
        "successes": sum(use.successes for use in statistics_by_tool.values()),
        "calls_7d": sum(use.calls_7d for use in statistics_by_tool.values()),
        "calls_30d": sum(use.calls_30d for use in statistics_by_tool.values()),
    }


def _list_most_used(statistics_by_tool: Mapping[str, Statistics]) -> list[str]:
    return sorted(
        statistics_by_tool,
        key=lambda address: (
            -statistics_by_tool[address].calls_30d,
            -statistics_by_tool[address].calls,
            address,
        ),
    )[:MAX_MOST_USED]


def _make_token_figures(profile_state: ProfileState, caller: Caller) -> Card:
    """Return what a full listing would have cost, what was shown instead, and the difference."""
    if profile_state.usage_data is None:
        return {}
    ledger = profile_state.usage_data.ledger
    computed = profile_state.usage_data.standings.computed_at
    session = ledger.get_session(caller)
    card: dict[str, Any] = {
        "tokens": {
            "this_session": _make_account(session) if session else _make_account(LedgerTotal()),
            "total": asdict(ledger.total),
        }
    }
    card["tokens"]["total"]["saved"] = ledger.total.saved_tokens
    if computed:
        return {**card, "tiers_computed": to_iso_time(computed)}
    return card


def _make_account(row: LedgerRow | LedgerTotal) -> Card:
    return {
        "listing": row.listing,
        "shown": row.shown,
        "saved": row.listing - row.shown,
        "answers": row.answers,
    }
