"""Migrates the tables once, however many gateways start at the same time.

A current schema is recognised by one query; Alembic is only loaded if there is something to do.
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
    """Migrate the tables to this version; raises StoreUnavailable if they are newer."""
    if await database.read(_read_version) != HEAD:
        alembic_upgrade = await asyncio.to_thread(
            importlib.import_module, "portico.storage.sql.alembic_upgrade"
        )

        async def upgrade(db: AsyncConnection) -> None:
            await acquire_lock(db, "migration", timeout_s=60)
            await db.run_sync(alembic_upgrade.upgrade, VERSION_TABLE)

        await database.write(upgrade)


async def _read_version(db: AsyncConnection) -> str | None:
    if not await db.run_sync(lambda connection: sa.inspect(connection).has_table(VERSION_TABLE)):
        return None
    return (
        await db.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE)))
    ).scalar()
