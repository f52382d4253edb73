"""`portico usage`: statistics of tool calls; --calls lists the latest, --forget deletes them.

--json: `{"tools": [use], "total"}`, most used first; a use is `{"tool", "here" (whether it is still
listed), "calls", "successes", "success_rate", "mean_ms", "p50_ms", "p95_ms", "last_used" (ISO
time), "calls_7d", "calls_30d", "tier", "tier_score"}`, without what is not known. --calls:
`{"calls": [{"at", "tool", "ms", "ok", "cancelled", "client", "profile"}]}`, newest first. --forget:
`{"forgotten": {"tools", "calls"}, "server"}`. Arguments and results are never stored.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.app import GatewayRuntime
from portico.catalog.address import find_nearest_names, fold
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.cli.columns import Column, show_rows
from portico.cli.exit import EXIT_OK
from portico.cli.screen import Screen
from portico.cli.setup import Setup, load_record_or_raise, open_gateway, select_no_servers
from portico.cli.usage_format import format_latency, format_success_rate, format_time_ago
from portico.errors import UnknownName
from portico.profiles.cards import make_usage_card, to_iso_time
from portico.rendering.lines import format_count
from portico.storage.rows import CallRow
from portico.usage.statistics import DAY_S, Statistics
from portico.usage.tiers import Standing

_PAGE_SIZE = 200
NO_CALLS = "No call is known yet."


@dataclass(frozen=True)
class UsageCommandOptions:
    """Options of the command line."""

    name: str | None = None
    """A tool or a server."""
    days: float | None = None
    """How far back."""
    limit: int = 20

    def compute_cutoff(self, now: float) -> float:
        """Return the time before which calls are ignored."""
        if self.days is not None:
            return now - self.days * DAY_S
        return 0.0


@dataclass(frozen=True)
class UsageFilter:
    """The tools to show: all, those of a server, or one."""

    server: str | None = None
    tool: str | None = None

    def __contains__(self, address: str) -> bool:
        server, _, tool = address.partition(".")
        return self.server in (None, server) and self.tool in (None, tool)


async def show_usage(setup: Setup, screen: Screen, options: UsageCommandOptions) -> int:
    """Show the statistics of every used tool, or of the named ones."""
    async with open_gateway(setup, screen, select_no_servers) as gateway:
        await load_record_or_raise(gateway)
        statistics_by_tool = gateway.usage_data.tool_usage.statistics_by_tool
        snapshot = gateway.get_view(setup.profile).snapshot
        usage_filter = _resolve_filter(gateway, setup, options.name)
        since = options.compute_cutoff(time.time())
        found = {
            address: statistics
            for address, statistics in statistics_by_tool.items()
            if address in usage_filter
            and statistics.last_used >= since
            and (setup.profile is None or address in snapshot.tools)
        }
        standings = {
            address: gateway.get_view(setup.profile).ranked_catalog.get_standing(address)
            for address in found
        }
        listed = {address for address in found if address in snapshot.tools}
    ranked = sorted(found, key=lambda address: (-found[address].calls, address))
    if screen.as_json:
        tools = [
            _to_usage_data(one, found[one], standings[one], is_listed=one in listed)
            for one in ranked
        ]
        screen.write_json({"tools": tools[: options.limit], "total": len(ranked)})
    elif usage_filter.tool is not None and ranked:
        screen.write_text(*_render_tool_usage(ranked[0], found[ranked[0]], standings[ranked[0]]))
    elif ranked:
        _show_table(screen, ranked[: options.limit], found, listed)
        if len(ranked) > options.limit:
            screen.write_text(
                Text(f"{len(ranked) - options.limit:,} more: --limit {len(ranked)}", style="dim")
            )
    else:
        screen.write_text(_render_no_calls(options) if statistics_by_tool else NO_CALLS)
    return EXIT_OK


async def show_calls(setup: Setup, screen: Screen, options: UsageCommandOptions) -> int:
    """Show the latest calls, newest first."""
    async with open_gateway(setup, screen, select_no_servers) as gateway:
        await load_record_or_raise(gateway)
        usage_filter = _resolve_filter(gateway, setup, options.name)
        since = options.compute_cutoff(time.time())
        found = await _fetch_latest_calls(gateway, setup, usage_filter, since, options.limit)
    if screen.as_json:
        screen.write_json({"calls": [_to_call_data(row) for row in found]})
    elif found:
        columns = (
            Column("when"),
            Column("tool", style="cyan", no_wrap=True),
            Column("ms", align_right=True),
            Column("outcome"),
            Column("client"),
            Column("profile"),
        )
        show_rows(screen, columns, [_build_call_row(row) for row in found])
    else:
        screen.write_text(_render_no_calls(options))
    return EXIT_OK


async def _fetch_latest_calls(
    gateway: GatewayRuntime, setup: Setup, usage_filter: UsageFilter, cutoff: float, limit: int
) -> list[CallRow]:
    found = list[CallRow]()
    before = None
    while len(found) < limit:
        page = await gateway.store.load_calls(
            limit=_PAGE_SIZE, before=before, server=usage_filter.server, tool=usage_filter.tool
        )
        recent = [row for row in page if row.at >= cutoff]
        found += [row for row in recent if setup.profile is None or row.profile == setup.profile]
        if len(page) < _PAGE_SIZE or len(recent) < len(page):
            break
        before = page[-1].id
    return found[:limit]


async def forget_usage(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget every call, or those of a server's tools; running gateways notice at their next
    read.
    """
    async with open_gateway(setup, screen, select_no_servers) as gateway:
        await load_record_or_raise(gateway)
        tool_usage = gateway.usage_data.tool_usage
        if server is not None:
            usage_filter = UsageFilter(_resolve_server(gateway, server))
        else:
            usage_filter = UsageFilter()
        call_counts = [
            statistics.calls
            for address, statistics in tool_usage.statistics_by_tool.items()
            if address in usage_filter
        ]
        await tool_usage.forget(usage_filter.server)
        # Otherwise forgotten calls would count in the tiers until tomorrow.
        await gateway.usage_data.standings.recompute()
    if screen.as_json:
        screen.write_json(
            {
                "forgotten": {"tools": len(call_counts), "calls": sum(call_counts)},
                "server": usage_filter.server,
            }
        )
    elif call_counts:
        screen.write_text(
            f"Forgot {format_count(sum(call_counts), 'call')} of "
            f"{format_count(len(call_counts), 'tool')}."
        )
    else:
        screen.write_text("No call is known that could be forgotten.")
    return EXIT_OK


def _resolve_filter(gateway: GatewayRuntime, setup: Setup, name: str | None) -> UsageFilter:
    """Resolve a server or tool; one that was removed counts while its usage is known."""
    if name is None:
        return UsageFilter()
    snapshot = gateway.get_view(setup.profile).snapshot
    statistics_by_tool = gateway.usage_data.tool_usage.statistics_by_tool
    try:
        return UsageFilter(snapshot.resolve_server(name).name)
    except UnknownName as error:
        unknown = error
    removed_tool = next(
        (address for address in statistics_by_tool if fold(address) == fold(name)), None
    )
    try:
        server, _, tool = (removed_tool or snapshot.resolve_tool(name).address).partition(".")
        return UsageFilter(server, tool)
    except UnknownName as error:
        tools_of_server = [
            address
            for address in statistics_by_tool
            if fold(address.partition(".")[0]) == fold(name)
        ]
        if tools_of_server:
            return UsageFilter(tools_of_server[0].partition(".")[0])
        near = tuple(dict.fromkeys((*unknown.nearest, *error.nearest)))[:5]
        advice = "`portico browse` lists them."
        if near:
            advice = f"Did you mean {', '.join(map(sanitize_text, near))}?"
        message = f"there is no tool or server {quote_text(name)} here"
        raise UnknownName(message, nearest=near, advice=advice) from error


def _resolve_server(gateway: GatewayRuntime, name: str) -> str:
    """Resolve a server, also one that was used but is no longer configured."""
    used_servers = sorted(
        {address.partition(".")[0] for address in gateway.usage_data.tool_usage.statistics_by_tool}
    )
    if name in used_servers:
        return name
    try:
        return gateway.catalog.snapshot.resolve_server(name).name
    except UnknownName as error:
        if matches := [server for server in used_servers if fold(server) == fold(name)]:
            return matches[0]
        near = error.nearest or find_nearest_names(name, used_servers)
        raise UnknownName(
            error.message,
            nearest=near,
            advice=f"Did you mean {', '.join(near)}?" if near else error.advice,
        ) from error


def _render_no_calls(options: UsageCommandOptions) -> str:
    limits = [
        f"of {options.name}" if options.name else "",
        f"of the last {options.days:g} days" if options.days else "",
    ]
    where = " ".join(filter(None, limits))
    if where:
        return f"No call {where} is known."
    return NO_CALLS


def _to_usage_data(
    address: str, statistics: Statistics, standing: Standing, *, is_listed: bool
) -> dict[str, Any]:
    details: dict[str, Any] = {"successes": statistics.successes}
    if statistics.successes:
        details["mean_ms"] = round(statistics.mean_ms, 1)
    return {"tool": address, "here": is_listed, **make_usage_card(statistics, standing), **details}


def _to_call_data(row: CallRow) -> dict[str, Any]:
    return {
        "at": to_iso_time(row.at),
        "tool": f"{row.server}.{row.tool}",
        "ms": round(row.ms, 1),
        "ok": row.ok,
        "cancelled": row.cancelled,
        "client": row.client,
        "profile": row.profile,
    }


def _build_call_row(row: CallRow) -> Sequence[str]:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at))
    if row.ok:
        outcome = "ok"
    elif row.cancelled:
        outcome = "cancelled"
    else:
        outcome = "failed"
    return (
        moment,
        sanitize_text(f"{row.server}.{row.tool}"),
        f"{row.ms:,.1f}",
        outcome,
        sanitize_text(row.client),
        row.profile,
    )


def _show_table(
    screen: Screen, ranked: Sequence[str], statistics: Mapping[str, Statistics], listed: set[str]
) -> None:
    columns = (
        Column("tool", style="cyan", no_wrap=True),
        *(
            Column(name, align_right=True)
            for name in ("calls", "success", "p50", "p95", "7 d", "30 d")
        ),
        Column("last used"),
    )
    rows = [
        (
            sanitize_text(address) + ("" if address in listed else " (gone)"),
            f"{use.calls:,}",
            format_success_rate(use),
            format_latency(use.p50_ms, use),
            format_latency(use.p95_ms, use),
            f"{use.calls_7d:,}",
            f"{use.calls_30d:,}",
            format_time_ago(use.last_used),
        )
        for address, use in ((address, statistics[address]) for address in ranked)
    ]
    show_rows(screen, columns, rows)


def _render_tool_usage(
    address: str, statistics: Statistics, standing: Standing
) -> list[str | Text]:
    """Render the usage of one tool in a few lines."""
    lines = [
        f"calls: {statistics.calls:,} ({statistics.calls_7d:,} in 7 days, "
        f"{statistics.calls_30d:,} in 30), last {format_time_ago(statistics.last_used)}",
        f"success: {format_success_rate(statistics)} ({statistics.successes:,} of "
        f"{statistics.calls:,})",
    ]
    if statistics.successes:
        p50 = format_latency(statistics.p50_ms, statistics)
        p95 = format_latency(statistics.p95_ms, statistics)
        lines.append(
            f"latency: p50 {p50}, p95 {p95}, mean {format_latency(statistics.mean_ms, statistics)}"
        )
    return [
        Text(sanitize_text(address), style="bold cyan"),
        *lines,
        f"tier: {standing.tier} (score {standing.score:.2f})",
    ]
