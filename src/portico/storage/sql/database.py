"""Transactions: any number of readers, one writer at a time, and errors converted to advice."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from portico.storage.sql.database_url import PostgresAddress, SqliteAddress
from portico.storage.sql.engine import WRITES_OPTION, create_postgres_engine, create_sqlite_engine
from portico.storage.sql.errors import (
    CommitUncertain,
    get_sqlstate,
    is_busy,
    is_connection_lost,
    is_transient,
    to_store_error,
)

T = TypeVar("T")
DatabaseWork = Callable[[AsyncConnection], Awaitable[T]]

_MAX_ATTEMPTS = 3
_BUSY_TIMEOUT_S = 15.0
"""Seconds; longer than another process holds SQLite's write lock, even for a large catalog."""


class Database:
    """One database, for one event loop."""

    def __init__(self, address: PostgresAddress | SqliteAddress) -> None:
        self.address = address
        self._write_lock = asyncio.Lock()
        try:
            if isinstance(address, PostgresAddress):
                self._engine: AsyncEngine = create_postgres_engine(address)
            else:
                self._engine = create_sqlite_engine(address)
        except (ImportError, SQLAlchemyError) as error:
            raise to_store_error(error, address) from error

    async def read(self, work: DatabaseWork[T]) -> T:
        """Run `work` in a transaction that is rolled back."""
        return await self._attempt(work, writes=False)

    async def write(self, work: DatabaseWork[T]) -> T:
        """Run `work` in a transaction, retried where PostgreSQL asks for that."""
        async with self._write_lock:
            return await self._attempt(work, writes=True)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    async def _attempt(self, work: DatabaseWork[T], *, writes: bool) -> T:
        attempts = 0
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            attempts = attempts + 1
            committing = False
            try:
                async with self._engine.connect() as db:
                    await db.execution_options(**{WRITES_OPTION: writes})
                    transaction = await db.begin()
                    answer = await work(db)
                    committing = writes
                    await (transaction.commit() if writes else transaction.rollback())
                    return answer
            except Exception as error:
                if not _is_database_error(error):
                    raise
                if is_busy(error):
                    can_retry = time.monotonic() < deadline
                else:
                    can_retry = attempts < _MAX_ATTEMPTS and is_transient(error)
                problem = to_store_error(error, self.address)
                if committing and is_connection_lost(error):
                    raise CommitUncertain(problem.message, advice=problem.advice) from error
                if committing or not can_retry:
                    raise problem from error


def _is_database_error(error: Exception) -> bool:
    """Return whether it is an error of SQLAlchemy, of a driver or of the network.

    Errors of asyncpg while connecting are not wrapped by SQLAlchemy.
    """
    return (
        isinstance(error, SQLAlchemyError | OSError | ImportError)
        or bool(get_sqlstate(error))
        or _is_asyncpg_error(error)
    )


def _is_asyncpg_error(error: Exception) -> bool:
    return any(kind.__module__.startswith("asyncpg.") for kind in type(error).__mro__)
