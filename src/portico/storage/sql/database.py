"""Connections and transactions: any number of readers, one writer at a time, errors as advice."""

import asyncio
import contextlib
import functools
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from portico.storage.sql.database_url import (
    CommitUncertain,
    PostgresAddress,
    SqliteAddress,
    StoreUnavailable,
    is_busy,
    is_connection_lost,
    is_database_error,
    is_transient,
    to_store_error,
)

T = TypeVar("T")
DatabaseWork = Callable[[AsyncConnection], Awaitable[T]]

_SQLITE = "sqlite+aiosqlite"
_MAX_ATTEMPTS = 3
_BUSY_TIMEOUT_S = 15.0
"""Seconds; longer than another process holds SQLite's write lock, even for a large catalog."""
_SQLITE_TIMEOUT_S = 1.0
"""Seconds SQLite itself waits for a lock. Short, as its thread cannot be cancelled."""
_CONNECT_TIMEOUT_S = 10
_COMMAND_TIMEOUT_S = 120
_CLOSE_TIMEOUT_S = 0.3
"""Seconds to wait for PostgreSQL when closing; a dead connection never answers."""
_WRITES_OPTION = "portico_writes"
"""Execution option of a transaction that will write."""


class Database:
    def __init__(self, address: PostgresAddress | SqliteAddress) -> None:
        self.address = address
        self._write_lock = asyncio.Lock()
        self._memory: sqlite3.Connection | None = None
        """Keeps a database in memory while the pool replaces a connection whose work was
        cancelled."""
        try:
            if isinstance(address, PostgresAddress):
                self._engine = _create_postgres_engine(address)
            elif address.path is not None:
                self._engine = _create_sqlite_engine(
                    sa.URL.create(_SQLITE, database=str(address.path))
                )
            else:
                name = f"file:portico-{secrets.token_hex(8)}"
                options = {"mode": "memory", "cache": "shared"}
                place = f"{name}?mode=memory&cache=shared"
                self._memory = sqlite3.connect(place, uri=True, check_same_thread=False)
                url = sa.URL.create(_SQLITE, database=name, query={**options, "uri": "true"})
                self._engine = _create_sqlite_engine(url, connections=1)
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
        await self._engine.dispose()
        if self._memory is not None:
            self._memory.close()

    async def _attempt(self, work: DatabaseWork[T], *, writes: bool) -> T:
        attempts = 0
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            attempts += 1
            committing = False
            try:
                async with self._engine.connect() as db:
                    await db.execution_options(**{_WRITES_OPTION: writes})
                    transaction = await db.begin()
                    answer = await work(db)
                    committing = writes
                    await (transaction.commit() if writes else transaction.rollback())
                    return answer
            except Exception as error:
                if not is_database_error(error):
                    raise
                can_retry = attempts < _MAX_ATTEMPTS and is_transient(error)
                if is_busy(error):
                    can_retry = time.monotonic() < deadline
                problem = to_store_error(error, self.address)
                if committing and is_connection_lost(error):
                    raise CommitUncertain(problem.message, advice=problem.advice) from error
                if committing or not can_retry:
                    raise problem from error


async def connect_postgres(address: PostgresAddress) -> Any:
    """Open an asyncpg connection, which also reads `sslmode` and the like from the URL."""
    import asyncpg

    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=_COMMAND_TIMEOUT_S,
            connection_class=_make_connection_class(),
        )
    except ValueError as error:
        if isinstance(error, asyncpg.InterfaceError):
            raise
        # An invalid number in the URL or in a PG… variable; the message may repeat a password.
        raise StoreUnavailable(
            f"PostgreSQL ({address.display_name}) cannot be used:"
            " a part of its address is not understood.",
            advice="Look at what stands after ? in `database_url`,"
            " and at the environment variables PGPORT and PGSSL….",
        ) from None


@functools.cache
def _make_connection_class() -> type[Any]:
    """Create the connection class late, because the driver is loaded late."""
    import asyncpg

    class QuickCloseConnection(asyncpg.Connection):
        """A connection that does not wait for the server when it is closed."""

        async def close(self, *, timeout: float | None = None) -> None:
            with contextlib.suppress(TimeoutError):
                await super().close(timeout=min(timeout or _CLOSE_TIMEOUT_S, _CLOSE_TIMEOUT_S))

    return QuickCloseConnection


def _create_postgres_engine(address: PostgresAddress) -> AsyncEngine:
    """Create an engine that checks connections before use, in case of a restart."""
    # SQLAlchemy never sees the URL, so nothing it logs or raises repeats the password.
    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda *_, **__: connect_postgres(address),
        pool_pre_ping=True,
        pool_size=4,
        max_overflow=4,
        hide_parameters=True,
    )


def _create_sqlite_engine(url: sa.URL, connections: int = 3) -> AsyncEngine:
    engine = create_async_engine(
        url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=connections,
        max_overflow=0,
        # Transactions are begun by `_begin_transaction`: the driver would begin them late, and as
        # readers that cannot become writers.
        connect_args={"isolation_level": None, "timeout": _SQLITE_TIMEOUT_S},
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _configure_connection)
    event.listen(engine.sync_engine, "begin", _begin_transaction)
    return engine


def _configure_connection(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # Fails, however long it waits, while another gateway does the same.
    with contextlib.suppress(sqlite3.OperationalError):
        cursor.execute("pragma journal_mode = wal")
    cursor.execute("pragma synchronous = normal")
    cursor.close()


def _begin_transaction(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES_OPTION)
    connection.exec_driver_sql("begin immediate" if writes else "begin")
