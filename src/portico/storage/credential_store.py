"""Credentials of servers, encrypted: in the PostgreSQL that gateways share, or in a file of the
data folder.

A slot is one credential: the hash of all that it is for. What is stored is AES-GCM of the text,
bound to its slot, so that rows cannot be exchanged. A lock is a row with an end, so that one
process of all renews a credential; a process that dies holds it no longer than that.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from portico.storage import encryption_key
from portico.storage.sql.database_url import (
    PostgresAddress,
    SqliteAddress,
    StoreUnavailable,
    is_postgres,
    parse_address,
)
from portico.storage.sqlite_file import create_private_file

if TYPE_CHECKING:
    from portico.storage.sql.database import Database, DatabaseWork, T

FILE_NAME = "credentials.sqlite3"
LOCK_S = 60.0
"""Seconds after which the lock of a process that died is free; longer than any work under it."""
LOCK_POLL_S = 0.1
_NONCE_BYTES = 12


class CredentialStore:
    """Encrypted texts by slot. For one event loop. Failures raise StoreUnavailable."""

    def __init__(self, url: str | None, data_dir: Path | None, key: str = "") -> None:
        """`url`: PostgreSQL; without it and without a folder, nothing outlives the process.

        `key` is what the encryption key is made from; empty: the one of the folder.
        """
        self._data_dir = data_dir
        self._file = None if data_dir is None else data_dir / FILE_NAME
        self._address: PostgresAddress | SqliteAddress = SqliteAddress(self._file)
        if is_postgres(url):
            self._address = parse_address(url, None)
            self._file = None
        self._configured_key = key
        self._encryption_key: bytes | None = None
        self._database: Database | None = None
        self._is_created = False
        self._opening = asyncio.Lock()
        self._owner = secrets.token_hex(16)

    async def read(self, slot: str) -> tuple[str, str] | None:
        """Return the text of a slot and its version; None without one."""
        if not await self._exists():
            return None
        found = await self._read(lambda db: _sql().read_sealed(db, slot))
        if found is None:
            return None
        sealed, version = found
        return await asyncio.to_thread(self._open_sealed, slot, sealed), version

    async def read_version(self, slot: str) -> str | None:
        """Return what differs whenever a slot was written; None while it is empty."""
        if not await self._exists():
            return None
        return await self._read(lambda db: _sql().read_version(db, slot))

    async def write(self, slot: str, text: str) -> str:
        """Store the text of a slot; return its version."""
        sealed = await asyncio.to_thread(self._seal, slot, text)
        version = secrets.token_hex(16)
        await self._write(lambda db: _sql().write_sealed(db, slot, sealed, version))
        return version

    async def delete(self, slot: str) -> bool:
        """Delete what is in a slot; return whether there was anything."""
        if not await self._exists():
            return False
        return await self._write(lambda db: _sql().delete_sealed(db, slot))

    @asynccontextmanager
    async def hold_lock(self, slot: str) -> AsyncGenerator[None]:
        """Hold the lock of a slot against all processes."""
        owner = f"{self._owner[:16]}{secrets.token_hex(8)}"
        while not await self._try_lock(slot, owner):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(LOCK_POLL_S)
        try:
            yield
        finally:
            # Otherwise it ends by itself.
            with contextlib.suppress(StoreUnavailable):
                await asyncio.shield(self._write(lambda db: _sql().unlock(db, slot, owner)))

    async def close(self) -> None:
        database = self._database
        self._database = None
        if database is not None:
            await database.close()

    async def _try_lock(self, slot: str, owner: str) -> bool:
        now = time.time()
        return await self._write(lambda db: _sql().try_lock(db, slot, owner, now, now + LOCK_S))

    async def _exists(self) -> bool:
        """Return whether anything was ever stored; creates nothing."""
        if self._is_created:
            return True
        file = self._file
        if file is not None and not await asyncio.to_thread(file.exists):
            return False
        self._is_created = await self._read(lambda db: _sql().has_tables(db))
        return self._is_created

    async def _read(self, work: "DatabaseWork[T]") -> "T":
        return await (await self._open()).read(work)

    async def _write(self, work: "DatabaseWork[T]") -> "T":
        if not self._is_created:
            if self._file is not None:
                await asyncio.to_thread(_create_file, self._file)
            await (await self._open()).write(lambda db: _sql().create_tables(db))
            self._is_created = True
        return await (await self._open()).write(work)

    async def _open(self) -> "Database":
        async with self._opening:
            if self._database is None:
                self._database = await asyncio.to_thread(_make_database, self._address)
            return self._database

    def _seal(self, slot: str, text: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._make_cipher().encrypt(nonce, text.encode(), slot.encode())

    def _open_sealed(self, slot: str, sealed: bytes) -> str:
        from cryptography.exceptions import InvalidTag

        nonce = sealed[:_NONCE_BYTES]
        try:
            return self._make_cipher().decrypt(nonce, sealed[_NONCE_BYTES:], slot.encode()).decode()
        except InvalidTag:
            raise StoreUnavailable(
                "a stored credential was encrypted with another key",
                advice="Gateways that share a database need the same `credentials_key`. Where the "
                "key is lost, `portico logout NAME` and `portico login NAME` begin anew.",
            ) from None

    def _make_cipher(self):  # noqa: ANN202  (imported late: it takes 50 ms)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self._encryption_key is None:
            self._encryption_key = self._load_key()
        return AESGCM(self._encryption_key)

    def _load_key(self) -> bytes:
        if self._configured_key:
            return encryption_key.derive_key(self._configured_key)
        if self._data_dir is None:
            return os.urandom(encryption_key.KEY_BYTES)
        return encryption_key.load_or_create_key(self._data_dir)


def _create_file(path: Path) -> None:
    try:
        create_private_file(path)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be made: {error.strerror}",
            advice="Credentials are kept there: see that the folder can be written.",
        ) from error


def _make_database(address: PostgresAddress | SqliteAddress) -> "Database":
    """Load the SQL modules, which takes 0.25 s, and open the database; runs in a thread."""
    _sql()
    from portico.storage.sql.database import Database

    return Database(address)


def _sql():  # noqa: ANN202  (modules have no expressible type)
    from portico.storage.sql import credentials

    return credentials
