"""Change notifications to other gateways, sent within the transaction that changes shared data.

Every gateway has one row per kind of change and updates its stamp: on SQLite the others poll these;
on PostgreSQL they show what happened before a gateway listened. PostgreSQL notifications also name
the server.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import ChangeNotification
from portico.storage.sql import tables
from portico.storage.sql.bulk_rows import upsert

CHANNEL = "portico_news"
CHANGE_KINDS = ("catalog", "tiers")
_MAX_BODY_CHARS = 7_000
"""Bytes of a notification; PostgreSQL allows fewer than 8,000."""
_MAX_NAMED_SERVERS = 50
"""Servers that are named individually."""

ChangeStamps = Mapping[tuple[str, str], int]
"""Latest stamps, by kind and origin."""


async def notify_gateways(
    db: AsyncConnection, kind: str, servers: Sequence[str], *, origin: str
) -> None:
    """Notify other gateways once this transaction is committed."""
    row = {"kind": kind, "origin": origin, "stamp": time.time_ns(), "at": time.time()}
    await upsert(db, tables.news, [row], replaced=("stamp", "at"))
    if db.dialect.name != "postgresql":
        return
    bodies: list[str] = []
    if len(servers) <= _MAX_NAMED_SERVERS:
        bodies = [_encode_notification(kind, server, origin) for server in servers]
    if not bodies or any(len(body) > _MAX_BODY_CHARS for body in bodies):
        bodies = [_encode_notification(kind, "", origin)]
    for body in bodies:
        await db.execute(sa.select(sa.func.pg_notify(CHANNEL, body)))


def parse_notification(body: str, origin: str) -> ChangeNotification | None:
    """Parse a notification; None if it is our own or not Portico's, as anyone may notify."""
    try:
        message: Any = json.loads(body)
    except ValueError:
        return None
    match message:
        case {"kind": str(kind), "server": str(server), "origin": str(sender)} if (
            kind in CHANGE_KINDS and sender != origin
        ):
            return ChangeNotification(kind, server)
        case _:
            return None


async def load_stamps(db: AsyncConnection) -> ChangeStamps:
    """Return the latest stamps of all gateways."""
    table = tables.news.c
    return {
        (kind, origin): stamp
        for kind, origin, stamp in await db.execute(
            sa.select(table.kind, table.origin, table.stamp)
        )
    }


def find_unseen_changes(
    before: ChangeStamps, after: ChangeStamps, origin: str
) -> list[ChangeNotification]:
    """Return the changes other gateways made between two sets of stamps."""
    changed = {
        kind
        for (kind, sender), stamp in after.items()
        if sender != origin and before.get((kind, sender)) != stamp
    }
    return [ChangeNotification(kind) for kind in CHANGE_KINDS if kind in changed]


def _encode_notification(kind: str, server: str, origin: str) -> str:
    return json.dumps({"kind": kind, "server": server, "origin": origin})
