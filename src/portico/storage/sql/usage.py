"""Statements for calls, daily counts and the token ledger, and what deletes old rows."""

import time
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.config import UsageConfig
from portico.storage.rows import (
    CallerUse,
    CallQuery,
    CallRow,
    DailyRow,
    LedgerRow,
    LedgerTotal,
    PlanRow,
    TierRow,
)
from portico.storage.sql import tables
from portico.storage.sql.change_notifications import notify_gateways
from portico.storage.sql.tables import (
    Row,
    acquire_lock,
    compute_name_key,
    execute_many,
    fetch_rows,
    select_fields,
    to_row,
    upsert,
)

_FOLDED_SESSION = "(earlier sessions)"
"""Session name of the row that sums up old sessions."""
_LEDGER_SUMS = ("sessions", "listing", "shown", "answers")
_DAY = 86_400.0
_NOTIFICATION_LIFETIME_S = 7 * _DAY
_MAX_SHAPES = 20_000


async def add_usage(
    db: AsyncConnection,
    calls: Sequence[CallRow],
    daily: Sequence[DailyRow],
    ledger: Sequence[LedgerRow],
) -> None:
    await execute_many(db, sa.insert(tables.calls), map(_to_call_row, calls))
    counts = (
        to_row(
            row, key=compute_name_key(row.server, row.tool), server_key=compute_name_key(row.server)
        )
        for row in daily
    )
    await upsert(db, tables.daily, counts, sums=("calls", "successes"), largest=("last_at",))
    await upsert(
        db,
        tables.ledger,
        map(_to_ledger_row, ledger),
        sums=("shown", "answers"),
        largest=("last_at", "listing"),
        smallest=("started_at",),
    )


def _to_call_row(row: CallRow) -> Row:
    keys = {"server_key": compute_name_key(row.server), "tool_key": compute_name_key(row.tool)}
    values = to_row(row, **keys)
    del values["id"]  # the database assigns it
    return values


def _to_ledger_row(row: LedgerRow) -> Row:
    return to_row(row, key=compute_name_key(row.session), sessions=1)


async def load_daily_usage(db: AsyncConnection, since_day: int) -> list[DailyRow]:
    table = tables.daily.c
    wanted = select_fields(tables.daily, DailyRow).where(table.day >= since_day)
    ordered = wanted.order_by(table.day, table.key, table.bucket)
    return [DailyRow(*row) async for row in fetch_rows(db, ordered)]


async def load_calls(db: AsyncConnection, query: CallQuery) -> list[CallRow]:
    """Return the newest calls first."""
    table = tables.calls.c
    wanted = select_fields(tables.calls, CallRow).order_by(table.id.desc())
    wanted = wanted.limit(max(0, query.limit))
    if query.before is not None:
        wanted = wanted.where(table.id < query.before)
    if query.server is not None:
        wanted = wanted.where(table.server_key == compute_name_key(query.server))
    if query.tool is not None:
        wanted = wanted.where(table.tool_key == compute_name_key(query.tool))
    if query.ok is not None:
        wanted = wanted.where(table.ok == query.ok)
    if query.client is not None:
        wanted = wanted.where(table.client == query.client)
    if query.person is not None:
        wanted = wanted.where(table.person == query.person)
    if query.run is not None:
        wanted = wanted.where(table.call_id.like(f"{query.run}.%"))
    if query.since is not None:
        wanted = wanted.where(table.at >= query.since)
    if query.until is not None:
        wanted = wanted.where(table.at < query.until)
    return [CallRow(*row) async for row in fetch_rows(db, wanted)]


async def load_caller_use(db: AsyncConnection, limit: int) -> list[CallerUse]:
    """Return who has called with which client, the latest first."""
    table = tables.calls.c
    latest = sa.func.max(table.at)
    failed = sa.func.sum(sa.case((table.ok, 0), else_=1))
    wanted = (
        sa.select(
            *(table.person, table.client, sa.func.count(), failed),
            *(sa.func.min(table.at), latest),
        )
        .group_by(table.person, table.client)
        .order_by(latest.desc())
        .limit(limit)
    )
    return [CallerUse(*row) async for row in fetch_rows(db, wanted)]


async def load_ledger_total(db: AsyncConnection) -> LedgerTotal:
    return LedgerTotal(*await _sum_sessions(db))


async def load_ledger_sessions(db: AsyncConnection, limit: int) -> list[LedgerRow]:
    table = tables.ledger.c
    named = select_fields(tables.ledger, LedgerRow).where(table.session != _FOLDED_SESSION)
    wanted = named.order_by(table.last_at.desc(), table.key).limit(max(0, limit))
    return [LedgerRow(*row) async for row in fetch_rows(db, wanted)]


async def _sum_sessions(db: AsyncConnection, *conditions: sa.ColumnElement[bool]) -> list[int]:
    sums = [sa.func.coalesce(sa.func.sum(tables.ledger.c[name]), 0) for name in _LEDGER_SUMS]
    return [int(total) for total in (await db.execute(sa.select(*sums).where(*conditions))).one()]


async def forget_usage(db: AsyncConnection, server: str | None) -> int:
    """Delete the usage of a server's tools, or all with the ledger; return the row count."""
    if server is None:
        statements = [sa.delete(tables.calls), sa.delete(tables.daily), sa.delete(tables.ledger)]
    else:
        key = compute_name_key(server)
        used = (tables.calls, tables.daily)
        statements = [sa.delete(table).where(table.c.server_key == key) for table in used]
    return sum([(await db.execute(statement)).rowcount for statement in statements])


async def prune(db: AsyncConnection, retention: UsageConfig, now: float) -> int:
    """Delete rows beyond the retention limits, of every table; return the row count."""
    calls = tables.calls
    manifests = tables.manifests
    tools = tables.manifest_tools
    shapes = tables.shapes
    cutoff = now - retention.daily_days * _DAY
    outdated = sa.select(manifests.c.key).where(manifests.c.listed_at < cutoff)
    statements = [
        sa.delete(calls).where(calls.c.at < now - retention.calls_days * _DAY),
        sa.delete(calls).where(calls.c.id <= _select_surplus(calls.c.id, retention.max_calls)),
        sa.delete(tables.daily).where(tables.daily.c.day < int(cutoff // _DAY)),
        sa.delete(tools).where(tools.c.manifest_key.in_(outdated)),
        sa.delete(manifests).where(manifests.c.listed_at < cutoff),
        sa.delete(shapes).where(shapes.c.seen_at < cutoff),
        sa.delete(shapes).where(shapes.c.seen_at <= _select_surplus(shapes.c.seen_at, _MAX_SHAPES)),
        sa.delete(tables.news).where(tables.news.c.at < now - _NOTIFICATION_LIFETIME_S),
    ]
    folded = await _fold_sessions(db, now - retention.sessions_days * _DAY)
    return folded + sum([(await db.execute(statement)).rowcount for statement in statements])


def _select_surplus(column: sa.ColumnElement[float], most: int) -> sa.ScalarSelect[float]:
    """Select the largest value beyond the `most` largest ones."""
    ordered = sa.select(column).order_by(column.desc())
    return ordered.offset(max(0, most)).limit(1).scalar_subquery()


async def _fold_sessions(db: AsyncConnection, before: float) -> int:
    """Merge sessions that ended before into one row, so that totals are kept; return the count."""
    table = tables.ledger.c
    ended = sa.and_(table.last_at < before, table.session != _FOLDED_SESSION)
    total = dict(zip(_LEDGER_SUMS, await _sum_sessions(db, ended), strict=True))
    if not total["sessions"]:
        return 0
    row = _to_ledger_row(LedgerRow(_FOLDED_SESSION, "", "", 0.0, 0.0, 0)) | total
    await upsert(db, tables.ledger, [row], sums=_LEDGER_SUMS)
    return (await db.execute(sa.delete(tables.ledger).where(ended))).rowcount


MAX_PER_SCOPE = 500
MAX_TOTAL = 20_000
"""Of all scopes; callers choose their names, so the total is bounded too."""


async def add_plans(
    db: AsyncConnection,
    rows: Sequence[PlanRow],
    *,
    per_scope: int = MAX_PER_SCOPE,
    total: int = MAX_TOTAL,
) -> None:
    """Add plans; the run counts of known ones are added up."""
    rows_by_id = {row.id: to_row(row) for row in rows}
    await upsert(
        db,
        tables.plans,
        rows_by_id.values(),
        sums=("runs",),
        largest=("used_at",),
        replaced=("tools",),
        derive=lambda old, new: {
            # A plan repeated without an intent keeps the earlier one.
            name: sa.case((new[name] == "", old[name]), else_=new[name])
            for name in ("intent", "words")
        },
    )
    table = tables.plans.c
    for scope in {row.scope for row in rows}:
        await _delete_surplus(db, sa.select(table.id).where(table.scope == scope), per_scope)
    await _delete_surplus(db, sa.select(table.id), total)


async def load_plans(db: AsyncConnection, scope: str) -> list[PlanRow]:
    """Return the plans of a scope, the latest used first."""
    table = tables.plans.c
    wanted = select_fields(tables.plans, PlanRow).where(table.scope == scope)
    ordered = wanted.order_by(table.used_at.desc(), table.id)
    return [PlanRow(*row) async for row in fetch_rows(db, ordered)]


async def forget_plans(db: AsyncConnection, profile: str | None = None) -> int:
    """Delete the plans of a profile, or all; return the row count."""
    statement = sa.delete(tables.plans)
    if profile is not None:
        statement = statement.where(tables.plans.c.scope.startswith(f"{profile}/", autoescape=True))
    return (await db.execute(statement)).rowcount


async def _delete_surplus(db: AsyncConnection, chosen: sa.Select[tuple[str]], most: int) -> None:
    table = tables.plans.c
    ordered = chosen.order_by(table.used_at.desc(), table.id)
    surplus = [id_ for (id_,) in await db.execute(ordered.offset(most).limit(10_000))]
    if surplus:
        await db.execute(sa.delete(tables.plans).where(table.id.in_(surplus)))


_ORIGIN = "rename"


async def rename_server(db: AsyncConnection, old: str, new: str) -> None:
    """Add the calls, counts and tiers of a server to those of another name; notify gateways."""
    await acquire_lock(db, "tiers")
    old_key = compute_name_key(old)
    new_key = compute_name_key(new)
    calls = tables.calls
    moved = sa.update(calls).where(calls.c.server_key == old_key)
    await db.execute(moved.values(server=new, server_key=new_key))
    daily = tables.daily
    wanted = select_fields(daily, DailyRow).where(daily.c.server_key == old_key)
    counts = [replace(DailyRow(*row), server=new) async for row in fetch_rows(db, wanted)]
    await db.execute(sa.delete(daily).where(daily.c.server_key == old_key))
    await add_usage(db, (), counts, ())
    tiers = tables.tiers
    wanted = select_fields(tiers, TierRow).where(tiers.c.server == old)
    standings = [replace(TierRow(*row), server=new) async for row in fetch_rows(db, wanted)]
    await db.execute(sa.delete(tiers).where(tiers.c.server == old))
    rows = (to_row(row, key=compute_name_key(new, row.tool)) for row in standings)
    await upsert(db, tiers, rows, replaced=("score", "tier"), is_locked=True)
    if standings:
        computed = [{"name": "tiers", "at": time.time()}]
        await upsert(db, tables.computed, computed, replaced=("at",))
    await notify_gateways(db, "tiers", [""], origin=_ORIGIN)
