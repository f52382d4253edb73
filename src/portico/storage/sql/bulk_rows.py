"""Bulk statements: upserts, reads in batches, and advisory locks."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.sql.text_encoding import compute_digest

Row = dict[str, Any]
Columns = Any
"""A table's columns, by name."""

_MAX_VALUES = 10_000
"""Values in one statement; drivers allow fewer than 32,767."""
_BATCH_ROWS = 100
"""Rows per batch: preparing them takes a few milliseconds, then other tasks may run."""


async def upsert(
    db: AsyncConnection,
    table: sa.Table,
    rows: Iterable[Row],
    *,
    sums: Sequence[str] = (),
    largest: Sequence[str] = (),
    smallest: Sequence[str] = (),
    replaced: Sequence[str] = (),
    derive: Callable[[Columns, Columns], Mapping[str, Any]] | None = None,
    is_locked: bool = False,
) -> None:
    """Insert rows; existing ones get the sum, maximum … of both values, or what `derive` returns.

    Sorted by key, so that two gateways that write the same rows cannot deadlock. Not needed where
    the table `is_locked` (`acquire_lock`).
    """
    key = [column.name for column in table.primary_key.columns]
    ordered = rows if is_locked else await _sort_rows(list(rows), key)
    statement = _make_insert(db, table)
    old = table.c
    new = statement.excluded
    changes: dict[str, Any] = {name: old[name] + new[name] for name in sums}
    changes |= {
        name: sa.case((old[name] > new[name], old[name]), else_=new[name]) for name in largest
    }
    changes |= {
        name: sa.case((old[name] < new[name], old[name]), else_=new[name]) for name in smallest
    }
    changes |= {name: new[name] for name in replaced}
    changes |= derive(old, new) if derive else {}
    await execute_many(
        db, statement.on_conflict_do_update(index_elements=key, set_=changes), ordered
    )


async def _sort_rows(rows: list[Row], key: Sequence[str]) -> list[Row]:
    order = itemgetter(*key)
    if len(rows) <= _BATCH_ROWS:
        return sorted(rows, key=order)
    return await asyncio.to_thread(sorted, rows, key=order)


def _make_insert(db: AsyncConnection, table: sa.Table) -> Any:
    if db.dialect.name != "postgresql":
        return sqlite_insert(table)
    # Megabytes that a gateway on SQLite never needs.
    from sqlalchemy.dialects.postgresql import insert

    return insert(table)


async def execute_many(db: AsyncConnection, statement: sa.Executable, rows: Iterable[Row]) -> None:
    """Execute a statement for each of these rows, in batches."""
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH_ROWS)):
        await db.execute(statement, batch)


async def fetch_rows(db: AsyncConnection, statement: sa.Executable) -> AsyncGenerator[Any]:
    """Yield the rows of a statement, letting other tasks run between batches."""
    for batch in (await db.execute(statement)).partitions(_BATCH_ROWS):
        for row in batch:
            yield row
        await asyncio.sleep(0)


async def acquire_lock(db: AsyncConnection, name: str, *, timeout_s: int = 30) -> None:
    """Hold a named lock until the transaction ends. No-op on SQLite, which has one writer."""
    if db.dialect.name == "postgresql":
        number = int.from_bytes(compute_digest("portico", name, size=8), signed=True)
        await db.exec_driver_sql(f"set local lock_timeout = '{timeout_s}s'")
        await db.exec_driver_sql(f"select pg_advisory_xact_lock({number})")
        await db.exec_driver_sql("set local lock_timeout = 0")


def split_into_chunks(keys: Iterable[bytes]) -> Iterable[list[bytes]]:
    """Split keys into chunks that fit into one statement."""
    all_keys = list(keys)
    return (all_keys[start : start + _MAX_VALUES] for start in range(0, len(all_keys), _MAX_VALUES))
