"""The table of keys. It is created where it is missing; a later layout will need a migration."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import KeyRow
from portico.storage.sql.tables import EscapedText, acquire_lock, fetch_rows

_TABLE = "portico_keys"
_keys = sa.Table(
    _TABLE,
    sa.MetaData(),
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("name", EscapedText, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("profiles", EscapedText, nullable=False),
    sa.Column("is_read_only", sa.Boolean, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("used_at", sa.Double),
)


async def create_table(db: AsyncConnection) -> None:
    await acquire_lock(db, "keys")
    await db.run_sync(_keys.create, checkfirst=True)


async def has_table(db: AsyncConnection) -> bool:
    return await db.run_sync(lambda connection: sa.inspect(connection).has_table(_TABLE))


async def load_keys(db: AsyncConnection) -> list[KeyRow]:
    """Return all keys, the oldest first."""
    statement = sa.select(_keys).order_by(_keys.c.created_at, _keys.c.id)
    return [_to_key(row._mapping) async for row in fetch_rows(db, statement)]


async def read_stamp(db: AsyncConnection) -> tuple[Any, ...]:
    """Return what differs whenever a key was added, expires at another time or was revoked."""
    keys = _keys.c
    statement = sa.select(
        sa.func.count(),
        sa.func.max(keys.created_at),
        sa.func.count(keys.revoked_at),
        sa.func.sum(keys.revoked_at),
        sa.func.sum(keys.expires_at),
    ).select_from(_keys)
    return tuple((await db.execute(statement)).one())


async def add_key(db: AsyncConnection, key: KeyRow) -> None:
    row = {name: getattr(key, name) for name in key.__dataclass_fields__}
    await db.execute(sa.insert(_keys).values(row | {"profiles": json.dumps(key.profiles)}))


async def end_key(
    db: AsyncConnection,
    key_id: str,
    *,
    expires_at: float | None = None,
    revoked_at: float | None = None,
) -> None:
    """Set when a key expires, or that it is revoked."""
    given = {"expires_at": expires_at, "revoked_at": revoked_at}
    values = {name: at for name, at in given.items() if at is not None}
    await db.execute(sa.update(_keys).where(_keys.c.id == key_id).values(values))


async def save_use(db: AsyncConnection, used_at: Mapping[str, float]) -> None:
    """Store the time of the last use of keys by id; an earlier time changes nothing."""
    for key_id, at in sorted(used_at.items()):
        is_earlier = sa.or_(_keys.c.used_at.is_(None), _keys.c.used_at < at)
        await db.execute(
            sa.update(_keys).where(_keys.c.id == key_id, is_earlier).values(used_at=at)
        )


def _to_key(row: Mapping[str, Any]) -> KeyRow:
    fields: dict[str, Any] = {name: row[name] for name in KeyRow.__dataclass_fields__}
    fields["profiles"] = tuple(json.loads(row["profiles"]))
    return KeyRow(**fields)
