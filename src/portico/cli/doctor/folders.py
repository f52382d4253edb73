"""Files and folders of the gateway: there, writable, and closed to others."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from portico.cli.doctor.finding import Finding, Places, several
from portico.cli.doctor.secrets import is_credential
from portico.config import Config
from portico.config_file.placeholders import read_env_file

POSIX = os.name == "posix"
_LITTLE_BYTES, _NONE_BYTES = 500 * 1024**2, 50 * 1024**2


def data_folder(config: Config, places: Places) -> Iterator[Finding]:
    """Whether what Portico remembers can be written, and is its owner's alone."""
    folder, at = config.data_dir, places.at("data_dir")
    standing = folder
    while not standing.exists() and standing != standing.parent:
        standing = standing.parent
    if not standing.is_dir():
        yield Finding(
            "data_dir.no_folder",
            "broken",
            f"data_dir {folder} cannot be made: {standing} is a file",
            "Name a folder.",
            **at,
        )
        return
    if not os.access(standing, os.W_OK | os.X_OK):
        yield Finding(
            "data_dir.unwritable",
            "broken",
            f"data_dir {folder} cannot be written by this user: nothing is remembered between starts",
            f"chown -R $USER {standing}  or set data_dir (PORTICO_DATA_DIR) to a folder of yours",
            **at,
        )
        return
    if folder.is_dir() and POSIX:
        yield from _open_to_others(folder, places)
    free = shutil.disk_usage(standing).free
    if free < _LITTLE_BYTES:
        yield Finding(
            "disk.full" if free < _NONE_BYTES else "disk.low",
            "broken" if free < _NONE_BYTES else "warning",
            f"the disk of data_dir {folder} has only {free // 1024**2:,} MiB left",
            "Make room, or set data_dir (PORTICO_DATA_DIR) to another disk.",
            **at,
        )


def audit_file(config: Config, places: Places) -> Iterator[Finding]:
    """Whether the audit log can be written where the configuration wants it, if that is not the data folder."""
    path = config.audit.file
    if path is None or not config.audit.enabled:
        return
    standing = path
    while not standing.exists() and standing != standing.parent:
        standing = standing.parent
    there = standing == path and path.is_file() and os.access(path, os.W_OK)
    if not there and not (standing != path and standing.is_dir() and _makes_files(standing)):
        yield Finding(
            "audit.unwritable",
            "broken",
            f"audit.file {path} cannot be written: calls would leave no line",
            "Name a file in a folder of this user, or leave it out: then it is in data_dir.",
            **places.at("audit", "file"),
        )


def _makes_files(folder: Path) -> bool:
    """Whether a file can be made there: rights alone do not tell, of a file system that holds none."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _open_to_others(folder: Path, places: Places) -> Iterator[Finding]:
    at = places.at("data_dir")
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding(
            "data_dir.open",
            "warning",
            f"others may write into data_dir {folder}, and so change what Portico believes of its servers",
            f"chmod 700 {folder}",
            **at,
        )
    readable = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.is_file() and entry.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]
    if readable and folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
        yield Finding(
            "data_dir.readable",
            "note",
            f"others may read {several(readable, 4)} in data_dir {folder}",
            f"chmod 700 {folder}",
            **at,
        )


def env_files(config: Config, places: Places) -> Iterator[Finding]:
    """Files of variables with secrets in them that everybody may read."""
    named = [(config.env_file, places.at("env_file"))]
    named += [(server.env_file, places.server(name, "env_file")) for name, server in config.servers.items()]
    for file, at in named:
        if file is None or not POSIX:
            continue
        path = Path(file)
        try:
            values, _ = read_env_file(path.read_text(encoding="utf-8", errors="replace"))
            mode = path.stat().st_mode
        except OSError:
            continue  # reported with the server that cannot be used without it
        if mode & (stat.S_IRGRP | stat.S_IROTH) and any(map(is_credential, values)):
            yield Finding(
                "env_file.readable",
                "warning",
                f"{path} holds credentials, and others on this machine may read it",
                f"chmod 600 {path}",
                **at,
            )


def config_files(files: Iterable[Path], secret_at: Iterable[Finding]) -> Iterator[Finding]:
    """Configuration files with secrets in them that everybody may read."""
    named = {finding.file for finding in secret_at}
    for path in files:
        if POSIX and named & {str(path), path.name} and path.stat().st_mode & stat.S_IROTH:
            yield Finding(
                "config.readable",
                "warning",
                f"{path.name} holds secrets in plain text, and others on this machine may read it",
                f"chmod 600 {path}",
                file=path.name,
            )
