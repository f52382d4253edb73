"""Checks files and folders of the gateway: existing, writable, and private."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from portico.cli.doctor.checks.secrets import is_credential
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, join_names
from portico.config import Config
from portico.config_file.placeholders import parse_env_file

POSIX = os.name == "posix"
_LOW_DISK_BYTES = 500 * 1024**2
_FULL_DISK_BYTES = 50 * 1024**2


def check_data_folder(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check that the data folder can be written, is private, and has free space."""
    folder = config.data_dir
    at = locations.locate("data_dir")
    existing_folder = folder
    while not existing_folder.exists() and existing_folder != existing_folder.parent:
        existing_folder = existing_folder.parent
    if not existing_folder.is_dir():
        yield DoctorFinding(
            "data_dir.no_folder",
            "broken",
            f"data_dir {folder} cannot be made: {existing_folder} is a file",
            "Name a folder.",
            **at,
        )
        return
    if not os.access(existing_folder, os.W_OK | os.X_OK):
        yield DoctorFinding(
            "data_dir.unwritable",
            "broken",
            f"data_dir {folder} cannot be written by this user: nothing is remembered between "
            "starts",
            f"chown -R $USER {existing_folder}  or set data_dir (PORTICO_DATA_DIR) to a "
            "folder of yours",
            **at,
        )
        return
    if folder.is_dir() and POSIX:
        yield from _check_permissions(folder, locations)
    free = shutil.disk_usage(existing_folder).free
    if free < _LOW_DISK_BYTES:
        yield DoctorFinding(
            "disk.full" if free < _FULL_DISK_BYTES else "disk.low",
            "broken" if free < _FULL_DISK_BYTES else "warning",
            f"the disk of data_dir {folder} has only {free // 1024**2:,} MiB left",
            "Make room, or set data_dir (PORTICO_DATA_DIR) to another disk.",
            **at,
        )


def check_audit_file(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check that the audit log can be written, if it is not in the data folder."""
    path = config.audit.file
    if path is None or not config.audit.enabled:
        return
    existing_path = path
    while not existing_path.exists() and existing_path != existing_path.parent:
        existing_path = existing_path.parent
    is_writable = existing_path == path and path.is_file() and os.access(path, os.W_OK)
    if not is_writable and not (
        existing_path != path and existing_path.is_dir() and _can_create_file(existing_path)
    ):
        yield DoctorFinding(
            "audit.unwritable",
            "broken",
            f"audit.file {path} cannot be written: calls would leave no line",
            "Name a file in a folder of this user, or leave it out: then it is in data_dir.",
            **locations.locate("audit", "file"),
        )


def _can_create_file(folder: Path) -> bool:
    """Return whether a file can be created; permissions alone do not tell on a read-only file
    system.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _check_permissions(folder: Path, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    at = locations.locate("data_dir")
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield DoctorFinding(
            "data_dir.open",
            "warning",
            f"others may write into data_dir {folder}, and so change what Portico believes of "
            "its servers",
            f"chmod 700 {folder}",
            **at,
        )
    readable = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.is_file() and entry.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]
    if readable and folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
        yield DoctorFinding(
            "data_dir.readable",
            "note",
            f"others may read {join_names(readable, 4)} in data_dir {folder}",
            f"chmod 700 {folder}",
            **at,
        )


def check_env_files(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check for env files with secrets that others may read."""
    env_files = [(config.env_file, locations.locate("env_file"))]
    env_files += [
        (server.env_file, locations.locate_server(name, "env_file"))
        for name, server in config.servers.items()
    ]
    for file, at in env_files:
        if file is None or not POSIX:
            continue
        path = Path(file)
        try:
            values, _ = parse_env_file(path.read_text(encoding="utf-8", errors="replace"))
            mode = path.stat().st_mode
        except OSError:
            continue  # Reported with the server that cannot be used without it.
        if mode & (stat.S_IRGRP | stat.S_IROTH) and any(map(is_credential, values)):
            yield DoctorFinding(
                "env_file.readable",
                "warning",
                f"{path} holds credentials, and others on this machine may read it",
                f"chmod 600 {path}",
                **at,
            )


def check_config_files(
    files: Iterable[Path], secret_findings: Iterable[DoctorFinding]
) -> Iterator[DoctorFinding]:
    """Check for configuration files with secrets that others may read."""
    named = {finding.file for finding in secret_findings}
    for path in files:
        if POSIX and named & {str(path), path.name} and path.stat().st_mode & stat.S_IROTH:
            yield DoctorFinding(
                "config.readable",
                "warning",
                f"{path.name} holds secrets in plain text, and others on this machine may read it",
                f"chmod 600 {path}",
                file=path.name,
            )
