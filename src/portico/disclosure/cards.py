"""Tools, categories and servers as data, for those who read JSON: the side door, resources, `--json`. Pure.

A card has no key without a value: whoever reads it pays for each.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure.guidance import upstream_instructions
from portico.disclosure.lines import ServerState, one_paragraph
from portico.disclosure.render import first_sentence, signature
from portico.disclosure.shelves import Shelf
from portico.disclosure.tiers import Standing
from portico.observability.statistics import Statistics
from portico.upstream.status import TROUBLED

Card = dict[str, Any]


def tool_card(tool: Tool, use: Statistics, standing: Standing | None = None) -> Card:
    """A tool in a line: what it is called, takes and does, and how it does."""
    return _filled(
        {
            "tool": shown(tool.address),
            "params": signature(tool),
            "description": first_sentence(tool.description) or first_sentence(tool.title),
            "tier": standing.tier if standing is not None and use.calls else None,
            **(_figures(use) if use.calls else {}),
        }
    )


def use_card(use: Statistics, standing: Standing) -> Card:
    """Everything that is known of a tool's use."""
    if not use.calls:
        return {"calls": 0}
    return _filled(
        {
            "calls": use.calls,
            **_figures(use),
            "last_used": iso(use.last_used),
            "calls_7d": use.week,
            "calls_30d": use.month,
            "tier": standing.tier,
            "tier_score": standing.score,
        }
    )


def _figures(use: Statistics) -> Card:
    rate: Card = {"success_rate": round(use.success_rate, 3)}
    return {**rate, "p50_ms": _ms(use.p50_ms), "p95_ms": _ms(use.p95_ms)} if use.successes else rate


def category_card(shelf: Shelf, servers: int = 5) -> Card:
    """A category with how much is in it, and what stands for it."""
    return _filled(
        {
            "category": shelf.category.key,
            "title": shelf.category.title,
            "description": shelf.category.description,
            "tools": len(shelf.tools),
            "servers": len(shelf.servers),
            "largest_servers": list(shelf.servers[:servers]),
            "popular_tools": [shown(tool.address) for tool in shelf.popular],
        }
    )


def server_card(entry: ServerEntry, state: ServerState, category: str = "", *, whole: bool = False) -> Card:
    """A server: what it is for, how much it has and how it is; `whole` with what it says of itself."""
    hello = entry.hello
    troubled = state.state in TROUBLED
    card: Card = {
        "server": entry.name,
        "title": one_paragraph(entry.title, 20) if entry.title != entry.name else "",
        "description": one_paragraph(entry.description, 200 if whole else 30),
        "category": category,
        "tools": len(entry.tools) if entry.known else None,
        "state": state.state,
        "reason": one_paragraph(state.reason, 40) if troubled else "",
        "since": iso(state.since) if troubled and state.since else None,
        "version": one_paragraph(str(hello.server_info.get("version", "")), 20) if hello else "",
    }
    if whole:
        card |= {
            "tags": [shown(tag) for tag in entry.tags],
            "resources": len(entry.offers.resources),
            "resource_templates": len(entry.offers.templates),
            "prompts": len(entry.offers.prompts),
            "protocol": hello.protocol_version if hello else "",
            "instructions": shown(upstream_instructions(hello.instructions)) if hello else "",
            "listed": iso(entry.listed_at) if entry.known else None,
            "warnings": [one_paragraph(warning, 60) for warning in entry.warnings[:10]],
        }
    return _filled(card)


def iso(at: float) -> str:
    """A moment as text, to the second."""
    return datetime.fromtimestamp(min(max(at, 0.0), 32_503_680_000.0), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(at: float, now: float | None = None) -> str:
    """How long ago a moment was: `3 min`, `2 days`."""
    seconds = max(0.0, (time.time() if now is None else now) - at)
    for size, one, many in ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {one if number == 1 else many}"
    return "under a minute"


def _ms(value: float) -> float:
    return round(value, 1) if value < 100 else float(round(value))


def _filled(card: Mapping[str, Any]) -> Card:
    return {key: value for key, value in card.items() if value not in ("", None, [], {})}
