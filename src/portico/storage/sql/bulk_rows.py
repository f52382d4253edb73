"""Rows in bulk: added to those that are there, read, and kept from other writers while a table is
replaced."""

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
"""Values in one statement: drivers take less than 32,767."""
_BATCH_ROWS = 100
"""Rows that are handed over at once: to prepare them takes the event loop a few milliseconds, and
then it may turn."""


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
    """Add these rows; where one is there, these columns become the sum, the largest … of both, and
    more is `derived`.

    In the order of their keys: two gateways that add the same rows then wait for one another, and
    never in a ring. Who is `alone` with the table (`exclusively`) need not sort.
    """
    key = [column.name for column in table.primary_key.columns]
    if is_locked:
        given = rows
    else:
        given = await _sort_rows(list(rows), key)
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
    await execute_many(db, statement.on_conflict_do_update(index_elements=key, set_=changes), given)


async def _sort_rows(rows: list[Row], key: Sequence[str]) -> list[Row]:
    order = itemgetter(*key)
    if len(rows) <= _BATCH_ROWS:
        return sorted(rows, key=order)
    return await asyncio.to_thread(sorted, rows, key=order)


def _make_insert(db: AsyncConnection, table: sa.Table) -> Any:
    if db.dialect.name != "postgresql":
        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import (
        insert,  # megabytes that a gateway on SQLite never needs
    )

    return insert(table)


async def execute_many(db: AsyncConnection, statement: sa.Executable, rows: Iterable[Row]) -> None:
    """Execute it for each of these rows."""
    left = iter(rows)
    while some := list(islice(left, _BATCH_ROWS)):
        await db.execute(statement, some)


async def fetch_rows(db: AsyncConnection, statement: sa.Executable) -> AsyncGenerator[Any]:
    """The rows it finds; however many they are, the event loop may turn in between."""
    for some in (await db.execute(statement)).partitions(_BATCH_ROWS):
        for row in some:
            yield row
        await asyncio.sleep(0)


async def acquire_lock(db: AsyncConnection, name: str, *, timeout_s: int = 30) -> None:
    """Until this transaction ends, no other one has the same name. SQLite has one writer anyway."""
    if db.dialect.name == "postgresql":
        number = int.from_bytes(compute_digest("portico", name, size=8), signed=True)
        await db.exec_driver_sql(f"set local lock_timeout = '{timeout_s}s'")
        await db.exec_driver_sql(f"select pg_advisory_xact_lock({number})")
        await db.exec_driver_sql("set local lock_timeout = 0")


def split_into_chunks(keys: Iterable[bytes]) -> Iterable[list[bytes]]:
    """These keys, as many at a time as one statement takes."""
    every = list(keys)
    return (every[start : start + _MAX_VALUES] for start in range(0, len(every), _MAX_VALUES))
