"""`portico tiers`: the tools that matter here, by usage, and with --recompute what changed.

--json: `{"computed_at" (ISO time or null), "hot_list": {"grounds", "tools": [address]}, "counts":
{tier: number}, "total", "tools": [{"tool", "pinned", "calls", "success_rate", "p50_ms", "p95_ms",
"last_used", "calls_7d", "calls_30d", "tier", "tier_score"}], "uncounted": [address] (used since,
and not counted yet)}`, the hottest first and at most --limit. A tool that was never called has only
`tool`, `pinned` and `calls`. --recompute adds `"moved": [{"tool", "from", "to"}]`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.catalog.tool import sanitize_text
from portico.cli.columns import TOOL_COLUMN, numbers, show_rows, texts
from portico.cli.commands.usage import USAGE_COLUMNS, build_usage_cells
from portico.cli.exit import EXIT_OK, print_note
from portico.cli.look_commands import TiersOptions
from portico.cli.screen import Screen
from portico.cli.setup import (
    LISTING_WAIT_S,
    load_record_or_raise,
    open_gateway,
    select_unlisted_servers,
    select_view,
)
from portico.profiles.json_objects import format_age, make_usage_object, to_iso_time
from portico.rendering.token_budget import format_count
from portico.usage.statistics import Statistics
from portico.usage.tool_tiers import (
    COLD_STANDING,
    HOT_LIST_SIZE,
    TIERS,
    RankedCatalog,
    Standing,
    Tier,
)

_GROUNDS: Mapping[str, str] = {
    "use": "by use",
    "pins": "the pins of the configuration: no use is known yet",
    "some of each server": "some of each server, because no use is known yet and nothing is pinned",
}
_MAX_SHOWN_CHANGES = 20
_COLUMNS = (TOOL_COLUMN, *texts("tier"), *numbers("score"), *USAGE_COLUMNS)


@dataclass(frozen=True)
class TierChange:
    """A tool whose tier changed."""

    tool: str
    before: Tier
    after: Tier


@dataclass(frozen=True)
class _TierReport:
    catalog: RankedCatalog
    usage: Mapping[str, Statistics]
    changes: tuple[TierChange, ...] | None

    @property
    def ranked_tools(self) -> list[str]:
        """Every tool that was used or is pinned, the hottest first."""
        known = {*self.catalog.standings, *self.usage, *self.catalog.pins}

        def make_sort_key(address: str) -> tuple[int, float, int, str]:
            standing = self.catalog.get_standing(address)
            calls = self.usage[address].calls if address in self.usage else 0
            return TIERS.index(standing.tier), -standing.score, -calls, address

        return sorted(known & self.catalog.snapshot.tools.keys(), key=make_sort_key)

    @property
    def uncounted_tools(self) -> list[str]:
        """Tools that were used since the tiers were computed."""
        counted = self.catalog.standings
        return [name for name in self.ranked_tools if name in self.usage and name not in counted]

    @property
    def tier_counts(self) -> dict[str, int]:
        catalog = self.catalog
        counts = Counter(catalog.get_standing(name).tier for name in catalog.snapshot.tools)
        return {tier: counts[tier] for tier in TIERS}


async def run_tiers(options: TiersOptions) -> int:
    """Show every used tool with its tier."""
    setup, screen = options.load()
    select_servers = None if options.offline else select_unlisted_servers
    async with open_gateway(setup, screen, select_servers, LISTING_WAIT_S) as gateway:
        # Tiers computed without the usage record would be useless.
        await (load_record_or_raise(gateway) if options.recompute else gateway.load_usage())
        view = select_view(gateway, setup)
        listed = view.snapshot.tools
        changes = None
        if options.recompute:
            before = view.ranked_catalog.standings
            await gateway.usage_data.standings.recompute()
            found = find_tier_changes(before, view.ranked_catalog.standings)
            changes = tuple(change for change in found if change.tool in listed)
        statistics = gateway.usage_data.tool_usage.statistics_by_tool.items()
        usage = {name: use for name, use in statistics if name in listed}
        report = _TierReport(view.ranked_catalog, usage, changes)
        if problem := gateway.store.problem:
            print_note(
                f"Without what use has shown, because the record of calls cannot be read: {problem}"
            )
    if screen.as_json:
        screen.write_json(_to_data(report, options.limit))
    else:
        _show(screen, report, options.limit)
    return EXIT_OK


def find_tier_changes(
    before: Mapping[str, Standing], after: Mapping[str, Standing]
) -> list[TierChange]:
    """Return the tools whose tier changed, the hottest first."""
    found = [
        TierChange(tool, before.get(tool, COLD_STANDING).tier, after.get(tool, COLD_STANDING).tier)
        for tool in sorted({*before, *after})
    ]
    changed = [change for change in found if change.before != change.after]
    return sorted(changed, key=lambda change: TIERS.index(change.after))


def _to_data(report: _TierReport, limit: int) -> dict[str, Any]:
    catalog = report.catalog
    hot = catalog.hot_list
    tools = [
        {
            "tool": name,
            "pinned": name in catalog.pins,
            **make_usage_object(report.usage.get(name, Statistics()), catalog.get_standing(name)),
        }
        for name in report.ranked_tools[:limit]
    ]
    data: dict[str, Any] = {
        "computed_at": to_iso_time(catalog.computed_at) if catalog.computed_at else None,
        "hot_list": {"grounds": hot.basis, "tools": [tool.address for tool in hot.tools]},
        "counts": report.tier_counts,
        "total": len(report.ranked_tools),
        "tools": tools,
        "uncounted": report.uncounted_tools,
    }
    if report.changes is not None:
        data["moved"] = [
            {"tool": change.tool, "from": change.before, "to": change.after}
            for change in report.changes
        ]
    return data


def _show(screen: Screen, report: _TierReport, limit: int) -> None:
    catalog = report.catalog
    tools = catalog.snapshot.tools
    ranked = report.ranked_tools
    computed = "not computed yet"
    if catalog.computed_at:
        computed = f"computed {format_age(catalog.computed_at)} ago"
    counts = ", ".join(f"{number:,} {tier}" for tier, number in report.tier_counts.items())
    screen.write_text(f"{format_count(len(tools), 'tool')}: {counts} ({computed}).")
    screen.write_text(*_render_changes(report.changes))
    if ranked:
        show_rows(screen, _COLUMNS, [_build_row(report, name) for name in ranked[:limit]])
    if len(ranked) > limit:
        screen.write_text(Text(f"{len(ranked) - limit:,} more: --limit {len(ranked)}", style="dim"))
    if not report.usage:
        screen.write_text("No use is known yet: tools get their tiers when they are called.")
    elif since := report.uncounted_tools:
        text = f"{format_count(len(since), 'tool')} used since then: portico tiers --recompute "
        screen.write_text(Text(f"{text}counts that, too.", style="dim"))
    hot = catalog.hot_list
    names = ", ".join(sanitize_text(tool.address) for tool in hot.tools[:HOT_LIST_SIZE])
    grounds = _GROUNDS[hot.basis]
    if report.usage and hot.basis != "use":
        grounds = "tiers were not computed since the first call: --recompute does"
    screen.write_text(f"Hot list ({grounds}): {names or 'empty'}")
    if missing_pins := [name for name in catalog.pins if name not in tools]:
        screen.write_text(f"Pinned, but no tool here: {', '.join(missing_pins)}")


def _build_row(report: _TierReport, name: str) -> Sequence[str]:
    standing = report.catalog.get_standing(name)
    pinned = " (pinned)" if name in report.catalog.pins else ""
    cells = build_usage_cells(report.usage.get(name, Statistics()))
    return (sanitize_text(name) + pinned, standing.tier, f"{standing.score:.2f}", *cells)


def _render_changes(changes: Sequence[TierChange] | None) -> list[str]:
    if changes is None:
        return []
    if not changes:
        return ["Recomputed: nothing moved."]
    lines = [f"Recomputed: {format_count(len(changes), 'tool')} moved."]
    lines += [
        f"  {sanitize_text(change.tool)}: {change.before} → {change.after}"
        for change in changes[:_MAX_SHOWN_CHANGES]
    ]
    if len(changes) > _MAX_SHOWN_CHANGES:
        lines.append(f"  … and {len(changes) - _MAX_SHOWN_CHANGES:,} more")
    return lines
