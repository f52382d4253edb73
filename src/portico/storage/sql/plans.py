"""Statements for successful plans: added up, read by scope, and bounded by last use."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.plan_rows import PlanRow
from portico.storage.sql import tables
from portico.storage.sql.bulk_rows import Row, fetch_rows, upsert

MAX_PER_SCOPE = 500
MAX_TOTAL = 20_000
"""Of all scopes; callers choose their names, so the total is bounded too."""
_PLAN_COLUMNS = [tables.plans.c[name] for name in PlanRow.__dataclass_fields__]


async def add_plans(
    db: AsyncConnection,
    rows: Sequence[PlanRow],
    *,
    per_scope: int = MAX_PER_SCOPE,
    total: int = MAX_TOTAL,
) -> None:
    """Add plans; the run counts of known ones are added up."""
    rows_by_id = {row.id: _to_row(row) for row in rows}
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
    wanted = (
        sa.select(*_PLAN_COLUMNS)
        .where(table.scope == scope)
        .order_by(table.used_at.desc(), table.id)
    )
    return [PlanRow(*row) async for row in fetch_rows(db, wanted)]


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


def _to_row(row: PlanRow) -> Row:
    return {name: getattr(row, name) for name in PlanRow.__dataclass_fields__}
