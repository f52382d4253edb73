"""`portico adopt`: takes the servers of clients into one configuration, and shows their cost.

--json: `{"config", "env_file", "written", "backup", "counter", "servers": [server], "tokens":
{"direct", "portico", "saved"} (of those chosen, or null), "findings": [error], "addition", "next":
[command]}`. A server is `{"name", "from": [{"client", "file", "line"}], "standing" ("new",
"present", "differs" or "unusable"), "chosen", "tools", "tokens", "secrets": [variable], "wanted":
[variable], "problem"}`; tools and tokens are null if it could not be listed.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from portico.adoption import adoption_plan
from portico.adoption.adoption_plan import AdoptionCandidate, ExistingConfig, PlannedFiles
from portico.adoption.config_writer import write_config, write_secrets
from portico.adoption.discovery import DiscoveryContext, discover_servers
from portico.adoption.selection import parse_selection as numbers_in
from portico.adoption.server_costs import AdoptionCosts, measure_costs
from portico.cli import adoption_report as report
from portico.cli import logs
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_note
from portico.cli.screen import Screen
from portico.config_file import find_files
from portico.config_file.names import find_nearest
from portico.config_file.secret_values import collect_secret_values
from portico.errors import PorticoError, UnknownName

_MAX_PROMPTS = 3
"""How often an invalid answer is asked for again."""


@dataclass(frozen=True)
class AdoptCommandOptions:
    """Options of the command line."""

    sources: Sequence[str] = ()
    output: str | None = None
    only: Sequence[str] = ()
    without: Sequence[str] = ()
    yes: bool = False
    dry_run: bool = False
    start_servers: bool = True


def adopt(options: AdoptCommandOptions, screen: Screen) -> int:
    """Find servers, count their cost, let the person choose, write, and report the savings."""
    environ = dict(os.environ)
    cwd = Path.cwd()
    default_path = adoption_plan.get_default_path(environ, cwd)
    if options.output:
        path = cwd / Path(options.output).expanduser()
    else:
        path = default_path
    if path.suffix not in (".yaml", ".yml"):
        raise PorticoError(
            f"{path.name} is no name for YAML, which is what is written",
            advice="Call it portico.yaml.",
        )
    discovered = discover_servers(
        DiscoveryContext(Path.home(), cwd, sys.platform, environ), options.sources
    )
    existing = adoption_plan.load_existing(path, environ)
    candidates = adoption_plan.list_candidates(discovered, existing, environ)
    selected, unknown = adoption_plan.filter_candidates(candidates, options.only, options.without)
    if unknown:
        raise _make_unknown_server_error(unknown[0], candidates)
    files_read = find_files(environ, cwd)
    outcome = report.AdoptionOutcome(
        discovered,
        existing,
        tuple(selected),
        is_default_path=files_read == [path] or (not files_read and path == default_path),
    )
    new = [candidate for candidate in selected if candidate.status == "new"]
    if not selected:
        return report.show_nothing_found(screen, outcome, options.sources)
    files = adoption_plan.plan_files(existing, new, environ)
    to_start = selected if options.start_servers else ()
    costs = _measure_costs(screen, files, to_start, trusted=options.yes)
    outcome = replace(outcome, files=files, costs=costs)
    if not screen.as_json:
        report.show_candidates(screen, outcome)
    if not new:
        report.show_outcome(screen, outcome)
        return EXIT_OK
    if options.yes or options.dry_run:
        chosen = new
    else:
        chosen = _prompt_for_choice(screen, new)
    if chosen is None:
        report.show_outcome(screen, outcome)
        if not screen.as_json:
            print_note(
                "Nothing was written: nobody can be asked here. "
                "Add --yes to adopt them, --dry-run to only look."
            )
        return EXIT_FAILED
    files = adoption_plan.plan_files(existing, chosen, environ)
    outcome = replace(outcome, files=files, chosen=tuple(chosen))
    if chosen and not (options.yes or options.dry_run):
        # Measured again: servers of the project are started only now, and others were left out.
        to_start = [
            one for one in chosen if options.start_servers and one.key not in costs.failures
        ]
        new_costs = _measure_costs(screen, files, to_start, trusted=True)
        failures = {**costs.failures, **new_costs.failures}
        outcome = replace(outcome, costs=replace(new_costs, failures=failures))
    if chosen and not options.dry_run:
        outcome = _write_files(outcome, existing, files)
    report.show_outcome(screen, outcome, dry_run=options.dry_run)
    if outcome.needs_manual_edit:
        return EXIT_FAILED
    return EXIT_OK


def _measure_costs(
    screen: Screen, files: PlannedFiles, candidates: Sequence[AdoptionCandidate], *, trusted: bool
) -> AdoptionCosts:
    """Measure the costs. Servers of a project folder are started only if they are trusted."""
    config = files.loaded_config
    logs.configure_logging(
        config.log_level,
        ("portico.upstream", "portico.catalog"),
        "text",
        lambda: collect_secret_values(config),
    )
    startable = [
        candidate.key
        for candidate in candidates
        if candidate.key in config.servers
        and (trusted or not candidate.is_from_project or candidate.status != "new")
    ]
    with screen.show_start_progress(startable) as on_listed:
        return asyncio.run(measure_costs(config, startable, on_listed))


def _prompt_for_choice(
    screen: Screen, new: list[AdoptionCandidate]
) -> list[AdoptionCandidate] | None:
    """Ask the person to choose; None if stdin or stdout is not a terminal."""
    if screen.as_json or not (screen.is_stdout_terminal and sys.stdin.isatty()):
        return None
    for _ in range(_MAX_PROMPTS):
        try:
            typed = input(
                "\nAdopt which? Enter for all; 1 3-5 or names for these, -2 for all but that, "
                "n for none: "
            )
        except EOFError:
            return []
        numbers = numbers_in(typed, [candidate.name for candidate in new])
        if numbers is not None:
            return [new[number - 1] for number in numbers]
        print_note(f"Numbers from 1 to {len(new)} or names, please, or n for none.")
    raise PorticoError(
        "no server was chosen", advice="`portico adopt --only NAME` names them; --yes takes all."
    )


def _write_files(
    outcome: "report.AdoptionOutcome", existing: ExistingConfig, files: PlannedFiles
) -> "report.AdoptionOutcome":
    # Secrets first, because a running gateway applies the configuration as soon as it changes.
    if files.env is not None:
        write_secrets(files.env_path, files.env, files.env_before)
    if files.config is None:
        return replace(outcome, needs_manual_edit=True)
    backup = write_config(existing.path, files.config, existing.data, datetime.now())
    return replace(outcome, written=True, backup=backup)


def _make_unknown_server_error(name: str, known: Sequence[AdoptionCandidate]) -> UnknownName:
    names = [candidate.name for candidate in known]
    near = find_nearest(name, names)
    if near:
        advice = f"Did you mean {' or '.join(near)}?"
    else:
        advice = f"Found: {', '.join(names) or 'none'}."
    return UnknownName(f"No server that was found is named {name!r}.", nearest=near, advice=advice)
