"""Telling other gateways that something shared has changed, within the transaction that changes it.

Every gateway has one row for each kind of news, whose stamp it moves: that is how the others hear of it on SQLite, and
learn on PostgreSQL what happened before they listened. There, a notification names the server too.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import News
from portico.storage.sql import tables
from portico.storage.sql.upsert import upsert

CHANNEL = "portico_news"
KINDS = ("catalog", "tiers")
_LONGEST = 7_000
"""Bytes of a notification: PostgreSQL takes less than 8,000."""
_MOST = 50
"""Servers that are named one by one."""

Stamps = Mapping[tuple[str, str], int]
"""The latest news, by kind and origin."""


async def tell(db: AsyncConnection, kind: str, servers: Sequence[str], *, origin: str) -> None:
    """Tell the others, once this transaction is committed."""
    row = {"kind": kind, "origin": origin, "stamp": time.time_ns(), "at": time.time()}
    await upsert(db, tables.news, [row], replaced=("stamp", "at"))
    if db.dialect.name != "postgresql":
        return
    bodies = [_written(kind, server, origin) for server in servers] if len(servers) <= _MOST else []
    if not bodies or any(len(body) > _LONGEST for body in bodies):
        bodies = [_written(kind, "", origin)]
    for body in bodies:
        await db.execute(sa.select(sa.func.pg_notify(CHANNEL, body)))


def heard_news(body: str, origin: str) -> News | None:
    """What a notification says; None where it is our own, or not ours to understand: anybody may notify."""
    try:
        said: Any = json.loads(body)
    except ValueError:
        return None
    match said:
        case {"kind": str(kind), "server": str(server), "origin": str(whose)} if kind in KINDS and whose != origin:
            return News(kind, server)
        case _:
            return None


async def stamps(db: AsyncConnection) -> Stamps:
    """The latest news of everybody."""
    table = tables.news.c
    return {
        (kind, origin): stamp
        for kind, origin, stamp in await db.execute(sa.select(table.kind, table.origin, table.stamp))
    }


def unheard(before: Stamps, after: Stamps, origin: str) -> list[News]:
    """What others have told in between."""
    told = {kind for (kind, whose), stamp in after.items() if whose != origin and before.get((kind, whose)) != stamp}
    return [News(kind) for kind in KINDS if kind in told]


def _written(kind: str, server: str, origin: str) -> str:
    return json.dumps({"kind": kind, "server": server, "origin": origin})
