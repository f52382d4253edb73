"""Output of `portico adopt`: what it found and what it did."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from portico.adoption.environment_search import NeededVariables
from portico.adoption.rule_transfer import get_tool_rules, is_denied
from portico.adoption.server_costs import AdoptionCosts
from portico.catalog.tool import sanitize_text
from portico.cli.columns import Column, numbers, show_rows, texts
from portico.cli.exit import (
    EXIT_FAILED,
    print_error,
    print_warning,
    sanitize_server_text,
    to_error_data,
)
from portico.cli.screen import Screen
from portico.errors import PorticoError
from portico.profiles.view_cost import DirectCost
from portico.rendering.listing_cost import compute_saved_share
from portico.rendering.token_budget import format_count

_MAX_REASON_CHARS = 160
_MAX_FOLDERS = 3
_COLUMNS = (
    Column("", align_right=True, style="dim"),
    Column("server", style="cyan", no_wrap=True),
    *numbers("tools", "tokens"),
    *texts("from", "secrets and remarks"),
)


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
    needed_variables: Mapping[str, NeededVariables] = field(
        default_factory=dict[str, NeededVariables]
    )
    """What servers that did not start with the default environment need."""
    needs_manual_edit: bool = False
    """The existing file could not be extended safely."""

    @property
    def new_candidates(self) -> list[AdoptionCandidate]:
        return [candidate for candidate in self.candidates if candidate.status == "new"]

    @property
    def counted_servers(self) -> list[AdoptionCandidate]:
        """Servers whose cost counts: the configured and chosen ones, or all usable ones before a
        choice.
        """
        left_out = ("unusable", "new") if self.chosen else ("unusable",)
        return [
            candidate
            for candidate in self.candidates
            if candidate.status not in left_out or candidate in self.chosen
        ]

    @property
    def direct_tokens(self) -> int:
        keys = {candidate.key for candidate in self.counted_servers}
        if self.costs:
            return self.costs.sum_direct_tokens(keys)
        return 0

    @property
    def gateway_tokens(self) -> int:
        if self.costs:
            return self.costs.gateway_tokens
        return 0

    @property
    def saved_share(self) -> float:
        return compute_saved_share(self.direct_tokens, self.gateway_tokens)

    @property
    def env_path(self) -> Path | None:
        """The file of secrets that was or would be written."""
        if self.files and self.files.env is not None:
            return self.files.env_path
        return None

    def get_cost(self, candidate: AdoptionCandidate) -> DirectCost | None:
        """Return the cost of a server; None if it could not be listed."""
        if self.costs is None or candidate.status == "unusable":
            return None
        return self.costs.servers.get(candidate.key)

    def get_failure(self, candidate: AdoptionCandidate) -> str:
        """Return why a server could not be started; empty if it could."""
        failure = self.costs.failures.get(candidate.key, "") if self.costs else ""
        line = " ".join(sanitize_server_text(failure).split())
        if len(line) <= _MAX_REASON_CHARS:
            return line
        return f"{line[: _MAX_REASON_CHARS - 1]}…"

    @property
    def install_commands(self) -> list[str]:
        """The next command for each client whose servers are in the configuration now."""
        origins = (one for server in self.counted_servers for one in server.found_server.origins)
        clients = dict.fromkeys(origin.client for origin in origins if origin.client)
        option = self.config_option
        return [f"portico install {client}{option}" for client in clients or ["CLIENT"]]

    @property
    def config_option(self) -> str:
        """The option that the next commands need; empty where they find the file themselves."""
        return "" if self.is_default_path else f" --config {self.existing.path}"


def show_nothing_found(screen: Screen, outcome: AdoptionOutcome, sources: Sequence[str]) -> int:
    """Report that there is nothing to adopt, with the likely reason."""
    if screen.as_json:
        screen.write_json(_to_data(outcome))
    _print_findings(outcome)
    where = "Claude, Cursor, VS Code, Windsurf, Codex, Gemini, Zed and Cline"
    advice = "`portico adopt --from FILE` reads any other file; `portico demo` needs none."
    if sources:
        where = ", ".join(sources)
        advice = ""
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
    screen.write_text(f"{summary}:", "")
    show_rows(screen, _COLUMNS, list(_build_rows(outcome)))
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
        cost = outcome.get_cost(candidate)
        yield (
            str(number) if candidate.status == "new" else "",
            sanitize_text(candidate.name),
            f"{cost.tools:,}" if cost else "?",
            f"{cost.tokens:,}" if cost else "?",
            sanitize_text(describe_origins(candidate.found_server)),
            sanitize_text(_render_remark(candidate)),
        )


def _render_remark(candidate: AdoptionCandidate) -> str:
    match candidate.status:
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
            found = candidate.found_server
            parts = [f"${{{name}}}" for name in (*candidate.secrets, *found.required_variables)]
            if is_renamed(candidate):
                parts.append(f"named {found.original_name} there")
            if inherited := candidate.entry.get("inherit_env"):
                parts.append(f"inherits {', '.join(map(str, inherited))}")
            if is_denied(found.rules):
                parts.append("denied by its client's rules: switched off")
            elif candidate.entry.get("disabled"):
                parts.append("switched off")
            if denied := get_tool_rules(candidate.entry).get("deny"):
                parts.append(f"denied: {', '.join(map(str, denied))}")
            if candidate.asked_tools:
                parts.append(f"asked about: {', '.join(candidate.asked_tools)}")
            return ", ".join(parts)


def _render_cost_line(outcome: AdoptionOutcome) -> str:
    if outcome.costs is None or not outcome.direct_tokens:
        return ""
    method = "" if outcome.costs.counter == "o200k_base" else " (estimated)"
    line = (
        f"Connected directly they cost a client {outcome.direct_tokens:,} tokens{method} before "
        f"its first word, through Portico {outcome.gateway_tokens:,}"
    )
    if outcome.saved_share <= 0:
        return f"{line}: so few tools are better listed, with `exposure: full`."
    return f"{line}: {outcome.saved_share:.1%} less."


def _collect_remarks(outcome: AdoptionOutcome) -> Iterator[str]:
    # Names of servers that did not start, by what is said of them.
    failed: dict[str, list[str]] = {}
    for candidate in outcome.candidates:
        is_new = candidate.status == "new"
        failure = outcome.get_failure(candidate)
        if candidate.status == "unusable":
            origin = candidate.found_server.origins[0]
            line = f":{origin.line}" if origin.line else ""
            yield f"{candidate.name} cannot be adopted: {candidate.problem} ({origin.file}{line})"
        elif candidate.found_server.required_variables and is_new:
            continue
        elif candidate.problem:
            yield f"{candidate.name} lacks something: {candidate.problem}"
        elif failure and candidate.key in outcome.needed_variables:
            yield (
                f"{candidate.name} did not start, but it does with all variables of this shell; "
                "which it needs was not found in time. Name them in its `inherit_env`."
            )
        elif failure:
            anyway = "; it can be adopted all the same" if is_new else ""
            failed.setdefault(f"did not start: {failure}{anyway}.", []).append(candidate.name)
        needed = outcome.needed_variables.get(candidate.key)
        if is_new and needed is not None and needed.names:
            yield (
                f"{candidate.name} starts only with {', '.join(needed.names)} of this shell: "
                "passed on to it by `inherit_env`."
            )
        if candidate.lost_rules and candidate.status != "unusable":
            yield _render_lost_rules(candidate)
    for what, names in failed.items():
        yield f"{', '.join(names)} {what}"
    if other_projects := outcome.scan.other_projects:
        count = sum(other_projects.values())
        folders = _join_folders(list(other_projects))
        yield f"{count} more in {folders}: --all-projects takes them too"
    new = outcome.new_candidates
    not_started = [
        candidate.name
        for candidate in new
        if candidate.is_from_project
        and outcome.get_cost(candidate) is None
        and not outcome.get_failure(candidate)
    ]
    if not_started and outcome.costs and not outcome.chosen:
        names = ", ".join(not_started)
        yield f"Not started before you choose, because this folder brought them: {names}"
    inherited = {name for candidate in new for name in list_environment_variables(candidate)}
    if inherited:
        names = ", ".join(f"${{{name}}}" for name in sorted(inherited))
        yield f"Still read from the environment, which a client may not pass on: {names}"
    for candidate in new:
        for name, text in candidate.found_server.required_variables.items():
            yield (
                f"{candidate.name}: its client asks for {text}; nobody can be asked here, "
                f"so it is ${{{name}}} now."
            )


def _render_lost_rules(candidate: AdoptionCandidate) -> str:
    place = "the configuration" if candidate.status != "new" else "Portico"
    return (
        f"{candidate.name}: rules of its clients do not hold in {place}: "
        f"{'; '.join(candidate.lost_rules)}. `install --replace` leaves the server in the client's "
        f"file; `tools: {{deny: […]}}` of {candidate.name} or a rule with `may: ask` does instead."
    )


def _join_folders(folders: Sequence[str]) -> str:
    shown = ", ".join(folders[:_MAX_FOLDERS])
    if len(folders) > _MAX_FOLDERS:
        return f"{shown} and {format_count(len(folders) - _MAX_FOLDERS, 'other folder')}"
    return shown


def _print_findings(outcome: AdoptionOutcome) -> None:
    for finding in outcome.scan.findings:
        print_warning(sanitize_text(str(finding)))


def show_outcome(screen: Screen, outcome: AdoptionOutcome, *, dry_run: bool = False) -> None:
    """Show what was done and the next command."""
    if screen.as_json:
        screen.write_json(_to_data(outcome))
        return
    path = outcome.existing.path
    addition = outcome.files.manual_addition if outcome.files else ""
    if outcome.needs_manual_edit:
        secrets = f"Its secrets are in {outcome.env_path}. " if outcome.env_path else ""
        advice = f"It was left as it is. {secrets}Add this to it:"
        print_error(PorticoError(f"{path} cannot be added to without rewriting it.", advice=advice))
        screen.write_text(addition)
        return
    if outcome.written:
        _show_written(screen, outcome)
    elif outcome.chosen:
        screen.write_text("", Text(f"--dry-run: {path} would get", style="bold"), addition)
    elif all(candidate.status == "unusable" for candidate in outcome.candidates):
        screen.write_text("Nothing new is to be had there.")
    elif not outcome.new_candidates:
        screen.write_text(f"Nothing to do: {path} has them already.")
    elif not dry_run and screen.is_stdout_terminal:
        screen.write_text("Nothing was written.")
    if outcome.written or (outcome.counted_servers and not outcome.new_candidates):
        first, *others = outcome.install_commands
        more = f"   (or {', '.join(other.split()[2] for other in others)})" if others else ""
        screen.write_text("", f"Next: {first}{more}")


def _show_written(screen: Screen, outcome: AdoptionOutcome) -> None:
    names = sanitize_text(", ".join(candidate.name for candidate in outcome.chosen))
    adopted = f"Adopted {format_count(len(outcome.chosen), 'server')}: {names}"
    screen.write_text("", Text(adopted, style="green"))
    screen.write_text(f"  configuration  {outcome.existing.path}")
    if outcome.env_path:
        screen.write_text(f"  secrets        {outcome.env_path}  (only you can read it)")
    if outcome.backup is not None:
        screen.write_text(f"  backup         {outcome.backup}")
    screen.write_text(f"  to undo it     portico undo{outcome.config_option}")
    required = dict.fromkeys(
        name for candidate in outcome.chosen for name in candidate.found_server.required_variables
    )
    if required:
        screen.write_text(Text(f"Fill in {', '.join(required)} there.", style="yellow"))
    saved = outcome.direct_tokens - outcome.gateway_tokens
    if outcome.costs is not None and saved > 0:
        summary = (
            f"Saved at the start of every conversation: {saved:,} of "
            f"{outcome.direct_tokens:,} tokens ({outcome.saved_share:.1%})."
        )
        screen.write_text(Text(summary, style="bold"))


def _to_data(outcome: AdoptionOutcome) -> dict[str, Any]:
    files = outcome.files
    tokens = None
    if outcome.direct_tokens:
        tokens = {
            "direct": outcome.direct_tokens,
            "portico": outcome.gateway_tokens,
            "saved": round(outcome.saved_share, 4),
        }
    return {
        "config": str(outcome.existing.path),
        "env_file": str(outcome.env_path) if outcome.env_path else None,
        "written": outcome.written,
        "backup": str(outcome.backup) if outcome.backup else None,
        "counter": outcome.costs.counter if outcome.costs is not None else None,
        "servers": [_to_server_data(candidate, outcome) for candidate in outcome.candidates],
        "tokens": tokens,
        "findings": [to_error_data(finding.to_error()) for finding in outcome.scan.findings],
        "addition": files.manual_addition if files and outcome.needs_manual_edit else None,
        "next": outcome.install_commands if outcome.written else [],
        "other_projects": dict(outcome.scan.other_projects),
    }


def _to_server_data(candidate: AdoptionCandidate, outcome: AdoptionOutcome) -> dict[str, Any]:
    cost = outcome.get_cost(candidate)
    found = candidate.found_server
    return {
        "name": candidate.name,
        "from": [
            {"client": origin.client, "file": origin.file, "line": origin.line}
            for origin in found.origins
        ],
        "standing": candidate.status,
        "chosen": candidate in outcome.chosen,
        "tools": cost.tools if cost else None,
        "tokens": cost.tokens if cost else None,
        "secrets": list(candidate.secrets),
        "wanted": list(found.required_variables),
        "inherit_env": list(candidate.entry.get("inherit_env", ())),
        "problem": candidate.problem or outcome.get_failure(candidate),
        "denied": list(get_tool_rules(candidate.entry).get("deny", ())),
        "asked": list(candidate.asked_tools),
        "rules_without_equivalent": list(candidate.lost_rules),
    }
