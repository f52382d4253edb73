"""Statements for calls, daily counts and the ledger."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import CallRow, DailyRow, LedgerRow, LedgerTotal
from portico.storage.sql import tables
from portico.storage.sql.bulk_rows import Row, execute_many, fetch_rows, upsert
from portico.storage.sql.text_encoding import compute_name_key

_CALL_COLUMNS = [tables.calls.c[name] for name in CallRow.__dataclass_fields__]
_DAILY_COLUMNS = [tables.daily.c[name] for name in DailyRow.__dataclass_fields__]
_FOLDED_SESSION = "(earlier sessions)"
"""Session name of the row that sums up old sessions."""
_LEDGER_COLUMNS = [tables.ledger.c[name] for name in LedgerRow.__dataclass_fields__]


async def add_usage(
    db: AsyncConnection,
    calls: Sequence[CallRow],
    daily: Sequence[DailyRow],
    ledger: Sequence[LedgerRow],
) -> None:
    """Add calls, counts and ledger increments."""
    await execute_many(db, sa.insert(tables.calls), map(_to_call_row, calls))
    counts = map(_to_daily_row, daily)
    await upsert(db, tables.daily, counts, sums=("calls", "successes"), largest=("last_at",))
    await upsert(
        db,
        tables.ledger,
        map(_to_ledger_row, ledger),
        sums=("shown", "answers"),
        largest=("last_at", "listing"),
        smallest=("started_at",),
    )


async def load_daily_usage(db: AsyncConnection, since_day: int) -> list[DailyRow]:
    """Return every count from that day on."""
    table = tables.daily.c
    wanted = (
        sa.select(*_DAILY_COLUMNS)
        .where(table.day >= since_day)
        .order_by(table.day, table.key, table.bucket)
    )
    return [DailyRow(*row) async for row in fetch_rows(db, wanted)]


async def load_calls(
    db: AsyncConnection,
    *,
    limit: int,
    before: int | None,
    server: str | None,
    tool: str | None,
    ok: bool | None,
) -> list[CallRow]:
    """Return the newest calls with a smaller id than `before` first."""
    table = tables.calls.c
    wanted = sa.select(*_CALL_COLUMNS).order_by(table.id.desc()).limit(max(0, limit))
    if before is not None:
        wanted = wanted.where(table.id < before)
    if server is not None:
        wanted = wanted.where(table.server_key == compute_name_key(server))
    if tool is not None:
        wanted = wanted.where(table.tool_key == compute_name_key(tool))
    if ok is not None:
        wanted = wanted.where(table.ok == ok)
    return [CallRow(*row) async for row in fetch_rows(db, wanted)]


async def load_ledger_total(db: AsyncConnection) -> LedgerTotal:
    """Return the sums over all sessions."""
    table = tables.ledger.c
    sums = (table.sessions, table.listing, table.shown, table.answers)
    row = (
        await db.execute(sa.select(*(sa.func.coalesce(sa.func.sum(column), 0) for column in sums)))
    ).one()
    return LedgerTotal(*map(int, row))


async def fold_sessions(db: AsyncConnection, before: float) -> int:
    """Merge sessions that ended before into one row, so that totals are kept; return the count."""
    table = tables.ledger.c
    ended = sa.and_(table.last_at < before, table.session != _FOLDED_SESSION)
    summed = ("sessions", "listing", "shown", "answers")
    sums = [sa.func.coalesce(sa.func.sum(table[name]), 0) for name in summed]
    total = dict(
        zip(summed, map(int, (await db.execute(sa.select(*sums).where(ended))).one()), strict=True)
    )
    if not total["sessions"]:
        return 0
    row = _to_ledger_row(LedgerRow(_FOLDED_SESSION, "", "", 0.0, 0.0, 0)) | total
    await upsert(db, tables.ledger, [row], sums=summed)
    return (await db.execute(sa.delete(tables.ledger).where(ended))).rowcount


async def load_sessions(db: AsyncConnection, limit: int) -> list[LedgerRow]:
    """Return the latest sessions first."""
    table = tables.ledger.c
    named = sa.select(*_LEDGER_COLUMNS).where(table.session != _FOLDED_SESSION)
    wanted = named.order_by(table.last_at.desc(), table.key).limit(max(0, limit))
    return [LedgerRow(*row) async for row in fetch_rows(db, wanted)]


async def forget_usage(db: AsyncConnection, server: str | None) -> int:
    """Delete the usage of a server's tools, or all of it; return the row count."""
    if server is None:
        statements = [sa.delete(tables.calls), sa.delete(tables.daily), sa.delete(tables.ledger)]
    else:
        key = compute_name_key(server)
        statements = [
            sa.delete(table).where(table.c.server_key == key)
            for table in (tables.calls, tables.daily)
        ]
    return sum([(await db.execute(statement)).rowcount for statement in statements])


def _to_call_row(row: CallRow) -> Row:
    return {
        "at": row.at,
        "server_key": compute_name_key(row.server),
        "tool_key": compute_name_key(row.tool),
        "server": row.server,
        "tool": row.tool,
        "tool_hash": row.tool_hash,
        "ms": row.ms,
        "ok": row.ok,
        "cancelled": row.cancelled,
        "client": row.client,
        "profile": row.profile,
        "session": row.session,
    }


def _to_daily_row(row: DailyRow) -> Row:
    return {
        "day": row.day,
        "key": compute_name_key(row.server, row.tool),
        "bucket": row.bucket,
        "server_key": compute_name_key(row.server),
        "server": row.server,
        "tool": row.tool,
        "calls": row.calls,
        "successes": row.successes,
        "last_at": row.last_at,
    }


def _to_ledger_row(row: LedgerRow) -> Row:
    return {
        "key": compute_name_key(row.session),
        "session": row.session,
        "client": row.client,
        "profile": row.profile,
        "started_at": row.started_at,
        "last_at": row.last_at,
        "listing": row.listing,
        "shown": row.shown,
        "answers": row.answers,
        "sessions": 1,
    }
