"""Stored keys: in the PostgreSQL that gateways share, or in a file of their own in the data folder.

A file of their own, because the record of use is replaced by a new one when it is damaged: keys are
not, what cannot be read is an error. Where the file is missing there are no keys, and the SQL
modules are not loaded.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from portico.storage.rows import KeyRow
from portico.storage.sql.database_url import (
    PostgresAddress,
    SqliteAddress,
    is_postgres,
    parse_address,
)
from portico.storage.sqlite_file import create_private_file

if TYPE_CHECKING:
    from portico.storage.sql.database import Database, DatabaseWork, T

FILE_NAME = "keys.sqlite3"


class KeyStore:
    """The stored keys. For one event loop. Failures raise StoreUnavailable or OSError."""

    def __init__(self, url: str | None, data_dir: Path) -> None:
        """`url`: PostgreSQL; else the keys are in a file of the data folder."""
        self._path = data_dir / FILE_NAME
        self._address: PostgresAddress | SqliteAddress = SqliteAddress(self._path)
        if is_postgres(url):
            self._address = parse_address(url, None)
        self._database: Database | None = None
        self._inode = 0

    @property
    def is_shared(self) -> bool:
        """Whether gateways on other machines may use the same keys."""
        return isinstance(self._address, PostgresAddress)

    async def load(self) -> list[KeyRow]:
        """Return all keys, the oldest first; expired and revoked ones too."""
        if not await self._exists():
            return []
        return await self._read(lambda db: _sql().load_keys(db))

    async def read_stamp(self) -> object:
        """Return a value that differs whenever a key was added, revoked or given another end."""
        if not self.is_shared:
            return await asyncio.to_thread(_read_file_stamp, self._path)
        if not await self._exists():
            return None
        return await self._read(lambda db: _sql().read_stamp(db))

    async def add(self, key: KeyRow) -> None:
        await self._create()
        database = await self._open()
        await database.write(lambda db: _sql().add_key(db, key))

    async def end(
        self, key_id: str, *, expires_at: float | None = None, revoked_at: float | None = None
    ) -> None:
        """Set when a key expires, or that it is revoked."""
        database = await self._open()
        await database.write(
            lambda db: _sql().end_key(db, key_id, expires_at=expires_at, revoked_at=revoked_at)
        )

    async def save_use(self, used_at: Mapping[str, float]) -> None:
        if await self._exists():
            database = await self._open()
            await database.write(lambda db: _sql().save_use(db, used_at))

    async def close(self) -> None:
        database = self._database
        self._database = None
        if database is not None:
            await database.close()

    async def _exists(self) -> bool:
        """Return whether keys were ever stored."""
        if not self.is_shared and not await asyncio.to_thread(self._path.exists):
            return False
        return await self._read(lambda db: _sql().has_table(db))

    async def _create(self) -> None:
        if not self.is_shared:
            await asyncio.to_thread(create_private_file, self._path)
        database = await self._open()
        await database.write(lambda db: _sql().create_table(db))

    async def _read(self, work: "DatabaseWork[T]") -> "T":
        return await (await self._open()).read(work)

    async def _open(self) -> "Database":
        """Return the open database; a file that was replaced is opened again."""
        if not self.is_shared:
            inode = (await asyncio.to_thread(self._path.stat)).st_ino
            if inode != self._inode:
                await self.close()
            self._inode = inode
        if self._database is None:
            self._database = await asyncio.to_thread(_make_database, self._address)
        return self._database


def _read_file_stamp(path: Path) -> object:
    """Return a value that differs after every write to a SQLite file; None without a file."""
    stamps: list[tuple[int, int, int]] = []
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)
        except FileNotFoundError:
            continue
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps) or None


def _make_database(address: PostgresAddress | SqliteAddress) -> "Database":
    """Load the SQL modules, which takes 0.25 s, and open the database; runs in a thread."""
    _sql()
    from portico.storage.sql.database import Database

    return Database(address)


def _sql():  # noqa: ANN202  (modules have no expressible type)
    from portico.storage.sql import keys

    return keys
