"""Schema migrations, in order. A released one never changes: a new one is appended."""

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.sql.database import Database
from portico.storage.sql.database_url import SqliteAddress, StoreUnavailable
from portico.storage.sql.tables import acquire_lock

VERSION_TABLE = "portico_version"
_version = sa.Table(
    VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True)
)


async def migrate(database: Database) -> None:
    """Migrate the tables to this version; raises StoreUnavailable if they are newer."""
    in_memory = isinstance(database.address, SqliteAddress) and database.address.path is None
    if in_memory and _memory_scripts:
        await database.write(_create_in_memory)
        return
    if await database.read(lambda db: db.run_sync(read_version)) == HEAD:
        return

    async def upgrade(db: AsyncConnection) -> None:
        await acquire_lock(db, "migration", timeout_s=60)
        await db.run_sync(_run_pending)

    await database.write(upgrade)
    if in_memory:
        _memory_scripts.append(await database.read(_dump))


_memory_scripts: list[str] = []
"""The SQL that makes the tables of a database in memory, once migrations have made one: they take
40 ms."""


async def _create_in_memory(db: AsyncConnection) -> None:
    driver: Any = (await db.get_raw_connection()).driver_connection
    await driver.executescript(_memory_scripts[0])


async def _dump(db: AsyncConnection) -> str:
    driver: Any = (await db.get_raw_connection()).driver_connection
    return "\n".join([line async for line in driver.iterdump()])


def read_version(connection: sa.Connection) -> str | None:
    """Return the version of the tables, or None where there are none."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.select(_version.c.version_num)).scalar()


def _run_pending(connection: sa.Connection) -> None:
    """Run all pending migrations, within the caller's transaction and lock."""
    names = sa.inspect(connection).get_table_names()
    if connection.dialect.name == "sqlite" and names and VERSION_TABLE not in names:
        raise StoreUnavailable(
            "The file of the record is the database of another program.",
            advice="Move it away, or name another file in `database_url`. Nothing was changed.",
        )
    current = read_version(connection)
    if current is not None and current not in _MIGRATIONS:
        raise StoreUnavailable(
            f"The record was made by a newer Portico (its tables are version {current}).",
            advice="Update this Portico, or give it another `database_url`. Nothing was changed.",
        )
    pending = [version for version in _MIGRATIONS if current is None or version > current]
    for version in pending:
        _MIGRATIONS[version](connection)
    _version.create(connection, checkfirst=True)
    if pending:
        connection.execute(sa.delete(_version))
        connection.execute(sa.insert(_version).values(version_num=pending[-1]))


_KINDS: dict[str, Any] = {
    "binary": sa.LargeBinary,
    "text": sa.Text,
    "double": sa.Double,
    "integer": sa.Integer,
    "bigint": sa.BigInteger,
    "boolean": sa.Boolean,
    "name": sa.String(32),
    "id": sa.String(64),
}


def _create_tables(
    connection: sa.Connection, layouts: Mapping[str, str], indexes: Mapping[str, str]
) -> None:
    """Create tables, each `column:kind …` (`?` if it may be null) `| primary key`, and indexes."""
    for name, layout in layouts.items():
        columns, _, key = layout.partition("|")
        made = [_make_column(*column.split(":")) for column in columns.split()]
        _make_table(name, *made, sa.PrimaryKeyConstraint(*key.split())).create(
            connection, checkfirst=False
        )
    for name, column in indexes.items():
        table = _make_table(name, sa.Column(column, sa.LargeBinary))
        sa.Index(f"ix_portico_{name}_{column}", table.c[column]).create(
            connection, checkfirst=False
        )


def _make_table(name: str, *parts: Any, **options: Any) -> sa.Table:
    return sa.Table(f"portico_{name}", sa.MetaData(), *parts, **options)


def _make_column(name: str, kind: str) -> sa.Column[Any]:
    return sa.Column(name, _KINDS[kind.rstrip("?")], nullable=kind.endswith("?"))


def _create_first_tables(connection: sa.Connection) -> None:
    layouts = {
        "servers": """key:binary name:text title:text category:text first_seen:double
            last_seen:double digest:binary | key""",
        "tools": """key:binary server_key:binary server:text name:text hash:text category:text
            first_seen:double last_seen:double changes:bigint gone:boolean | key""",
        "manifests": """key:binary server_key:binary server:text fingerprint:text era:text
            hello:binary offers:binary listed_at:double digest:binary | key""",
        "manifest_tools": """manifest_key:binary position:integer name:text hash:text
            definition:binary warnings:text | manifest_key position""",
        "categories": """key:binary name:text title:text description:text tools:integer
            servers:integer | key""",
        "tiers": "key:binary server:text tool:text score:double tier:text | key",
        "computed": "name:name at:double | name",
        "daily_usage": """day:integer key:binary bucket:integer server_key:binary server:text
            tool:text calls:bigint successes:bigint last_at:double | day key bucket""",
        "ledger_sessions": """key:binary session:text client:text profile:text started_at:double
            last_at:double listing:bigint shown:bigint answers:bigint sessions:bigint | key""",
        "results": """id:id caller:text server:text tool:text created_at:double expires_at:double
            size:bigint media_type:text body:binary? path:text? | id""",
        "news": "kind:name origin:text stamp:bigint at:double | kind origin",
    }
    indexes = {
        "tools": "server_key",
        "manifests": "server_key",
        "ledger_sessions": "last_at",
        "results": "expires_at",
    }
    _create_tables(connection, layouts, indexes)
    _create_calls(connection)


def _create_calls(connection: sa.Connection) -> None:
    columns = """at:double server_key:binary tool_key:binary server:text tool:text tool_hash:text
        ms:double ok:boolean cancelled:boolean client:text profile:text session:text"""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    _make_table(
        "calls",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        *(_make_column(*column.split(":")) for column in columns.split()),
        sa.Index("ix_portico_calls_server", "server_key", "id"),
        sa.Index("ix_portico_calls_tool", "tool_key", "id"),
        sa.Index("ix_portico_calls_at", "at"),
        sqlite_autoincrement=True,
    ).create(connection, checkfirst=False)


def _create_shapes_and_plans(connection: sa.Connection) -> None:
    layouts = {
        "shapes": "hash:id results:integer shape:text seen_at:double | hash",
        "plans": """id:id scope:text intent:text words:text steps:text tools:text runs:integer
            used_at:double | id""",
    }
    _create_tables(connection, layouts, {"shapes": "seen_at", "plans": "scope"})


def _drop_unread_tables(connection: sa.Connection) -> None:
    """Drop four tables that nothing read: history of servers and tools, categories, results."""
    for name in ("results", "categories", "tools", "servers"):
        _make_table(name).drop(connection, checkfirst=False)


def _add_person_to_calls(connection: sa.Connection) -> None:
    connection.exec_driver_sql(
        "alter table portico_calls add column person text not null default ''"
    )


def _add_ways_to_calls(connection: sa.Connection) -> None:
    for name in ("call_id", "via", "error", "stages"):
        connection.exec_driver_sql(
            f"alter table portico_calls add column {name} text not null default ''"
        )


def _create_tasks(connection: sa.Connection) -> None:
    layout = """key:id person:text server:text fingerprint:text tool:text task_id:text
        call_id:text rule:text mask:text created_at:double expires_at:double | key"""
    _create_tables(connection, {"tasks": layout}, {"tasks": "person"})


_MIGRATIONS: dict[str, Callable[[sa.Connection], None]] = {
    "0001": _create_first_tables,
    "0002": _create_shapes_and_plans,
    "0003": _drop_unread_tables,
    "0004": _add_person_to_calls,
    "0005": _add_ways_to_calls,
    "0006": _create_tasks,
}
HEAD = max(_MIGRATIONS)
"""The version this Portico writes."""
