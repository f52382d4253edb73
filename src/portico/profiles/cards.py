"""Tools, categories and servers as JSON data, for the REST API, resources and `--json`. Pure.

Keys without a value are left out, because every key costs the reader tokens.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.meta_tools.instructions import truncate_instructions
from portico.rendering.lines import ServerState, to_short_line
from portico.rendering.tool import extract_first_sentence, render_signature
from portico.upstream.lifecycle.status import TROUBLED_STATES
from portico.usage.ranked_catalog import RankedCategory
from portico.usage.statistics import Statistics
from portico.usage.tiers import Standing

Card = dict[str, Any]


def make_tool_card(tool: Tool, statistics: Statistics, standing: Standing | None = None) -> Card:
    """Return a tool's name, signature, first sentence, tier and performance."""
    return _drop_empty(
        {
            "tool": sanitize_text(tool.address),
            "params": render_signature(tool),
            "description": extract_first_sentence(tool.description)
            or extract_first_sentence(tool.title),
            "tier": standing.tier if standing is not None and statistics.calls else None,
            **(_make_performance_figures(statistics) if statistics.calls else {}),
        }
    )


def make_usage_card(statistics: Statistics, standing: Standing) -> Card:
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


def _make_performance_figures(statistics: Statistics) -> Card:
    rate: Card = {"success_rate": round(statistics.success_rate, 3)}
    if statistics.successes:
        return {
            **rate,
            "p50_ms": _round_ms(statistics.p50_ms),
            "p95_ms": _round_ms(statistics.p95_ms),
        }
    return rate


def make_category_card(ranked_category: RankedCategory, max_servers: int = 5) -> Card:
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


def make_server_card(
    entry: ServerEntry, state: ServerState, category: str = "", *, detailed: bool = False
) -> Card:
    """Return a server's purpose, number of tools and state.

    `detailed` adds its own instructions, its offers and listing warnings.
    """
    initialize_info = entry.initialize_info
    troubled = state.state in TROUBLED_STATES
    card: Card = {
        "server": entry.name,
        "title": to_short_line(entry.title, 20) if entry.title != entry.name else "",
        "description": to_short_line(entry.description, 200 if detailed else 30),
        "category": category,
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


def format_age(timestamp: float, now: float | None = None) -> str:
    """Format the age of a timestamp: `3 min`, `2 days`."""
    seconds = max(0.0, (time.time() if now is None else now) - timestamp)
    for size, singular, plural in ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {singular if number == 1 else plural}"
    return "under a minute"


def _round_ms(value: float) -> float:
    if value < 100:
        return round(value, 1)
    return float(round(value))


def _drop_empty(card: Mapping[str, Any]) -> Card:
    return {key: value for key, value in card.items() if value not in ("", None, [], {})}
