"""Telling other gateways that something shared has changed, within the transaction that changes it.

Every gateway has one row for each kind of news, whose stamp it moves: that is how the others hear
of it on SQLite, and learn on PostgreSQL what happened before they listened. There, a notification
names the server too.
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
"""Bytes of a notification: PostgreSQL takes less than 8,000."""
_MAX_NAMED_SERVERS = 50
"""Servers that are named one by one."""

ChangeStamps = Mapping[tuple[str, str], int]
"""The latest news, by kind and origin."""


async def notify_gateways(
    db: AsyncConnection, kind: str, servers: Sequence[str], *, origin: str
) -> None:
    """Tell the others, once this transaction is committed."""
    row = {"kind": kind, "origin": origin, "stamp": time.time_ns(), "at": time.time()}
    await upsert(db, tables.news, [row], replaced=("stamp", "at"))
    if db.dialect.name != "postgresql":
        return
    if len(servers) <= _MAX_NAMED_SERVERS:
        bodies = [_encode_notification(kind, server, origin) for server in servers]
    else:
        bodies = []
    if not bodies or any(len(body) > _MAX_BODY_CHARS for body in bodies):
        bodies = [_encode_notification(kind, "", origin)]
    for body in bodies:
        await db.execute(sa.select(sa.func.pg_notify(CHANNEL, body)))


def parse_notification(body: str, origin: str) -> ChangeNotification | None:
    """What a notification says; None where it is our own, or not ours to understand: anybody may
    notify."""
    try:
        said: Any = json.loads(body)
    except ValueError:
        return None
    match said:
        case {"kind": str(kind), "server": str(server), "origin": str(whose)} if (
            kind in CHANGE_KINDS and whose != origin
        ):
            return ChangeNotification(kind, server)
        case _:
            return None


async def load_stamps(db: AsyncConnection) -> ChangeStamps:
    """The latest news of everybody."""
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
    """What others have told in between."""
    told = {
        kind
        for (kind, whose), stamp in after.items()
        if whose != origin and before.get((kind, whose)) != stamp
    }
    return [ChangeNotification(kind) for kind in CHANGE_KINDS if kind in told]


def _encode_notification(kind: str, server: str, origin: str) -> str:
    return json.dumps({"kind": kind, "server": server, "origin": origin})
