"""`portico adopt`: takes the servers of clients into one configuration, and shows their cost.

--json: `{"config", "env_file", "written", "backup", "counter", "servers": [server], "tokens":
{"direct", "portico", "saved"} (of those chosen, or null), "findings": [error], "addition", "next":
[command], "other_projects": {folder: count}}`. A server is `{"name", "from": [{"client", "file",
"line"}], "standing" ("new", "present", "differs" or "unusable"), "chosen", "tools", "tokens",
"secrets": [variable], "wanted": [variable], "inherit_env": [variable], "problem", "denied": [glob],
"rules_without_equivalent": [rule]}`; tools and tokens are null if it could not be listed.
"""

import asyncio
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

from portico.adoption import adoption_plan
from portico.adoption.adoption_plan import (
    AdoptionCandidate,
    ExistingConfig,
    PlannedFiles,
)
from portico.adoption.backups import FileChange
from portico.adoption.clients import UserEnvironment
from portico.adoption.discovery import discover_servers
from portico.adoption.environment_search import find_needed_variables
from portico.adoption.server_costs import AdoptionCosts, measure_costs
from portico.cli import adoption_report as report
from portico.cli import logs
from portico.cli.config_change import add_schema_line, open_history
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_note
from portico.cli.screen import Screen
from portico.cli.setup_commands import AdoptOptions
from portico.config_file import find_files
from portico.config_file.names import find_nearest
from portico.config_file.secret_values import collect_secret_values
from portico.errors import PorticoError, UnknownName

_RANGE = re.compile(r"(-|!)?(\d+)(?:\s*(?:-|\.\.)\s*(\d+))?")
_MAX_PROMPTS = 3
"""How often an invalid answer is asked for again."""


def run_adopt(options: AdoptOptions) -> int:
    """Find servers, count their cost, let the person choose, write, and report the savings."""
    screen = options.make_screen()
    environ = dict(os.environ)
    cwd = Path.cwd()
    path = default_path = adoption_plan.get_default_path(environ, cwd)
    if options.output:
        path = cwd / Path(options.output).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        raise PorticoError(
            f"{path.name} is no name for YAML, which is what is written",
            advice="Call it portico.yaml.",
        )
    context = UserEnvironment(Path.home(), cwd, sys.platform, environ)
    discovered = discover_servers(context, options.source or (), all_projects=options.all_projects)
    existing = adoption_plan.load_existing(path, environ)
    candidates = adoption_plan.list_candidates(discovered, existing, environ)
    selected, unknown = adoption_plan.filter_candidates(
        candidates, options.only or (), options.without or ()
    )
    if unknown:
        raise _make_unknown_server_error(unknown[0], candidates)
    files_read = find_files(environ, cwd)
    outcome = report.AdoptionOutcome(
        discovered,
        existing,
        tuple(selected),
        is_default_path=files_read == [path] or (not files_read and path == default_path),
    )
    if not selected:
        return report.show_nothing_found(screen, outcome, options.source or ())
    new = [candidate for candidate in selected if candidate.status == "new"]
    files = adoption_plan.plan_files(existing, new, environ)
    to_start = () if options.no_start else selected
    costs = _measure_costs(screen, files, to_start, trusted=options.yes)
    outcome = replace(outcome, files=files, costs=costs)
    outcome = _add_needed_variables(screen, outcome, costs.failures, environ)
    new = outcome.new_candidates
    if not screen.as_json:
        report.show_candidates(screen, outcome)
    if not new:
        report.show_outcome(screen, outcome)
        return EXIT_OK
    return _adopt_chosen(screen, options, outcome, new, environ)


def _adopt_chosen(
    screen: Screen,
    options: AdoptOptions,
    outcome: "report.AdoptionOutcome",
    new: list[AdoptionCandidate],
    environ: dict[str, str],
) -> int:
    is_decided = options.yes or options.dry_run
    chosen = new if is_decided else _prompt_for_choice(screen, new)
    if chosen is None:
        report.show_outcome(screen, outcome)
        if not screen.as_json:
            print_note(
                "Nothing was written: nobody can be asked here. "
                "Add --yes to adopt them, --dry-run to only look."
            )
        return EXIT_FAILED
    files = adoption_plan.plan_files(outcome.existing, chosen, environ)
    failures = outcome.costs.failures if outcome.costs else {}
    outcome = replace(outcome, files=files, chosen=tuple(chosen))
    if chosen and not is_decided:
        # Measured again: servers of the project are started only now, and others were left out.
        to_start = [one for one in chosen if not options.no_start and one.key not in failures]
        new_costs = _measure_costs(screen, files, to_start, trusted=True)
        all_failures = {**failures, **new_costs.failures}
        outcome = replace(outcome, costs=replace(new_costs, failures=all_failures))
        outcome = _add_needed_variables(screen, outcome, new_costs.failures, environ)
    if chosen and not options.dry_run:
        outcome = _write_files(outcome, outcome.existing)
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
        config.log_level, logs.SERVER_LOGGERS, "text", lambda: collect_secret_values(config)
    )
    startable = [
        candidate.key
        for candidate in candidates
        if candidate.key in config.servers
        and (trusted or not candidate.is_from_project or candidate.status != "new")
    ]
    with screen.show_start_progress(startable) as on_listed:
        return asyncio.run(measure_costs(config, startable, on_listed))


def _add_needed_variables(
    screen: Screen,
    outcome: "report.AdoptionOutcome",
    failed: Collection[str],
    environ: dict[str, str],
) -> "report.AdoptionOutcome":
    """Let new servers that failed inherit the variables they need, and measure those again."""
    keys = {candidate.key for candidate in outcome.new_candidates if candidate.key in failed}
    before = outcome.costs
    if outcome.files is None or before is None or not keys:
        return outcome
    config = outcome.files.loaded_config
    with screen.show_spinner("Looking for variables without which they do not start …"):
        needed = asyncio.run(find_needed_variables(config, keys, environ))
    if not needed:
        return outcome

    def inherit(candidates: Iterable[AdoptionCandidate]) -> tuple[AdoptionCandidate, ...]:
        return tuple(
            _inherit_variables(one, needed[one.key].names) if one.key in needed else one
            for one in candidates
        )

    outcome = replace(
        outcome,
        candidates=inherit(outcome.candidates),
        chosen=inherit(outcome.chosen),
        needed_variables={**outcome.needed_variables, **needed},
    )
    planned = outcome.chosen or outcome.new_candidates
    files = adoption_plan.plan_files(outcome.existing, planned, environ)
    found = {key for key, one in needed.items() if one.is_certain}
    again = [candidate for candidate in planned if candidate.key in found]
    costs = _measure_costs(screen, files, again, trusted=True)
    failures = {key: text for key, text in before.failures.items() if key not in found}
    costs = replace(costs, failures={**failures, **costs.failures})
    return replace(outcome, files=files, costs=costs)


def _inherit_variables(candidate: AdoptionCandidate, names: Sequence[str]) -> AdoptionCandidate:
    known = candidate.entry.get("inherit_env", [])
    if not names:
        return candidate
    return replace(candidate, entry={**candidate.entry, "inherit_env": [*known, *names]})


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
        numbers = parse_selection(typed, [candidate.name for candidate in new])
        if numbers is not None:
            return [new[number - 1] for number in numbers]
        print_note(f"Numbers from 1 to {len(new)} or names, please, or n for none.")
    raise PorticoError(
        "no server was chosen", advice="`portico adopt --only NAME` names them; --yes takes all."
    )


def _write_files(
    outcome: "report.AdoptionOutcome", existing: ExistingConfig
) -> "report.AdoptionOutcome":
    files = cast("PlannedFiles", outcome.files)
    # Secrets first, because a running gateway applies the configuration as soon as it changes.
    changes: list[FileChange] = []
    if files.env is not None:
        changes.append(FileChange(files.env_path, files.env_before, files.env, is_secret=True))
    if files.config is not None:
        data = add_schema_line(existing.path, files.config, existing.data)
        changes.append(FileChange(existing.path, existing.data, data))
    backup = None
    if changes:
        backup = open_history().write("adopt", changes, datetime.now()).config.copy
    if files.config is None:
        return replace(outcome, needs_manual_edit=True)
    return replace(outcome, written=True, backup=backup)


def _make_unknown_server_error(name: str, known: Sequence[AdoptionCandidate]) -> UnknownName:
    names = [candidate.name for candidate in known]
    near = find_nearest(name, names)
    advice = f"Found: {', '.join(names) or 'none'}."
    if near:
        advice = f"Did you mean {' or '.join(near)}?"
    return UnknownName(f"No server that was found is named {name!r}.", nearest=near, advice=advice)


def parse_selection(text: str, names: Sequence[str]) -> list[int] | None:
    """Return the chosen numbers in order, or None if the text cannot be parsed.

    Empty text is all, `1 3-5 git` these, `-2` all but that, `n` and the like none.
    """
    count = len(names)
    known = {name.lower(): str(number) for number, name in enumerate(names, 1)}
    words = [word for word in re.split(r"[,;\s]+", text.strip().lower()) if word]
    if not words or words in (["a"], ["all"], ["y"], ["yes"]):
        return list(range(1, count + 1))
    if words in (["n"], ["no"], ["none"], ["q"], ["quit"]):
        return []
    included: set[int] = set()
    excluded: set[int] = set()
    for word in words:
        if word[:1] in ("-", "!") and word[1:] in known:
            sign = word[:1]
        else:
            sign = ""
        match = _RANGE.fullmatch(sign + known.get(word.removeprefix(sign), word.removeprefix(sign)))
        if match is None:
            return None
        first = int(match[2])
        last = int(match[3] or match[2])
        if not 1 <= first <= last <= count:
            return None
        (excluded if match[1] else included).update(range(first, last + 1))
    return sorted((included or set(range(1, count + 1))) - excluded)
