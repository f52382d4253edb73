"""How `portico adopt` tells what it found and what it did."""

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
    """Everything there is to tell."""

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
    """What is there could not be added to safely."""

    @property
    def counted_servers(self) -> tuple[AdoptionCandidate, ...]:
        """Those whose cost counts: what is in the configuration once what was chosen is, else all
        that can be used."""
        if self.chosen:
            left_out = ("unusable", "new")
        else:
            left_out = ("unusable",)
        return tuple(
            one for one in self.candidates if one.status not in left_out or one in self.chosen
        )

    @property
    def direct_tokens(self) -> int:
        if self.costs:
            return self.costs.sum_direct_tokens({one.key for one in self.counted_servers})
        return 0

    @property
    def clients(self) -> list[str]:
        """Clients whose servers are in the configuration now."""
        origins = [origin for one in self.counted_servers for origin in one.found_server.origins]
        return list(dict.fromkeys(origin.client for origin in origins if origin.client))


def show_nothing_found(screen: Screen, outcome: AdoptionOutcome, sources: Sequence[str]) -> int:
    """Say that there is nothing to adopt, and why that may be."""
    if screen.as_json:
        screen.write_json(_to_data(outcome))
    _print_findings(outcome)
    if sources:
        where = ", ".join(sources)
    else:
        where = "Claude, Cursor, VS Code, Windsurf, Codex, Gemini, Zed and Cline"
    if sources:
        advice = ""
    else:
        advice = "`portico adopt --from FILE` reads any other file; `portico demo` needs none."
    print_error(PorticoError(f"No MCP servers were found in {where}.", advice=advice))
    return EXIT_FAILED


def show_candidates(screen: Screen, outcome: AdoptionOutcome) -> None:
    """The table, and below it whatever is odd."""
    found = outcome.candidates
    looked = outcome.scan
    doubles = sum(len(one.found_server.origins) - 1 for one in found)
    told = f"{format_count(len(found), 'server')} in {format_count(len(looked.files), 'file')}"
    screen.write_text(
        told + (f" ({format_count(doubles, 'duplicate')} merged)" if doubles > 0 else "") + ":"
    )
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
    for one in outcome.candidates:
        number += one.status == "new"
        if outcome.costs and one.status != "unusable":
            bill = outcome.costs.servers.get(one.key)
        else:
            bill = None
        yield (
            str(number) if one.status == "new" else "",
            sanitize_text(one.name),
            f"{bill.tools:,}" if bill else "?",
            f"{bill.tokens:,}" if bill else "?",
            sanitize_text(describe_origins(one.found_server)),
            sanitize_text(_render_remark(one)),
        )


def _render_remark(one: AdoptionCandidate) -> str:
    match one.status:
        case "present":
            return "already in the configuration"
        case "differs":
            return "already in the configuration, with other secrets: they stay (change them in its env_file)"
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
    bills = outcome.costs
    if bills is None or not outcome.direct_tokens:
        return ""
    saved = compute_saved_share(outcome.direct_tokens, bills.gateway_tokens)
    if bills.counter == "o200k_base":
        how = ""
    else:
        how = " (estimated)"
    line = (
        f"Connected directly they cost a client {outcome.direct_tokens:,} tokens{how} before its first word, "
        f"through Portico {bills.gateway_tokens:,}"
    )
    if saved <= 0:
        return f"{line}: so few tools are better listed, with `exposure: full`."
    return f"{line}: {saved:.1%} less."


def _collect_remarks(outcome: AdoptionOutcome) -> Iterator[str]:
    bills = outcome.costs
    for one in outcome.candidates:
        at = one.found_server.origins[0]
        if one.status == "unusable":
            yield f"{one.name} cannot be adopted: {one.problem} ({at.file}{f':{at.line}' if at.line else ''})"
        elif one.found_server.required_variables and one.status == "new":
            continue
        elif one.problem:
            yield f"{one.name} lacks something: {one.problem}"
        elif bills is not None and one.key in bills.failures:
            if one.status == "new":
                anyway = "; it can be adopted all the same"
            else:
                anyway = ""
            yield f"{one.name} did not start: {_shorten(bills.failures[one.key])}{anyway}."
    late = [
        one.name
        for one in outcome.candidates
        if one.is_from_project
        and one.status == "new"
        and not outcome.chosen
        and bills
        and one.key not in bills.servers
    ]
    late = [name for name in late if bills is None or name not in bills.failures]
    if late:
        yield f"Not started before you choose, because this folder brought them: {', '.join(late)}"
    if inherited := sorted(
        {
            name
            for one in outcome.candidates
            if one.status == "new"
            for name in list_environment_variables(one)
        }
    ):
        names = ", ".join(f"${{{name}}}" for name in inherited)
        yield f"Still read from the environment, which a client may not pass on: {names}"
    for one in outcome.candidates:
        for name, text in one.found_server.required_variables.items():
            if one.status == "new":
                yield f"{one.name}: its client asks for {text}; nobody can be asked here, so it is ${{{name}}} now."


def _shorten(text: str) -> str:
    line = " ".join(sanitize_server_text(text).split())
    if len(line) <= _MAX_REASON_CHARS:
        return line
    return f"{line[: _MAX_REASON_CHARS - 1]}…"


def _print_findings(outcome: AdoptionOutcome) -> None:
    for finding in outcome.scan.findings:
        print_note(f"Warning: {sanitize_text(str(finding))}")


def show_outcome(screen: Screen, outcome: AdoptionOutcome, *, dry_run: bool = False) -> None:
    """What was done, and what comes next."""
    if screen.as_json:
        screen.write_json(_to_data(outcome))
        return
    files = outcome.files
    path = outcome.existing.path
    if outcome.needs_manual_edit and files is not None:
        if files.env is not None:
            kept = f"Its secrets are in {files.env_path}. "
        else:
            kept = ""
        advice = f"It was left as it is. {kept}Add this to it:"
        print_error(PorticoError(f"{path} cannot be added to without rewriting it.", advice=advice))
        screen.write_text(files.manual_addition)
        return
    if not outcome.chosen:
        if all(one.status == "unusable" for one in outcome.candidates):
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
    for line in (
        _render_next_step(outcome)
        if outcome.written or (outcome.counted_servers and not _has_new_servers(outcome))
        else ()
    ):
        screen.write_text(line)


def _has_new_servers(outcome: AdoptionOutcome) -> bool:
    return any(one.status == "new" for one in outcome.candidates)


def _show_written(screen: Screen, outcome: AdoptionOutcome) -> None:
    files = outcome.files
    path = outcome.existing.path
    names = sanitize_text(", ".join(one.name for one in outcome.chosen))
    screen.write_text(
        "", Text(f"Adopted {format_count(len(outcome.chosen), 'server')}: {names}", style="green")
    )
    screen.write_text(f"  configuration  {path}")
    if files is not None and files.env is not None:
        screen.write_text(f"  secrets        {files.env_path}  (only you can read it)")
    if outcome.backup is not None:
        screen.write_text(f"  backup         {outcome.backup}")
    wanted = [name for one in outcome.chosen for name in one.found_server.required_variables]
    if wanted and files is not None:
        screen.write_text(
            Text(f"Fill in {', '.join(dict.fromkeys(wanted))} there.", style="yellow")
        )
    if (
        outcome.costs is not None
        and (saved := outcome.direct_tokens - outcome.costs.gateway_tokens) > 0
    ):
        share = compute_saved_share(outcome.direct_tokens, outcome.costs.gateway_tokens)
        told = f"Saved at the start of every conversation: {saved:,} of {outcome.direct_tokens:,} tokens ({share:.1%})."
        screen.write_text(Text(told, style="bold"))


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
    bills = outcome.costs
    counts = bills is not None and outcome.direct_tokens
    return {
        "config": str(outcome.existing.path),
        "env_file": str(files.env_path) if files is not None and files.env is not None else None,
        "written": outcome.written,
        "backup": str(outcome.backup) if outcome.backup else None,
        "counter": bills.counter if bills is not None else None,
        "servers": [_to_server_data(one, outcome) for one in outcome.candidates],
        "tokens": {
            "direct": outcome.direct_tokens,
            "portico": bills.gateway_tokens,
            "saved": round(compute_saved_share(outcome.direct_tokens, bills.gateway_tokens), 4),
        }
        if bills is not None and counts
        else None,
        "findings": [to_error_data(finding.to_error()) for finding in outcome.scan.findings],
        "addition": files.manual_addition
        if files is not None and outcome.needs_manual_edit
        else None,
        "next": _list_install_commands(outcome) if outcome.written else [],
    }


def _to_server_data(one: AdoptionCandidate, outcome: AdoptionOutcome) -> dict[str, Any]:
    bills = outcome.costs
    if bills is not None and one.status != "unusable":
        bill = bills.servers.get(one.key)
    else:
        bill = None
    if bills is not None:
        failure = bills.failures.get(one.key, "")
    else:
        failure = ""
    return {
        "name": one.name,
        "from": [
            {"client": at.client, "file": at.file, "line": at.line}
            for at in one.found_server.origins
        ],
        "standing": one.status,
        "chosen": one in outcome.chosen,
        "tools": bill.tools if bill else None,
        "tokens": bill.tokens if bill else None,
        "secrets": list(one.secrets),
        "wanted": list(one.found_server.required_variables),
        "problem": one.problem or _shorten(failure),
    }
