"""`portico top`: what the servers of the running gateway do, refreshed every second.

Without a terminal, with --once or --json: one snapshot. --json: `{"gateway": {"pid", "url",
"version", "started" (ISO time), "memory_bytes", "requests": {"running", "waiting"}}, "servers":
[{"server", "kind", "state", "reason", "calls" and "errors" (since the gateway started),
"calls_per_s" (over ten seconds), "p50_ms" and "p95_ms" (of the last 200 calls, or null), "running",
"memory_bytes", "processes", "last_error": {"tool", "error", "at"} or null}], "left_out": n}`, the
worst and busiest first.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.text import Text

from portico.cli.columns import SERVER_COLUMN, STATE_STYLES, Column, build_table, numbers, show_rows
from portico.cli.commands.background import BackgroundOptions, require_gateway
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_note
from portico.cli.local_gateway.connection import GatewayGone, RunningGateway
from portico.cli.screen import Screen

REFRESH_S = 1.0
_HEADER_LINES = 3
"""Lines beside those of servers: the gateway, the column names, how many are not shown."""
_WIDE_COLUMNS = 100
"""Columns of a terminal from which all figures are shown."""
_COLUMNS = (
    SERVER_COLUMN,
    Column("state", no_wrap=True),
    *numbers("running", "calls", "errors", "calls/s", "p50 ms", "p95 ms", "memory", "processes"),
    Column("last error", fill=True, no_wrap=True),
)
_OPTIONAL = ("p50 ms", "processes", "errors")
"""Columns that narrow terminals do without."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TopOptions(BackgroundOptions):
    """Options of `top`."""

    once: bool = False
    """Show it once, and end."""


_DEFAULTS = TopOptions()


def top(*, options: TopOptions = _DEFAULTS) -> int:
    """Show the load of every server, the worst and busiest first."""
    gateway = require_gateway(options.identify())
    screen = options.make_screen()
    if screen.as_json:
        screen.write_json(_read_snapshot(gateway))
    elif screen.is_stdout_terminal and not options.once:
        return _show_live(gateway, screen)
    elif screen.is_stdout_terminal:
        screen.write_text(_render(_read_snapshot(gateway), screen.out.width, None))
    else:
        snapshot = _read_snapshot(gateway)
        screen.write_text(_render_gateway(snapshot))
        show_rows(screen, _COLUMNS, [_build_row(server) for server in snapshot["servers"]])
    return EXIT_OK


def _read_snapshot(gateway: RunningGateway) -> dict[str, Any]:
    answer = gateway.inspect({"what": "load"})
    registration = gateway.registration
    return {
        "gateway": {
            "pid": registration.pid,
            "url": registration.url,
            "version": registration.version,
            "started": datetime.fromtimestamp(registration.registered_at, UTC).isoformat(),
            "memory_bytes": answer["memory_bytes"],
            "requests": answer["requests"],
        },
        "servers": answer["servers"],
        "left_out": answer["left_out"],
    }


def _show_live(gateway: RunningGateway, screen: Screen) -> int:
    """Refresh the view until Ctrl+C, or until the gateway ends."""
    from rich.live import Live

    console = screen.out
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                snapshot = _read_snapshot(gateway)
                view = _render(snapshot, console.width, console.height)
                live.update(view, refresh=True)
                time.sleep(REFRESH_S)
    except KeyboardInterrupt:
        return EXIT_OK
    except GatewayGone:
        print_note("The gateway has ended.")
        return EXIT_FAILED


def _render(snapshot: Mapping[str, Any], width: int, height: int | None) -> RenderableType:
    """Render a snapshot so that it fits a terminal; all servers without a `height`."""
    servers = snapshot["servers"]
    shown = servers
    if height is not None and len(servers) > height - _HEADER_LINES + 1:
        shown = servers[: max(1, height - _HEADER_LINES)]
    left_out = len(servers) - len(shown) + snapshot["left_out"]
    columns = [
        column for column in _COLUMNS if width >= _WIDE_COLUMNS or column.name not in _OPTIONAL
    ]
    positions = [_COLUMNS.index(column) for column in columns]
    rows = [_style_row(server, _build_row(server), positions) for server in shown]
    parts: list[RenderableType] = [
        Text(_render_gateway(snapshot), overflow="ellipsis", no_wrap=True)
    ]
    parts.append(build_table(columns, rows, overflow="ellipsis"))
    if left_out:
        parts.append(Text(f"… {left_out:,} more", style="dim"))
    return Group(*parts)


def _style_row(
    server: Mapping[str, Any], cells: Sequence[str], positions: Sequence[int]
) -> list[str | Text]:
    styled: list[str | Text] = list(cells)
    styled[1] = Text(cells[1], style=STATE_STYLES.get(server["state"], ""))
    return [styled[position] for position in positions]


def _render_gateway(snapshot: Mapping[str, Any]) -> str:
    gateway = snapshot["gateway"]
    started = datetime.fromisoformat(gateway["started"])
    minutes = int((datetime.now(UTC) - started).total_seconds() // 60)
    requests = gateway["requests"]
    calls_per_s = sum(server["calls_per_s"] for server in snapshot["servers"])
    return (
        f"Portico {gateway['version']}  {gateway['url']}  up {minutes // 60}:{minutes % 60:02} h  "
        f"{_format_memory(gateway['memory_bytes'])}  {calls_per_s:,.1f} calls/s  "
        f"{requests['running']:,} running, {requests['waiting']:,} waiting"
    )


def _build_row(server: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        server["server"],
        server["state"],
        _format_count(server["running"]),
        _format_count(server["calls"]),
        _format_count(server["errors"]),
        f"{server['calls_per_s']:,.1f}" if server["calls_per_s"] else "",
        _format_latency(server["p50_ms"]),
        _format_latency(server["p95_ms"]),
        _format_memory(server["memory_bytes"]),
        _format_count(server["processes"]),
        _describe_trouble(server),
    )


def _describe_trouble(server: Mapping[str, Any]) -> str:
    """Say why a server is in trouble, else which call failed last and when."""
    if server["reason"]:
        return " ".join(server["reason"].split())
    failure = server["last_error"]
    if failure is None:
        return ""
    moment = datetime.fromtimestamp(failure["at"]).astimezone()
    tool = failure["tool"].partition(".")[2]
    return f"{moment:%H:%M:%S} {tool}: {failure['error']}"


def _format_count(number: int) -> str:
    return f"{number:,}" if number else ""


def _format_latency(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms:,.0f}" if ms >= 10 else f"{ms:.1f}"


def _format_memory(size: int) -> str:
    return f"{size / 1024**2:,.0f} MB" if size else ""
