"""`portico adopt`: the servers that clients already have, into one configuration, with what they cost.

--json: `{"config", "env_file", "written", "backup", "counter", "servers": [server], "tokens":
{"direct", "portico", "saved"} (of those chosen, or null), "findings": [error], "addition", "next":
[command]}`. A server is `{"name", "from": [{"client", "file", "line"}], "standing" ("new",
"present", "differs" or "unusable"), "chosen", "tools", "tokens", "secrets": [variable], "wanted":
[variable], "problem"}`; tools and tokens are null where it could not be asked.
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
"""How often a person is asked again who answered something else."""


@dataclass(frozen=True)
class AdoptCommandOptions:
    """What the command line says."""

    sources: Sequence[str] = ()
    output: str | None = None
    only: Sequence[str] = ()
    without: Sequence[str] = ()
    yes: bool = False
    dry_run: bool = False
    start_servers: bool = True


def adopt(options: AdoptCommandOptions, screen: Screen) -> int:
    """Look, count, let the person choose, write, and say what was saved."""
    environ = dict(os.environ)
    cwd = Path.cwd()
    usual = adoption_plan.get_default_path(environ, cwd)
    if options.output:
        path = cwd / Path(options.output).expanduser()
    else:
        path = usual
    if path.suffix not in (".yaml", ".yml"):
        raise PorticoError(
            f"{path.name} is no name for YAML, which is what is written",
            advice="Call it portico.yaml.",
        )
    looked = discover_servers(
        DiscoveryContext(Path.home(), cwd, sys.platform, environ), options.sources
    )
    there = adoption_plan.load_existing(path, environ)
    known = adoption_plan.list_candidates(looked, there, environ)
    found, unknown = adoption_plan.filter_candidates(known, options.only, options.without)
    if unknown:
        raise _make_unknown_server_error(unknown[0], known)
    read = find_files(environ, cwd)
    outcome = report.AdoptionOutcome(
        looked, there, tuple(found), is_default_path=read == [path] or (not read and path == usual)
    )
    new = [candidate for candidate in found if candidate.status == "new"]
    if not found:
        return report.show_nothing_found(screen, outcome, options.sources)
    files = adoption_plan.plan_files(there, new, environ)
    bills = _measure_costs(
        screen, files, found if options.start_servers else (), trusted=options.yes
    )
    outcome = replace(outcome, files=files, costs=bills)
    if not screen.as_json:
        report.show_candidates(screen, outcome)
    if not new:
        report.show_outcome(screen, outcome)
        return EXIT_OK
    if options.yes or options.dry_run:
        picked = new
    else:
        picked = _prompt_for_choice(screen, new)
    if picked is None:
        report.show_outcome(screen, outcome)
        if not screen.as_json:
            print_note(
                "Nothing was written: nobody can be asked here. Add --yes to adopt them, --dry-run to only look."
            )
        return EXIT_FAILED
    files = adoption_plan.plan_files(there, picked, environ)
    outcome = replace(outcome, files=files, chosen=tuple(picked))
    if picked and not (options.yes or options.dry_run):
        # Once more, for what was not started before it was chosen, and for what was left out.
        silent = [one for one in picked if options.start_servers and one.key not in bills.failures]
        again = _measure_costs(screen, files, silent, trusted=True)
        outcome = replace(
            outcome, costs=replace(again, failures={**bills.failures, **again.failures})
        )
    if picked and not options.dry_run:
        outcome = _write_files(outcome, there, files)
    report.show_outcome(screen, outcome, dry_run=options.dry_run)
    if outcome.needs_manual_edit:
        return EXIT_FAILED
    return EXIT_OK


def _measure_costs(
    screen: Screen, files: PlannedFiles, candidates: Sequence[AdoptionCandidate], *, trusted: bool
) -> AdoptionCosts:
    """What they cost. Servers that came with a folder are started only once somebody has said that
    they are wanted."""
    config = files.loaded_config
    logs.configure_logging(
        config.log_level,
        ("portico.upstream", "portico.catalog"),
        "text",
        lambda: collect_secret_values(config),
    )
    may = [
        one.key
        for one in candidates
        if one.key in config.servers and (trusted or not one.is_from_project or one.status != "new")
    ]
    with screen.show_start_progress(may) as heard:
        return asyncio.run(measure_costs(config, may, heard))


def _prompt_for_choice(
    screen: Screen, new: list[AdoptionCandidate]
) -> list[AdoptionCandidate] | None:
    """What the person chooses; None where there is nobody to ask."""
    if screen.as_json or not (screen.is_stdout_terminal and sys.stdin.isatty()):
        return None
    for _ in range(_MAX_PROMPTS):
        try:
            typed = input(
                "\nAdopt which? Enter for all; 1 3-5 or names for these, -2 for all but that, n for none: "
            )
        except EOFError:
            return []
        numbers = numbers_in(typed, [one.name for one in new])
        if numbers is not None:
            return [new[number - 1] for number in numbers]
        print_note(f"Numbers from 1 to {len(new)} or names, please, or n for none.")
    raise PorticoError(
        "no server was chosen", advice="`portico adopt --only NAME` names them; --yes takes all."
    )


def _write_files(
    outcome: "report.AdoptionOutcome", existing: ExistingConfig, files: PlannedFiles
) -> "report.AdoptionOutcome":
    # Secrets first: a gateway that runs takes the configuration over as soon as it changes.
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
