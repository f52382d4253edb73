"""The tables of credentials and of their locks. Created where they are missing; a later layout will
need a migration."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.sql.tables import acquire_lock

_metadata = sa.MetaData()
_credentials = sa.Table(
    "portico_credentials",
    _metadata,
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("version", sa.String(32), nullable=False),
)
_locks = sa.Table(
    "portico_credential_locks",
    _metadata,
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("owner", sa.String(32), nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)


async def create_tables(db: AsyncConnection) -> None:
    await acquire_lock(db, "credentials")
    await db.run_sync(_metadata.create_all)


async def has_tables(db: AsyncConnection) -> bool:
    return await db.run_sync(lambda connection: sa.inspect(connection).has_table(_locks.name))


async def read_version(db: AsyncConnection, slot: str) -> str | None:
    statement = sa.select(_credentials.c.version).where(_credentials.c.slot == slot)
    return (await db.execute(statement)).scalar_one_or_none()


async def read_sealed(db: AsyncConnection, slot: str) -> tuple[bytes, str] | None:
    """Return what is stored, and its version."""
    columns = _credentials.c
    statement = sa.select(columns.sealed, columns.version).where(columns.slot == slot)
    row = (await db.execute(statement)).one_or_none()
    return None if row is None else (row.sealed, row.version)


async def write_sealed(db: AsyncConnection, slot: str, sealed: bytes, version: str) -> None:
    await acquire_lock(db, "credentials")
    await db.execute(sa.delete(_credentials).where(_credentials.c.slot == slot))
    values = {"slot": slot, "sealed": sealed, "version": version}
    await db.execute(sa.insert(_credentials).values(values))


async def delete_sealed(db: AsyncConnection, slot: str) -> bool:
    """Delete what is stored; return whether there was anything."""
    statement = sa.delete(_credentials).where(_credentials.c.slot == slot)
    return bool((await db.execute(statement)).rowcount)


async def try_lock(db: AsyncConnection, slot: str, owner: str, now: float, until: float) -> bool:
    """Take the lock of a slot until a time, unless another owner has it."""
    await acquire_lock(db, "credentials")
    is_free = sa.or_(_locks.c.until < now, _locks.c.owner == owner)
    await db.execute(sa.delete(_locks).where(_locks.c.slot == slot, is_free))
    held = sa.select(_locks.c.owner).where(_locks.c.slot == slot)
    if (await db.execute(held)).one_or_none() is not None:
        return False
    values = {"slot": slot, "owner": owner, "until": until}
    await db.execute(sa.insert(_locks).values(values))
    return True


async def unlock(db: AsyncConnection, slot: str, owner: str) -> None:
    await db.execute(sa.delete(_locks).where(_locks.c.slot == slot, _locks.c.owner == owner))
