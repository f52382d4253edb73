"""`portico doctor`: what is wrong, where, and how it is mended.

--json: `{"ok", "broken", "warnings", "notes" (how many), "findings": [{"id", "severity", "message", "remedy", "server",
"key", "file", "line", "details"}], "servers": [{"name", "kind", "ok" (null: not asked), "seconds", "era",
"protocol_version", "version", "tools", "resources", "prompts", "noise"}], "about": {"portico", "python", "mcp",
"system", "tokens"}, "database", "languages": {name: "works" or why not}, "cost": {"tools", "full", "meta"} or null}`.
The worst findings come first; ids do not change.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.padding import Padding
from rich.text import Text

from portico.catalog.visible import shown
from portico.cli import logs
from portico.cli.doctor.examination import Asked, House, Report, examine
from portico.cli.doctor.finding import Finding
from portico.cli.doctor.visiting import Visit
from portico.cli.ending import DONE, FAILED, UNUSABLE, overheard
from portico.cli.screen import Screen
from portico.disclosure.lines import counted

_STYLES = {"broken": "bold red", "warning": "yellow", "note": "dim"}
_INDENT = "    "


async def doctor(asked: Asked, screen: Screen) -> int:
    """Examine, show, and say by the exit code whether something is broken."""
    logs.set_up("error", quiet=("portico.upstream", "portico.catalog"))
    report = await examine(asked, screen)
    if screen.as_json:
        screen.data(data(report))
    else:
        _show(screen, report, asked)
    return DONE if report.ok else UNUSABLE if report.refused else FAILED


def data(report: Report) -> dict[str, Any]:
    """The report as `--json` shows it."""
    return {
        "ok": report.ok,
        "broken": report.count("broken"),
        "warnings": report.count("warning"),
        "notes": report.count("note"),
        "findings": [finding.data() for finding in report.findings],
        "servers": [_server(name, kind, report.visits.get(name)) for name, kind in report.servers.items()],
        "about": dict(report.house.about),
        "database": report.house.database,
        "languages": dict(report.house.languages),
        "cost": asdict(report.house.cost) if report.house.cost is not None else None,
    }


def _server(name: str, kind: str, visit: Visit | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "kind": kind, "ok": None if visit is None else visit.error is None}
    hello, listing = (visit.hello, visit.listing) if visit is not None else (None, None)
    return facts | {
        "seconds": round(visit.seconds, 3) if visit is not None else None,
        "era": hello.era if hello else None,
        "protocol_version": overheard(hello.protocol_version)[:40] if hello else None,
        "version": overheard(str(hello.server_info.get("version", "")))[:80] if hello else None,
        "tools": len(listing.tools) if listing else None,
        "resources": len(listing.offers.resources) + len(listing.offers.templates) if listing else None,
        "prompts": len(listing.offers.prompts) if listing else None,
        "noise": visit.noise if visit is not None else None,
    }


def _show(screen: Screen, report: Report, asked: Asked) -> None:
    for name, kind in report.servers.items():
        screen.text(_server_line(_server(name, kind, report.visits.get(name))))
    screen.text(*(Text(line, style="dim") for line in _about(report.house)))
    for finding in report.findings:
        screen.text("")
        _show_finding(screen, finding)
    screen.text("", _sum(report, asked))


def _show_finding(screen: Screen, finding: Finding) -> None:
    parts = [finding.severity, finding.id, finding.server, finding.place]
    head = Text(" · ".join(filter(None, parts)), style=_STYLES[finding.severity])
    lines = [Text(finding.message), *(Text(line, style="dim") for line in finding.details)]
    if finding.remedy:
        lines.append(Text(f"→ {finding.remedy}", style="cyan"))
    screen.text(head)
    for line in lines:
        screen.text(Padding(line, (0, 0, 0, len(_INDENT))) if screen.for_people else f"{_INDENT}{line.plain}")


def _server_line(one: dict[str, Any]) -> Text:
    name, style = shown(one["name"]), {True: "green", False: "red", None: "dim"}[one["ok"]]
    if one["ok"] is None:
        return Text.assemble((f"{name}: ", "bold"), ("not asked", style), f", {one['kind']}")
    if one["era"] is None:
        return Text.assemble((f"{name}: ", "bold"), ("failed", style), f", {one['kind']}, after {one['seconds']:.1f} s")
    offers = [counted(one[kind] or 0, kind[:-1]) for kind in ("tools", "resources", "prompts") if one[kind]]
    said = [one["kind"], f"{one['era']} {one['protocol_version']}", f"{one['seconds']:.1f} s", *offers]
    state = "answers" if one["ok"] else "failed"
    return Text.assemble((f"{name}: ", "bold"), (state, style), f", {', '.join(map(shown, said))}")


def _about(house: House) -> Iterator[str]:
    if house.about:
        about = house.about
        yield f"portico {about['portico']}, Python {about['python']}, mcp {about['mcp']}, {about['system']}"
    if house.database:
        yield f"database: {house.database}"
    if house.languages:
        yield "scripts: " + ", ".join(
            f"{name} {'works' if said == 'works' else 'fails'}" for name, said in house.languages.items()
        )
    if house.cost is not None:
        how = "" if house.about.get("tokens") == "o200k_base" else "about "
        tools = counted(house.cost.tools, "tool")
        yield f"tokens: {tools} cost {how}{house.cost.full:,} listed in full, {how}{house.cost.meta:,} as meta-tools"


def _sum(report: Report, asked: Asked) -> Text:
    counts = [
        counted(report.count("broken"), "fault") if report.count("broken") else "",
        counted(report.count("warning"), "warning") if report.count("warning") else "",
        counted(report.count("note"), "note") if report.count("note") else "",
    ]
    said = ", ".join(filter(None, counts)) or "nothing to complain of"
    if not report.ok:
        return Text(f"Broken: {said}.", style="bold red")
    asked_none = " Servers were not asked (--offline)." if asked.offline else ""
    return Text(f"Nothing is broken{f': {said}' if any(counts) else ''}.{asked_none}", style="bold green")
