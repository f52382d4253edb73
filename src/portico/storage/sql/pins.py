"""The table of pins that gateways share. It is created where it is missing; a later layout will
need a migration.

What was trusted on first sight is added only if no gateway has seen that item before: of two that
see different definitions first, one is right, and the other has to be looked at.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.pin_store import PinRow
from portico.storage.sql.change_notifications import notify_gateways
from portico.storage.sql.tables import (
    EscapedText,
    acquire_lock,
    compute_name_key,
    split_into_chunks,
    to_row,
    upsert,
)

_TABLE = "portico_pins"
_pins = sa.Table(
    _TABLE,
    sa.MetaData(),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("server_key", sa.LargeBinary, nullable=False, index=True),
    *(
        sa.Column(name, EscapedText, nullable=False)
        for name in ("server", "kind", "name", "digest", "person")
    ),
    sa.Column("definition", sa.LargeBinary, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
LoadDefinitions = Callable[[Sequence[PinRow]], Awaitable[Sequence[PinRow]]]


@dataclass(frozen=True)
class PinExchange:
    """What this gateway has to change in its own pins."""

    received: tuple[PinRow, ...] = ()
    """Pins of others, with their definitions."""
    overruled: tuple[PinRow, ...] = ()
    """What it has trusted on first sight although another gateway had seen something else."""


async def create_table(db: AsyncConnection) -> None:
    await acquire_lock(db, "pins")
    await db.run_sync(_pins.create, checkfirst=True)


async def exchange_pins(
    db: AsyncConnection,
    servers: Sequence[str],
    own: Sequence[PinRow],
    load_definitions: LoadDefinitions,
    *,
    origin: str,
) -> PinExchange:
    """Add the pins of this gateway (without definitions in `own`), and return those of others."""
    await create_table(db)
    known = {_get_key(row): row for row in await _load_heads(db, servers)}
    items = {(row.server, row.kind, row.name) for row in known.values()}
    mine = {_get_key(row): row for row in own}
    overruled = tuple(
        row
        for key, row in mine.items()
        if key not in known and not row.person and (row.server, row.kind, row.name) in items
    )
    refused = set(map(_get_key, overruled))
    sent = [
        row
        for key, row in mine.items()
        if key not in refused and (key not in known or (row.person and row.at > known[key].at))
    ]
    if sent:
        complete = await load_definitions(sent)
        rows = [
            to_row(row, key=_get_key(row), server_key=compute_name_key(row.server))
            for row in complete
        ]
        await upsert(db, _pins, rows, replaced=("at", "person"))
        await notify_gateways(db, "pins", sorted({row.server for row in sent}), origin=origin)
    wanted = [
        row
        for key, row in known.items()
        if key not in mine or (row.person and row.at > mine[key].at)
    ]
    return PinExchange(tuple(await _load_complete(db, wanted)), overruled)


async def _load_heads(db: AsyncConnection, servers: Iterable[str]) -> list[PinRow]:
    columns = [_pins.c[name] for name in ("server", "kind", "name", "digest", "at", "person")]
    found: list[PinRow] = []
    for chunk in split_into_chunks(map(compute_name_key, servers)):
        rows = await db.execute(sa.select(*columns).where(_pins.c.server_key.in_(chunk)))
        found += [
            PinRow(row.server, row.kind, row.name, row.digest, b"", row.at, row.person)
            for row in rows
        ]
    return found


async def _load_complete(db: AsyncConnection, heads: Sequence[PinRow]) -> list[PinRow]:
    by_key = {_get_key(row): row for row in heads}
    found: list[PinRow] = []
    for chunk in split_into_chunks(by_key):
        rows = await db.execute(
            sa.select(_pins.c.key, _pins.c.definition).where(_pins.c.key.in_(chunk))
        )
        found += [replace(by_key[key], definition=definition) for key, definition in rows]
    return found


def _get_key(row: PinRow) -> bytes:
    return compute_name_key(row.server, row.kind, row.name, row.digest)
