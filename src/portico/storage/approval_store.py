"""Stored approvals: in the PostgreSQL that gateways share, or in a file of their own in the data
folder, so that commands, replicas and the next start of the gateway see them.

Nothing is created, and the SQL modules are not loaded, before the first request.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from portico.storage.rows import ApprovalRow, ApprovalState
from portico.storage.sql.database_url import (
    PostgresAddress,
    SqliteAddress,
    is_postgres,
    parse_address,
)
from portico.storage.sqlite_file import create_private_file

if TYPE_CHECKING:
    from portico.storage.sql.database import Database, DatabaseWork, T

FILE_NAME = "approvals.sqlite3"
MAX_PENDING = 1_000
MAX_PENDING_OF_PERSON = 50


class ApprovalStore:
    """The stored approvals. For one event loop. Failures raise StoreUnavailable or OSError."""

    def __init__(
        self, url: str | None, data_dir: Path | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`url`: PostgreSQL; else they are in a file of the data folder, or in memory."""
        self._path = data_dir / FILE_NAME if data_dir is not None else None
        self._address: PostgresAddress | SqliteAddress = SqliteAddress(self._path)
        if is_postgres(url):
            self._address = parse_address(url, None)
        self.clock = clock
        self._database: Database | None = None
        self._open_lock = asyncio.Lock()

    async def load(self) -> list[ApprovalRow]:
        """Return all that have not expired, the oldest first."""
        if not await self._exists():
            return []
        return await self._read(lambda db: _sql().load(db, self.clock()))

    async def load_states(self, ids: Collection[str]) -> dict[str, ApprovalRow]:
        """Return those of these ids that have not expired."""
        if not await self._exists():
            return {}
        return await self._read(lambda db: _sql().load_states(db, ids, self.clock()))

    async def take(self, wanted: ApprovalRow) -> ApprovalRow | None:
        """Use an approval of the same binding (`used`), or return its denial (`denied`) or the
        request for it (`pending`), if there is any."""
        if not await self._exists():
            return None
        return await self._write(lambda db: _sql().take(db, wanted))

    async def take_or_request(self, wanted: ApprovalRow) -> ApprovalRow | None:
        """Do as `take`, and store the request where there is none; None: too many are pending."""
        await self._create()
        return await self._write(
            lambda db: _sql().take_or_request(db, wanted, MAX_PENDING, MAX_PENDING_OF_PERSON)
        )

    async def decide(
        self,
        approval_id: str,
        state: ApprovalState,
        *,
        by: str,
        via: str,
        reason: str = "",
        valid_s: float,
    ) -> bool:
        """Approve or deny a request; return False if it is not pending (any more)."""
        if not await self._exists():
            return False
        now = self.clock()
        return await self._write(
            lambda db: _sql().decide(
                *(db, approval_id, state),
                by=by,
                via=via,
                reason=reason,
                now=now,
                expires_at=now + valid_s,
            )
        )

    async def close(self) -> None:
        database = self._database
        self._database = None
        if database is not None:
            await database.close()

    async def _exists(self) -> bool:
        """Return whether approvals were ever stored."""
        if isinstance(self._address, SqliteAddress):
            if self._path is None and self._database is None:
                return False
            if self._path is not None and not await asyncio.to_thread(self._path.exists):
                return False
        return await self._read(lambda db: _sql().has_table(db))

    async def _create(self) -> None:
        if self._path is not None and isinstance(self._address, SqliteAddress):
            await asyncio.to_thread(create_private_file, self._path)
        await self._write(lambda db: _sql().create_table(db))

    async def _read(self, work: "DatabaseWork[T]") -> "T":
        return await (await self._open()).read(work)

    async def _write(self, work: "DatabaseWork[T]") -> "T":
        return await (await self._open()).write(work)

    async def _open(self) -> "Database":
        async with self._open_lock:
            if self._database is None:
                self._database = await asyncio.to_thread(_make_database, self._address)
            return self._database


def _make_database(address: PostgresAddress | SqliteAddress) -> "Database":
    """Load the SQL modules, which takes 0.25 s, and open the database; runs in a thread."""
    _sql()
    from portico.storage.sql.database import Database

    return Database(address)


def _sql():  # noqa: ANN202  (modules have no expressible type)
    from portico.storage.sql import approvals

    return approvals
