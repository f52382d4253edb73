"""Checks files and folders of the gateway, and its database: usable, intact and private."""

import asyncio
import importlib.util
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from portico.cli.doctor.configuration_checks import is_credential
from portico.cli.doctor.finding import (
    NOWHERE,
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    broken,
    join_names,
    note,
    warning,
)
from portico.config import Config
from portico.config_file.placeholders import parse_env_file
from portico.gateway import HABITS_FILE, MANIFEST_FILE, RECORD_FILE
from portico.storage.sql.database_url import (
    PostgresAddress,
    SqliteAddress,
    StoreUnavailable,
    parse_address,
)

POSIX = os.name == "posix"
_LOW_DISK_BYTES = 500 * 1024**2
_FULL_DISK_BYTES = 50 * 1024**2
_CONNECT_S = 15.0
_MIN_SERVER_VERSION = 130_000
"""PostgreSQL 13; older versions are not maintained any more."""


def check_data_folder(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check that the data folder can be written, is private, and has free space."""
    folder = config.data_dir
    at = locations.locate("data_dir")
    existing_folder = _find_existing(folder)
    if not existing_folder.is_dir():
        yield broken(
            "data_dir.no_folder",
            f"data_dir {folder} cannot be made: {existing_folder} is a file",
            "Name a folder.",
            at,
        )
        return
    if not os.access(existing_folder, os.W_OK | os.X_OK):
        yield broken(
            "data_dir.unwritable",
            f"data_dir {folder} cannot be written by this user: nothing is remembered between "
            "starts",
            f"chown -R $USER {existing_folder}  or set data_dir (PORTICO_DATA_DIR) to a "
            "folder of yours",
            at,
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
            at,
        )


def check_audit_file(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check that the audit log can be written, if it is not in the data folder."""
    path = config.audit.file
    if path is None or not config.audit.enabled:
        return
    existing_path = _find_existing(path)
    if existing_path == path:
        is_writable = path.is_file() and os.access(path, os.W_OK)
    else:
        is_writable = existing_path.is_dir() and _can_create_file(existing_path)
    if not is_writable:
        yield broken(
            "audit.unwritable",
            f"audit.file {path} cannot be written: calls would leave no line",
            "Name a file in a folder of this user, or leave it out: then it is in data_dir.",
            locations.locate("audit", "file"),
        )


def _find_existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


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
        yield warning(
            "data_dir.open",
            f"others may write into data_dir {folder}, and so change what Portico believes of "
            "its servers",
            f"chmod 700 {folder}",
            at,
        )
    readable = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.is_file() and entry.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]
    if readable and folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
        yield note(
            "data_dir.readable",
            f"others may read {join_names(readable, 4)} in data_dir {folder}",
            f"chmod 700 {folder}",
            at,
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
            yield warning(
                "env_file.readable",
                f"{path} holds credentials, and others on this machine may read it",
                f"chmod 600 {path}",
                at,
            )


def check_config_files(
    files: Iterable[Path], secret_findings: Iterable[DoctorFinding]
) -> Iterator[DoctorFinding]:
    """Check for configuration files with secrets that others may read."""
    named = {finding.at.file for finding in secret_findings}
    for path in files:
        if POSIX and named & {str(path), path.name} and path.stat().st_mode & stat.S_IROTH:
            yield warning(
                "config.readable",
                f"{path.name} holds secrets in plain text, and others on this machine may read it",
                f"chmod 600 {path}",
                ConfigLocation(file=path.name),
            )


async def check_database(
    config: Config, locations: ConfigLocations, *, offline: bool
) -> tuple[str, list[DoctorFinding]]:
    """Return a description of the database's location, and what is wrong with it."""
    secret = config.database_url
    url = secret.get_secret_value() if secret is not None else None
    at = locations.locate("database_url")
    try:
        address = parse_address(url, config.data_dir / RECORD_FILE)
    except StoreUnavailable as error:
        return "", [broken("database.address", error.message, error.advice, at)]
    others = [config.data_dir / name for name in (MANIFEST_FILE, HABITS_FILE)]
    found: list[DoctorFinding] = []
    for path in others:
        found += await asyncio.to_thread(_check_sqlite, path, NOWHERE)
    if isinstance(address, SqliteAddress):
        own = await asyncio.to_thread(
            _check_sqlite, address.path, at if url else locations.locate("data_dir"), record=True
        )
        return f"SQLite {sqlite3.sqlite_version}, {address.display_name}", [*own, *found]
    if importlib.util.find_spec("asyncpg") is None:
        remedy = "pip install 'portico-mcp[postgres]'"
        missing = broken(
            "database.driver_missing", "the driver for PostgreSQL is not installed", remedy, at
        )
        return f"PostgreSQL, {address.display_name}", [missing, *found]
    if offline:
        return f"PostgreSQL, {address.display_name} (not asked)", found
    description, own = await _check_postgres(address, at)
    return description, [*own, *found]


def _check_sqlite(
    path: Path | None, at: ConfigLocation, *, record: bool = False
) -> list[DoctorFinding]:
    if path is None or not path.exists():
        return []  # It is created at the first use.
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        try:
            row = database.execute("pragma quick_check(1)").fetchone()
            result = str(row[0]) if row else "no answer"
            version = _read_tables_version(database) if record else None
        finally:
            database.close()
    except sqlite3.Error as error:
        result = str(error)
        version = None
    if result == "ok":
        return _check_tables_version(version, at)
    if "unable to open" in result or "locked" in result:
        message = f"{path} cannot be opened: {result}"
        return [broken("database.unreadable", message, f"chmod 600 {path}", at)]
    remedy = f"mv {path} {path}.damaged  (Portico creates a new one; what it held is lost)"
    return [broken("database.damaged", f"{path} is damaged: {result}", remedy, at)]


def _read_tables_version(database: sqlite3.Connection) -> str | None:
    from portico.storage.sql.migrations import VERSION_TABLE

    try:
        query = f"select version_num from {VERSION_TABLE}"  # noqa: S608 - our own name
        row = database.execute(query).fetchone()
    except sqlite3.OperationalError:
        return None
    if row:
        return str(row[0])
    return None


def _check_tables_version(version: str | None, at: ConfigLocation) -> list[DoctorFinding]:
    from portico.storage.sql.migrations import HEAD

    if version is None or version == HEAD:
        return []
    if version > HEAD:
        message = (
            f"the record was made by a newer Portico (its tables are version {version}, this "
            f"one knows {HEAD})"
        )
        return [broken("database.newer", message, "pip install -U portico-mcp", at)]
    message = f"the record's tables are version {version}; the next start brings them to {HEAD}"
    remedy = "Nothing need be done; older Porticos cannot use it afterwards."
    return [note("database.older", message, remedy, at)]


async def _check_postgres(
    address: PostgresAddress, at: ConfigLocation
) -> tuple[str, list[DoctorFinding]]:
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import AsyncConnection

    from portico.storage.sql.database import Database
    from portico.storage.sql.migrations import read_version

    async def read_versions(db: AsyncConnection) -> tuple[str, int, str | None]:
        name = str((await db.execute(sa.text("show server_version"))).scalar())
        number = int(str((await db.execute(sa.text("show server_version_num"))).scalar()))
        return name, number, await db.run_sync(read_version)

    try:
        database = Database(address)
        try:
            name, number, version = await asyncio.wait_for(database.read(read_versions), _CONNECT_S)
        finally:
            await database.close()
    except TimeoutError:
        message = f"PostgreSQL ({address.display_name}) did not answer within {_CONNECT_S:g} s"
        advice = "See that it runs, and that host and port in `database_url` are right."
        return "PostgreSQL", [broken("database.unreachable", message, advice, at)]
    except StoreUnavailable as error:
        refused = "refused the password" in error.message or "refused the user" in error.message
        kind = "database.refused" if refused else "database.unreachable"
        return "PostgreSQL", [broken(kind, error.message, error.advice, at)]
    found = _check_tables_version(version, at)
    if number < _MIN_SERVER_VERSION:
        message = f"PostgreSQL {name} is no longer maintained"
        remedy = "Move to PostgreSQL 14 or newer."
        found.insert(0, warning("database.old_server", message, remedy, at))
    return f"PostgreSQL {name}, {address.display_name}", found
