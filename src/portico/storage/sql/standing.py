"""What the gateway has worked out about tools: categories and tiers. Each is replaced whole."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import CategoryRow, TierRow
from portico.storage.sql import tables
from portico.storage.sql.news import tell
from portico.storage.sql.text import name_key
from portico.storage.sql.upsert import exclusively, found, upsert


async def save_categories(db: AsyncConnection, categories: Sequence[CategoryRow]) -> None:
    """These, and no others."""
    await exclusively(db, "categories")
    await db.execute(sa.delete(tables.categories))
    rows = (
        {
            "key": name_key(row.name),
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
    """Every category, by name."""
    table = tables.categories.c
    wanted = sa.select(table.name, table.title, table.description, table.tools, table.servers)
    return sorted([CategoryRow(*row) async for row in found(db, wanted)], key=lambda row: row.name)


async def save_tiers(db: AsyncConnection, rows: Sequence[TierRow], *, at: float, origin: str) -> None:
    """These, and no others."""
    await exclusively(db, "tiers")
    await db.execute(sa.delete(tables.tiers))
    every = (
        {
            "key": name_key(row.server, row.tool),
            "server": row.server,
            "tool": row.tool,
            "score": row.score,
            "tier": row.tier,
        }
        for row in rows
    )
    await upsert(db, tables.tiers, every, replaced=("score", "tier"), alone=True)
    await upsert(db, tables.computed, [{"name": "tiers", "at": at}], replaced=("at",))
    await tell(db, "tiers", [""], origin=origin)


async def load_tiers(db: AsyncConnection) -> tuple[float, list[TierRow]]:
    """When they were computed, and the best first."""
    if db.dialect.name == "postgresql":
        # The moment and the rows of one computation.
        await db.exec_driver_sql("set transaction isolation level repeatable read")
    at = (await db.execute(sa.select(tables.computed.c.at).where(tables.computed.c.name == "tiers"))).scalar()
    table = tables.tiers.c
    wanted = sa.select(table.server, table.tool, table.score, table.tier).order_by(table.score.desc(), table.key)
    return at or 0.0, [TierRow(*row) async for row in found(db, wanted)]
