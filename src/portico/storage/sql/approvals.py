"""The table of approvals. It is created where it is missing, and gets the column that an earlier
version did not have.

Whatever changes a state is one statement that names the state before, so that of two decisions, or
of two calls that would use one approval, exactly one succeeds.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import ApprovalRow, ApprovalState
from portico.storage.sql.tables import EscapedText, acquire_lock, fetch_rows, to_row

_TABLE = "portico_approvals"
_approvals = sa.Table(
    _TABLE,
    sa.MetaData(),
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("binding", sa.String(64), nullable=False, index=True),
    *(
        sa.Column(name, EscapedText, nullable=False)
        for name in (
            *("person", "client", "profile", "method", "target", "definition", "arguments"),
            *("rule", "say", "via", "state", "decided_by", "decided_via"),
        )
    ),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("decided_at", sa.Double),
    sa.Column("used_at", sa.Double),
    sa.Column("reason", EscapedText, nullable=False, server_default=""),
)


async def create_table(db: AsyncConnection) -> None:
    await acquire_lock(db, "approvals")
    await db.run_sync(_approvals.create, checkfirst=True)
    if not await has_table(db):
        await db.execute(
            sa.text(f"ALTER TABLE {_TABLE} ADD COLUMN reason TEXT DEFAULT '' NOT NULL")
        )


async def has_table(db: AsyncConnection) -> bool:
    """Return whether the table is there, with all its columns."""

    def has_reason(connection: sa.Connection) -> bool:
        found = sa.inspect(connection)
        return found.has_table(_TABLE) and any(
            column["name"] == "reason" for column in found.get_columns(_TABLE)
        )

    return await db.run_sync(has_reason)


async def load(db: AsyncConnection, now: float) -> list[ApprovalRow]:
    """Return those that have not expired, the oldest first."""
    columns = _approvals.c
    statement = (
        sa.select(_approvals)
        .where(columns.expires_at > now)
        .order_by(columns.created_at, columns.id)
    )
    return [_to_approval(row._mapping) async for row in fetch_rows(db, statement)]


async def load_states(
    db: AsyncConnection, ids: Collection[str], now: float
) -> dict[str, ApprovalRow]:
    """Return those of these ids that have not expired."""
    columns = _approvals.c
    statement = sa.select(_approvals).where(columns.id.in_(ids), columns.expires_at > now)
    found = [_to_approval(row._mapping) async for row in fetch_rows(db, statement)]
    return {row.id: row for row in found}


async def take(db: AsyncConnection, wanted: ApprovalRow) -> ApprovalRow | None:
    """Use an approval for what `wanted` asks for; else return the denial or the request that there
    is, or None. What has expired is deleted."""
    await acquire_lock(db, "approvals")
    columns = _approvals.c
    now = wanted.created_at
    await db.execute(sa.delete(_approvals).where(columns.expires_at <= now))
    mine = sa.select(_approvals).where(
        columns.binding == wanted.binding, columns.state.in_(("pending", "approved", "denied"))
    )
    rows = [_to_approval(row._mapping) async for row in fetch_rows(db, mine)]
    for state in ("approved", "denied", "pending"):
        for row in rows:
            if row.state != state:
                continue
            if state != "approved":
                return row
            if await _change(db, row.id, "approved", {"state": "used", "used_at": now}):
                return replace(row, state="used", used_at=now)
    return None


async def take_or_request(
    db: AsyncConnection, wanted: ApprovalRow, max_pending: int, max_pending_of_person: int
) -> ApprovalRow | None:
    """Do as `take`, and store the request where there is nothing; None: too many are pending."""
    if (found := await take(db, wanted)) is not None:
        return found
    columns = _approvals.c
    pending = sa.select(sa.func.count()).where(columns.state == "pending")
    total = (await db.execute(pending)).scalar_one()
    own = (await db.execute(pending.where(columns.person == wanted.person))).scalar_one()
    if total >= max_pending or own >= max_pending_of_person:
        return None
    await db.execute(sa.insert(_approvals).values(to_row(wanted)))
    return wanted


async def decide(
    db: AsyncConnection,
    approval_id: str,
    state: ApprovalState,
    *,
    by: str,
    via: str,
    reason: str,
    now: float,
    expires_at: float,
) -> bool:
    """Approve or deny a pending request; return False if it is not pending any more."""
    values = {
        "state": state,
        "decided_by": by,
        "decided_via": via,
        "reason": reason,
        "decided_at": now,
        "expires_at": expires_at,
    }
    return await _change(db, approval_id, "pending", values, now)


async def _change(
    db: AsyncConnection,
    approval_id: str,
    before: ApprovalState,
    values: Mapping[str, Any],
    now: float = 0.0,
) -> bool:
    columns = _approvals.c
    statement = (
        sa.update(_approvals)
        .where(columns.id == approval_id, columns.state == before, columns.expires_at > now)
        .values(values)
    )
    changed: Any = await db.execute(statement)
    return changed.rowcount == 1


def _to_approval(row: Mapping[str, Any]) -> ApprovalRow:
    return ApprovalRow(**{name: row[name] for name in ApprovalRow.__dataclass_fields__})
