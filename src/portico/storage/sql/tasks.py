"""The table of calls that their servers have made tasks of."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import TaskRow
from portico.storage.sql import tables
from portico.storage.sql.tables import acquire_lock, select_fields, to_row

MAX_TASKS_OF_PERSON = 1_000
"""Tasks of one principal; above it the oldest is forgotten."""


async def save_task(db: AsyncConnection, row: TaskRow) -> None:
    """Store a task, and delete those that have expired."""
    await acquire_lock(db, "tasks")
    columns = tables.tasks.c
    await db.execute(sa.delete(tables.tasks).where(columns.expires_at <= row.created_at))
    own = sa.select(columns.key).where(columns.person == row.person)
    newest = own.order_by(columns.created_at.desc()).offset(MAX_TASKS_OF_PERSON - 1).limit(100)
    surplus = [key for (key,) in await db.execute(newest)]
    if surplus:
        await db.execute(sa.delete(tables.tasks).where(columns.key.in_(surplus)))
    await db.execute(sa.insert(tables.tasks).values(to_row(row)))


async def load_task(db: AsyncConnection, key: str, now: float) -> TaskRow | None:
    """Return what is stored under a key, unless it has expired."""
    columns = tables.tasks.c
    wanted = select_fields(tables.tasks, TaskRow).where(columns.key == key)
    found = (await db.execute(wanted.where(columns.expires_at > now))).first()
    return TaskRow(*found) if found else None
