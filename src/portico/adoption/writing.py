"""Writes a configuration, with a backup, and the file of its secrets, which only its owner can read."""

import os
import re
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from portico.adoption.file_writing import write_file
from portico.errors import ConfigError, PorticoError

_BARE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
_HEADER = """\
# Secrets of the configuration beside it, for ${VAR} there. The environment wins over them.
# Keep this file to yourself.
"""
OWNER_ONLY = 0o600


def env_line(name: str, value: str) -> str:
    """A line that reads back as it was, here and in a shell."""
    if _BARE.fullmatch(value):
        return f"{name}={value}\n"
    if not any(char in value for char in "'\n\r"):
        return f"{name}='{value}'\n"
    return f'{name}="{value.translate(_ESCAPED)}"\n'


def with_values(text: str | None, values: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """An env file with these values added, and a line to fill in for each variable that is wanted."""
    text = _HEADER if text is None else text
    if text and not text.endswith("\n"):
        text += "\n"
    for name, why in wanted.items():
        if name not in values and not re.search(rf"(?m)^\s*#?\s*{re.escape(name)}=", text):
            text += f"# {name}=    {' '.join(why.split())}\n"
    return text + "".join(env_line(name, value) for name, value in values.items())


def backed_up(path: Path, now: datetime) -> Path | None:
    """A copy beside a file, of the same mode; None where there is no file."""
    if not path.exists():
        return None
    stem = f"{path.name}.backup-{now:%Y%m%d-%H%M%S}"
    for number in range(1, 1_000):
        copy = path.with_name(stem if number == 1 else f"{stem}-{number}")
        try:
            # Nobody else may read it, not even for the moment until it has the mode of the file.
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), OWNER_ONLY)
        except FileExistsError:
            continue
        with os.fdopen(handle, "wb") as file:
            file.write(path.read_bytes())
        shutil.copystat(path, copy)
        return copy
    raise PorticoError(f"{path.parent} is full of backups", advice=f"Remove some {path.name}.backup-* files.")


def write_secrets(path: Path, data: bytes, before: bytes | None) -> None:
    """Write an env file that its owner alone can read, also where others could before."""
    if before is not None:
        os.chmod(path, OWNER_ONLY)
    _written(path, data, before)


def write_config(path: Path, data: bytes, before: bytes | None, now: datetime) -> Path | None:
    """Write a configuration; the backup of what was there."""
    backup = backed_up(path, now) if before is not None else None
    try:
        _written(path, data, before)
    except PorticoError:
        if backup is not None:
            backup.unlink(missing_ok=True)
        raise
    return backup


def _written(path: Path, data: bytes, before: bytes | None) -> None:
    try:
        write_file(path, data, before, mode=OWNER_ONLY)
    except ConfigError as error:
        advice = error.advice.replace("--file", "--output")
        raise ConfigError(error.message, advice=advice, file=error.file, line=error.line) from None
