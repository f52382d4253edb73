"""Statements for the result shapes of tool definitions, one row each."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import ShapeRow
from portico.storage.sql import tables
from portico.storage.sql.bulk_rows import fetch_rows, upsert


async def save_shapes(db: AsyncConnection, rows: Sequence[ShapeRow]) -> None:
    """Insert or replace these rows."""
    values = [
        {"hash": row.hash, "results": row.results, "shape": row.shape, "seen_at": row.seen_at}
        for row in {row.hash: row for row in rows}.values()
    ]
    await upsert(db, tables.shapes, values, replaced=("results", "shape", "seen_at"))


async def load_latest_shapes(db: AsyncConnection, limit: int) -> list[ShapeRow]:
    """Return the most recently seen first."""
    table = tables.shapes.c
    wanted = sa.select(table.hash, table.results, table.shape, table.seen_at)
    ordered = wanted.order_by(table.seen_at.desc(), table.hash).limit(limit)
    return [ShapeRow(*row) async for row in fetch_rows(db, ordered)]
