"""`portico adopt`: the servers that clients already have, into one configuration, with what they cost.

--json: `{"config", "env_file", "written", "backup", "counter", "servers": [server], "tokens": {"direct", "portico",
"saved"} (of those chosen, or null), "findings": [error], "addition", "next": [command]}`. A server is `{"name", "from":
[{"client", "file", "line"}], "standing" ("new", "present", "differs" or "unusable"), "chosen", "tools", "tokens",
"secrets": [variable], "wanted": [variable], "problem"}`; tools and tokens are null where it could not be asked.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from portico.adoption import planning
from portico.adoption.choosing import chosen as numbers_in
from portico.adoption.cost import Bills, measured
from portico.adoption.finding import Here, look
from portico.adoption.planning import Candidate, Existing, Files
from portico.adoption.writing import write_config, write_secrets
from portico.cli import adoption_report as report
from portico.cli import logs
from portico.cli.ending import DONE, FAILED, note
from portico.cli.screen import Screen
from portico.config_file import find_files
from portico.config_file.names import nearest
from portico.config_file.secret_values import secret_values
from portico.errors import PorticoError, UnknownName

_TRIES = 3
"""How often a person is asked again who answered something else."""


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    sources: Sequence[str] = ()
    output: str | None = None
    only: Sequence[str] = ()
    without: Sequence[str] = ()
    yes: bool = False
    dry_run: bool = False
    start: bool = True


def adopt(asked: Asked, screen: Screen) -> int:
    """Look, count, let the person choose, write, and say what was saved."""
    environ, cwd = dict(os.environ), Path.cwd()
    usual = planning.default_path(environ, cwd)
    path = cwd / Path(asked.output).expanduser() if asked.output else usual
    if path.suffix not in (".yaml", ".yml"):
        raise PorticoError(f"{path.name} is no name for YAML, which is what is written", advice="Call it portico.yaml.")
    looked = look(Here(Path.home(), cwd, sys.platform, environ), asked.sources)
    there = planning.existing(path, environ)
    known = planning.candidates(looked, there, environ)
    found, unknown = planning.narrowed(known, asked.only, asked.without)
    if unknown:
        raise _nobody(unknown[0], known)
    read = find_files(environ, cwd)
    outcome = report.Outcome(looked, there, tuple(found), usual=read == [path] or (not read and path == usual))
    new = [candidate for candidate in found if candidate.standing == "new"]
    if not found:
        return report.nothing_found(screen, outcome, asked.sources)
    files = planning.files(there, new, environ)
    bills = _bills(screen, files, found if asked.start else (), trusted=asked.yes)
    outcome = replace(outcome, files=files, bills=bills)
    if not screen.as_json:
        report.show_found(screen, outcome)
    if not new:
        report.show_end(screen, outcome)
        return DONE
    picked = new if asked.yes or asked.dry_run else _picked(screen, new)
    if picked is None:
        report.show_end(screen, outcome)
        if not screen.as_json:
            note("Nothing was written: nobody can be asked here. Add --yes to adopt them, --dry-run to only look.")
        return FAILED
    files = planning.files(there, picked, environ)
    outcome = replace(outcome, files=files, picked=tuple(picked))
    if picked and not (asked.yes or asked.dry_run):
        # Once more, for what was not started before it was chosen, and for what was left out.
        silent = [one for one in picked if asked.start and one.key not in bills.failures]
        again = _bills(screen, files, silent, trusted=True)
        outcome = replace(outcome, bills=replace(again, failures={**bills.failures, **again.failures}))
    if picked and not asked.dry_run:
        outcome = _written(outcome, there, files)
    report.show_end(screen, outcome, dry_run=asked.dry_run)
    return FAILED if outcome.by_hand else DONE


def _bills(screen: Screen, files: Files, found: Sequence[Candidate], *, trusted: bool) -> Bills:
    """What they cost. Servers that came with a folder are started only once somebody has said that they are wanted."""
    config = files.loaded
    logs.set_up(config.log_level, ("portico.upstream", "portico.catalog"), "text", lambda: secret_values(config))
    may = [
        one.key
        for one in found
        if one.key in config.servers and (trusted or not one.from_project or one.standing != "new")
    ]
    with screen.starting(may) as heard:
        return asyncio.run(measured(config, may, heard))


def _picked(screen: Screen, new: list[Candidate]) -> list[Candidate] | None:
    """What the person chooses; None where there is nobody to ask."""
    if screen.as_json or not (screen.for_people and sys.stdin.isatty()):
        return None
    for _ in range(_TRIES):
        try:
            typed = input("\nAdopt which? Enter for all; 1 3-5 or names for these, -2 for all but that, n for none: ")
        except EOFError:
            return []
        numbers = numbers_in(typed, [one.name for one in new])
        if numbers is not None:
            return [new[number - 1] for number in numbers]
        note(f"Numbers from 1 to {len(new)} or names, please, or n for none.")
    raise PorticoError("no server was chosen", advice="`portico adopt --only NAME` names them; --yes takes all.")


def _written(outcome: "report.Outcome", there: Existing, files: Files) -> "report.Outcome":
    # Secrets first: a gateway that runs takes the configuration over as soon as it changes.
    if files.env is not None:
        write_secrets(files.env_path, files.env, files.env_before)
    if files.config is None:
        return replace(outcome, by_hand=True)
    backup = write_config(there.path, files.config, there.data, datetime.now())
    return replace(outcome, written=True, backup=backup)


def _nobody(name: str, known: Sequence[Candidate]) -> UnknownName:
    names = [candidate.name for candidate in known]
    near = nearest(name, names)
    advice = f"Did you mean {' or '.join(near)}?" if near else f"Found: {', '.join(names) or 'none'}."
    return UnknownName(f"No server that was found is named {name!r}.", nearest=near, advice=advice)
