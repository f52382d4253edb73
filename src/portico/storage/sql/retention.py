"""Deletes rows beyond the retention limits."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import Retention
from portico.storage.sql import tables
from portico.storage.sql.usage import fold_sessions

_DAY = 86_400.0
_NOTIFICATION_LIFETIME_S = 7 * _DAY
_MAX_SHAPES = 20_000


async def prune(db: AsyncConnection, retention: Retention, now: float) -> int:
    """Delete them; return the row count."""
    calls = tables.calls
    tools = tables.tools
    manifests = tables.manifests
    cutoff = now - retention.daily_days * _DAY
    statements = [
        sa.delete(calls).where(calls.c.at < now - retention.calls_days * _DAY),
        sa.delete(calls).where(
            calls.c.id <= _select_last_surplus_call(max(0, retention.max_calls))
        ),
        sa.delete(tables.daily).where(tables.daily.c.day < int(cutoff // _DAY)),
        sa.delete(tables.results).where(tables.results.c.expires_at <= now),
        # A server may rename its tools at every listing, so removed tools are not kept forever.
        sa.delete(tools).where(tools.c.gone, tools.c.last_seen < cutoff),
        sa.delete(tables.manifest_tools).where(
            tables.manifest_tools.c.manifest_key.in_(
                sa.select(manifests.c.key).where(manifests.c.listed_at < cutoff)
            )
        ),
        sa.delete(manifests).where(manifests.c.listed_at < cutoff),
        sa.delete(tables.shapes).where(tables.shapes.c.seen_at < cutoff),
        sa.delete(tables.shapes).where(tables.shapes.c.seen_at <= _select_last_surplus_shape()),
        sa.delete(tables.news).where(tables.news.c.at < now - _NOTIFICATION_LIFETIME_S),
    ]
    folded = await fold_sessions(db, now - retention.sessions_days * _DAY)
    return folded + sum([(await db.execute(statement)).rowcount for statement in statements])


def _select_last_surplus_call(most: int) -> sa.ScalarSelect[int]:
    table = tables.calls.c
    return sa.select(table.id).order_by(table.id.desc()).offset(most).limit(1).scalar_subquery()


def _select_last_surplus_shape() -> sa.ScalarSelect[float]:
    table = tables.shapes.c
    return (
        sa.select(table.seen_at)
        .order_by(table.seen_at.desc())
        .offset(_MAX_SHAPES)
        .limit(1)
        .scalar_subquery()
    )
