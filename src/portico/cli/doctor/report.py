"""`portico doctor`: what is wrong, where, and how to repair it.

--json: `{"ok", "broken", "warnings", "notes" (how many), "findings": [{"id", "severity", "message",
"remedy", "server", "key", "file", "line", "details"}], "servers": [{"name", "kind", "ok" (null: not
asked), "seconds", "era", "protocol_version", "version", "tools", "resources", "prompts", "noise"}],
"about": {"portico", "python", "mcp", "system", "tokens"}, "database", "languages": {name: "works"
or why not}, "cost": {"tools", "full", "meta"} or null}`. The worst findings come first; ids are
stable.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.padding import Padding
from rich.text import Text

from portico.catalog.visible_text import sanitize_text
from portico.cli import logs
from portico.cli.doctor.examination import DoctorOptions, DoctorReport, InstallationFacts, examine
from portico.cli.doctor.finding import DoctorFinding
from portico.cli.doctor.probe import ServerProbe
from portico.cli.exit import EXIT_FAILED, EXIT_INVALID, EXIT_OK, sanitize_server_text
from portico.cli.screen import Screen
from portico.rendering.lines import format_count

_STYLES = {"broken": "bold red", "warning": "yellow", "note": "dim"}
_INDENT = "    "
_PROBE_KEYS = (
    "seconds",
    "era",
    "protocol_version",
    "version",
    "tools",
    "resources",
    "prompts",
    "noise",
)
"""Keys of a server in `--json` that are null if it was not probed."""


async def run_doctor(options: DoctorOptions, screen: Screen) -> int:
    """Examine, show the report, and return the exit code."""
    logs.configure_logging("error", quiet_loggers=("portico.upstream", "portico.catalog"))
    report = await examine(options, screen)
    if screen.as_json:
        screen.write_json(to_data(report))
    else:
        _show(screen, report, options)
    if report.ok:
        return EXIT_OK
    if report.config_refused:
        return EXIT_INVALID
    return EXIT_FAILED


def to_data(report: DoctorReport) -> dict[str, Any]:
    """Convert the report for `--json`."""
    return {
        "ok": report.ok,
        "broken": report.count("broken"),
        "warnings": report.count("warning"),
        "notes": report.count("note"),
        "findings": [finding.to_data() for finding in report.findings],
        "servers": [
            _to_server_data(name, kind, report.probes.get(name))
            for name, kind in report.servers.items()
        ],
        "about": dict(report.installation.versions),
        "database": report.installation.database,
        "languages": dict(report.installation.languages),
        "cost": asdict(report.installation.cost) if report.installation.cost is not None else None,
    }


def _to_server_data(name: str, kind: str, probe: ServerProbe | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "ok": None if probe is None else probe.error is None,
    }
    facts |= dict.fromkeys(_PROBE_KEYS)
    if probe is None:
        return facts
    facts["seconds"] = round(probe.seconds, 3)
    facts["noise"] = probe.noise
    if info := probe.initialize_info:
        facts["era"] = info.era
        facts["protocol_version"] = sanitize_server_text(info.protocol_version)[:40]
        facts["version"] = sanitize_server_text(str(info.server_info.get("version", "")))[:80]
    if listing := probe.listing:
        facts["tools"] = len(listing.tools)
        facts["resources"] = len(listing.offers.resources) + len(listing.offers.templates)
        facts["prompts"] = len(listing.offers.prompts)
    return facts


def _show(screen: Screen, report: DoctorReport, options: DoctorOptions) -> None:
    for name, kind in report.servers.items():
        screen.write_text(_render_server_line(_to_server_data(name, kind, report.probes.get(name))))
    screen.write_text(
        *(Text(line, style="dim") for line in _render_installation(report.installation))
    )
    for finding in report.findings:
        screen.write_text("")
        _show_finding(screen, finding)
    screen.write_text("", _render_summary(report, options))


def _show_finding(screen: Screen, finding: DoctorFinding) -> None:
    parts = [finding.severity, finding.id, finding.server, finding.location]
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


def _render_server_line(one: dict[str, Any]) -> Text:
    name = sanitize_text(one["name"])
    style = {True: "green", False: "red", None: "dim"}[one["ok"]]
    if one["ok"] is None:
        return Text.assemble((f"{name}: ", "bold"), ("not asked", style), f", {one['kind']}")
    if one["era"] is None:
        return Text.assemble(
            (f"{name}: ", "bold"),
            ("failed", style),
            f", {one['kind']}, after {one['seconds']:.1f} s",
        )
    offers = [
        format_count(one[kind] or 0, kind[:-1])
        for kind in ("tools", "resources", "prompts")
        if one[kind]
    ]
    facts = [
        one["kind"],
        f"{one['era']} {one['protocol_version']}",
        f"{one['seconds']:.1f} s",
        *offers,
    ]
    if one["ok"]:
        state = "answers"
    else:
        state = "failed"
    return Text.assemble(
        (f"{name}: ", "bold"), (state, style), f", {', '.join(map(sanitize_text, facts))}"
    )


def _render_installation(installation: InstallationFacts) -> Iterator[str]:
    if installation.versions:
        versions = installation.versions
        yield (
            f"portico {versions['portico']}, Python {versions['python']}, mcp {versions['mcp']}, "
            f"{versions['system']}"
        )
    if installation.database:
        yield f"database: {installation.database}"
    if installation.languages:
        yield "scripts: " + ", ".join(
            f"{name} {'works' if result == 'works' else 'fails'}"
            for name, result in installation.languages.items()
        )
    if installation.cost is not None:
        about = "" if installation.versions.get("tokens") == "o200k_base" else "about "
        cost = installation.cost
        yield (
            f"tokens: {format_count(cost.tools, 'tool')} cost {about}{cost.full:,} listed in full, "
            f"{about}{cost.meta:,} as meta-tools"
        )


def _render_summary(report: DoctorReport, options: DoctorOptions) -> Text:
    counts = [
        format_count(report.count("broken"), "fault") if report.count("broken") else "",
        format_count(report.count("warning"), "warning") if report.count("warning") else "",
        format_count(report.count("note"), "note") if report.count("note") else "",
    ]
    summary = ", ".join(filter(None, counts)) or "nothing to complain of"
    if not report.ok:
        return Text(f"Broken: {summary}.", style="bold red")
    if options.offline:
        offline_note = " Servers were not asked (--offline)."
    else:
        offline_note = ""
    return Text(
        f"Nothing is broken{f': {summary}' if any(counts) else ''}.{offline_note}",
        style="bold green",
    )
