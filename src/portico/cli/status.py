"""`portico status`: what every server is doing, and what is wrong with the broken ones.

--json: `{"ok": bool, "servers": [{"name", "kind", "state", "since" (ISO time), "reason", "tools", "listed_at" (ISO time
or null), "era", "protocol_version", "server_version", "noise" (lines on stdout that were no protocol), "stderr" (its
last line), "pid", "calls", "warnings"}], "search": {"meaning": bool, "problem", "unencoded"}}`. `ok` is whether every
server that is not switched off can be used; `search` whether tools are found by meaning or by words only, and how many
cannot be found by meaning yet.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from portico.app import Gateway
from portico.cli.ending import DONE, FAILED, overheard, reason
from portico.cli.opening import Setup, every, none, opened
from portico.cli.screen import Screen
from portico.disclosure.lines import counted
from portico.search import EncoderUnavailable
from portico.upstream.supervisor import Status

BROKEN = ("down", "degraded", "disabled")
_STYLES = {"ready": "green", "down": "red", "degraded": "yellow", "disabled": "yellow", "off": "dim"}


async def status(setup: Setup, screen: Screen, offline: bool) -> int:
    """Ask every server, unless offline; exit code 1 when one cannot be used."""
    async with opened(setup, screen, none if offline else every) as gateway:
        facts = [_facts(gateway, one) for one in gateway.statuses()]
        finding = await _search_facts(gateway)
    ok = not any(one["state"] in BROKEN for one in facts)
    facts += [_off(name, server.kind) for name, server in setup.config.servers.items() if server.disabled]
    if screen.as_json:
        screen.data({"ok": ok, "servers": facts, "search": finding})
    elif screen.for_people:
        screen.text(_table(facts))
    else:
        screen.text(*(_line(one) for one in facts))
    if not facts:
        screen.text("No servers are configured.")
    if not screen.as_json:
        screen.text(_search_line(finding))
    return DONE if ok or offline else FAILED


def _facts(gateway: Gateway, one: Status) -> dict[str, Any]:
    entry = gateway.catalog.snapshot.servers[one.name]
    hello = one.hello or entry.hello
    stderr = [line for line in one.diagnostics.get("stderr", ()) if line.strip()]
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
        "stderr": overheard(stderr[-1]) if stderr else "",
        "pid": one.diagnostics.get("pid") if one.state in ("ready", "degraded") else None,
        "calls": one.calls,
        "warnings": list(entry.warnings),
    }


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
    if one["state"] in BROKEN and one.get("stderr") and one["stderr"] not in one["reason"]:
        parts.append(f"stderr: {one['stderr']}")
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
