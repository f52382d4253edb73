"""Tables of the gateway store, and bulk statements. Released tables change only by a new migration.

All names have a prefix, because a PostgreSQL database may be shared with other programs. Names of
tools come from servers and may contain anything: PostgreSQL refuses NUL, no driver takes lone
surrogates, and an index takes no long name. The first two are escaped reversibly; rows are found by
the hash of a name, so that any length works.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import escape_text, unescape_text

Row = dict[str, Any]
Columns = Any
"""A table's columns, by name."""

_MAX_VALUES = 10_000
"""Values in one statement; drivers allow fewer than 32,767."""
_BATCH_ROWS = 100
"""Rows per batch: preparing them takes a few milliseconds, then other tasks may run."""


def compute_name_key(*names: str) -> bytes:
    return compute_digest(*names, size=16)


def compute_digest(*parts: str | bytes, size: int = 32) -> bytes:
    """Hash these parts in order; lengths are included, so parts cannot run into each other."""
    digest = blake2b(digest_size=size)
    for part in parts:
        body = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        digest.update(len(body).to_bytes(8))
        digest.update(body)
    return digest.digest()


metadata = sa.MetaData()


class EscapedText(sa.TypeDecorator[str]):
    """Text column that stores characters databases refuse in escaped form."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value and escape_text(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return value and unescape_text(value)


def _columns(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _primary_key(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _name_key() -> sa.Column[bytes]:
    return _primary_key("key", sa.LargeBinary)


manifests = sa.Table(
    "portico_manifests",
    metadata,
    _name_key(),
    sa.Column("server_key", sa.LargeBinary, nullable=False, index=True),
    *_columns(EscapedText, "server", "fingerprint", "era"),
    *_columns(sa.LargeBinary, "hello", "offers", "digest"),
    *_columns(sa.Double, "listed_at"),
)

manifest_tools = sa.Table(
    "portico_manifest_tools",
    metadata,
    _primary_key("manifest_key", sa.LargeBinary),
    _primary_key("position", sa.Integer),
    *_columns(EscapedText, "name", "hash", "warnings"),
    *_columns(sa.LargeBinary, "definition"),
)

tiers = sa.Table(
    "portico_tiers",
    metadata,
    _name_key(),
    *_columns(EscapedText, "server", "tool", "tier"),
    *_columns(sa.Double, "score"),
)

computed = sa.Table(
    "portico_computed", metadata, _primary_key("name", sa.String(32)), *_columns(sa.Double, "at")
)

calls = sa.Table(
    "portico_calls",
    metadata,
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    *_columns(sa.LargeBinary, "server_key", "tool_key"),
    *_columns(EscapedText, "server", "tool", "tool_hash", "client", "profile", "session"),
    *(
        sa.Column(name, EscapedText, nullable=False, server_default="")
        for name in ("person", "call_id", "via", "error", "stages")
    ),
    *_columns(sa.Double, "at", "ms"),
    *_columns(sa.Boolean, "ok", "cancelled"),
    sa.Index("ix_portico_calls_server", "server_key", "id"),
    sa.Index("ix_portico_calls_tool", "tool_key", "id"),
    sa.Index("ix_portico_calls_at", "at"),
    # An id is never reused, so that pages of calls continue correctly.
    sqlite_autoincrement=True,
)

daily = sa.Table(
    "portico_daily_usage",
    metadata,
    _primary_key("day", sa.Integer),
    _name_key(),
    _primary_key("bucket", sa.Integer),
    *_columns(sa.LargeBinary, "server_key"),
    *_columns(EscapedText, "server", "tool"),
    *_columns(sa.BigInteger, "calls", "successes"),
    *_columns(sa.Double, "last_at"),
)

ledger = sa.Table(
    "portico_ledger_sessions",
    metadata,
    _name_key(),
    *_columns(EscapedText, "session", "client", "profile"),
    *_columns(sa.Double, "started_at", "last_at"),
    *_columns(sa.BigInteger, "listing", "shown", "answers", "sessions"),
    sa.Index("ix_portico_ledger_sessions_last_at", "last_at"),
)

news = sa.Table(
    "portico_news",
    metadata,
    _primary_key("kind", sa.String(32)),
    _primary_key("origin", EscapedText),
    *_columns(sa.BigInteger, "stamp"),
    *_columns(sa.Double, "at"),
)

shapes = sa.Table(
    "portico_shapes",
    metadata,
    _primary_key("hash", sa.String(64)),
    *_columns(sa.Integer, "results"),
    *_columns(EscapedText, "shape"),
    *_columns(sa.Double, "seen_at"),
    sa.Index("ix_portico_shapes_seen_at", "seen_at"),
)

plans = sa.Table(
    "portico_plans",
    metadata,
    _primary_key("id", sa.String(64)),
    sa.Column("scope", EscapedText, nullable=False, index=True),
    *_columns(EscapedText, "intent", "words", "steps", "tools"),
    *_columns(sa.Integer, "runs"),
    *_columns(sa.Double, "used_at"),
)

tasks = sa.Table(
    "portico_tasks",
    metadata,
    _primary_key("key", sa.String(64)),
    sa.Column("person", EscapedText, nullable=False, index=True),
    *_columns(EscapedText, "server", "fingerprint", "tool", "task_id", "call_id", "rule", "mask"),
    *_columns(sa.Double, "created_at", "expires_at"),
)


def to_row(entry: Any, **more: Any) -> Row:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__} | more


def select_fields(table: sa.Table, kind: Any) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(*(table.c[name] for name in kind.__dataclass_fields__))


async def upsert(
    db: AsyncConnection,
    table: sa.Table,
    rows: Iterable[Row],
    *,
    sums: Sequence[str] = (),
    largest: Sequence[str] = (),
    smallest: Sequence[str] = (),
    replaced: Sequence[str] = (),
    derive: Callable[[Columns, Columns], Mapping[str, Any]] | None = None,
    is_locked: bool = False,
) -> None:
    """Insert rows; existing ones get the sum, maximum … of both values, or what `derive` returns.

    Sorted by key, so that two gateways that write the same rows cannot deadlock. Not needed where
    the table `is_locked` (`acquire_lock`).
    """
    key = [column.name for column in table.primary_key.columns]
    ordered = rows if is_locked else await _sort_rows(list(rows), key)
    statement = _make_insert(db, table)
    old = table.c
    new = statement.excluded
    changes: dict[str, Any] = {name: old[name] + new[name] for name in sums}
    for name in largest:
        changes[name] = sa.case((old[name] > new[name], old[name]), else_=new[name])
    for name in smallest:
        changes[name] = sa.case((old[name] < new[name], old[name]), else_=new[name])
    changes |= {name: new[name] for name in replaced}
    changes |= derive(old, new) if derive else {}
    await execute_many(
        db, statement.on_conflict_do_update(index_elements=key, set_=changes), ordered
    )


async def _sort_rows(rows: list[Row], key: Sequence[str]) -> list[Row]:
    order = itemgetter(*key)
    if len(rows) <= _BATCH_ROWS:
        return sorted(rows, key=order)
    return await asyncio.to_thread(sorted, rows, key=order)


def _make_insert(db: AsyncConnection, table: sa.Table) -> Any:
    if db.dialect.name != "postgresql":
        return sqlite_insert(table)
    # Megabytes that a gateway on SQLite never needs.
    from sqlalchemy.dialects.postgresql import insert

    return insert(table)


async def execute_many(db: AsyncConnection, statement: sa.Executable, rows: Iterable[Row]) -> None:
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH_ROWS)):
        await db.execute(statement, batch)


async def fetch_rows(db: AsyncConnection, statement: sa.Executable) -> AsyncGenerator[Any]:
    """Yield the rows of a statement, letting other tasks run between batches."""
    for batch in (await db.execute(statement)).partitions(_BATCH_ROWS):
        for row in batch:
            yield row
        await asyncio.sleep(0)


async def acquire_lock(db: AsyncConnection, name: str, *, timeout_s: int = 30) -> None:
    """Hold a named lock until the transaction ends. No-op on SQLite, which has one writer."""
    if db.dialect.name == "postgresql":
        number = int.from_bytes(compute_digest("portico", name, size=8), signed=True)
        await db.exec_driver_sql(f"set local lock_timeout = '{timeout_s}s'")
        await db.exec_driver_sql(f"select pg_advisory_xact_lock({number})")
        await db.exec_driver_sql("set local lock_timeout = 0")


async def read_consistently(db: AsyncConnection) -> None:
    """Let all reads of this transaction see one state, whatever other gateways write meanwhile."""
    if db.dialect.name == "postgresql":
        await db.exec_driver_sql("set transaction isolation level repeatable read")


def split_into_chunks(keys: Iterable[bytes]) -> Iterable[list[bytes]]:
    all_keys = list(keys)
    return (all_keys[start : start + _MAX_VALUES] for start in range(0, len(all_keys), _MAX_VALUES))
