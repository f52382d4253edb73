"""SQLAlchemy engines for SQLite and PostgreSQL."""

import contextlib
import functools
import sqlite3
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from portico.storage.sql.database_url import PostgresAddress, SqliteAddress
from portico.storage.sql.errors import StoreUnavailable

WRITES_OPTION = "portico_writes"
"""Execution option of a transaction that will write."""
_CONNECT_TIMEOUT_S = 10
_COMMAND_TIMEOUT_S = 120
_CLOSE_TIMEOUT_S = 0.3
"""Seconds to wait for PostgreSQL when closing; a dead connection never answers."""
_BUSY_TIMEOUT_S = 1.0
"""Seconds SQLite itself waits for a lock. Short, as its thread cannot be cancelled; `database`
retries."""


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


def create_postgres_engine(address: PostgresAddress) -> AsyncEngine:
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


def create_sqlite_engine(address: SqliteAddress) -> AsyncEngine:
    """Create an engine with several connections to a file, or one to memory."""
    in_memory = address.path is None
    engine = create_async_engine(
        sa.URL.create("sqlite+aiosqlite", database=":memory:" if in_memory else str(address.path)),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=1 if in_memory else 3,
        max_overflow=0,
        # Transactions are begun by `_begin_transaction`: the driver would begin them late, and as
        # readers that cannot become writers.
        connect_args={"isolation_level": None, "timeout": _BUSY_TIMEOUT_S},
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
    writes = connection.get_execution_options().get(WRITES_OPTION)
    connection.exec_driver_sql("begin immediate" if writes else "begin")
