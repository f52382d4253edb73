"""`portico status`: what every server is doing, and what is wrong with the broken ones.

--json: `{"ok": bool, "servers": [{"name", "kind", "state", "since" (ISO time), "reason", "tools", "listed_at" (ISO
time or null), "era", "protocol_version", "server_version", "noise" (lines on stdout that were no protocol), "stderr"
(its last line), "pid", "calls", "warnings", "breaker" (closed, open or half-open), "failures" (lately), "next_try"
(ISO time or null), "restarts", "last_lines" (of stderr, of a server in trouble), "running" (how it is in the gateway
that runs beside this command: {"state", "reason", "since"}, or null)}], "categories": n, "database": {"kind", "place",
"problem"}, "tokens": {"sessions", "listing", "shown", "saved", "answers"}, "search": {"meaning": bool, "problem",
"unencoded"}}`. `ok` is whether every server that is not switched off can be used; `tokens` what clients were shown
instead of a listing of every tool; `search` whether tools are found by meaning or by words only, and how many cannot
be found by meaning yet.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from portico.app import Gateway
from portico.cli import beside
from portico.cli.ending import DONE, FAILED, overheard, reason
from portico.cli.opening import Setup, every, none, opened
from portico.cli.screen import Screen
from portico.disclosure.cost import saved_share
from portico.disclosure.lines import counted
from portico.errors import PorticoError
from portico.search import EncoderUnavailable
from portico.storage.rows import LedgerTotal
from portico.storage.sql.address import read_address
from portico.upstream.status import TROUBLED, Status

_STYLES = {
    "ready": "green",
    "down": "red",
    "quarantined": "red",
    "degraded": "yellow",
    "disabled": "yellow",
    "off": "dim",
}


async def status(setup: Setup, screen: Screen, offline: bool) -> int:
    """As the running gateway has it; what that does not have is asked, unless offline. 1 when one cannot be used."""
    there = await asyncio.to_thread(beside.servers, setup.config)

    def others(gateway: Gateway) -> list[str]:
        return [name for name in every(gateway) if name not in there]

    async with opened(setup, screen, none if offline else others) as gateway:
        facts = [_as_running(_facts(gateway, one), there.get(one.name)) for one in gateway.statuses()]
        finding = await _search_facts(gateway)
        await gateway.recall()
        database, ledger = _database_facts(gateway), _ledger_facts(gateway.insight.ledger.total)
        categories = len(gateway.view().shelves.categories)
    ok = not any(one["state"] in TROUBLED for one in facts)
    facts += [_off(name, server.kind) for name, server in setup.config.servers.items() if server.disabled]
    if screen.as_json:
        kept = {"categories": categories, "database": database, "tokens": ledger, "search": finding}
        screen.data({"ok": ok, "servers": facts, **kept})
    elif screen.for_people:
        screen.text(_table(facts))
    else:
        screen.text(*(_line(one) for one in facts))
    if not facts:
        screen.text("No servers are configured.")
    if there and not screen.as_json:
        screen.text(Text(f"states: as in the gateway at {beside.address(setup.config)}", style="dim"))
    if not screen.as_json:
        screen.text(Text(f"categories: {categories:,}", style="dim"), _database_line(database), _ledger_line(ledger))
        screen.text(_search_line(finding))
    return DONE if ok or offline else FAILED


def _database_facts(gateway: Gateway) -> dict[str, Any]:
    """Where the record is kept, without the password that leads there."""
    url = gateway.config.database_url
    problem = gateway.record.problem
    try:
        place = read_address(url.get_secret_value(), None).shown if url else str(gateway.config.data_dir)
    except PorticoError as error:
        place, problem = "", problem or error.message
    return {"kind": "PostgreSQL" if gateway.record.shared else "SQLite", "place": place, "problem": problem}


def _database_line(database: Mapping[str, Any]) -> Text:
    where = f"database: {database['kind']}" + (f", {database['place']}" if database["place"] else "")
    if database["problem"]:
        return Text(f"{where} — {' '.join(database['problem'].split())}", style="yellow")
    return Text(where, style="dim")


def _ledger_facts(total: LedgerTotal) -> dict[str, int]:
    return {
        "sessions": total.sessions,
        "listing": total.listing,
        "shown": total.shown,
        "saved": total.saved,
        "answers": total.answers,
    }


def _ledger_line(tokens: Mapping[str, int]) -> Text:
    if not tokens["sessions"]:
        return Text("tokens: no client was shown anything yet", style="dim")
    over = counted(tokens["sessions"], "session")
    said = f"tokens: {tokens['shown']:,} shown in {over}; listing every tool would have cost {tokens['listing']:,}"
    share = f" ({saved_share(tokens['listing'], tokens['shown']):.0%})" if tokens["listing"] else ""
    return Text(f"{said}: {tokens['saved']:,} saved{share}" if tokens["saved"] > 0 else said, style="dim")


def _facts(gateway: Gateway, one: Status) -> dict[str, Any]:
    entry = gateway.catalog.snapshot.servers[one.name]
    hello = one.hello or entry.hello
    return {
        "name": one.name,
        "kind": one.kind,
        "state": one.state,
        "since": _iso(entry.listed_at if one.state == "known" else one.since),
        "reason": reason(one.state, one.reason),
        "tools": len(entry.tools) if entry.known else None,
        "listed_at": _iso(entry.listed_at) if entry.known else None,
        "era": hello.era if hello else None,
        "protocol_version": hello.protocol_version if hello else None,
        "server_version": str(hello.server_info.get("version", "")) if hello else None,
        "noise": one.diagnostics.get("noise", 0),
        "stderr": overheard(one.stderr[-1]) if one.stderr else "",
        "pid": one.diagnostics.get("pid") if one.state in ("ready", "degraded") else None,
        "calls": one.calls,
        "warnings": list(entry.warnings),
        "breaker": one.breaker,
        "failures": one.failures,
        "next_try": _iso(one.next_try) if one.next_try is not None else None,
        "restarts": one.restarts,
        "last_lines": [overheard(line) for line in one.stderr] if one.state in TROUBLED else [],
    }


def _as_running(facts: dict[str, Any], card: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is known of a server here, in the state that it has in the gateway that runs, where that has it."""
    running = _running(card)
    if running is None or card is None:
        return {**facts, "running": None}
    since = running["since"] or facts["since"]
    return {**facts, "state": running["state"], "reason": running["reason"], "since": since, "running": running}


def _running(card: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How a server is in the gateway that runs, where that has it."""
    if card is None:
        return None
    told = overheard(str(card.get("reason", "")))
    return {"state": str(card.get("state", "")), "reason": told, "since": card.get("since")}


async def _search_facts(gateway: Gateway) -> dict[str, Any]:
    """Whether meaning can be searched; the model is read, because nobody knows before."""
    encoder = gateway.catalog.snapshot.index.encoder
    if encoder is not None:
        with contextlib.suppress(EncoderUnavailable):
            await asyncio.to_thread(encoder.load)
    problem = encoder.problem if encoder is not None else "there is no encoder"
    return {"meaning": not problem, "problem": problem, "unencoded": gateway.catalog.unencoded}


def _search_line(finding: Mapping[str, Any]) -> Text:
    if not finding["meaning"]:
        return Text(f"search: words only — {' '.join(finding['problem'].split())}", style="yellow")
    waiting = f", {counted(finding['unencoded'], 'tool')} not encoded yet" if finding["unencoded"] else ""
    return Text(f"search: words and meaning{waiting}", style="dim")


def _off(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "state": "off", "reason": "switched off in the configuration", "tools": None}


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _clock(text: str | None) -> str:
    if not text:
        return ""
    moment = datetime.fromisoformat(text).astimezone()
    return moment.strftime("%H:%M:%S" if moment.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M")


def _version(one: Mapping[str, Any]) -> str:
    return f"{one['era']} {one['protocol_version']}" if one.get("era") else ""


def _trouble(one: Mapping[str, Any]) -> str:
    """Why a server is not as it should be, with its own last words where it said any."""
    parts = [" ".join(str(one["reason"]).split())]
    if one["state"] in TROUBLED and one.get("stderr") and one["stderr"] not in one["reason"]:
        parts.append(f"stderr: {one['stderr']}")
    running = one.get("running")
    if running is not None and running["state"] in ("down", "quarantined"):
        since = f" since {_clock(running['since'])}" if running["since"] else ""
        why = f" ({running['reason']})" if running["reason"] and one["state"] not in TROUBLED else ""
        parts.append(f"{running['state']} in the running gateway{since}{why}: `portico restart {one['name']}` ends it")
    if one.get("warnings"):
        parts += one["warnings"]
    return " · ".join(filter(None, parts))


def _table(facts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("server", style="bold", no_wrap=True)
    for name in ("kind", "state", "tools", "protocol", "since", "noise"):
        table.add_column(name, justify="right" if name in ("tools", "noise") else "left")
    table.add_column("reason", overflow="fold", ratio=1)
    for one in facts:
        table.add_row(
            one["name"],
            one["kind"],
            Text(one["state"], style=_STYLES.get(one["state"], "")),
            "?" if one["tools"] is None else str(one["tools"]),
            _version(one),
            _clock(one.get("since")),
            str(one.get("noise") or ""),
            Text(_trouble(one)),
        )
    return table


def _line(one: Mapping[str, Any]) -> str:
    tools = "not listed" if one["tools"] is None else counted(one["tools"], "tool")
    parts = [
        one["state"],
        one["kind"],
        tools,
        _version(one),
        f"since {_clock(one['since'])}" if one.get("since") else "",
    ]
    parts.append(f"{counted(one['noise'], 'line')} of noise on stdout" if one.get("noise") else "")
    return f"{one['name']}: {', '.join(filter(None, parts))}" + (f" — {_trouble(one)}" if _trouble(one) else "")
