"""`portico doctor`: what is wrong, where, and how to repair it.

--json: `{"ok", "broken", "warnings", "notes" (how many), "findings": [{"id", "severity", "message",
"remedy", "server", "key", "file", "line", "details"}], "servers": [{"name", "kind", "ok" (null: not
asked), "seconds", "era", "protocol_version", "version", "tools", "resources", "prompts", "noise"}],
"about": {"portico", "python", "mcp", "system", "tokens"}, "database", "languages": {name: "works"
or why not}, "cost": {"tools", "full"} or null}`. The worst findings come first; ids are
stable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.padding import Padding
from rich.text import Text

from portico.catalog.tool import sanitize_text
from portico.cli import logs
from portico.cli.doctor.examination import DoctorReport, InstallationFacts, examine
from portico.cli.doctor.finding import (
    SEVERITIES,
    DoctorFinding,
    group_findings,
    join_names,
)
from portico.cli.exit import EXIT_FAILED, EXIT_INVALID, EXIT_OK, sanitize_server_text
from portico.cli.screen import Screen
from portico.cli.setup_commands import DoctorOptions
from portico.rendering.token_budget import format_count

_HEADINGS = {"broken": "Broken", "warning": "Warnings", "note": "Worth knowing"}
_STYLES = {"broken": "bold red", "warning": "yellow", "note": "dim"}
_INDENT = "    "
_PROBE_KEYS = (
    "seconds",
    "era",
    "protocol_version",
    "version",
    "tools",
    "exposed",
    "resources",
    "prompts",
    "noise",
)
"""Keys of a server in `--json` that are null if it was not probed."""


async def run_doctor(options: DoctorOptions) -> int:
    """Examine, show the report, and return the exit code."""
    screen = options.make_screen()
    logs.configure_logging("error", quiet_loggers=logs.SERVER_LOGGERS)
    report = await examine(options, screen)
    if screen.as_json:
        screen.write_json(_to_data(report))
    else:
        _show(screen, report, options)
    if report.ok:
        return EXIT_OK
    if report.config_refused:
        return EXIT_INVALID
    return EXIT_FAILED


def _to_data(report: DoctorReport) -> dict[str, Any]:
    installation = report.installation
    return {
        "ok": report.ok,
        "broken": report.count("broken"),
        "warnings": report.count("warning"),
        "notes": report.count("note"),
        "findings": [finding.to_data() for finding in report.findings],
        "servers": [_to_server_data(name, kind, report) for name, kind in report.servers.items()],
        "about": dict(installation.versions),
        "database": installation.database,
        "containment": installation.containment,
        "languages": dict(installation.languages),
        "cost": asdict(installation.cost) if installation.cost is not None else None,
    }


def _to_server_data(name: str, kind: str, report: DoctorReport) -> dict[str, Any]:
    probe = report.probes.get(name)
    facts: dict[str, Any] = {"name": name, "kind": kind, "ok": None, **dict.fromkeys(_PROBE_KEYS)}
    if probe is None:
        return facts
    facts["ok"] = probe.error is None
    facts["seconds"] = round(probe.seconds, 3)
    facts["noise"] = probe.noise
    if info := probe.initialize_info:
        facts["era"] = info.era
        facts["protocol_version"] = sanitize_server_text(info.protocol_version)[:40]
        facts["version"] = sanitize_server_text(str(info.server_info.get("version", "")))[:80]
    if listing := probe.listing:
        facts["tools"] = len(listing.tools)
        facts["exposed"] = report.exposed_tools[name]
        facts["resources"] = len(listing.offers.resources) + len(listing.offers.templates)
        facts["prompts"] = len(listing.offers.prompts)
    return facts


def _show(screen: Screen, report: DoctorReport, options: DoctorOptions) -> None:
    for name, kind in report.servers.items():
        screen.write_text(_render_server_line(_to_server_data(name, kind, report)))
    for line in _render_installation(report.installation):
        screen.write_text(Text(line, style="dim"))
    shown = SEVERITIES[: SEVERITIES.index(options.level) + 1]
    severity = ""
    for group in group_findings(one for one in report.findings if one.severity in shown):
        if group[0].severity != severity:
            severity = group[0].severity
            heading = f"{_HEADINGS[severity]} ({report.count(severity)})"
            screen.write_text("", Text(heading, style=_STYLES[severity]))
        _show_finding(screen, group)
    screen.write_text("", _render_summary(report, options))


def _show_finding(screen: Screen, group: Sequence[DoctorFinding]) -> None:
    """Show equal findings of several servers as one."""
    finding = group[0]
    location = finding.location
    if len(group) > 1:
        location = f"{location} and {len(group) - 1} more" * bool(location)
    names = join_names(dict.fromkeys(one.server for one in group if one.server))
    parts = [finding.id, names, location]
    head = Text(" · ".join(filter(None, parts)), style=_STYLES[finding.severity])
    lines = [Text(finding.message), *(Text(line, style="dim") for line in finding.details)]
    if finding.remedy:
        lines.append(Text(f"→ {finding.remedy}", style="cyan"))
    screen.write_text(head)
    for line in lines:
        if screen.is_stdout_terminal:
            screen.write_text(Padding(line, (0, 0, 0, len(_INDENT))))
        else:
            screen.write_text(f"{_INDENT}{line.plain}")


def _render_server_line(server: dict[str, Any]) -> Text:
    facts: list[str] = [server["kind"]]
    if server["ok"] is None:
        state = ("not asked", "dim")
    elif server["ok"]:
        state = ("answers", "green")
    else:
        state = ("failed", "red")
    if server["era"] is not None:
        facts += [f"MCP {server['protocol_version']}", f"{server['seconds']:.1f} s"]
        for kind in ("tools", "resources", "prompts"):
            if not server[kind]:
                continue
            fact = format_count(server[kind], kind[:-1])
            if kind == "tools" and server["exposed"] < server["tools"]:
                fact = f"{server['exposed']:,} of {fact}"
            facts.append(fact)
    elif server["seconds"] is not None:
        facts.append(f"after {server['seconds']:.1f} s")
    name = sanitize_text(server["name"])
    return Text.assemble((f"{name}: ", "bold"), state, f", {', '.join(map(sanitize_text, facts))}")


def _render_installation(installation: InstallationFacts) -> Iterator[str]:
    if versions := installation.versions:
        yield (
            f"portico {versions['portico']}, Python {versions['python']}, mcp {versions['mcp']}, "
            f"{versions['system']}"
        )
    if installation.containment:
        yield f"containment: {installation.containment}"
    if installation.database:
        yield f"database: {installation.database}"
    if installation.languages:
        yield "scripts: " + ", ".join(
            f"{name} {'works' if result == 'works' else 'fails'}"
            for name, result in installation.languages.items()
        )
    if (cost := installation.cost) is not None:
        about = "" if installation.versions.get("tokens") == "o200k_base" else "about "
        yield (
            f"tokens: {format_count(cost.tools, 'tool')} cost a client {about}{cost.full:,} "
            "directly; `portico tokens` says what they cost through Portico"
        )


def _render_summary(report: DoctorReport, options: DoctorOptions) -> Text:
    words = ("fault", "warning", "note")
    counts = [
        format_count(report.count(severity), word)
        for severity, word in zip(SEVERITIES, words, strict=True)
        if report.count(severity)
    ]
    if not report.ok:
        return Text(f"Broken: {', '.join(counts)}.", style="bold red")
    summary = f"Nothing is broken{': ' if counts else ''}{', '.join(counts)}."
    if options.offline:
        summary += " Servers were not asked (--offline)."
    return Text(summary, style="bold green")
