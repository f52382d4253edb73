"""Gateway store on PostgreSQL: lost connections, deadlocks, foreign notifications."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import CallRow, ChangeNotification, TierRow
from tests.fixtures.postgres import PostgresDatabase
from tests.storage.test_gateway_store import following, next_of, offering

TIMEOUT_S = 240
CALL = CallRow(1.0, "s", "t", "h", 1.0, True)
END_ALL = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


@contextlib.asynccontextmanager
async def two_records(
    postgres: PostgresDatabase,
) -> AsyncGenerator[tuple[GatewayStore, GatewayStore]]:
    one, other = GatewayStore(postgres.url, None), GatewayStore(postgres.url, None)
    await one.open()
    await other.open()
    try:
        yield one, other
    finally:
        await one.close()
        await other.close()


@contextlib.asynccontextmanager
async def falling_silent(postgres: PostgresDatabase) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """A way to PostgreSQL, and the event after which nothing passes it, in either direction."""
    silent = asyncio.Event()
    folder = parse_qs(urlsplit(postgres.url).query).get("host", [""])[0]
    if not folder:
        pytest.skip("PostgreSQL has no socket of its own here")

    async def copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while body := await source.read(65_536):
                if not silent.is_set():
                    target.write(body)

    async def relayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        copying = {
            asyncio.create_task(copied(reader, ours)),
            asyncio.create_task(copied(theirs, writer)),
        }
        _, rest = await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        ours.close()
        writer.close()

    relay = await asyncio.start_server(relayed, "127.0.0.1", 0)
    try:
        yield (
            f"postgresql://postgres@127.0.0.1:{relay.sockets[0].getsockname()[1]}/{postgres.name}",
            silent,
        )
    finally:
        relay.close()


def database(record: GatewayStore) -> Any:
    return record._database  # pyright: ignore[reportPrivateUsage]


async def test_connections_that_were_dropped_are_replaced(postgres: PostgresDatabase):
    async with two_records(postgres) as (one, other):
        for record in (one, other, one):
            await record.add_usage([CALL], [], [])
            await asyncio.to_thread(postgres.sql, f"{END_ALL};")
        assert len(await one.load_calls()) == 3


async def test_a_transaction_that_was_cut_off_before_its_end_is_done_again(
    postgres: PostgresDatabase,
):
    async with two_records(postgres) as (one, other):
        attempts: list[int] = []

        async def work(db: Any) -> None:
            attempts.append(len(attempts))
            await db.exec_driver_sql("insert into portico_computed values ('x', 1)")
            if len(attempts) == 1:
                await asyncio.to_thread(postgres.sql, f"{END_ALL};")
            await db.exec_driver_sql("select 1")

        await database(one).write(work)
        assert attempts == [0, 1]
        assert await other.load_tiers() == (0.0, [])


async def test_of_two_that_wait_for_each_other_both_get_through(postgres: PostgresDatabase):
    async with two_records(postgres) as (one, other):
        await database(one).write(
            lambda db: db.exec_driver_sql("insert into portico_computed values ('a', 0), ('b', 0)")
        )
        met = asyncio.Barrier(2)
        attempts: list[str] = []

        async def work(db: Any, first: str, second: str) -> None:
            attempts.append(first)
            await db.exec_driver_sql(
                f"update portico_computed set at = at + 1 where name = '{first}'"
            )
            if len(attempts) <= 2:
                await met.wait()
            await db.exec_driver_sql(
                f"update portico_computed set at = at + 1 where name = '{second}'"
            )

        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(
                database(one).write(lambda db: work(db, "a", "b")),
                database(other).write(lambda db: work(db, "b", "a")),
            )
        assert len(attempts) >= 3, "one of the two started again, on a busy machine more than once"

        async def sums(db: Any) -> list[float]:
            return [
                row.at
                for row in await db.exec_driver_sql("select at from portico_computed order by name")
            ]

        assert await database(one).read(sums) == [2, 2]


async def test_a_follower_is_notified_that_anything_may_have_changed_after_a_lost_connection(
    postgres: PostgresDatabase,
):
    async with two_records(postgres) as (one, other), following(one, "one") as received:
        await other.save_tiers([], at=1.0, origin="other")
        assert await next_of(received) == ChangeNotification("tiers")
        await asyncio.to_thread(postgres.sql, f"{END_ALL};")
        await other.save_manifests([offering("missed", "t")], origin="other")
        for kind in ("catalog", "pins", "tiers"):
            await until(received, ChangeNotification(kind))
        await other.save_manifests([offering("s", "t")], origin="other")
        news = await next_of(received)
        while news.server == "missed":  # where the connection was back before it was saved
            news = await next_of(received)
        assert news == ChangeNotification("catalog", "s")


async def test_what_anybody_else_says_on_the_channel_is_passed_over(postgres: PostgresDatabase):
    async with two_records(postgres) as (one, other), following(one, "one") as received:
        await other.save_tiers([], at=1.0, origin="other")
        assert await next_of(received) == ChangeNotification("tiers")
        said = (
            "nonsense",
            "[]",
            "{}",
            '{"kind": 1}',
            '{"kind": "x", "server": "", "origin": ""}',
            "",
        )
        for body in said:
            await asyncio.to_thread(postgres.sql, f"select pg_notify('portico_news', '{body}');")
        await other.save_tiers([], at=2.0, origin="other")
        assert await next_of(received) == ChangeNotification("tiers")
        assert received.empty()


async def test_notifications_are_sent_with_the_change_and_not_without_it(
    postgres: PostgresDatabase,
):
    async with two_records(postgres) as (one, other), following(one, "one") as received:
        await other.save_manifests([offering("first", "t")], origin="other")
        assert await next_of(received) == ChangeNotification("catalog", "first")
        impossible: Any = None
        with pytest.raises(StoreUnavailable):
            await other.save_tiers([TierRow("s", "t", impossible, "hot")], at=1.0, origin="other")
        await other.save_manifests([offering("second", "t")], origin="other")
        assert await next_of(received) == ChangeNotification("catalog", "second")


async def test_other_programs_tables_are_left_alone(postgres: PostgresDatabase):
    postgres.sql(
        "create table calls (x int); create table tools (x int); create table "
        "alembic_version (x int);"
    )
    async with two_records(postgres) as (one, _):
        await one.add_usage([CALL], [], [])
        assert len(await one.load_calls()) == 1


async def test_a_record_that_was_lost_says_so_until_it_is_back(postgres: PostgresDatabase):
    async with two_records(postgres) as (one, _):
        await asyncio.to_thread(
            postgres.server.sql, f"alter database {postgres.name} allow_connections false;"
        )
        await asyncio.to_thread(
            postgres.server.sql, f"{END_ALL.replace('current_database()', repr(postgres.name))};"
        )
        with pytest.raises(StoreUnavailable):
            await one.add_usage([CALL], [], [])
        assert "PostgreSQL" in one.problem
        await asyncio.to_thread(
            postgres.server.sql, f"alter database {postgres.name} allow_connections true;"
        )
        await one.add_usage([CALL], [], [])
        assert one.problem == ""


async def test_a_database_that_falls_silent_does_not_hold_up_the_end(postgres: PostgresDatabase):
    async with falling_silent(postgres) as (url, silent):
        record = GatewayStore(url, None)
        await record.add_usage([CALL], [], [])
        async with following(record, "one"):
            silent.set()
            writing = asyncio.create_task(record.add_usage([CALL], [], []))
            await asyncio.wait({writing}, timeout=0.1)
            writing.cancel()
            await asyncio.wait_for(asyncio.wait({writing}), TIMEOUT_S)
        await asyncio.wait_for(record.close(), TIMEOUT_S)
    assert len(await _calls_of(postgres)) == 1


async def test_a_listener_that_is_cut_off_says_so_once_and_when_it_is_back(
    postgres: PostgresDatabase, caplog: pytest.LogCaptureFixture
):
    async with two_records(postgres) as (one, other), following(one, "one") as received:
        await other.save_tiers([], at=1.0, origin="other")
        await next_of(received)
        await asyncio.to_thread(
            postgres.server.sql, f"alter database {postgres.name} allow_connections false;"
        )
        await asyncio.to_thread(
            postgres.server.sql, f"{END_ALL.replace('current_database()', repr(postgres.name))};"
        )
        for _ in range(3):  # as long as it takes to be refused a few times
            with pytest.raises(StoreUnavailable):
                await one.add_usage([CALL], [], [])
            await asyncio.sleep(0.2)
        await asyncio.to_thread(
            postgres.server.sql, f"alter database {postgres.name} allow_connections true;"
        )
        await until(received, ChangeNotification("catalog"))
        assert caplog.text.count("notifications of other gateways do not arrive") == 1


async def until(received: "asyncio.Queue[ChangeNotification]", news: ChangeNotification) -> None:
    """Wait for this change; one made while a listener starts is reported twice."""
    while await next_of(received) != news:
        pass


async def _calls_of(postgres: PostgresDatabase) -> list[CallRow]:
    record = GatewayStore(postgres.url, None)
    try:
        return await record.load_calls()
    finally:
        await record.close()
