"""Tools, categories, servers and use as JSON data, for REST, resources and `--json`. Pure.

Keys without a value are left out, because every key costs the reader tokens.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from portico.callers import Caller
from portico.catalog.address import find_identifier
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, sanitize_text
from portico.config.server_rules import find_matching
from portico.meta_tools.instructions import truncate_instructions
from portico.profiles.profile_state import ProfileState
from portico.rendering.examples import make_script_example
from portico.rendering.one_line_tool import render_result_type, render_signature
from portico.rendering.server_lines import ServerState
from portico.rendering.token_budget import count_tokens, to_short_line
from portico.rendering.tool import extract_first_sentence
from portico.storage.rows import LedgerRow, LedgerTotal
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.statistics import Statistics
from portico.usage.tool_tiers import RankedCategory, Standing

JsonObject = dict[str, Any]
MAX_MOST_USED = 10
_MAX_SHAPE_TOKENS = 200
_MAX_RETURNS_TOKENS = 30


def make_tool_object(
    profile_state: ProfileState, tool: Tool, *, is_summary: bool = True
) -> JsonObject:
    """Return a tool's name, signature, first sentence, tags, tier and performance.

    Its identifier is there where its name cannot be used in scripts. A summary also has what it
    returns, declared or learned from results.
    """
    returns = ""
    if is_summary:
        learned = _describe_learned_shape(profile_state, tool, _MAX_RETURNS_TOKENS)
        returns = render_result_type(tool) or learned.partition(": ")[2]
    statistics = profile_state.get_statistics(tool.address)
    standing = profile_state.ranked_catalog.get_standing(tool.address)
    identifiers = profile_state.snapshot.servers[tool.server].tool_identifiers
    identifier = find_identifier(tool.name, identifiers)
    return _drop_empty(
        {
            "tool": sanitize_text(tool.address),
            "identifier": identifier if identifier != tool.name else "",
            "params": render_signature(tool),
            "description": extract_first_sentence(tool.description)
            or extract_first_sentence(tool.title),
            "returns": returns,
            "tags": [sanitize_text(tag) for tag in tool.tags],
            "tier": standing.tier if statistics.calls else None,
            **(_make_performance_figures(statistics) if statistics.calls else {}),
        }
    )


def make_usage_object(statistics: Statistics, standing: Standing) -> JsonObject:
    """Return everything known about a tool's use."""
    if not statistics.calls:
        return {"calls": 0}
    return _drop_empty(
        {
            "calls": statistics.calls,
            **_make_performance_figures(statistics),
            "last_used": to_iso_time(statistics.last_used),
            "calls_7d": statistics.calls_7d,
            "calls_30d": statistics.calls_30d,
            "tier": standing.tier,
            "tier_score": standing.score,
        }
    )


def _make_performance_figures(statistics: Statistics) -> JsonObject:
    rate: JsonObject = {"success_rate": round(statistics.success_rate, 3)}
    if statistics.successes:
        return {
            **rate,
            "p50_ms": _round_ms(statistics.p50_ms),
            "p95_ms": _round_ms(statistics.p95_ms),
        }
    return rate


def make_category_object(ranked_category: RankedCategory, max_servers: int = 5) -> JsonObject:
    """Return a category with its counts, largest servers and popular tools."""
    return _drop_empty(
        {
            "category": ranked_category.category.key,
            "title": ranked_category.category.title,
            "description": ranked_category.category.description,
            "tools": len(ranked_category.tools),
            "servers": len(ranked_category.servers),
            "largest_servers": list(ranked_category.servers[:max_servers]),
            "popular_tools": [
                sanitize_text(tool.address) for tool in ranked_category.popular_tools
            ],
        }
    )


def make_server_object(
    profile_state: ProfileState, entry: ServerEntry, *, detailed: bool = False
) -> JsonObject:
    """Return a server's name in scripts, kind, purpose, number of tools and state.

    `detailed` adds its own instructions, its offers and listing warnings.
    """
    snapshot = profile_state.snapshot
    state = profile_state.get_server_states().get(entry.name, ServerState("configured"))
    initialize_info = entry.initialize_info
    troubled = state.state in TROUBLED_STATES
    card: JsonObject = {
        "server": entry.name,
        "identifier": find_identifier(entry.name, snapshot.server_identifiers),
        "title": to_short_line(entry.own_title, 20),
        "description": to_short_line(entry.own_description, 200 if detailed else 30),
        "type": entry.kind,
        "category": snapshot.main_categories[entry.name],
        "tools": len(entry.tools) if entry.is_listed else None,
        "state": state.state,
        "reason": to_short_line(state.reason, 40) if troubled else "",
        "since": to_iso_time(state.state_since) if troubled and state.state_since else None,
        "version": to_short_line(str(initialize_info.server_info.get("version", "")), 20)
        if initialize_info
        else "",
    }
    if detailed:
        card |= {
            "tags": [sanitize_text(tag) for tag in entry.tags],
            "resources": len(entry.offers.resources),
            "resource_templates": len(entry.offers.templates),
            "prompts": len(entry.offers.prompts),
            "protocol": initialize_info.protocol_version if initialize_info else "",
            "instructions": sanitize_text(truncate_instructions(initialize_info.instructions))
            if initialize_info
            else "",
            "listed": to_iso_time(entry.listed_at) if entry.is_listed else None,
            "warnings": [to_short_line(warning, 60) for warning in entry.warnings[:10]],
        }
    return _drop_empty(card)


def to_iso_time(timestamp: float) -> str:
    """Format a Unix timestamp as UTC ISO 8601, to the second."""
    return datetime.fromtimestamp(min(max(timestamp, 0.0), 32_503_680_000.0), UTC).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


def format_age(timestamp: float) -> str:
    """Format the age of a timestamp: `3 min`, `2 days`."""
    seconds = max(0.0, time.time() - timestamp)
    for size, singular, plural in ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {singular if number == 1 else plural}"
    return "under a minute"


def _round_ms(value: float) -> float:
    if value < 100:
        return round(value, 1)
    return float(round(value))


def _drop_empty(card: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in card.items() if value not in ("", None, [], {})}


def collect_tool_details(profile_state: ProfileState, tool: Tool) -> Mapping[str, Any]:
    """Return the facts for the full form; empty ones are left out."""
    snapshot = profile_state.snapshot
    entry = snapshot.servers[tool.server]
    details: dict[str, Any] = {
        "category": snapshot.get_category(tool.address),
        "tags": [sanitize_text(tag) for tag in dict.fromkeys((*entry.tags, *tool.tags))],
        "usage": make_usage_object(
            profile_state.get_statistics(tool.address),
            profile_state.ranked_catalog.get_standing(tool.address),
        ),
        "listed": to_iso_time(entry.listed_at) if entry.is_listed else "",
        **make_author_notes(entry, tool),
        "answers": _describe_learned_shape(profile_state, tool, _MAX_SHAPE_TOKENS),
        "script": make_script_example(tool, snapshot),
    }
    return {key: value for key, value in details.items() if value}


def make_author_notes(entry: ServerEntry, tool: Tool) -> JsonObject:
    """Return the notes and references that the configuration has for a tool."""
    references = find_matching(entry.rules.references, tool.name)
    return {
        "notes": find_matching(entry.rules.notes, tool.name),
        "references": [address for addresses in references for address in addresses],
    }


def _describe_learned_shape(profile_state: ProfileState, tool: Tool, max_tokens: int) -> str:
    """Render the shape of past results, for a tool without an output schema."""
    if profile_state.usage_data is None or isinstance(tool.definition.get("outputSchema"), dict):
        return ""
    return profile_state.usage_data.shapes.render_line(tool, max_tokens, count_tokens)


def make_statistics_object(profile_state: ProfileState, caller: Caller) -> JsonObject:
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
                **make_usage_object(
                    used[address], profile_state.ranked_catalog.get_standing(address)
                ),
            }
            for address in _list_most_used(used)
        ],
        **_make_token_figures(profile_state, caller),
    }


def _make_usage_totals(statistics_by_tool: Mapping[str, Statistics]) -> JsonObject:
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


def _make_token_figures(profile_state: ProfileState, caller: Caller) -> JsonObject:
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


def _make_account(row: LedgerRow | LedgerTotal) -> JsonObject:
    return {
        "listing": row.listing,
        "shown": row.shown,
        "saved": row.listing - row.shown,
        "answers": row.answers,
    }
