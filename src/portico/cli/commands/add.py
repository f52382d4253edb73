"""`portico add`: one more server in the configuration, tried before it is written.

--json: `{"server", "file", "env_file", "written", "backup", "tools", "tokens", "needs_sign_in",
"source", "diff": [line]}`; tools and tokens are null with --no-check, and where somebody has to
sign in; `source` says what a server of a registry or bundle is.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portico.adoption import adoption_plan
from portico.adoption.adoption_plan import AdoptionCandidate, ExistingConfig, PlannedFiles
from portico.adoption.backups import FileChange
from portico.adoption.diff import render_diff
from portico.adoption.discovery import FoundServer
from portico.adoption.secret_extraction import VariableNames, extract_secrets
from portico.adoption.server_costs import measure_costs
from portico.cli import logs
from portico.cli.config_change import (
    add_schema_line,
    list_config_files,
    open_history,
    show_diff,
)
from portico.cli.exit import EXIT_FAILED, EXIT_OK, sanitize_server_text
from portico.cli.screen import Screen
from portico.cli.setup_commands import AddOptions
from portico.config_file import to_server_key
from portico.config_file.secret_values import collect_secret_values
from portico.config_file.tree_reader import decode_text
from portico.errors import BackendUnavailable, PorticoError
from portico.profiles.view_cost import DirectCost
from portico.rendering.token_budget import format_count

if TYPE_CHECKING:
    from portico.cli.commands.add_from_registry import SourcedServer


def run_add(name: str, command: Sequence[str], options: AddOptions) -> int:
    """Try a server and add it to the configuration."""
    screen = options.make_screen()
    environ = dict(os.environ)
    files = list_config_files(options)
    path = adoption_plan.get_default_path(environ, Path.cwd())
    if files:
        path = files[-1]
    existing = adoption_plan.load_existing(path, environ)
    source = _find_source(name, command, options, existing, screen)
    if source is not None:
        name = source.name
    _check_name(name, existing)
    entry = source.entry if source else _build_entry(command, options)
    # Also where a registry describes it: what nobody called a secret may be one.
    entry, secrets = extract_secrets(name, entry, VariableNames(environ, existing.values))
    if source is not None:
        secrets = {**secrets, **source.secrets}
    found = FoundServer(name, entry, ())
    candidate = AdoptionCandidate(found, name, entry, secrets, "new")
    planned = adoption_plan.plan_files(existing, [candidate], environ)
    if planned.config is None:
        raise PorticoError(
            f"{path} cannot be added to without rewriting it",
            advice=f"Add this to it by hand:\n{planned.manual_addition}",
        )
    problem = planned.loaded_config.servers[name].problem
    if problem:
        raise PorticoError(f"{name} cannot be used: {problem}", advice="Nothing was written.")
    if source is not None and not _may_start(screen, source, existing, planned, options):
        return EXIT_FAILED
    cost = None
    is_tried = not options.no_check and not (source is not None and options.dry_run)
    if is_tried:
        cost = _try_server(screen, planned, name)
    backup = None
    if not options.dry_run:
        backup = _write(existing, planned)
    outcome = _AddOutcome(name, existing, planned, cost, backup, is_tried and cost is None, source)
    _show(screen, outcome, dry_run=options.dry_run)
    return EXIT_OK


@dataclass(frozen=True)
class _AddOutcome:
    name: str
    existing: ExistingConfig
    planned: PlannedFiles
    cost: DirectCost | None
    backup: Path | None
    needs_sign_in: bool
    source: "SourcedServer | None"

    @property
    def diff(self) -> list[str]:
        before = decode_text(self.existing.data or b"")
        after = decode_text(self.planned.config or b"")
        return render_diff(before, after, self.existing.path.name, mask_new_lines=True)


def _find_source(
    name: str,
    command: Sequence[str],
    options: AddOptions,
    existing: ExistingConfig,
    screen: Screen,
) -> "SourcedServer | None":
    """Return the server of a registry or bundle; None for a name that is given to a command."""
    # Imported late: most servers are added by their command.
    from portico.cli.commands.add_from_registry import SourceResolver, names_source

    if not names_source(name):
        return None
    own = [command, options.url, options.openapi, options.base_url, options.env, options.header]
    if any(own) or options.cwd:
        raise PorticoError(
            f"{name} says itself how it is reached",
            advice="Give its values with --set, or a name of your own with the command.",
        )
    return SourceResolver(options, existing, screen).resolve(name)


def _may_start(
    screen: Screen,
    source: "SourcedServer",
    existing: ExistingConfig,
    planned: PlannedFiles,
    options: AddOptions,
) -> bool:
    """Show what would be started and written, and return whether the person wants that."""
    if options.yes or options.dry_run:
        return True
    from portico.cli.commands.add_from_registry import can_ask, confirm  # as above

    if not can_ask(screen):
        raise PorticoError(
            f"{source.described}: nothing was started or written, as nobody can be asked here",
            advice="--yes starts and adds it, --dry-run only shows the change.",
        )
    screen.write_text(f"{source.described}:")
    outcome = _AddOutcome(source.name, existing, planned, None, None, False, source)
    show_diff(screen, outcome.diff)
    return confirm(source)


def _check_name(name: str, existing: ExistingConfig) -> None:
    if to_server_key(name) != name:
        raise PorticoError(f"{name!r} is no server name", advice="Use up to 40 of A-Z a-z 0-9 _ -.")
    if name.lower() in existing.names:
        raise PorticoError(
            f"{existing.path} has a server {name} already",
            advice=f"Choose another name, or `portico remove {name}` first.",
        )


def _build_entry(command: Sequence[str], options: AddOptions) -> dict[str, Any]:
    targets = [bool(command), bool(options.url), bool(options.openapi)]
    if targets.count(True) != 1:
        raise PorticoError(
            "say how the server is reached, in one way",
            advice="portico add NAME -- COMMAND…, or --url URL, or --openapi FILE_OR_URL.",
        )
    cwd = Path.cwd()
    entry: dict[str, Any] = {}
    if options.description:
        entry["description"] = options.description
    if command:
        entry["command"] = command[0]
        if command[1:]:
            entry["args"] = list(command[1:])
    if options.url:
        entry["url"] = options.url
    if options.openapi:
        entry["openapi"] = options.openapi
        if "://" not in options.openapi:
            entry["openapi"] = str(cwd / Path(options.openapi).expanduser())
    if options.base_url:
        entry["base_url"] = options.base_url
    variables = [variable.partition("=") for variable in options.env or ()]
    if env := {name: value for name, sign, value in variables if sign}:
        entry["env"] = env
    if inherited := [name for name, sign, _ in variables if not sign]:
        entry["inherit_env"] = inherited
    if options.cwd:
        entry["cwd"] = str(cwd / Path(options.cwd).expanduser())
    if options.header:
        entry["headers"] = dict(map(_parse_header, options.header))
    return entry


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise PorticoError(
            "a header is not written as a name and a value", advice='As in --header "X-Team: blue".'
        )
    return name.strip(), value.strip()


def _try_server(screen: Screen, planned: PlannedFiles, name: str) -> DirectCost | None:
    """Start and list the server; None where somebody has to sign in first.

    Raises BackendUnavailable with the reason if it does not work.
    """
    config = planned.loaded_config
    logs.configure_logging(
        config.log_level, logs.SERVER_LOGGERS, "text", lambda: collect_secret_values(config)
    )
    with screen.show_start_progress([name]) as on_listed:
        costs = asyncio.run(measure_costs(config, [name], on_listed))
    if name in costs.servers:
        return costs.servers[name]
    if name in costs.sign_ins_needed:
        return None
    reason = sanitize_server_text(costs.failures.get(name, "it did not answer in time"))
    raise BackendUnavailable(
        f"{name} was tried and does not work: {reason}",
        advice="Nothing was written. --no-check adds it all the same.",
    )


def _write(existing: ExistingConfig, planned: PlannedFiles) -> Path | None:
    changes: list[FileChange] = []
    if planned.env is not None:
        changes.append(
            FileChange(planned.env_path, planned.env_before, planned.env, is_secret=True)
        )
    data = add_schema_line(existing.path, planned.config or b"", existing.data)
    changes.append(FileChange(existing.path, existing.data, data))
    return open_history().write("add", changes, datetime.now()).config.copy


def _show(screen: Screen, outcome: _AddOutcome, *, dry_run: bool) -> None:
    name = outcome.name
    planned = outcome.planned
    cost = outcome.cost
    path = outcome.existing.path
    source = outcome.source
    if screen.as_json:
        screen.write_json(
            {
                "server": name,
                "file": str(path),
                "env_file": str(planned.env_path) if planned.env is not None else None,
                "written": not dry_run,
                "backup": str(outcome.backup) if outcome.backup else None,
                "tools": cost.tools if cost else None,
                "tokens": cost.tokens if cost else None,
                "needs_sign_in": outcome.needs_sign_in,
                "source": source.described if source else None,
                "diff": outcome.diff,
            }
        )
        return
    show_diff(screen, outcome.diff)
    if planned.env is not None:
        screen.write_text(f"Its secrets are kept in {planned.env_path}, which only you can read.")
    if source is not None:
        screen.write_text(f"{name} is {source.described}.", *source.remarks)
    if cost is not None:
        screen.write_text(
            f"{name} works: {format_count(cost.tools, 'tool')}, {cost.tokens:,} tokens if a "
            "client listed them directly."
        )
    if dry_run:
        screen.write_text("Nothing is written: --dry-run.")
    else:
        screen.write_text(
            f"{name} is added to {path}. `portico undo` undoes it; a running gateway takes it over."
        )
    if source is not None and not dry_run:
        screen.write_text(
            f"Its tools are held back until you have looked at them: portico trust {name} --diff, "
            f"then portico trust {name}"
        )
    if outcome.needs_sign_in:
        screen.write_text(f"{name} wants a person to sign in: portico login {name}")
