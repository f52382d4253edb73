"""Statements for categories and tiers. Each set is replaced as a whole."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import CategoryRow, TierRow
from portico.storage.sql import tables
from portico.storage.sql.bulk_rows import acquire_lock, fetch_rows, upsert
from portico.storage.sql.change_notifications import notify_gateways
from portico.storage.sql.text_encoding import compute_name_key


async def save_categories(db: AsyncConnection, categories: Sequence[CategoryRow]) -> None:
    """Replace all categories."""
    await acquire_lock(db, "categories")
    await db.execute(sa.delete(tables.categories))
    rows = (
        {
            "key": compute_name_key(row.name),
            "name": row.name,
            "title": row.title,
            "description": row.description,
            "tools": row.tools,
            "servers": row.servers,
        }
        for row in categories
    )
    await upsert(db, tables.categories, rows, replaced=("title", "description", "tools", "servers"))


async def load_categories(db: AsyncConnection) -> list[CategoryRow]:
    """Return every category, by name."""
    table = tables.categories.c
    wanted = sa.select(table.name, table.title, table.description, table.tools, table.servers)
    return sorted(
        [CategoryRow(*row) async for row in fetch_rows(db, wanted)], key=lambda row: row.name
    )


async def save_tiers(
    db: AsyncConnection, rows: Sequence[TierRow], *, at: float, origin: str
) -> None:
    """Replace all tiers."""
    await acquire_lock(db, "tiers")
    await db.execute(sa.delete(tables.tiers))
    values = (
        {
            "key": compute_name_key(row.server, row.tool),
            "server": row.server,
            "tool": row.tool,
            "score": row.score,
            "tier": row.tier,
        }
        for row in rows
    )
    await upsert(db, tables.tiers, values, replaced=("score", "tier"), is_locked=True)
    await upsert(db, tables.computed, [{"name": "tiers", "at": at}], replaced=("at",))
    await notify_gateways(db, "tiers", [""], origin=origin)


async def load_tiers(db: AsyncConnection) -> tuple[float, list[TierRow]]:
    """Return when tiers were computed, and the tiers, the best first."""
    if db.dialect.name == "postgresql":
        # A consistent read of the time and the rows of one computation.
        await db.exec_driver_sql("set transaction isolation level repeatable read")
    at = (
        await db.execute(sa.select(tables.computed.c.at).where(tables.computed.c.name == "tiers"))
    ).scalar()
    table = tables.tiers.c
    wanted = sa.select(table.server, table.tool, table.score, table.tier).order_by(
        table.score.desc(), table.key
    )
    return at or 0.0, [TierRow(*row) async for row in fetch_rows(db, wanted)]
