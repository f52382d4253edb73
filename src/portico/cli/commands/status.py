"""`portico status`: the state of every server, and what is wrong with broken ones.

--json: `{"ok": bool, "servers": [{"name", "kind", "state", "since" (ISO time), "reason", "tools",
"listed_at" (ISO time or null), "era", "protocol_version", "server_version", "held" (what of it
waits for a look, in words), "noise" (lines on stdout that were no protocol), "stderr" (its last
line), "pid", "calls", "warnings", "breaker" (closed, open or half-open), "failures" (lately),
"next_try" (ISO time or null), "restarts", "last_lines" (of stderr, of a server in trouble),
"running" (its state in the running gateway: {"state", "reason", "since"}, or null)}], "categories":
n, "database": {"kind", "place", "problem"}, "tokens": {"sessions", "listing", "shown", "saved",
"answers"}, "search": {"meaning": bool, "problem", "unencoded"}}`. `ok` is whether
every server that is not switched off can be used; `tokens` what clients were shown instead of a
listing of every tool; `search` whether tools are found by meaning or by words only, and how many
are not encoded yet.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from rich.text import Text

from portico.catalog.scan_findings import list_open_points
from portico.cli.columns import SERVER_COLUMN, STATE_STYLES, build_table, numbers, texts
from portico.cli.exit import EXIT_FAILED, EXIT_OK, sanitize_reason, sanitize_server_text
from portico.cli.local_gateway.connection import GatewayGone, RunningGateway, find_gateway
from portico.cli.look_commands import StatusOptions
from portico.cli.screen import Screen
from portico.cli.setup import open_gateway, select_enabled_servers
from portico.errors import PorticoError
from portico.gateway import GatewayRuntime
from portico.profiles.json_objects import to_iso_time
from portico.rendering.definition_changes import summarize_points
from portico.rendering.listing_cost import compute_saved_share
from portico.rendering.token_budget import format_count
from portico.search import EncoderUnavailable
from portico.storage.rows import LedgerTotal
from portico.storage.sql.database_url import parse_address
from portico.upstream.lifecycle.status import TROUBLED_STATES, UpstreamStatus

LOOKUP_TIMEOUT_S = 2.0
MAX_PAGES = 10


async def run_status(options: StatusOptions) -> int:
    """Show states from the running gateway; other servers are connected to, unless offline.

    Exit code 1 if a server cannot be used.
    """
    setup, screen = options.load()
    running_gateway = find_gateway(setup.configuration)
    running: dict[str, dict[str, Any]] = {}
    if running_gateway is not None:
        running = fetch_servers(running_gateway)

    def select_other_servers(gateway: GatewayRuntime) -> list[str]:
        return [name for name in select_enabled_servers(gateway) if name not in running]

    select_servers = None if options.offline else select_other_servers
    async with open_gateway(setup, screen, select_servers) as gateway:
        servers = [
            _collect_server_facts(gateway, one) | _to_running_data(running.get(one.name))
            for one in gateway.list_statuses()
        ]
        search = await _collect_search_facts(gateway)
        await gateway.load_usage()
        facts: dict[str, Any] = {
            "categories": len(gateway.get_view().ranked_catalog.categories),
            "database": _collect_database_facts(gateway),
            "tokens": _to_ledger_data(gateway.usage_data.ledger.total),
            "search": search,
        }
    ok = not any(server["state"] in TROUBLED_STATES for server in servers)
    off = {"state": "off", "reason": "switched off in the configuration", "tools": None}
    for name, server in setup.config.servers.items():
        if server.disabled:
            servers.append({"name": name, "kind": server.kind, **off})
    if screen.as_json:
        screen.write_json({"ok": ok, "servers": servers, **facts})
    else:
        url = running_gateway.registration.url if running_gateway is not None else ""
        _show(screen, servers, facts, url)
    if ok or options.offline:
        return EXIT_OK
    return EXIT_FAILED


def _collect_server_facts(gateway: GatewayRuntime, status: UpstreamStatus) -> dict[str, Any]:
    entry = gateway.catalog.snapshot.servers[status.name]
    info = status.initialize_info or entry.initialize_info
    is_up = status.state in ("ready", "degraded")
    stderr = [sanitize_server_text(line) for line in status.stderr]
    return {
        "name": status.name,
        "kind": status.kind,
        "state": status.state,
        "since": to_iso_time(entry.listed_at if status.state == "known" else status.state_since),
        "reason": sanitize_reason(status.state, status.reason),
        "tools": len(entry.tools) if entry.is_listed else None,
        "listed_at": to_iso_time(entry.listed_at) if entry.is_listed else None,
        "era": info and info.era,
        "protocol_version": info and info.protocol_version,
        "server_version": info and str(info.server_info.get("version", "")),
        "noise": status.diagnostics.get("noise", 0),
        "stderr": stderr[-1] if stderr else "",
        "pid": status.diagnostics.get("pid") if is_up else None,
        "calls": status.calls,
        "warnings": [*entry.warnings, *map(sanitize_server_text, entry.override_problems)],
        "held": summarize_points(list_open_points(gateway.catalog.snapshot, entry)),
        "breaker": status.breaker_phase,
        "failures": status.failures,
        "next_try": status.next_try_at and to_iso_time(status.next_try_at),
        "restarts": status.restarts,
        "last_lines": stderr if status.state in TROUBLED_STATES else [],
    }


def _to_running_data(card: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the running gateway says of a server, which replaces its state here."""
    if card is None:
        return {"running": None}
    reason = sanitize_server_text(str(card.get("reason", "")))
    state = {"state": str(card.get("state", "")), "reason": reason}
    running = {**state, "since": card.get("since")}
    if card.get("since"):
        return {**running, "running": running}
    return {**state, "running": running}


async def _collect_search_facts(gateway: GatewayRuntime) -> dict[str, Any]:
    """Return whether embeddings can be used; loads the model, the only way to know."""
    problem = "there is no encoder"
    encoder = gateway.catalog.snapshot.index.encoder
    if encoder is not None:
        with contextlib.suppress(EncoderUnavailable):
            await asyncio.to_thread(encoder.load)
        problem = encoder.problem
    unencoded = gateway.catalog.unencoded_count
    return {"meaning": not problem, "problem": problem, "unencoded": unencoded}


def _collect_database_facts(gateway: GatewayRuntime) -> dict[str, Any]:
    """Return the location of the database, without its password, and its problem."""
    url = gateway.config.database_url
    problem = gateway.store.problem
    location = str(gateway.config.data_dir)
    try:
        if url:
            location = parse_address(url.get_secret_value(), None).display_name
    except PorticoError as error:
        location = ""
        problem = problem or error.message
    kind = "PostgreSQL" if gateway.store.is_shared else "SQLite"
    return {"kind": kind, "place": location, "problem": problem}


def _to_ledger_data(total: LedgerTotal) -> dict[str, int]:
    return {
        "sessions": total.sessions,
        "listing": total.listing,
        "shown": total.shown,
        "saved": total.saved_tokens,
        "answers": total.answers,
    }


def _show(
    screen: Screen, servers: list[dict[str, Any]], facts: Mapping[str, Any], running_url: str
) -> None:
    if screen.is_stdout_terminal:
        columns = (
            SERVER_COLUMN,
            *texts("kind", "state"),
            *numbers("tools"),
            *texts("protocol", "since"),
            *numbers("noise"),
        )
        screen.write_text(build_table(columns, [_build_row(server) for server in servers]))
        # Below the table: beside it, long reasons would squeeze everything else.
        for server in servers:
            if trouble := _render_trouble(server):
                screen.write_text(Text.assemble((f"{server['name']}: ", "bold"), trouble))
    else:
        screen.write_text(*map(_render_server_line, servers))
    if not servers:
        screen.write_text("No servers are configured.")
    if running_url:
        screen.write_text(Text(f"states: as in the gateway at {running_url}", style="dim"))
    screen.write_text(
        Text(f"categories: {facts['categories']:,}", style="dim"),
        _render_database_line(facts["database"]),
        Text(_render_ledger_line(facts["tokens"]), style="dim"),
        _render_search_line(facts["search"]),
    )


def _render_database_line(database: Mapping[str, Any]) -> Text:
    where = f"database: {', '.join(filter(None, (database['kind'], database['place'])))}"
    if database["problem"]:
        return Text(f"{where} — {' '.join(database['problem'].split())}", style="yellow")
    return Text(where, style="dim")


def _render_ledger_line(tokens: Mapping[str, int]) -> str:
    if not tokens["sessions"]:
        return "tokens: no client was shown anything yet"
    line = f"tokens: {tokens['shown']:,} shown in {format_count(tokens['sessions'], 'session')}"
    if tokens["listing"]:
        line += f"; listing every tool would have cost {tokens['listing']:,}"
    if tokens["saved"] > 0:
        line += f": {tokens['saved']:,} saved"
        if tokens["listing"]:
            line += f" ({compute_saved_share(tokens['listing'], tokens['shown']):.0%})"
    return line


def _render_search_line(search: Mapping[str, Any]) -> Text:
    if not search["meaning"]:
        problem = " ".join(search["problem"].split())
        return Text(f"search: words only — {problem}", style="yellow")
    line = "search: words and meaning"
    if search["unencoded"]:
        line += f", {format_count(search['unencoded'], 'tool')} not encoded yet"
    return Text(line, style="dim")


def _format_local_time(text: str | None) -> str:
    if not text:
        return ""
    moment = datetime.fromisoformat(text).astimezone()
    if moment.date() == datetime.now().astimezone().date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d %H:%M")


def _format_protocol(server: Mapping[str, Any]) -> str:
    if server.get("era"):
        return f"MCP {server['protocol_version']}"
    return ""


def _render_trouble(server: Mapping[str, Any]) -> str:
    """Describe why a server is troubled, with the last line of its stderr."""
    is_troubled = server["state"] in TROUBLED_STATES
    parts = [" ".join(str(server["reason"]).split())]
    if is_troubled and server.get("stderr") and "(stderr: " not in server["reason"]:
        parts.append(f"stderr: {server['stderr']}")
    if server.get("running") is not None and server["state"] in ("down", "quarantined"):
        parts.append(f"`portico restart {server['name']}` tries it again")
    parts += server.get("warnings") or []
    if server.get("held"):
        parts.append(f"{server['held']}: `portico trust {server['name']} --diff`")
    return " · ".join(filter(None, parts))


def _build_row(server: Mapping[str, Any]) -> tuple[str | Text, ...]:
    return (
        server["name"],
        server["kind"],
        Text(server["state"], style=STATE_STYLES.get(server["state"], "")),
        "?" if server["tools"] is None else str(server["tools"]),
        _format_protocol(server),
        _format_local_time(server.get("since")),
        str(server.get("noise") or ""),
    )


def _render_server_line(server: Mapping[str, Any]) -> str:
    tools = "not listed"
    if server["tools"] is not None:
        tools = format_count(server["tools"], "tool")
    parts = [server["state"], server["kind"], tools, _format_protocol(server)]
    if server.get("since"):
        parts.append(f"since {_format_local_time(server['since'])}")
    if server.get("noise"):
        parts.append(f"{format_count(server['noise'], 'line')} of noise on stdout")
    line = f"{server['name']}: {', '.join(filter(None, parts))}"
    trouble = _render_trouble(server)
    if trouble:
        return f"{line} — {trouble}"
    return line


def fetch_servers(gateway: RunningGateway) -> dict[str, dict[str, Any]]:
    """Return the servers of a running gateway by name; those that it names before it fails."""
    found: dict[str, dict[str, Any]] = {}
    path: str | None = "/api/v1/servers?page_size=100&max_tokens=20000"
    try:
        for _ in range(MAX_PAGES):
            reply = path and gateway.request("GET", path, timeout_s=LOOKUP_TIMEOUT_S)
            if not reply or reply.status != 200:
                break
            cards = cast("list[dict[str, Any]]", reply.body.get("servers", []))
            found |= {str(card["server"]): card for card in cards}
            path = reply.body.get("next")
    except (GatewayGone, KeyError, TypeError):
        return found
    return found
