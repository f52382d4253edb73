"""Output of `portico adopt`: what it found and what it did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from portico.adoption.adoption_plan import (
    AdoptionCandidate,
    ExistingConfig,
    PlannedFiles,
    describe_origins,
    is_renamed,
    list_environment_variables,
)
from portico.adoption.discovery import DiscoveredServers
from portico.adoption.server_costs import AdoptionCosts
from portico.catalog.visible_text import sanitize_text
from portico.cli.columns import Column, show_rows
from portico.cli.exit import (
    EXIT_FAILED,
    print_error,
    print_note,
    sanitize_server_text,
    to_error_data,
)
from portico.cli.screen import Screen
from portico.errors import PorticoError
from portico.rendering.lines import format_count
from portico.rendering.listing_cost import compute_saved_share

_MAX_REASON_CHARS = 160


@dataclass(frozen=True)
class AdoptionOutcome:
    """The facts that the report shows."""

    scan: DiscoveredServers
    existing: ExistingConfig
    candidates: tuple[AdoptionCandidate, ...]
    is_default_path: bool
    """Whether the configuration is where every command looks for it."""
    files: PlannedFiles | None = None
    costs: AdoptionCosts | None = None
    chosen: tuple[AdoptionCandidate, ...] = ()
    written: bool = False
    backup: Path | None = None
    needs_manual_edit: bool = False
    """The existing file could not be extended safely."""

    @property
    def counted_servers(self) -> tuple[AdoptionCandidate, ...]:
        """Servers whose cost counts: the configured and chosen ones, or all usable ones before a
        choice.
        """
        if self.chosen:
            left_out = ("unusable", "new")
        else:
            left_out = ("unusable",)
        return tuple(
            candidate
            for candidate in self.candidates
            if candidate.status not in left_out or candidate in self.chosen
        )

    @property
    def direct_tokens(self) -> int:
        if self.costs:
            return self.costs.sum_direct_tokens(
                {candidate.key for candidate in self.counted_servers}
            )
        return 0

    @property
    def clients(self) -> list[str]:
        """Clients whose servers are in the configuration now."""
        origins = [
            origin
            for candidate in self.counted_servers
            for origin in candidate.found_server.origins
        ]
        return list(dict.fromkeys(origin.client for origin in origins if origin.client))


def show_nothing_found(screen: Screen, outcome: AdoptionOutcome, sources: Sequence[str]) -> int:
    """Report that there is nothing to adopt, with the likely reason."""
    if screen.as_json:
        screen.write_json(_to_data(outcome))
    _print_findings(outcome)
    if sources:
        where = ", ".join(sources)
        advice = ""
    else:
        where = "Claude, Cursor, VS Code, Windsurf, Codex, Gemini, Zed and Cline"
        advice = "`portico adopt --from FILE` reads any other file; `portico demo` needs none."
    print_error(PorticoError(f"No MCP servers were found in {where}.", advice=advice))
    return EXIT_FAILED


def show_candidates(screen: Screen, outcome: AdoptionOutcome) -> None:
    """Show the table of candidates, and the warnings below it."""
    candidates = outcome.candidates
    duplicates = sum(len(candidate.found_server.origins) - 1 for candidate in candidates)
    files = format_count(len(outcome.scan.files), "file")
    summary = f"{format_count(len(candidates), 'server')} in {files}"
    if duplicates > 0:
        summary += f" ({format_count(duplicates, 'duplicate')} merged)"
    screen.write_text(f"{summary}:")
    screen.write_text("")
    columns = (
        Column("", align_right=True, style="dim"),
        Column("server", style="cyan", no_wrap=True),
        Column("tools", align_right=True),
        Column("tokens", align_right=True),
        Column("from"),
        Column("secrets and remarks"),
    )
    show_rows(screen, columns, list(_build_rows(outcome)))
    screen.write_text("")
    if line := _render_cost_line(outcome):
        screen.write_text(Text(line, style="bold"))
    for line in _collect_remarks(outcome):
        screen.write_text(Text(sanitize_text(line), style="yellow"))
    _print_findings(outcome)


def _build_rows(outcome: AdoptionOutcome) -> Iterator[tuple[str, ...]]:
    number = 0
    for candidate in outcome.candidates:
        number += candidate.status == "new"
        if outcome.costs and candidate.status != "unusable":
            cost = outcome.costs.servers.get(candidate.key)
        else:
            cost = None
        yield (
            str(number) if candidate.status == "new" else "",
            sanitize_text(candidate.name),
            f"{cost.tools:,}" if cost else "?",
            f"{cost.tokens:,}" if cost else "?",
            sanitize_text(describe_origins(candidate.found_server)),
            sanitize_text(_render_remark(candidate)),
        )


def _render_remark(one: AdoptionCandidate) -> str:
    match one.status:
        case "present":
            return "already in the configuration"
        case "differs":
            return (
                "already in the configuration, with other secrets: they stay (change them in "
                "its env_file)"
            )
        case "unusable":
            return "cannot be used"
        case "new":
            parts = [
                f"${{{name}}}" for name in (*one.secrets, *one.found_server.required_variables)
            ]
            parts += [f"named {one.found_server.original_name} there"] if is_renamed(one) else []
            parts += ["switched off"] if one.entry.get("disabled") else []
            return ", ".join(parts)


def _render_cost_line(outcome: AdoptionOutcome) -> str:
    costs = outcome.costs
    if costs is None or not outcome.direct_tokens:
        return ""
    saved = compute_saved_share(outcome.direct_tokens, costs.gateway_tokens)
    if costs.counter == "o200k_base":
        method = ""
    else:
        method = " (estimated)"
    line = (
        f"Connected directly they cost a client {outcome.direct_tokens:,} tokens{method} before "
        f"its first word, through Portico {costs.gateway_tokens:,}"
    )
    if saved <= 0:
        return f"{line}: so few tools are better listed, with `exposure: full`."
    return f"{line}: {saved:.1%} less."


def _collect_remarks(outcome: AdoptionOutcome) -> Iterator[str]:
    costs = outcome.costs
    for candidate in outcome.candidates:
        origin = candidate.found_server.origins[0]
        if candidate.status == "unusable":
            line = f":{origin.line}" if origin.line else ""
            yield f"{candidate.name} cannot be adopted: {candidate.problem} ({origin.file}{line})"
        elif candidate.found_server.required_variables and candidate.status == "new":
            continue
        elif candidate.problem:
            yield f"{candidate.name} lacks something: {candidate.problem}"
        elif costs is not None and candidate.key in costs.failures:
            if candidate.status == "new":
                anyway = "; it can be adopted all the same"
            else:
                anyway = ""
            yield (
                f"{candidate.name} did not start: "
                f"{_shorten(costs.failures[candidate.key])}{anyway}."
            )
    not_started = [
        candidate.name
        for candidate in outcome.candidates
        if candidate.is_from_project
        and candidate.status == "new"
        and not outcome.chosen
        and costs
        and candidate.key not in costs.servers
        and candidate.name not in costs.failures
    ]
    if not_started:
        names = ", ".join(not_started)
        yield f"Not started before you choose, because this folder brought them: {names}"
    if inherited := sorted(
        {
            name
            for candidate in outcome.candidates
            if candidate.status == "new"
            for name in list_environment_variables(candidate)
        }
    ):
        names = ", ".join(f"${{{name}}}" for name in inherited)
        yield f"Still read from the environment, which a client may not pass on: {names}"
    for candidate in outcome.candidates:
        for name, text in candidate.found_server.required_variables.items():
            if candidate.status == "new":
                yield (
                    f"{candidate.name}: its client asks for {text}; nobody can be asked here, "
                    f"so it is ${{{name}}} now."
                )


def _shorten(text: str) -> str:
    line = " ".join(sanitize_server_text(text).split())
    if len(line) <= _MAX_REASON_CHARS:
        return line
    return f"{line[: _MAX_REASON_CHARS - 1]}…"


def _print_findings(outcome: AdoptionOutcome) -> None:
    for finding in outcome.scan.findings:
        print_note(f"Warning: {sanitize_text(str(finding))}")


def show_outcome(screen: Screen, outcome: AdoptionOutcome, *, dry_run: bool = False) -> None:
    """Show what was done and the next command."""
    if screen.as_json:
        screen.write_json(_to_data(outcome))
        return
    files = outcome.files
    path = outcome.existing.path
    if outcome.needs_manual_edit and files is not None:
        if files.env is not None:
            secrets_note = f"Its secrets are in {files.env_path}. "
        else:
            secrets_note = ""
        advice = f"It was left as it is. {secrets_note}Add this to it:"
        print_error(PorticoError(f"{path} cannot be added to without rewriting it.", advice=advice))
        screen.write_text(files.manual_addition)
        return
    if not outcome.chosen:
        if all(candidate.status == "unusable" for candidate in outcome.candidates):
            screen.write_text("Nothing new is to be had there.")
        elif not _has_new_servers(outcome):
            screen.write_text(f"Nothing to do: {path} has them already.")
        elif not dry_run and screen.is_stdout_terminal:
            screen.write_text("Nothing was written.")
    elif dry_run:
        screen.write_text(
            "",
            Text(f"--dry-run: {path} would get", style="bold"),
            files.manual_addition if files else "",
        )
    elif outcome.written:
        _show_written(screen, outcome)
    if outcome.written or (outcome.counted_servers and not _has_new_servers(outcome)):
        for line in _render_next_step(outcome):
            screen.write_text(line)


def _has_new_servers(outcome: AdoptionOutcome) -> bool:
    return any(candidate.status == "new" for candidate in outcome.candidates)


def _show_written(screen: Screen, outcome: AdoptionOutcome) -> None:
    files = outcome.files
    path = outcome.existing.path
    names = sanitize_text(", ".join(candidate.name for candidate in outcome.chosen))
    screen.write_text(
        "", Text(f"Adopted {format_count(len(outcome.chosen), 'server')}: {names}", style="green")
    )
    screen.write_text(f"  configuration  {path}")
    if files is not None and files.env is not None:
        screen.write_text(f"  secrets        {files.env_path}  (only you can read it)")
    if outcome.backup is not None:
        screen.write_text(f"  backup         {outcome.backup}")
    required_variables = [
        name for candidate in outcome.chosen for name in candidate.found_server.required_variables
    ]
    if required_variables and files is not None:
        screen.write_text(
            Text(f"Fill in {', '.join(dict.fromkeys(required_variables))} there.", style="yellow")
        )
    if (
        outcome.costs is not None
        and (saved := outcome.direct_tokens - outcome.costs.gateway_tokens) > 0
    ):
        share = compute_saved_share(outcome.direct_tokens, outcome.costs.gateway_tokens)
        summary = (
            f"Saved at the start of every conversation: {saved:,} of "
            f"{outcome.direct_tokens:,} tokens ({share:.1%})."
        )
        screen.write_text(Text(summary, style="bold"))


def _render_next_step(outcome: AdoptionOutcome) -> list[str]:
    commands = _list_install_commands(outcome)
    if not commands:
        return []
    first, *others = commands
    if others:
        more = f"   (or {', '.join(other.split()[2] for other in others)})"
    else:
        more = ""
    return ["", f"Next: {first}{more}"]


def _list_install_commands(outcome: AdoptionOutcome) -> list[str]:
    if outcome.is_default_path:
        config = ""
    else:
        config = f" --config {outcome.existing.path}"
    return [f"portico install {client}{config}" for client in outcome.clients or ["CLIENT"]]


def _to_data(outcome: AdoptionOutcome) -> dict[str, Any]:
    files = outcome.files
    costs = outcome.costs
    tokens = None
    if costs is not None and outcome.direct_tokens:
        tokens = {
            "direct": outcome.direct_tokens,
            "portico": costs.gateway_tokens,
            "saved": round(compute_saved_share(outcome.direct_tokens, costs.gateway_tokens), 4),
        }
    addition = None
    if files is not None and outcome.needs_manual_edit:
        addition = files.manual_addition
    return {
        "config": str(outcome.existing.path),
        "env_file": str(files.env_path) if files is not None and files.env is not None else None,
        "written": outcome.written,
        "backup": str(outcome.backup) if outcome.backup else None,
        "counter": costs.counter if costs is not None else None,
        "servers": [_to_server_data(candidate, outcome) for candidate in outcome.candidates],
        "tokens": tokens,
        "findings": [to_error_data(finding.to_error()) for finding in outcome.scan.findings],
        "addition": addition,
        "next": _list_install_commands(outcome) if outcome.written else [],
    }


def _to_server_data(one: AdoptionCandidate, outcome: AdoptionOutcome) -> dict[str, Any]:
    costs = outcome.costs
    if costs is not None and one.status != "unusable":
        cost = costs.servers.get(one.key)
    else:
        cost = None
    if costs is not None:
        failure = costs.failures.get(one.key, "")
    else:
        failure = ""
    return {
        "name": one.name,
        "from": [
            {"client": origin.client, "file": origin.file, "line": origin.line}
            for origin in one.found_server.origins
        ],
        "standing": one.status,
        "chosen": one in outcome.chosen,
        "tools": cost.tools if cost else None,
        "tokens": cost.tokens if cost else None,
        "secrets": list(one.secrets),
        "wanted": list(one.found_server.required_variables),
        "problem": one.problem or _shorten(failure),
    }
