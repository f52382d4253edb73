"""Transactions: any number of readers, one writer at a time, and every error as advice."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from portico.storage.sql.address import Postgres, Sqlite
from portico.storage.sql.engine import WRITES, postgres_engine, sqlite_engine
from portico.storage.sql.trouble import RecordUncertain, explained, is_busy, is_lost, is_passing, sqlstate

Answer = TypeVar("Answer")
Work = Callable[[AsyncConnection], Awaitable[Answer]]

_ATTEMPTS = 3
_BUSY_S = 15.0
"""Longer than another process holds SQLite's write lock, a large catalog included."""


class Database:
    """One database, for one event loop."""

    def __init__(self, address: Postgres | Sqlite) -> None:
        self.address = address
        self._writing = asyncio.Lock()
        try:
            self._engine: AsyncEngine = (
                postgres_engine(address) if isinstance(address, Postgres) else sqlite_engine(address)
            )
        except (ImportError, SQLAlchemyError) as error:
            raise explained(error, address) from error

    async def read(self, work: Work[Answer]) -> Answer:
        """What `work` finds."""
        return await self._attempt(work, writes=False)

    async def write(self, work: Work[Answer]) -> Answer:
        """What `work` does, all or nothing. It is tried again where PostgreSQL asks for that."""
        async with self._writing:
            return await self._attempt(work, writes=True)

    async def close(self) -> None:
        """End every connection."""
        await self._engine.dispose()

    async def _attempt(self, work: Work[Answer], *, writes: bool) -> Answer:
        attempts, patience = 0, time.monotonic() + _BUSY_S
        while True:
            attempts, committing = attempts + 1, False
            try:
                async with self._engine.connect() as db:
                    await db.execution_options(**{WRITES: writes})
                    transaction = await db.begin()
                    answer = await work(db)
                    committing = writes
                    await (transaction.commit() if writes else transaction.rollback())
                    return answer
            except Exception as error:
                if not _is_the_databases(error):
                    raise
                again = time.monotonic() < patience if is_busy(error) else attempts < _ATTEMPTS and is_passing(error)
                problem = explained(error, self.address)
                if committing and is_lost(error):
                    raise RecordUncertain(problem.message, advice=problem.advice) from error
                if committing or not again:
                    raise problem from error


def _is_the_databases(error: Exception) -> bool:
    """An error of SQLAlchemy, of a driver (asyncpg's own come as they are while connecting) or of the network."""
    return isinstance(error, SQLAlchemyError | OSError | ImportError) or bool(sqlstate(error)) or _is_asyncpgs(error)


def _is_asyncpgs(error: Exception) -> bool:
    return any(kind.__module__.startswith("asyncpg.") for kind in type(error).__mro__)
