"""The recorder writes usage soon, in batches, and retries."""

import asyncio
import logging
from pathlib import Path

import pytest

from portico.config import UsageConfig
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.usage import recorder
from tests.fixtures.postgres import PostgresDatabase
from tests.storage.conftest import NewRecord
from tests.usage.recording import DAY, NOON, Disk, UsageServices, soon, until


async def test_what_happens_is_written_soon_by_itself(new_record: NewRecord):
    services, other = UsageServices(new_record()), UsageServices(new_record())
    services.recorder.start()
    services.call(times=3)
    services.show("abc")
    await until(lambda: not services.usage.has_pending and not services.ledger.has_pending)
    await soon(other.usage.load())
    await soon(other.ledger.load())
    await soon(services.recorder.close())
    assert other.usage.get_statistics("mail.send").calls == 3
    assert other.ledger.total.shown == 3


async def test_what_is_on_record_is_known_once_it_was_loaded(new_record: NewRecord):
    first, second = UsageServices(new_record()), UsageServices(new_record())
    for services in (first, second):
        services.recorder.start(delay_s=600)
    first.call()
    await soon(first.recorder.close())
    await soon(second.recorder.wait_until_loaded())
    assert second.usage.statistics_by_tool == first.usage.statistics_by_tool
    await soon(second.recorder.close())


async def test_the_end_writes_what_was_received_last_though_nothing_was_opened_yet(tmp_path: Path):
    services = UsageServices(GatewayStore(None, tmp_path / "record.sqlite3"))
    services.recorder.start(delay_s=600)
    services.call()
    services.show("abc")
    await soon(services.recorder.close())
    services.call()
    assert len(await soon(services.record.load_calls())) == 1
    assert (await soon(services.record.load_ledger_total())).shown == 3
    await services.record.close()


async def test_where_nothing_happened_the_end_opens_nothing(tmp_path: Path):
    services = UsageServices(GatewayStore(None, tmp_path / "data" / "record.sqlite3"))
    services.recorder.start(delay_s=600)
    await soon(services.recorder.close())
    assert not (tmp_path / "data").exists()


async def test_a_record_that_cannot_be_opened_costs_one_warning_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
):
    tasks: list[int] = []

    async def chore() -> None:
        tasks.append(len(tasks))

    services = UsageServices(
        GatewayStore("postgresql://nobody@127.0.0.1:9/none", None), tasks=(chore,)
    )
    with caplog.at_level(logging.WARNING):
        services.recorder.start()
        services.call()
        services.show("abc", listing=True)
        await soon(services.recorder.wait_until_loaded())
        assert services.usage.get_statistics("mail.send").calls == 1
        assert services.ledger.total.answers == 1
        await until(lambda: len(tasks) > 1)
        await soon(services.recorder.close())
    assert caplog.text.count("use is not recorded for now") == 1
    assert "127.0.0.1" in caplog.text


async def test_what_could_not_be_written_is_written_when_it_can(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(recorder, "WRITE_DELAY_S", 0.01)
    monkeypatch.setattr(recorder, "MAX_BACKOFF_S", 0.02)
    services = UsageServices(disk.record)
    await disk.fill()
    services.recorder.start()
    services.call()
    await until(lambda: "the disk is full" in caplog.text)
    services.call()
    disk.clear()
    await until(lambda: not services.usage.has_pending)
    assert len(await soon(disk.record.load_calls())) == 2
    await soon(services.recorder.close())
    assert caplog.text.count("use is not recorded for now") == 1


async def test_calls_and_answers_are_written_together_or_not_at_all(disk: Disk):
    services = UsageServices(disk.record)
    services.call()
    services.show("abc")
    await disk.fill("portico_ledger_sessions")
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await soon(services.recorder.flush())
    assert await soon(disk.record.load_calls()) == []
    assert services.usage.has_pending
    assert services.ledger.has_pending


async def test_what_is_too_old_goes(monkeypatch: pytest.MonkeyPatch):
    services = UsageServices(retention=UsageConfig(calls_days=1, daily_days=10))
    for days in (20, 5, 0):
        services.now = NOON - days * DAY
        services.call()
        await soon(services.recorder.flush())
    monkeypatch.setattr(recorder, "READ_INTERVAL_S", 0.01)
    services.recorder.start()
    await soon(services.recorder.wait_until_loaded())
    await until(lambda: services.usage.get_statistics("mail.send").calls == 2)
    assert len(await soon(services.record.load_calls())) == 1
    await soon(services.recorder.close())


async def test_what_other_gateways_write_is_read_now_and_then(
    new_record: NewRecord, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recorder, "READ_INTERVAL_S", 0.05)
    ours, theirs = UsageServices(new_record()), UsageServices(new_record())
    ours.recorder.start()
    theirs.call()
    await soon(theirs.recorder.flush())
    await until(lambda: ours.usage.get_statistics("mail.send").calls == 1)
    await soon(ours.recorder.close())


async def test_everything_can_be_forgotten_and_that_is_noticed_elsewhere(new_record: NewRecord):
    ours, theirs = UsageServices(new_record()), UsageServices(new_record())
    ours.call()
    ours.show("abc")
    await soon(ours.recorder.flush())
    await soon(theirs.recorder.reload())
    assert theirs.usage.statistics_by_tool
    assert await soon(ours.usage.forget()) > 0
    await soon(theirs.recorder.reload())
    assert ours.usage.statistics_by_tool == theirs.usage.statistics_by_tool == {}
    assert theirs.ledger.total.answers == 0


async def test_a_chore_that_fails_keeps_nothing_from_being_written(
    caplog: pytest.LogCaptureFixture,
):
    async def fail() -> None:
        raise ValueError("of its own")

    services = UsageServices(tasks=(fail,))
    services.recorder.start()
    await soon(services.recorder.wait_until_loaded())
    services.call()
    await until(lambda: not services.usage.has_pending)
    await soon(services.recorder.close())
    assert "of its own" in caplog.text


async def test_the_end_waits_for_a_record_only_so_long(monkeypatch: pytest.MonkeyPatch):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(recorder, "CLOSE_TIMEOUT_S", 0.2)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    services = UsageServices(
        GatewayStore(f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable", None)
    )
    services.recorder.start()
    services.call()
    await soon(services.recorder.close())
    assert services.usage.has_pending
    server.close()


async def test_what_was_cut_off_while_it_was_made_final_is_not_written_twice(
    postgres: PostgresDatabase, caplog: pytest.LogCaptureFixture
):
    services = UsageServices(GatewayStore(postgres.url, None))
    await soon(services.record.open())
    postgres.sql(
        "create function gone() returns trigger language plpgsql as"
        " $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;\n"
        "create constraint trigger cut_off after insert on portico_calls deferrable "
        "initially deferred"
        " for each row execute function gone();"
    )
    services.call()
    await soon(services.recorder.flush())
    assert not services.usage.has_pending
    assert "is not known" in caplog.text
    postgres.sql("drop trigger cut_off on portico_calls;")
    services.call()
    await soon(services.recorder.flush())
    assert len(await soon(services.record.load_calls())) == 1
    await services.record.close()
