"""`portico usage`: how the tools' calls went, the latest of them with --calls, and --forget drops what is known.

--json: `{"tools": [use], "total"}`, most used first; a use is `{"tool", "here" (whether it is still listed), "calls",
"successes", "success_rate", "mean_ms", "p50_ms", "p95_ms", "last_used" (ISO time), "calls_7d", "calls_30d", "tier",
"tier_score"}`, without what is not known. --calls: `{"calls": [{"at", "tool", "ms", "ok", "cancelled", "client",
"profile"}]}`, newest first. --forget: `{"forgotten": {"tools", "calls"}, "server"}`. Nobody keeps arguments or results.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from portico.app import Gateway
from portico.catalog.address import fold, nearest
from portico.catalog.visible import quoted, shown
from portico.cli.columns import Column, show_rows
from portico.cli.ending import DONE
from portico.cli.opening import Setup, none, opened, recalled
from portico.cli.screen import Screen
from portico.cli.wording import ago, milliseconds, share
from portico.disclosure.cards import iso, use_card
from portico.disclosure.lines import counted
from portico.disclosure.tiers import Standing
from portico.errors import UnknownName
from portico.observability.statistics import DAY_S, Statistics
from portico.storage.rows import CallRow

_PAGE = 200
NOTHING = "No call is known yet."


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    name: str | None = None
    """A tool or a server."""
    days: float | None = None
    """How far back."""
    limit: int = 20

    def since(self, now: float) -> float:
        """The moment before which nothing counts."""
        return now - self.days * DAY_S if self.days is not None else 0.0


@dataclass(frozen=True)
class Meant:
    """Whose use is asked for: everybody's, a server's, or a tool's."""

    server: str | None = None
    tool: str | None = None

    def __contains__(self, address: str) -> bool:
        server, _, tool = address.partition(".")
        return self.server in (None, server) and self.tool in (None, tool)


async def usage(setup: Setup, screen: Screen, asked: Asked) -> int:
    """The statistics of every tool that was used, or of those that are meant."""
    async with opened(setup, screen, none) as gateway:
        await recalled(gateway)
        used, snapshot = gateway.insight.usage.used, gateway.view(setup.profile).snapshot
        meant, since = _meant(gateway, setup, asked.name), asked.since(time.time())
        found = {
            address: use
            for address, use in used.items()
            if address in meant and use.last_used >= since and (setup.profile is None or address in snapshot.tools)
        }
        standings = {address: gateway.view(setup.profile).shelves.standing(address) for address in found}
        here = {address for address in found if address in snapshot.tools}
    ranked = sorted(found, key=lambda address: (-found[address].calls, address))
    if screen.as_json:
        tools = [_use_data(one, found[one], standings[one], here=one in here) for one in ranked]
        screen.data({"tools": tools[: asked.limit], "total": len(ranked)})
    elif meant.tool is not None and ranked:
        screen.text(*_lines(ranked[0], found[ranked[0]], standings[ranked[0]]))
    elif ranked:
        _show_table(screen, ranked[: asked.limit], found, here)
        if len(ranked) > asked.limit:
            screen.text(Text(f"{len(ranked) - asked.limit:,} more: --limit {len(ranked)}", style="dim"))
    else:
        screen.text(_nothing(asked) if used else NOTHING)
    return DONE


async def calls(setup: Setup, screen: Screen, asked: Asked) -> int:
    """The latest calls, newest first."""
    async with opened(setup, screen, none) as gateway:
        await recalled(gateway)
        meant, since = _meant(gateway, setup, asked.name), asked.since(time.time())
        found = await _latest(gateway, setup, meant, since, asked.limit)
    if screen.as_json:
        screen.data({"calls": [_call_data(row) for row in found]})
    elif found:
        columns = (
            Column("when"), Column("tool", style="cyan", whole=True), Column("ms", right=True), Column("outcome"),
            Column("client"), Column("profile"),
        )  # fmt: skip
        show_rows(screen, columns, [_call_row(row) for row in found])
    else:
        screen.text(_nothing(asked))
    return DONE


async def _latest(gateway: Gateway, setup: Setup, meant: Meant, since: float, limit: int) -> list[CallRow]:
    found, before = list[CallRow](), None
    while len(found) < limit:
        page = await gateway.record.calls(limit=_PAGE, before=before, server=meant.server, tool=meant.tool)
        recent = [row for row in page if row.at >= since]
        found += [row for row in recent if setup.profile is None or row.profile == setup.profile]
        if len(page) < _PAGE or len(recent) < len(page):
            break
        before = page[-1].id
    return found[:limit]


async def forget(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget every call, or those of a server's tools; running gateways notice when they read the record again."""
    async with opened(setup, screen, none) as gateway:
        await recalled(gateway)
        use = gateway.insight.usage
        meant = Meant(_server(gateway, server)) if server is not None else Meant()
        gone = [figures.calls for address, figures in use.used.items() if address in meant]
        await use.forget(meant.server)
        # Else what was forgotten would stand on in the tiers until tomorrow.
        await gateway.insight.standings.recompute()
    if screen.as_json:
        screen.data({"forgotten": {"tools": len(gone), "calls": sum(gone)}, "server": meant.server})
    elif gone:
        screen.text(f"Forgot {counted(sum(gone), 'call')} of {counted(len(gone), 'tool')}.")
    else:
        screen.text("No call is known that could be forgotten.")
    return DONE


def _meant(gateway: Gateway, setup: Setup, name: str | None) -> Meant:
    """The server or tool of that name; one that is gone counts too, while its use is known."""
    if name is None:
        return Meant()
    snapshot, used = gateway.view(setup.profile).snapshot, gateway.insight.usage.used
    try:
        return Meant(snapshot.server(name).name)
    except UnknownName as error:
        unknown = error
    past = next((address for address in used if fold(address) == fold(name)), None)
    try:
        server, _, tool = (past or snapshot.tool(name).address).partition(".")
        return Meant(server, tool)
    except UnknownName as error:
        with_use = [address for address in used if fold(address.partition(".")[0]) == fold(name)]
        if with_use:
            return Meant(with_use[0].partition(".")[0])
        near = tuple(dict.fromkeys((*unknown.nearest, *error.nearest)))[:5]
        raise UnknownName(
            f"there is no tool or server {quoted(name)} here",
            nearest=near,
            advice=f"Did you mean {', '.join(map(shown, near))}?" if near else "`portico browse` lists them.",
        ) from error


def _server(gateway: Gateway, name: str) -> str:
    """A server by name, also one that is not configured any more but was used."""
    gone = sorted({address.partition(".")[0] for address in gateway.insight.usage.used})
    if name in gone:
        return name
    try:
        return gateway.catalog.snapshot.server(name).name
    except UnknownName as error:
        if alike := [one for one in gone if fold(one) == fold(name)]:
            return alike[0]
        near = error.nearest or nearest(name, gone)
        raise UnknownName(
            error.message, nearest=near, advice=f"Did you mean {', '.join(near)}?" if near else error.advice
        ) from error


def _nothing(asked: Asked) -> str:
    limits = [f"of {asked.name}" if asked.name else "", f"of the last {asked.days:g} days" if asked.days else ""]
    where = " ".join(filter(None, limits))
    return f"No call {where} is known." if where else NOTHING


def _use_data(address: str, use: Statistics, standing: Standing, *, here: bool) -> dict[str, Any]:
    more: dict[str, Any] = {"successes": use.successes}
    if use.successes:
        more["mean_ms"] = round(use.mean_ms, 1)
    return {"tool": address, "here": here, **use_card(use, standing), **more}


def _call_data(row: CallRow) -> dict[str, Any]:
    return {
        "at": iso(row.at),
        "tool": f"{row.server}.{row.tool}",
        "ms": round(row.ms, 1),
        "ok": row.ok,
        "cancelled": row.cancelled,
        "client": row.client,
        "profile": row.profile,
    }


def _call_row(row: CallRow) -> Sequence[str]:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at))
    outcome = "ok" if row.ok else "cancelled" if row.cancelled else "failed"
    return moment, shown(f"{row.server}.{row.tool}"), f"{row.ms:,.1f}", outcome, shown(row.client), row.profile


def _show_table(screen: Screen, ranked: Sequence[str], found: Mapping[str, Statistics], here: set[str]) -> None:
    columns = (
        Column("tool", style="cyan", whole=True),
        *(Column(name, right=True) for name in ("calls", "success", "p50", "p95", "7 d", "30 d")),
        Column("last used"),
    )
    rows = [
        (
            shown(address) + ("" if address in here else " (gone)"),
            f"{use.calls:,}",
            share(use),
            milliseconds(use.p50_ms, use),
            milliseconds(use.p95_ms, use),
            f"{use.week:,}",
            f"{use.month:,}",
            ago(use.last_used),
        )
        for address, use in ((address, found[address]) for address in ranked)
    ]
    show_rows(screen, columns, rows)


def _lines(address: str, use: Statistics, standing: Standing) -> list[str | Text]:
    """One tool's use, in a few lines."""
    lines = [
        f"calls: {use.calls:,} ({use.week:,} in 7 days, {use.month:,} in 30), last {ago(use.last_used)}",
        f"success: {share(use)} ({use.successes:,} of {use.calls:,})",
    ]
    if use.successes:
        p50, p95 = milliseconds(use.p50_ms, use), milliseconds(use.p95_ms, use)
        lines.append(f"latency: p50 {p50}, p95 {p95}, mean {milliseconds(use.mean_ms, use)}")
    return [Text(shown(address), style="bold cyan"), *lines, f"tier: {standing.tier} (score {standing.score:.2f})"]
