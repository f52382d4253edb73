"""Checks that the database opens, is intact and has the expected tables. Changes nothing."""

import asyncio
import importlib.util
import sqlite3
from pathlib import Path
from typing import Any

from portico.app import HABITS_FILE, MANIFEST_FILE, RECORD_FILE
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import Config
from portico.storage.sql.database_url import PostgresAddress, SqliteAddress, parse_address
from portico.storage.sql.errors import StoreUnavailable

_CONNECT_S = 15.0
_MIN_SERVER_VERSION = 130_000
"""PostgreSQL 13; older versions are not maintained any more."""


async def check(
    config: Config, locations: ConfigLocations, *, offline: bool
) -> tuple[str, list[DoctorFinding]]:
    """Return a description of the database's location, and what is wrong with it."""
    if config.database_url is not None:
        url = config.database_url.get_secret_value()
    else:
        url = None
    at = locations.locate("database_url")
    try:
        address = parse_address(url, config.data_dir / RECORD_FILE)
    except StoreUnavailable as error:
        return "", [DoctorFinding("database.address", "broken", error.message, error.advice, **at)]
    others = [config.data_dir / name for name in (MANIFEST_FILE, HABITS_FILE)]
    found = [
        finding for path in others for finding in await asyncio.to_thread(_check_sqlite, path, {})
    ]
    if isinstance(address, SqliteAddress):
        own = await asyncio.to_thread(
            _check_sqlite, address.path, at if url else locations.locate("data_dir"), record=True
        )
        return f"SQLite {sqlite3.sqlite_version}, {address.display_name}", [*own, *found]
    if importlib.util.find_spec("asyncpg") is None:
        remedy = "pip install 'portico-mcp[postgres]'"
        missing = DoctorFinding(
            "database.driver_missing",
            "broken",
            "the driver for PostgreSQL is not installed",
            remedy,
            **at,
        )
        return f"PostgreSQL, {address.display_name}", [missing, *found]
    if offline:
        return f"PostgreSQL, {address.display_name} (not asked)", found
    description, own = await _check_postgres(address, at)
    return description, [*own, *found]


def _check_sqlite(
    path: Path | None, at: dict[str, Any], *, record: bool = False
) -> list[DoctorFinding]:
    if path is None or not path.exists():
        return []  # It is created at the first use.
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        try:
            result = database.execute("pragma quick_check(1)").fetchone()
            if record:
                version = _read_tables_version(database)
            else:
                version = None
        finally:
            database.close()
    except sqlite3.Error as error:
        result = (str(error),)
        version = None
    if result is None or result[0] != "ok":
        if result:
            reason = result[0]
        else:
            reason = "no answer"
        if "unable to open" in str(reason) or "locked" in str(reason):
            return [
                DoctorFinding(
                    "database.unreadable",
                    "broken",
                    f"{path} cannot be opened: {reason}",
                    f"chmod 600 {path}",
                    **at,
                )
            ]
        remedy = f"mv {path} {path}.damaged  (Portico begins it anew; what it held is lost)"
        return [
            DoctorFinding(
                "database.damaged", "broken", f"{path} is damaged: {reason}", remedy, **at
            )
        ]
    if record:
        return _check_tables_version(version, at)
    return []


def _read_tables_version(database: sqlite3.Connection) -> str | None:
    from portico.storage.sql.migration import VERSION_TABLE

    try:
        row = database.execute(f"select version_num from {VERSION_TABLE}").fetchone()  # noqa: S608 - our own name
    except sqlite3.OperationalError:
        return None
    if row:
        return str(row[0])
    return None


def _check_tables_version(version: str | None, at: dict[str, Any]) -> list[DoctorFinding]:
    from portico.storage.sql.migration import HEAD

    if version is None or version == HEAD:
        return []
    if version > HEAD:
        message = (
            f"the record was made by a newer Portico (its tables are version {version}, this "
            f"one knows {HEAD})"
        )
        return [
            DoctorFinding("database.newer", "broken", message, "pip install -U portico-mcp", **at)
        ]
    message = f"the record's tables are version {version}; the next start brings them to {HEAD}"
    return [
        DoctorFinding(
            "database.older",
            "note",
            message,
            "Nothing need be done; older Porticos cannot use it afterwards.",
            **at,
        )
    ]


async def _check_postgres(
    address: PostgresAddress, at: dict[str, Any]
) -> tuple[str, list[DoctorFinding]]:
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import AsyncConnection

    from portico.storage.sql.database import Database
    from portico.storage.sql.migration import VERSION_TABLE

    async def read_versions(db: AsyncConnection) -> tuple[str, int, str | None]:
        name = str((await db.execute(sa.text("show server_version"))).scalar())
        number = int(str((await db.execute(sa.text("show server_version_num"))).scalar()))
        if not await db.run_sync(
            lambda connection: sa.inspect(connection).has_table(VERSION_TABLE)
        ):
            return name, number, None
        table = sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))
        return name, number, (await db.execute(table)).scalar()

    try:
        database = Database(address)
        try:
            name, number, version = await asyncio.wait_for(database.read(read_versions), _CONNECT_S)
        finally:
            await database.close()
    except TimeoutError:
        message = f"PostgreSQL ({address.display_name}) did not answer within {_CONNECT_S:g} s"
        advice = "See that it runs, and that host and port in `database_url` are right."
        return "PostgreSQL", [
            DoctorFinding("database.unreachable", "broken", message, advice, **at)
        ]
    except StoreUnavailable as error:
        refused = "refused the password" in error.message or "refused the user" in error.message
        if refused:
            kind = "database.refused"
        else:
            kind = "database.unreachable"
        return "PostgreSQL", [DoctorFinding(kind, "broken", error.message, error.advice, **at)]
    description = f"PostgreSQL {name}, {address.display_name}"
    if number < _MIN_SERVER_VERSION:
        message = f"PostgreSQL {name} is no longer maintained"
        finding = DoctorFinding(
            "database.old_server", "warning", message, "Move to PostgreSQL 14 or newer.", **at
        )
        return description, [finding, *_check_tables_version(version, at)]
    return description, _check_tables_version(version, at)
