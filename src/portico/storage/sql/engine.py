"""Connections to either database, as SQLAlchemy wants them."""

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
"""The execution option of a transaction that will write."""
_CONNECT_TIMEOUT_S = 10
_COMMAND_TIMEOUT_S = 120
_CLOSE_TIMEOUT_S = 0.3
"""How long a connection that is closed waits for PostgreSQL to agree: one that has fallen silent
never does."""
_BUSY_TIMEOUT_S = 1.0
"""How long SQLite itself waits for a lock: a thread that waits cannot be called off, so `database`
asks again."""


async def connect_postgres(address: PostgresAddress) -> Any:
    """A connection of asyncpg's own, which also reads `sslmode` and its kind from the URL."""
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
        # A number that is none, in the URL or in a PG… variable; its words may repeat a password.
        raise StoreUnavailable(
            f"PostgreSQL ({address.display_name}) cannot be used: a part of its address is not understood.",
            advice="Look at what stands after ? in `database_url`, and at the environment variables PGPORT and PGSSL….",
        ) from None


@functools.cache
def _make_connection_class() -> type[Any]:
    """Made late, because the driver is loaded late."""
    import asyncpg

    class QuickCloseConnection(asyncpg.Connection):
        """A connection whose end is not waited for."""

        async def close(self, *, timeout: float | None = None) -> None:
            with contextlib.suppress(TimeoutError):
                await super().close(timeout=min(timeout or _CLOSE_TIMEOUT_S, _CLOSE_TIMEOUT_S))

    return QuickCloseConnection


def create_postgres_engine(address: PostgresAddress) -> AsyncEngine:
    """Connections that are looked at before use: PostgreSQL may have restarted meanwhile."""
    # SQLAlchemy never hears the URL, so nothing it logs or raises repeats the password.
    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda *_, **__: connect_postgres(address),
        pool_pre_ping=True,
        pool_size=4,
        max_overflow=4,
        hide_parameters=True,
    )


def create_sqlite_engine(address: SqliteAddress) -> AsyncEngine:
    """Connections to one file, each with a thread of its own; one connection to memory."""
    in_memory = address.path is None
    engine = create_async_engine(
        sa.URL.create("sqlite+aiosqlite", database=":memory:" if in_memory else str(address.path)),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=1 if in_memory else 3,
        max_overflow=0,
        # Transactions are begun below: the driver would begin them late, and as readers that cannot
        # become writers.
        connect_args={"isolation_level": None, "timeout": _BUSY_TIMEOUT_S},
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _configure_connection)
    event.listen(engine.sync_engine, "begin", _begin_transaction)
    return engine


def _configure_connection(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # No waiting brings it about while another gateway does the same.
    with contextlib.suppress(sqlite3.OperationalError):
        cursor.execute("pragma journal_mode = wal")
    cursor.execute("pragma synchronous = normal")
    cursor.close()


def _begin_transaction(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(WRITES_OPTION)
    connection.exec_driver_sql("begin immediate" if writes else "begin")
