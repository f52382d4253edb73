"""Bringing the tables up to date, once, however many gateways start at the same moment.

A record that is up to date is recognised by one query; Alembic is only loaded where there is
something to do.
"""

import asyncio
import importlib

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.sql.bulk_rows import acquire_lock
from portico.storage.sql.database import Database

HEAD = "0002"
"""The newest file in `versions/`."""
VERSION_TABLE = "portico_version"


async def migrate(database: Database) -> None:
    """Make the tables what this version of Portico expects; raises where another one's are newer."""
    if await database.read(_read_version) != HEAD:
        upgrading = await asyncio.to_thread(
            importlib.import_module, "portico.storage.sql.alembic_upgrade"
        )

        async def upgrade(db: AsyncConnection) -> None:
            await acquire_lock(db, "migration", timeout_s=60)
            await db.run_sync(upgrading.upgrade, VERSION_TABLE)

        await database.write(upgrade)


async def _read_version(db: AsyncConnection) -> str | None:
    if not await db.run_sync(lambda connection: sa.inspect(connection).has_table(VERSION_TABLE)):
        return None
    return (
        await db.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE)))
    ).scalar()
