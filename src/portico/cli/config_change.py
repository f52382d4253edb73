"""A change of the configuration by a command: shown, validated, written with a backup, undoable."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from rich.text import Text

from portico.adoption.backups import ConfigHistory, FileChange
from portico.adoption.config_document import ConfigDocument
from portico.adoption.config_editor import ConfiguredServer, find_configured_server, plan_edit
from portico.cli.options import ConfigOptions
from portico.cli.screen import Screen
from portico.cli.setup_commands import ChangeOptions
from portico.config import Config, get_default_data_dir
from portico.config_file import find_files
from portico.config_file.json_schema import render_schema
from portico.storage.data_files import replace_file

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def get_state_dir() -> Path:
    """Return the data folder of this user, whatever a configuration says: that may be broken."""
    named = os.environ.get("PORTICO_DATA_DIR", "").strip()
    if named:
        return Path(named).expanduser()
    return get_default_data_dir()


def get_config_data_dir(config: Config) -> Path:
    """Return the data folder of a configuration that was read without the environment."""
    if os.environ.get("PORTICO_DATA_DIR", "").strip():
        return get_state_dir()
    return config.data_dir


def open_history() -> ConfigHistory:
    """Return the record of changes."""
    return ConfigHistory(get_state_dir() / "changes")


def add_schema_line(path: Path, data: bytes, before: bytes | None) -> bytes:
    """Return a new YAML file with a line that leads editors to its schema, which is written."""
    if before is not None or path.suffix not in (".yaml", ".yml"):
        return data
    schema = get_state_dir() / "portico.schema.json"
    try:
        replace_file(schema, render_schema().encode())
    except OSError:
        return data  # Help for an editor is no reason to fail.
    return f"# yaml-language-server: $schema={schema}\n".encode() + data


def list_config_files(options: ConfigOptions) -> list[Path]:
    """Return the configuration files that commands read here."""
    cwd = Path.cwd()
    if options.config:
        return [cwd / Path(file).expanduser() for file in options.config]
    return [cwd / path for path in find_files(os.environ, cwd)]


def find_server(name: str, options: ConfigOptions) -> ConfiguredServer:
    """Return a server and its file; raises UnknownName, or ConfigError for a broken file."""
    return find_configured_server(name, list_config_files(options))


def change_config(
    command: str,
    server: ConfiguredServer,
    edit: Callable[[ConfigDocument], ConfigDocument],
    options: ChangeOptions,
    done: str,
) -> None:
    """Change a server's file, check that the result loads, show the change and write it."""
    screen = options.make_screen()
    planned = plan_edit(server.document, server.data, edit, list_config_files(options))
    path = planned.path
    backup = None
    is_written = planned.has_changes and not options.dry_run
    if is_written:
        change = FileChange(path, planned.before, planned.after)
        backup = open_history().write(command, [change], datetime.now()).config.copy
    diff = planned.render_diff()
    if screen.as_json:
        screen.write_json(
            {
                "server": server.key,
                "file": str(path),
                "changed": planned.has_changes,
                "written": is_written,
                "backup": str(backup) if backup else None,
                "diff": diff,
            }
        )
        return
    show_diff(screen, diff)
    show_done(screen, path, done, is_changed=planned.has_changes, is_written=is_written)


def show_diff(screen: Screen, diff: list[str]) -> None:
    """Show a diff, in colours on a terminal."""
    for line in diff:
        screen.write_text(Text(line, style=_COLOURS.get(line[:1], "")))


def show_done(screen: Screen, path: Path, done: str, *, is_changed: bool, is_written: bool) -> None:
    """Say what was done, and how it is undone."""
    if not is_changed:
        screen.write_text(f"Nothing to do: {path} says so already.")
    elif is_written:
        screen.write_text(f"{done} `portico undo` undoes it; a running gateway takes it over.")
    else:
        screen.write_text("Nothing is written: --dry-run.")
