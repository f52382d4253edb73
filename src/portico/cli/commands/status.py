"""`portico status`: the state of every server, and what is wrong with broken ones.

--json: `{"ok": bool, "servers": [{"name", "kind", "state", "since" (ISO time), "reason", "tools",
"listed_at" (ISO time or null), "era", "protocol_version", "server_version", "noise" (lines on
stdout that were no protocol), "stderr" (its last line), "pid", "calls", "warnings", "breaker"
(closed, open or half-open), "failures" (lately), "next_try" (ISO time or null), "restarts",
"last_lines" (of stderr, of a server in trouble), "running" (its state in the running gateway:
{"state", "reason", "since"}, or null)}], "categories": n, "database": {"kind", "place", "problem"},
"tokens": {"sessions", "listing", "shown", "saved", "answers"}, "search": {"meaning": bool,
"problem", "unencoded"}}`. `ok` is whether every server that is not switched off can be used;
`tokens` what clients were shown instead of a listing of every tool; `search` whether tools are
found by meaning or by words only, and how many are not encoded yet.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from portico.app import GatewayRuntime
from portico.cli import gateway_client
from portico.cli.exit import EXIT_FAILED, EXIT_OK, sanitize_reason, sanitize_server_text
from portico.cli.screen import Screen
from portico.cli.setup import Setup, open_gateway, select_enabled_servers, select_no_servers
from portico.errors import PorticoError
from portico.rendering.lines import format_count
from portico.rendering.listing_cost import compute_saved_share
from portico.search import EncoderUnavailable
from portico.storage.rows import LedgerTotal
from portico.storage.sql.database_url import parse_address
from portico.upstream.lifecycle.status import TROUBLED_STATES, UpstreamStatus

_STYLES = {
    "ready": "green",
    "down": "red",
    "quarantined": "red",
    "degraded": "yellow",
    "disabled": "yellow",
    "off": "dim",
}


async def show_status(setup: Setup, screen: Screen, offline: bool) -> int:
    """Show states from the running gateway; other servers are connected to, unless offline.

    Exit code 1 if a server cannot be used.
    """
    running_servers = await asyncio.to_thread(gateway_client.fetch_servers, setup.config)

    def select_other_servers(gateway: GatewayRuntime) -> list[str]:
        return [name for name in select_enabled_servers(gateway) if name not in running_servers]

    async with open_gateway(
        setup, screen, select_no_servers if offline else select_other_servers
    ) as gateway:
        facts = [
            _merge_running_state(
                _collect_server_facts(gateway, server_facts), running_servers.get(server_facts.name)
            )
            for server_facts in gateway.list_statuses()
        ]
        search_facts = await _collect_search_facts(gateway)
        await gateway.load_usage()
        database = _collect_database_facts(gateway)
        ledger = _to_ledger_data(gateway.usage_data.ledger.total)
        categories = len(gateway.get_view().ranked_catalog.categories)
    ok = not any(server_facts["state"] in TROUBLED_STATES for server_facts in facts)
    facts += [
        _to_disabled_data(name, server.kind)
        for name, server in setup.config.servers.items()
        if server.disabled
    ]
    if screen.as_json:
        other_facts = {
            "categories": categories,
            "database": database,
            "tokens": ledger,
            "search": search_facts,
        }
        screen.write_json({"ok": ok, "servers": facts, **other_facts})
    elif screen.is_stdout_terminal:
        screen.write_text(_build_table(facts))
    else:
        screen.write_text(*(_render_server_line(server_facts) for server_facts in facts))
    if not facts:
        screen.write_text("No servers are configured.")
    if running_servers and not screen.as_json:
        screen.write_text(
            Text(
                f"states: as in the gateway at {gateway_client.build_gateway_url(setup.config)}",
                style="dim",
            )
        )
    if not screen.as_json:
        screen.write_text(
            Text(f"categories: {categories:,}", style="dim"),
            _render_database_line(database),
            _render_ledger_line(ledger),
        )
        screen.write_text(_render_search_line(search_facts))
    if ok or offline:
        return EXIT_OK
    return EXIT_FAILED


def _collect_database_facts(gateway: GatewayRuntime) -> dict[str, Any]:
    """Return the location of the database, without its password, and its problem."""
    url = gateway.config.database_url
    problem = gateway.store.problem
    try:
        if url:
            location = parse_address(url.get_secret_value(), None).display_name
        else:
            location = str(gateway.config.data_dir)
    except PorticoError as error:
        location = ""
        problem = problem or error.message
    return {
        "kind": "PostgreSQL" if gateway.store.is_shared else "SQLite",
        "place": location,
        "problem": problem,
    }


def _render_database_line(database: Mapping[str, Any]) -> Text:
    where = f"database: {database['kind']}" + (
        f", {database['place']}" if database["place"] else ""
    )
    if database["problem"]:
        return Text(f"{where} — {' '.join(database['problem'].split())}", style="yellow")
    return Text(where, style="dim")


def _to_ledger_data(total: LedgerTotal) -> dict[str, int]:
    return {
        "sessions": total.sessions,
        "listing": total.listing,
        "shown": total.shown,
        "saved": total.saved_tokens,
        "answers": total.answers,
    }


def _render_ledger_line(tokens: Mapping[str, int]) -> Text:
    if not tokens["sessions"]:
        return Text("tokens: no client was shown anything yet", style="dim")
    sessions = format_count(tokens["sessions"], "session")
    summary = (
        f"tokens: {tokens['shown']:,} shown in {sessions}; listing every tool would have cost "
        f"{tokens['listing']:,}"
    )
    if tokens["listing"]:
        share = f" ({compute_saved_share(tokens['listing'], tokens['shown']):.0%})"
    else:
        share = ""
    return Text(
        f"{summary}: {tokens['saved']:,} saved{share}" if tokens["saved"] > 0 else summary,
        style="dim",
    )


def _collect_server_facts(gateway: GatewayRuntime, status: UpstreamStatus) -> dict[str, Any]:
    entry = gateway.catalog.snapshot.servers[status.name]
    initialize_info = status.initialize_info or entry.initialize_info
    return {
        "name": status.name,
        "kind": status.kind,
        "state": status.state,
        "since": _to_iso_time(entry.listed_at if status.state == "known" else status.state_since),
        "reason": sanitize_reason(status.state, status.reason),
        "tools": len(entry.tools) if entry.is_listed else None,
        "listed_at": _to_iso_time(entry.listed_at) if entry.is_listed else None,
        "era": initialize_info.era if initialize_info else None,
        "protocol_version": initialize_info.protocol_version if initialize_info else None,
        "server_version": str(initialize_info.server_info.get("version", ""))
        if initialize_info
        else None,
        "noise": status.diagnostics.get("noise", 0),
        "stderr": sanitize_server_text(status.stderr[-1]) if status.stderr else "",
        "pid": status.diagnostics.get("pid") if status.state in ("ready", "degraded") else None,
        "calls": status.calls,
        "warnings": list(entry.warnings),
        "breaker": status.breaker_phase,
        "failures": status.failures,
        "next_try": _to_iso_time(status.next_try_at) if status.next_try_at is not None else None,
        "restarts": status.restarts,
        "last_lines": [sanitize_server_text(line) for line in status.stderr]
        if status.state in TROUBLED_STATES
        else [],
    }


def _merge_running_state(facts: dict[str, Any], card: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the facts of a server with its state in the running gateway, if that has it."""
    running = _to_running_data(card)
    if running is None or card is None:
        return {**facts, "running": None}
    since = running["since"] or facts["since"]
    return {
        **facts,
        "state": running["state"],
        "reason": running["reason"],
        "since": since,
        "running": running,
    }


def _to_running_data(card: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the state of a server in the running gateway; None if it does not have it."""
    if card is None:
        return None
    reason = sanitize_server_text(str(card.get("reason", "")))
    return {"state": str(card.get("state", "")), "reason": reason, "since": card.get("since")}


async def _collect_search_facts(gateway: GatewayRuntime) -> dict[str, Any]:
    """Return whether embeddings can be used; loads the model, the only way to know."""
    encoder = gateway.catalog.snapshot.index.encoder
    if encoder is not None:
        with contextlib.suppress(EncoderUnavailable):
            await asyncio.to_thread(encoder.load)
    if encoder is not None:
        problem = encoder.problem
    else:
        problem = "there is no encoder"
    return {
        "meaning": not problem,
        "problem": problem,
        "unencoded": gateway.catalog.unencoded_count,
    }


def _render_search_line(search_facts: Mapping[str, Any]) -> Text:
    if not search_facts["meaning"]:
        return Text(
            f"search: words only — {' '.join(search_facts['problem'].split())}", style="yellow"
        )
    if search_facts["unencoded"]:
        unencoded_note = f", {format_count(search_facts['unencoded'], 'tool')} not encoded yet"
    else:
        unencoded_note = ""
    return Text(f"search: words and meaning{unencoded_note}", style="dim")


def _to_disabled_data(name: str, kind: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "state": "off",
        "reason": "switched off in the configuration",
        "tools": None,
    }


def _to_iso_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _format_local_time(text: str | None) -> str:
    if not text:
        return ""
    moment = datetime.fromisoformat(text).astimezone()
    return moment.strftime(
        "%H:%M:%S" if moment.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M"
    )


def _format_protocol(one: Mapping[str, Any]) -> str:
    if one.get("era"):
        return f"{one['era']} {one['protocol_version']}"
    return ""


def _render_trouble(one: Mapping[str, Any]) -> str:
    """Describe why a server is troubled, with the last line of its stderr."""
    parts = [" ".join(str(one["reason"]).split())]
    if one["state"] in TROUBLED_STATES and one.get("stderr") and one["stderr"] not in one["reason"]:
        parts.append(f"stderr: {one['stderr']}")
    running = one.get("running")
    if running is not None and running["state"] in ("down", "quarantined"):
        if running["since"]:
            since = f" since {_format_local_time(running['since'])}"
        else:
            since = ""
        if running["reason"] and one["state"] not in TROUBLED_STATES:
            why = f" ({running['reason']})"
        else:
            why = ""
        parts.append(
            f"{running['state']} in the running gateway{since}{why}: `portico restart "
            f"{one['name']}` ends it"
        )
    if one.get("warnings"):
        parts += one["warnings"]
    return " · ".join(filter(None, parts))


def _build_table(facts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("server", style="bold", no_wrap=True)
    for name in ("kind", "state", "tools", "protocol", "since", "noise"):
        table.add_column(name, justify="right" if name in ("tools", "noise") else "left")
    table.add_column("reason", overflow="fold", ratio=1)
    for server in facts:
        table.add_row(
            server["name"],
            server["kind"],
            Text(server["state"], style=_STYLES.get(server["state"], "")),
            "?" if server["tools"] is None else str(server["tools"]),
            _format_protocol(server),
            _format_local_time(server.get("since")),
            str(server.get("noise") or ""),
            Text(_render_trouble(server)),
        )
    return table


def _render_server_line(one: Mapping[str, Any]) -> str:
    if one["tools"] is None:
        tools = "not listed"
    else:
        tools = format_count(one["tools"], "tool")
    parts = [
        one["state"],
        one["kind"],
        tools,
        _format_protocol(one),
        f"since {_format_local_time(one['since'])}" if one.get("since") else "",
    ]
    parts.append(
        f"{format_count(one['noise'], 'line')} of noise on stdout" if one.get("noise") else ""
    )
    return f"{one['name']}: {', '.join(filter(None, parts))}" + (
        f" — {_render_trouble(one)}" if _render_trouble(one) else ""
    )
