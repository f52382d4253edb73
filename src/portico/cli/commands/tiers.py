"""`portico tiers`: the tools that matter here, by usage, and with --recompute what changed.

--json: `{"computed_at" (ISO time or null), "hot_list": {"grounds", "tools": [address]}, "counts":
{tier: number}, "total", "tools": [{"tool", "pinned", "calls", "success_rate", "p50_ms", "p95_ms",
"last_used", "calls_7d", "calls_30d", "tier", "tier_score"}], "uncounted": [address] (used since,
and not counted yet)}`, the hottest first and at most --limit. A tool that was never called has only
`tool`, `pinned` and `calls`. --recompute adds `"moved": [{"tool", "from", "to"}]`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.catalog.visible_text import sanitize_text
from portico.cli.columns import Column, show_rows
from portico.cli.exit import EXIT_OK, print_note
from portico.cli.screen import Screen
from portico.cli.setup import (
    LISTING_WAIT_S,
    Setup,
    load_record_or_raise,
    open_gateway,
    select_no_servers,
    select_unlisted_servers,
)
from portico.cli.usage_format import format_latency, format_success_rate, format_time_ago
from portico.profiles.cards import make_usage_card, to_iso_time
from portico.rendering.lines import format_count
from portico.usage.ranked_catalog import HOT_LIST_SIZE, HotList, RankedCatalog
from portico.usage.statistics import Statistics
from portico.usage.tiers import COLD_STANDING, TIERS, Standing, Tier

_GROUNDS: Mapping[str, str] = {
    "use": "by use",
    "pins": "the pins of the configuration: no use is known yet",
    "one of each server": "one of each server, because no use is known yet and nothing is pinned",
}


@dataclass(frozen=True)
class TierChange:
    """A tool whose tier changed."""

    tool: str
    before: Tier
    after: Tier


@dataclass(frozen=True)
class _TierReport:
    shelves: RankedCatalog
    usage: Mapping[str, Statistics]
    hot: HotList
    changes: tuple[TierChange, ...] | None

    @property
    def ranked_tools(self) -> list[str]:
        """Every tool that was used or is pinned, the hottest first."""
        addresses = {
            *self.shelves.standings,
            *self.usage,
            *self.shelves.pins,
        } & self.shelves.snapshot.tools.keys()

        def make_sort_key(address: str) -> tuple[int, float, int, str]:
            standing = self.shelves.get_standing(address)
            if address in self.usage:
                calls = self.usage[address].calls
            else:
                calls = 0
            return TIERS.index(standing.tier), -standing.score, -calls, address

        return sorted(addresses, key=make_sort_key)

    @property
    def uncounted_tools(self) -> list[str]:
        """Tools that were used since the tiers were computed."""
        return [
            name
            for name in self.ranked_tools
            if name in self.usage and name not in self.shelves.standings
        ]


async def show_tiers(
    setup: Setup, screen: Screen, *, recompute: bool, limit: int, offline: bool
) -> int:
    """Show every used tool with its tier."""
    async with open_gateway(
        setup, screen, select_no_servers if offline else select_unlisted_servers, LISTING_WAIT_S
    ) as gateway:
        # Tiers computed without the usage record would be useless.
        await (load_record_or_raise(gateway) if recompute else gateway.load_usage())
        view = gateway.get_view(setup.profile)
        changes = None
        if recompute:
            before = view.ranked_catalog.standings
            await gateway.usage_data.standings.recompute()
            changes = tuple(
                change
                for change in find_tier_changes(before, view.ranked_catalog.standings)
                if change.tool in view.snapshot.tools
            )
        listed_tools = view.snapshot.tools
        usage = {
            name: use
            for name, use in gateway.usage_data.tool_usage.statistics_by_tool.items()
            if name in listed_tools
        }
        report = _TierReport(view.ranked_catalog, usage, view.ranked_catalog.hot_list, changes)
        if problem := gateway.store.problem:
            print_note(
                f"Without what use has shown, because the record of calls cannot be read: {problem}"
            )
    if screen.as_json:
        screen.write_json(_to_data(report, limit))
    else:
        _show(screen, report, limit)
    return EXIT_OK


def find_tier_changes(
    before: Mapping[str, Standing], after: Mapping[str, Standing]
) -> Iterable[TierChange]:
    """Return the tools whose tier changed, the hottest first."""
    found = [
        TierChange(tool, before.get(tool, COLD_STANDING).tier, after.get(tool, COLD_STANDING).tier)
        for tool in sorted({*before, *after})
        if before.get(tool, COLD_STANDING).tier != after.get(tool, COLD_STANDING).tier
    ]
    return sorted(found, key=lambda move: TIERS.index(move.after))


def _to_data(report: _TierReport, limit: int) -> dict[str, Any]:
    ranked_catalog = report.shelves
    data: dict[str, Any] = {
        "computed_at": to_iso_time(ranked_catalog.computed_at)
        if ranked_catalog.computed_at
        else None,
        "hot_list": {
            "grounds": report.hot.basis,
            "tools": [tool.address for tool in report.hot.tools],
        },
        "counts": _count_tiers(ranked_catalog),
        "total": len(report.ranked_tools),
        "tools": [
            {
                "tool": name,
                "pinned": name in ranked_catalog.pins,
                **make_usage_card(
                    report.usage.get(name, Statistics()), ranked_catalog.get_standing(name)
                ),
            }
            for name in report.ranked_tools[:limit]
        ],
        "uncounted": report.uncounted_tools,
    }
    if report.changes is not None:
        data["moved"] = [
            {"tool": change.tool, "from": change.before, "to": change.after}
            for change in report.changes
        ]
    return data


def _count_tiers(shelves: RankedCatalog) -> dict[str, int]:
    counts = Counter(shelves.get_standing(name).tier for name in shelves.snapshot.tools)
    return {tier: counts[tier] for tier in TIERS}


def _show(screen: Screen, report: _TierReport, limit: int) -> None:
    ranked_catalog = report.shelves
    ranked = report.ranked_tools
    if ranked_catalog.computed_at:
        computed = f"computed {format_time_ago(ranked_catalog.computed_at)}"
    else:
        computed = "not computed yet"
    counts = ", ".join(
        f"{number:,} {tier}" for tier, number in _count_tiers(ranked_catalog).items()
    )
    screen.write_text(
        f"{format_count(len(ranked_catalog.snapshot.tools), 'tool')}: {counts} ({computed})."
    )
    screen.write_text(*_render_changes(report.changes))
    if ranked:
        show_rows(screen, _COLUMNS, [_build_row(report, name) for name in ranked[:limit]])
    if len(ranked) > limit:
        screen.write_text(Text(f"{len(ranked) - limit:,} more: --limit {len(ranked)}", style="dim"))
    if not report.usage:
        screen.write_text("No use is known yet: tools get their tiers when they are called.")
    elif report.uncounted_tools:
        since = format_count(len(report.uncounted_tools), "tool")
        screen.write_text(
            Text(
                f"{since} used since then: portico tiers --recompute counts that, too.", style="dim"
            )
        )
    hot = ", ".join(sanitize_text(tool.address) for tool in report.hot.tools[:HOT_LIST_SIZE])
    uncomputed = report.usage and report.hot.basis != "use"
    if uncomputed:
        grounds = "tiers were not computed since the first call: --recompute does"
    else:
        grounds = None
    screen.write_text(f"Hot list ({grounds or _GROUNDS[report.hot.basis]}): {hot or 'empty'}")
    if missing_pins := [
        name for name in ranked_catalog.pins if name not in ranked_catalog.snapshot.tools
    ]:
        screen.write_text(f"Pinned, but no tool here: {', '.join(missing_pins)}")


_COLUMNS: Sequence[Column] = (
    Column("tool", style="cyan", no_wrap=True),
    Column("tier"),
    *(
        Column(name, align_right=True)
        for name in ("score", "calls", "success", "p50", "p95", "7 d", "30 d")
    ),
    Column("last used"),
)


def _build_row(report: _TierReport, name: str) -> Sequence[str]:
    statistics = report.usage.get(name, Statistics())
    standing = report.shelves.get_standing(name)
    if name in report.shelves.pins:
        pinned = " (pinned)"
    else:
        pinned = ""
    return (
        sanitize_text(name) + pinned,
        standing.tier,
        f"{standing.score:.2f}",
        f"{statistics.calls:,}",
        format_success_rate(statistics),
        format_latency(statistics.p50_ms, statistics),
        format_latency(statistics.p95_ms, statistics),
        f"{statistics.calls_7d:,}",
        f"{statistics.calls_30d:,}",
        format_time_ago(statistics.last_used) if statistics.calls else "never",
    )


def _render_changes(changes: Sequence[TierChange] | None) -> list[str]:
    if changes is None:
        return []
    if not changes:
        return ["Computed anew: nothing moved."]
    lines = [
        f"  {sanitize_text(change.tool)}: {change.before} → {change.after}"
        for change in changes[:_MAX_SHOWN_CHANGES]
    ]
    if len(changes) > _MAX_SHOWN_CHANGES:
        rest = [f"  … and {len(changes) - _MAX_SHOWN_CHANGES:,} more"]
    else:
        rest = []
    return [f"Computed anew: {format_count(len(changes), 'tool')} moved.", *lines, *rest]


_MAX_SHOWN_CHANGES = 20
