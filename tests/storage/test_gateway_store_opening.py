"""Opening the gateway store: URL forms, concurrent migration, damaged and unreachable files."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import CallRow
from portico.storage.sql.database_url import PostgresAddress, SqliteAddress, parse_address
from tests.fixtures.postgres import GUARDED, PASSWORD, PostgresDatabase
from tests.storage.conftest import NewRecord

NOW = 1_700_000_000.0
TIMEOUT_S = 240
CALL = CallRow(NOW, "s", "t", "h", 1.0, True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "record.sqlite3"


async def unavailable(record: GatewayStore) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        await record.open()
    assert caught.value.advice
    assert record.problem == f"{caught.value.message} {caught.value.advice}".strip()
    return caught.value


# Addresses


@pytest.mark.parametrize(
    ("url", "dsn", "shown"),
    [
        ("postgres://u:secret@h:5433/d", "postgresql://u:secret@h:5433/d", "d at h:5433"),
        ("postgresql://u@h/d?sslmode=require", "postgresql://u@h/d?sslmode=require", "d at h"),
        (
            "PostgreSQL+asyncpg://u:se%40cret@h,[::1]:5432/d",
            "postgresql://u:se%40cret@h,[::1]:5432/d",
            "d at h,[::1]:5432",
        ),
        (
            "postgresql:///d?host=/run/pg&password=secret",
            "postgresql:///d?host=/run/pg&password=secret",
            "d at /run/pg",
        ),
    ],
)
def test_postgresql_is_spelt_in_several_ways_and_shown_without_a_password(
    url: str, dsn: str, shown: str
):
    address = parse_address(url, None)
    assert isinstance(address, PostgresAddress)
    assert (address.dsn, address.display_name) == (dsn, shown)
    assert GatewayStore(url, None).is_shared


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///some/file.db", Path("some/file.db")),
        ("sqlite:////some/file.db", Path("/some/file.db")),
        ("sqlite+aiosqlite:///C:/some file.db", Path("C:/some file.db")),
        ("sqlite:///~/file.db", Path("~/file.db").expanduser()),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        (None, Path("default.db")),
        ("", Path("default.db")),
    ],
)
def test_a_sqlite_file_is_named_by_a_url_or_is_the_default(url: str | None, path: Path | None):
    assert parse_address(url, Path("default.db")) == SqliteAddress(path)
    assert not GatewayStore(url, None).is_shared


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:SECRET@h/d",
        "postgresql+psycopg://u:SECRET@h/d",
        "postgresql:u:SECRET",
        "SECRET",
        "sqlite://host/SECRET",
        "sqlite:///file?mode=SECRET",
        "postgresql://u:x@SECRET@h/d",
        "postgresql://u:SECRET/x@h/d",
        "postgresql://u:12/SECRET@h/d",
        "postgresql://u:12?SECRET@h/d",
        "postgresql://u:12#SECRET@h/d",
        "postgresql://u:[SECRET@h/d",
        "postgresql://u:SECRET@h:port/d",
        "postgresql://u:SECRET@h/d?sslmode",
        "postgresql://u:SECRET@127.0.0.1:9/d?sslmode=surely",
        "postgresql://u@127.0.0.1:9/d?password=SECRET&sslmode=disable",
        "postgresql://u:SECRET@127.0.0.1:9/d?sslmode=disable",
        "postgresql://u:SECRET@127.0.0.1:9/d?sslmode=verify-full&sslrootcert=/no/such/file",
        "postgresql://u:SECRET@/d?host=127.0.0.1&port=SECRET",
    ],
)
async def test_what_cannot_be_used_is_refused_with_advice_that_repeats_no_password(url: str):
    error = await unavailable(GatewayStore(url, None))
    assert "SECRET" not in str(error)


async def test_sslmode_is_understood(postgres: PostgresDatabase):
    error = await unavailable(
        GatewayStore(postgres.server.url(postgres.name, more="&sslmode=surely"), None)
    )
    assert "sslmode" in error.message
    record = GatewayStore(postgres.server.url(postgres.name, more="&sslmode=disable"), None)
    await record.open()
    await record.close()


async def test_a_setting_postgresql_does_not_know_is_named(postgres: PostgresDatabase):
    error = await unavailable(
        GatewayStore(postgres.server.url(postgres.name, more="&colour=red"), None)
    )
    assert "colour" in error.message


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
async def test_every_spelling_connects(postgres: PostgresDatabase, scheme: str):
    record = GatewayStore(postgres.server.url(postgres.name, scheme=scheme), None)
    await record.add_usage([CALL], [], [])
    assert len(await record.load_calls()) == 1
    await record.close()


# PostgreSQL that refuses


async def test_a_wrong_password_is_said_and_not_repeated(postgres: PostgresDatabase):
    wrong = "hunter2%2Fx"
    error = await unavailable(
        GatewayStore(postgres.server.url(postgres.name, f"{GUARDED}:{wrong}"), None)
    )
    assert "password" in error.message
    assert "hunter2" not in str(error)
    assert "hunter2" not in repr(error.__cause__)


async def test_a_password_with_every_separator_is_taken_when_it_is_encoded(
    postgres: PostgresDatabase,
):
    from urllib.parse import quote

    record = GatewayStore(
        postgres.server.url(postgres.name, f"{GUARDED}:{quote(PASSWORD, safe='')}"), None
    )
    await record.add_usage([CALL], [], [])
    await record.close()


async def test_a_missing_database_is_said_with_what_to_do(postgres: PostgresDatabase):
    error = await unavailable(GatewayStore(postgres.server.url("nothing_here"), None))
    assert "nothing_here" in error.message
    assert "createdb" in error.advice


async def test_a_user_who_may_not_make_tables_gets_that_error(postgres: PostgresDatabase):
    postgres.sql(
        f"create role reader_{postgres.name} login; revoke create on schema public from public;"
    )
    error = await unavailable(
        GatewayStore(postgres.server.url(postgres.name, f"reader_{postgres.name}"), None)
    )
    assert "Grant" in error.advice


async def test_a_server_that_is_down_is_tried_again_by_the_next_use(postgres: PostgresDatabase):
    record = GatewayStore(postgres.server.url("comes_later"), None)
    await unavailable(record)
    with pytest.raises(StoreUnavailable):
        await record.add_usage([CALL], [], [])
    postgres.server.sql("create database comes_later;")
    await record.add_usage([CALL], [], [])
    assert record.problem == ""
    await record.close()


async def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    error = await unavailable(GatewayStore("postgresql://u:SECRET@h/d", None))
    assert "portico-mcp[postgres]" in error.advice
    assert "SECRET" not in str(error)


# Migrations


_OPEN = """
import asyncio, sys
from pathlib import Path
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallRow

async def main():
    record = GatewayStore(sys.argv[1] or None, Path(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    await record.open()
    await record.add_usage([CallRow(1.0, "s", "t", "h", 1.0, True)], [], [])
    await record.close()
    assert not record.problem, record.problem
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_gateways_that_start_at_once_make_the_tables_once(
    kind: str, path: Path, request: pytest.FixtureRequest
):
    url = request.getfixturevalue("postgres").url if kind == "postgresql" else ""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _OPEN,
            url,
            str(path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            ends = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert [out for out, _ in ends] == [b"done\n"] * 6
    record = GatewayStore(url or None, path)
    assert len(await record.load_calls()) == 6
    await record.close()


async def test_several_records_of_one_process_may_open_at_once(new_record: NewRecord):
    records = [new_record() for _ in range(4)]
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*(record.open() for record in records))
    await records[0].add_usage([CALL], [], [])
    assert len(await records[3].load_calls()) == 1


async def test_a_record_of_a_newer_portico_is_refused_and_left_alone(
    new_record: NewRecord, monkeypatch: pytest.MonkeyPatch
):
    record = new_record()
    await record.add_usage([CALL], [], [])
    await _sql(record, "update portico_version set version_num = '9999'")
    await record.close()
    error = await unavailable(new_record())
    assert "9999" in error.message
    assert "Update" in error.advice
    # What was refused was left as it was.
    monkeypatch.setattr("portico.storage.sql.migrations.HEAD", "9999")
    assert len(await new_record().load_calls()) == 1


async def test_the_tables_are_those_the_migrations_make(new_record: NewRecord):
    import sqlalchemy as sa

    from portico.storage.sql import tables
    from portico.storage.sql.migrations import VERSION_TABLE

    def describe(connection: sa.Connection, metadata: sa.MetaData) -> dict[str, Any]:
        return {
            table.name: (
                {
                    (column.name, column.type.compile(connection.dialect), column.nullable)
                    for column in table.columns
                },
                [column.name for column in table.primary_key.columns],
                {(str(index.name), tuple(index.columns.keys())) for index in table.indexes},
            )
            for table in metadata.tables.values()
        }

    def compare(connection: sa.Connection) -> None:
        made = sa.MetaData()
        made.reflect(connection)
        made.remove(made.tables[VERSION_TABLE])
        assert describe(connection, made) == describe(connection, tables.metadata)

    database = await _database(new_record())
    await database.read(lambda db: db.run_sync(compare))


async def test_a_migration_waits_for_the_one_that_is_under_way(postgres: PostgresDatabase):
    from portico.storage.sql.migrations import HEAD
    from portico.storage.sql.tables import acquire_lock

    first, second = GatewayStore(postgres.url, None), GatewayStore(postgres.url, None)
    database = await _database(first)
    await _sql(first, "update portico_version set version_num = '0000'")
    held, free = asyncio.Event(), asyncio.Event()

    async def hold(db: Any) -> None:
        await acquire_lock(db, "migration")
        held.set()
        await free.wait()
        await db.exec_driver_sql(f"update portico_version set version_num = '{HEAD}'")

    async with asyncio.timeout(TIMEOUT_S):
        holding = asyncio.create_task(database.write(hold))
        await held.wait()
        opening = asyncio.create_task(second.open())
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while "1" not in await asyncio.to_thread(postgres.sql, f"\\t\n{waiting};"):
            assert not opening.done()
        free.set()
        await asyncio.gather(holding, opening)
    await first.close()
    await second.close()


# SQLite


async def test_the_file_is_its_owners_alone_and_several_may_use_it(path: Path):
    record = GatewayStore(None, path)
    await record.add_usage([CALL], [], [])
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma journal_mode").fetchone() == ("wal",)
    if sys.platform != "win32":
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    await record.close()


async def test_a_damaged_file_is_set_aside_and_recreated(
    path: Path, caplog: pytest.LogCaptureFixture
):
    _write(path, b"this is no database, and never was one" * 100)
    record = GatewayStore(None, path)
    with caplog.at_level(logging.WARNING):
        await record.add_usage([CALL], [], [])
    assert len(await record.load_calls()) == 1
    assert path.with_name("record.sqlite3.unreadable").read_bytes().startswith(b"this is no")
    assert "a new one is used" in caplog.text
    assert record.problem == ""
    await record.close()


async def test_a_file_that_is_damaged_while_it_is_used_is_recreated_too(path: Path):
    record = GatewayStore(None, path)
    await record.add_usage([CALL] * 2_000, [], [])
    await record.close()
    _damage(path)
    record, other = GatewayStore(None, path), GatewayStore(None, path)
    with contextlib.suppress(StoreUnavailable):
        await other.open()
    await record.add_usage([CALL], [], [])
    assert len(await record.load_calls()) == 1
    # Who held the old file finds the new one, and leaves it where it is.
    assert len(await other.load_calls()) == 1
    assert path.with_name("record.sqlite3.unreadable").exists()
    await record.close()
    await other.close()


async def test_another_programs_database_is_left_alone(path: Path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table theirs (x)")
        db.commit()
    error = await unavailable(GatewayStore(f"sqlite:///{path}", None))
    assert "another program" in error.message
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select name from sqlite_master").fetchall() == [("theirs",)]


async def test_a_folder_that_cannot_be_written_costs_only_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("no folder")
    record = GatewayStore(None, tmp_path / "file" / "record.sqlite3")
    with caplog.at_level(logging.WARNING):
        await record.add_usage([CALL], [], [])
    assert len(await record.load_calls()) == 1
    assert "nothing will be remembered" in record.problem
    assert "nothing will be remembered" in caplog.text
    await record.close()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
async def test_a_file_that_may_only_be_read_costs_only_memory(path: Path):
    record = GatewayStore(None, path)
    await record.add_usage([CALL], [], [])
    await record.close()
    _lock(path)
    try:
        record = GatewayStore(None, path)
        await record.add_usage([CALL], [], [])
        assert "nothing will be remembered" in record.problem
        await record.close()
    finally:
        path.parent.chmod(0o700)


async def test_a_cancelled_read_leaves_what_is_kept_in_memory():
    record = GatewayStore(None, None)
    await record.add_usage([CALL], [], [])
    for steps in range(40):
        reading = asyncio.create_task(record.load_calls())
        for _ in range(steps):
            await asyncio.sleep(0)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert len(await record.load_calls()) == 1
    await record.close()


async def test_without_a_path_there_is_memory(tmp_path: Path):
    record = GatewayStore(None, None)
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(
            *(record.add_usage([CALL], [], []) for _ in range(5)),
            record.load_calls(),
            record.load_tiers(),
        )
    assert len(await record.load_calls()) == 5
    assert (record.problem, record.is_shared) == ("", False)
    following = asyncio.create_task(record.follow_changes(lambda _: None, origin="a"))
    await record.load_calls()
    assert not following.done()
    following.cancel()
    await record.close()


async def test_the_event_loop_runs_on_while_another_process_holds_the_file(path: Path):
    record = GatewayStore(None, path)
    await record.open()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("begin immediate")
        writing = asyncio.create_task(record.add_usage([CALL], [], []))
        for _ in range(20):
            assert await record.load_calls() == []
        assert not writing.done()
        db.execute("rollback")
    async with asyncio.timeout(TIMEOUT_S):
        await writing
    assert len(await record.load_calls()) == 1
    await record.close()


async def test_a_record_that_is_held_by_another_program_is_written_when_it_is_released(path: Path):
    record = GatewayStore(None, path)
    await record.open()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        writing = asyncio.create_task(record.save_tiers([], at=1.0, origin=""))
        given_up = asyncio.create_task(record.save_tiers([], at=2.0, origin=""))
        done, _ = await asyncio.wait(
            {writing, given_up}, timeout=1.5
        )  # longer than SQLite itself waits
        assert not done
        given_up.cancel()
        other.execute("rollback")
    await asyncio.wait_for(writing, TIMEOUT_S)
    assert (await record.load_tiers())[0] == 1.0
    await record.close()


def test_importing_the_record_loads_no_database():
    code = (
        "import sys, portico.storage.gateway_store;"
        "print([name for name in ('sqlalchemy', 'aiosqlite', 'asyncpg') if "
        "name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def _write(path: Path, body: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(body)


def _damage(path: Path) -> None:
    body = path.read_bytes()
    path.write_bytes(body[:4_096] + b"\xff" * (len(body) - 4_096))


def _lock(path: Path) -> None:
    path.chmod(0o400)
    path.parent.chmod(0o500)


async def _database(record: GatewayStore) -> Any:
    """What the record speaks to: for what has no method yet."""
    await record.open()
    return record._database  # pyright: ignore[reportPrivateUsage]


async def _sql(record: GatewayStore, statement: str) -> None:
    await (await _database(record)).write(lambda db: db.exec_driver_sql(statement))
