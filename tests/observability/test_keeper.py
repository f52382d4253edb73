"""One task writes what happened: soon, together, and again when it could not."""

import asyncio
import logging
from pathlib import Path

import pytest

from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import Retention
from portico.usage import recorder
from tests.fixtures.postgres import PostgresDatabase
from tests.observability.house import DAY, NOON, Disk, House, soon, until
from tests.storage.conftest import NewRecord


async def test_what_happens_is_written_soon_by_itself(new_record: NewRecord):
    house, other = House(new_record()), House(new_record())
    house.keeper.start()
    house.call(times=3)
    house.show("abc")
    await until(lambda: not house.usage.has_pending and not house.ledger.has_pending)
    await soon(other.usage.load())
    await soon(other.ledger.load())
    await soon(house.keeper.close())
    assert other.usage.get_statistics("mail.send").calls == 3
    assert other.ledger.total.shown == 3


async def test_what_is_on_record_is_known_once_it_was_loaded(new_record: NewRecord):
    first, second = House(new_record()), House(new_record())
    for house in (first, second):
        house.keeper.start(delay_s=600)
    first.call()
    await soon(first.keeper.close())
    await soon(second.keeper.wait_until_loaded())
    assert second.usage.statistics_by_tool == first.usage.statistics_by_tool
    await soon(second.keeper.close())


async def test_the_end_writes_what_was_heard_last_though_nothing_was_opened_yet(tmp_path: Path):
    house = House(GatewayStore(None, tmp_path / "record.sqlite3"))
    house.keeper.start(delay_s=600)
    house.call()
    house.show("abc")
    await soon(house.keeper.close())
    house.call()
    assert len(await soon(house.record.load_calls())) == 1
    assert (await soon(house.record.load_ledger_total())).shown == 3
    await house.record.close()


async def test_where_nothing_happened_the_end_opens_nothing(tmp_path: Path):
    house = House(GatewayStore(None, tmp_path / "data" / "record.sqlite3"))
    house.keeper.start(delay_s=600)
    await soon(house.keeper.close())
    assert not (tmp_path / "data").exists()


async def test_a_record_that_cannot_be_opened_costs_one_warning_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
):
    chores: list[int] = []

    async def chore() -> None:
        chores.append(len(chores))

    house = House(GatewayStore("postgresql://nobody@127.0.0.1:9/none", None), chores=(chore,))
    with caplog.at_level(logging.WARNING):
        house.keeper.start()
        house.call()
        house.show("abc", listing=True)
        await soon(house.keeper.wait_until_loaded())
        assert house.usage.get_statistics("mail.send").calls == 1
        assert house.ledger.total.answers == 1
        await until(lambda: len(chores) > 1)
        await soon(house.keeper.close())
    assert caplog.text.count("use is not recorded for now") == 1
    assert "127.0.0.1" in caplog.text


async def test_what_could_not_be_written_is_written_when_it_can(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(recorder, "WRITE_DELAY_S", 0.01)
    monkeypatch.setattr(recorder, "MAX_BACKOFF_S", 0.02)
    house = House(disk.record)
    await disk.fill()
    house.keeper.start()
    house.call()
    await until(lambda: "the disk is full" in caplog.text)
    house.call()
    disk.clear()
    await until(lambda: not house.usage.has_pending)
    assert len(await soon(disk.record.load_calls())) == 2
    await soon(house.keeper.close())
    assert caplog.text.count("use is not recorded for now") == 1


async def test_calls_and_answers_are_written_together_or_not_at_all(disk: Disk):
    house = House(disk.record)
    house.call()
    house.show("abc")
    await disk.fill("portico_ledger_sessions")
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await soon(house.keeper.flush())
    assert await soon(disk.record.load_calls()) == []
    assert house.usage.has_pending
    assert house.ledger.has_pending


async def test_what_is_too_old_goes(monkeypatch: pytest.MonkeyPatch):
    house = House(retention=Retention(calls_days=1, daily_days=10))
    for days in (20, 5, 0):
        house.now = NOON - days * DAY
        house.call()
        await soon(house.keeper.flush())
    monkeypatch.setattr(recorder, "READ_INTERVAL_S", 0.01)
    house.keeper.start()
    await soon(house.keeper.wait_until_loaded())
    await until(lambda: house.usage.get_statistics("mail.send").calls == 2)
    assert len(await soon(house.record.load_calls())) == 1
    await soon(house.keeper.close())


async def test_what_other_gateways_write_is_read_now_and_then(
    new_record: NewRecord, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recorder, "READ_INTERVAL_S", 0.05)
    ours, theirs = House(new_record()), House(new_record())
    ours.keeper.start()
    theirs.call()
    await soon(theirs.keeper.flush())
    await until(lambda: ours.usage.get_statistics("mail.send").calls == 1)
    await soon(ours.keeper.close())


async def test_everything_can_be_forgotten_and_that_is_noticed_elsewhere(new_record: NewRecord):
    ours, theirs = House(new_record()), House(new_record())
    ours.call()
    ours.show("abc")
    await soon(ours.keeper.flush())
    await soon(theirs.keeper.reload())
    assert theirs.usage.statistics_by_tool
    assert await soon(ours.usage.forget()) > 0
    await soon(theirs.keeper.reload())
    assert ours.usage.statistics_by_tool == theirs.usage.statistics_by_tool == {}
    assert theirs.ledger.total.answers == 0


async def test_a_chore_that_fails_keeps_nothing_from_being_written(
    caplog: pytest.LogCaptureFixture,
):
    async def fail() -> None:
        raise ValueError("of its own")

    house = House(chores=(fail,))
    house.keeper.start()
    await soon(house.keeper.wait_until_loaded())
    house.call()
    await until(lambda: not house.usage.has_pending)
    await soon(house.keeper.close())
    assert "of its own" in caplog.text


async def test_the_end_waits_for_a_record_only_so_long(monkeypatch: pytest.MonkeyPatch):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(recorder, "CLOSE_TIMEOUT_S", 0.2)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    house = House(GatewayStore(f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable", None))
    house.keeper.start()
    house.call()
    await soon(house.keeper.close())
    assert house.usage.has_pending
    server.close()


async def test_what_was_cut_off_while_it_was_made_final_is_not_written_twice(
    postgres: PostgresDatabase, caplog: pytest.LogCaptureFixture
):
    house = House(GatewayStore(postgres.url, None))
    await soon(house.record.open())
    postgres.sql(
        "create function gone() returns trigger language plpgsql as"
        " $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;\n"
        "create constraint trigger cut_off after insert on portico_calls deferrable initially deferred"
        " for each row execute function gone();"
    )
    house.call()
    await soon(house.keeper.flush())
    assert not house.usage.has_pending
    assert "is not known" in caplog.text
    postgres.sql("drop trigger cut_off on portico_calls;")
    house.call()
    await soon(house.keeper.flush())
    assert len(await soon(house.record.load_calls())) == 1
    await house.record.close()
