"""`portico usage`: statistics of tool calls; --calls lists the latest, --forget deletes them.

--json: `{"tools": [use], "total"}`, most used first; a use is `{"tool", "here" (whether it is still
listed), "calls", "successes", "success_rate", "mean_ms", "p50_ms", "p95_ms", "last_used" (ISO
time), "calls_7d", "calls_30d", "tier", "tier_score"}`, without what is not known. --calls:
`{"calls": [{"at", "tool", "ms", "ok", "cancelled", "client", "profile"}]}`, newest first. --forget:
`{"forgotten": {"tools", "calls"}, "server"}`. Arguments and results are never stored.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.tool import quote_text, sanitize_text
from portico.cli.columns import TOOL_COLUMN, numbers, show_rows, texts
from portico.cli.exit import EXIT_OK
from portico.cli.look_commands import UsageOptions
from portico.cli.screen import Screen
from portico.cli.setup import Setup, load_record_or_raise, open_gateway, select_view
from portico.errors import ConfigError, UnknownName
from portico.gateway import GatewayRuntime
from portico.profiles.json_objects import format_age, make_usage_object, to_iso_time
from portico.rendering.token_budget import format_count
from portico.storage.rows import CallQuery, CallRow
from portico.usage.statistics import DAY_S, Statistics
from portico.usage.tool_tiers import Standing

_PAGE_SIZE = 200
NO_CALLS = "No call is known yet."
USAGE_COLUMNS = (*numbers("calls", "success", "p50", "p95", "7 d", "30 d"), *texts("last used"))


@dataclass(frozen=True)
class _UsageQuery:
    """What to show: all tools, those of a server, or one."""

    limit: int
    days: float | None
    name: str | None
    server: str | None = None
    tool: str | None = None

    def __contains__(self, address: str) -> bool:
        server, _, tool = address.partition(".")
        return self.server in (None, server) and self.tool in (None, tool)

    @property
    def cutoff(self) -> float:
        """The time before which calls are ignored."""
        if self.days:
            return time.time() - self.days * DAY_S
        return 0.0

    @property
    def no_calls_text(self) -> str:
        text = "No call"
        if self.name:
            text += f" of {self.name}"
        if self.days:
            text += f" of the last {self.days:g} days"
        if self.name or self.days:
            return f"{text} is known."
        return NO_CALLS


async def run_usage(name: str | None, options: UsageOptions) -> int:
    """Show statistics or the latest calls, or forget them."""
    if name is not None and options.server is not None:
        raise ConfigError("NAME and --server are both given", advice="Keep one.")
    if options.forget and (name or options.calls or options.days or options.profile):
        raise ConfigError(
            "--forget forgets all, or with --server a server's",
            advice="Leave out what else is given.",
        )
    setup, screen = options.load()
    async with open_gateway(setup, screen) as gateway:
        await load_record_or_raise(gateway)
        if options.forget:
            return await _forget_usage(gateway, screen, options.server)
        wanted = _UsageQuery(options.limit, options.days, name or options.server)
        query = _resolve_query(gateway, setup, wanted)
        if options.calls:
            return await _show_calls(gateway, setup, screen, query)
        _show_usage(gateway, setup, screen, query)
    return EXIT_OK


def _show_usage(gateway: GatewayRuntime, setup: Setup, screen: Screen, query: _UsageQuery) -> None:
    statistics_by_tool = gateway.usage_data.tool_usage.statistics_by_tool
    view = select_view(gateway, setup)
    listed = view.snapshot.tools
    cutoff = query.cutoff
    found = {
        address: statistics
        for address, statistics in statistics_by_tool.items()
        if address in query
        and statistics.last_used >= cutoff
        and (setup.profile is None or address in listed)
    }
    ranked = sorted(found, key=lambda address: (-found[address].calls, address))
    shown = ranked[: query.limit]
    get_standing = view.ranked_catalog.get_standing
    if screen.as_json:
        tools = [_to_usage_data(one, found[one], get_standing(one), one in listed) for one in shown]
        screen.write_json({"tools": tools, "total": len(ranked)})
    elif query.tool is not None and ranked:
        screen.write_text(*_render_tool_usage(ranked[0], found[ranked[0]], get_standing(ranked[0])))
    elif ranked:
        rows = [
            (
                sanitize_text(address) + ("" if address in listed else " (gone)"),
                *build_usage_cells(found[address]),
            )
            for address in shown
        ]
        show_rows(screen, (TOOL_COLUMN, *USAGE_COLUMNS), rows)
        if len(ranked) > query.limit:
            more = f"{len(ranked) - query.limit:,} more: --limit {len(ranked)}"
            screen.write_text(Text(more, style="dim"))
    else:
        screen.write_text(query.no_calls_text if statistics_by_tool else NO_CALLS)


async def _show_calls(
    gateway: GatewayRuntime, setup: Setup, screen: Screen, query: _UsageQuery
) -> int:
    found = await _fetch_latest_calls(gateway, setup, query)
    if screen.as_json:
        screen.write_json({"calls": [_to_call_data(row) for row in found]})
    elif found:
        columns = (
            *texts("when"),
            TOOL_COLUMN,
            *numbers("ms"),
            *texts("outcome", "client", "profile"),
        )
        show_rows(screen, columns, [_build_call_row(row) for row in found])
    else:
        screen.write_text(query.no_calls_text)
    return EXIT_OK


async def _fetch_latest_calls(
    gateway: GatewayRuntime, setup: Setup, query: _UsageQuery
) -> list[CallRow]:
    """Return the latest calls, newest first."""
    found = list[CallRow]()
    before = None
    cutoff = query.cutoff
    while len(found) < query.limit:
        page = await gateway.store.load_calls(
            CallQuery(limit=_PAGE_SIZE, before=before, server=query.server, tool=query.tool)
        )
        recent = [row for row in page if row.at >= cutoff]
        found += [row for row in recent if setup.profile is None or row.profile == setup.profile]
        if len(page) < _PAGE_SIZE or len(recent) < len(page):
            break
        before = page[-1].id
    return found[: query.limit]


async def _forget_usage(gateway: GatewayRuntime, screen: Screen, name: str | None) -> int:
    """Forget every call, or those of a server's tools; running gateways notice at their next
    read.
    """
    tool_usage = gateway.usage_data.tool_usage
    server = _resolve_server(gateway, name) if name is not None else None
    call_counts = [
        statistics.calls
        for address, statistics in tool_usage.statistics_by_tool.items()
        if server in (None, address.partition(".")[0])
    ]
    await tool_usage.forget(server)
    # Otherwise forgotten calls would count in the tiers until tomorrow.
    await gateway.usage_data.standings.recompute()
    if screen.as_json:
        counts = {"tools": len(call_counts), "calls": sum(call_counts)}
        screen.write_json({"forgotten": counts, "server": server})
    elif call_counts:
        screen.write_text(
            f"Forgot {format_count(sum(call_counts), 'call')} of "
            f"{format_count(len(call_counts), 'tool')}."
        )
    else:
        screen.write_text("No call is known that could be forgotten.")
    return EXIT_OK


def _resolve_query(gateway: GatewayRuntime, setup: Setup, query: _UsageQuery) -> _UsageQuery:
    """Resolve a server or tool; one that was removed counts while its usage is known."""
    name = query.name
    if name is None:
        return query
    snapshot = select_view(gateway, setup).snapshot
    used_tools = gateway.usage_data.tool_usage.statistics_by_tool
    try:
        return replace(query, server=snapshot.resolve_server(name).name)
    except UnknownName as error:
        unknown = error
    removed_tool = next((address for address in used_tools if fold(address) == fold(name)), None)
    try:
        server, _, tool = (removed_tool or snapshot.resolve_tool(name).address).partition(".")
        return replace(query, server=server, tool=tool)
    except UnknownName as error:
        used_servers = (address.partition(".")[0] for address in used_tools)
        if server := next((one for one in used_servers if fold(one) == fold(name)), None):
            return replace(query, server=server)
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


def _to_usage_data(
    address: str, statistics: Statistics, standing: Standing, is_listed: bool
) -> dict[str, Any]:
    details: dict[str, Any] = {"successes": statistics.successes}
    if statistics.successes:
        details["mean_ms"] = round(statistics.mean_ms, 1)
    return {
        "tool": address,
        "here": is_listed,
        **make_usage_object(statistics, standing),
        **details,
    }


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
    outcome = "ok" if row.ok else "failed"
    if row.cancelled and not row.ok:
        outcome = "cancelled"
    return (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at)),
        sanitize_text(f"{row.server}.{row.tool}"),
        f"{row.ms:,.1f}",
        outcome,
        sanitize_text(row.client),
        row.profile,
    )


def build_usage_cells(use: Statistics) -> tuple[str, ...]:
    """Build the cells of `USAGE_COLUMNS`."""
    return (
        f"{use.calls:,}",
        _format_success_rate(use),
        _format_latency(use.p50_ms, use),
        _format_latency(use.p95_ms, use),
        f"{use.calls_7d:,}",
        f"{use.calls_30d:,}",
        f"{format_age(use.last_used)} ago" if use.calls else "never",
    )


def _format_latency(value: float, statistics: Statistics) -> str:
    """Format a latency; empty if no call succeeded."""
    if not statistics.successes:
        return ""
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    if value >= 10:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms"


def _format_success_rate(statistics: Statistics) -> str:
    """Format the success rate, rounded down, so that 100% means every call."""
    if not statistics.calls:
        return ""
    return f"{min(int(statistics.success_rate * 100), 100)}%"


def _render_tool_usage(
    address: str, statistics: Statistics, standing: Standing
) -> list[str | Text]:
    calls, success, p50, p95, week, month, last = build_usage_cells(statistics)
    lines: list[str | Text] = [
        Text(sanitize_text(address), style="bold cyan"),
        f"calls: {calls} ({week} in 7 days, {month} in 30), last {last}",
        f"success: {success} ({statistics.successes:,} of {calls})",
    ]
    if statistics.successes:
        mean = _format_latency(statistics.mean_ms, statistics)
        lines.append(f"latency: p50 {p50}, p95 {p95}, mean {mean}")
    return [*lines, f"tier: {standing.tier} (score {standing.score:.2f})"]
