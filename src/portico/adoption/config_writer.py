"""Writes a configuration, with a backup, and its env file, which only the owner can read."""

import os
import re
import stat
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from portico.adoption.atomic_files import check_not_writable_by_others, create_file, write_file
from portico.errors import ConfigError, PorticoError

_BARE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_SHELL_ESCAPES = str.maketrans({char: f"\\{char}" for char in '\\"$`'})
"""Characters with a meaning for a shell between double quotes."""
_HEADER = """\
# Secrets of the configuration beside it, for ${VAR} there. The environment wins over them.
# Keep this file to yourself.
"""
OWNER_ONLY = 0o600


def render_env_line(name: str, value: str) -> str:
    """Render an assignment that this package and a shell read back as the same value."""
    if _BARE.fullmatch(value):
        return f"{name}={value}\n"
    if "'" not in value:
        return f"{name}='{value}'\n"
    return f'{name}="{value.translate(_SHELL_ESCAPES)}"\n'


def add_env_values(
    text: str | None, values: Mapping[str, str], unset_variables: Mapping[str, str]
) -> str:
    """Return an env file with these values added, and a commented line for each unset variable."""
    if text is None:
        text = _HEADER
    if text and not text.endswith("\n"):
        text += "\n"
    for name, why in unset_variables.items():
        if name not in values and not re.search(rf"(?m)^\s*#?\s*{re.escape(name)}=", text):
            text += f"# {name}=    {' '.join(why.split())}\n"
    return text + "".join(render_env_line(name, value) for name, value in values.items())


def make_backup(path: Path, data: bytes, now: datetime) -> Path:
    """Copy a file's content beside it with the same mode; return the copy's path."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    stem = f"{path.name}.backup-{now:%Y%m%d-%H%M%S}"
    for number in range(1, 1_000):
        copy = path.with_name(stem if number == 1 else f"{stem}-{number}")
        try:
            create_file(copy, data, mode)
        except FileExistsError:
            continue
        return copy
    raise PorticoError(
        f"{path.parent} is full of backups", advice=f"Remove some {path.name}.backup-* files."
    )


def write_secrets(path: Path, data: bytes, before: bytes | None) -> None:
    """Write an env file, readable by its owner only, also if it was not before; never through a
    link.
    """
    _write_checked(path, data, before, keep_mode=False, follow_links=False)


def write_config(path: Path, data: bytes, before: bytes | None, now: datetime) -> Path | None:
    """Write a configuration; return the path of the backup, if there was a file."""
    check_not_writable_by_others(path)
    if before is not None and path.exists():
        backup = make_backup(path, before, now)
    else:
        backup = None
    try:
        _write_checked(path, data, before)
    except PorticoError:
        if backup is not None:
            backup.unlink(missing_ok=True)
        raise
    return backup


def _write_checked(
    path: Path,
    data: bytes,
    before: bytes | None,
    *,
    keep_mode: bool = True,
    follow_links: bool = True,
) -> None:
    try:
        check_not_writable_by_others(path)
        write_file(
            path, data, before, mode=OWNER_ONLY, keep_mode=keep_mode, follow_links=follow_links
        )
    except ConfigError as error:
        advice = error.advice.replace("--file", "--output")
        raise ConfigError(error.message, advice=advice, file=error.file, line=error.line) from None
