"""How tools do: known at once, kept in batches, shared by gateways, and bounded when nothing can be
kept."""

import asyncio
import logging

import pytest

from portico.access import Caller
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import CallRow, Retention
from portico.usage import tool_usage
from portico.usage.statistics import UNUSED
from portico.usage.tool_usage import ToolUsage
from tests.observability.house import DAY, NOON, PATIENCE, Disk, House, soon
from tests.storage.conftest import NewRecord


def test_a_tool_that_nobody_called_has_no_use():
    house = House()
    assert house.usage.get_statistics("mail.send") == UNUSED
    assert house.usage.statistics_by_tool == house.usage.facts == {}


async def test_a_call_counts_at_once_and_the_same_after_it_was_written(record: GatewayStore):
    house = House(record)
    house.call(ms=100, times=9)
    house.call(ms=100, ok=False)
    heard = house.usage.get_statistics("mail.send")
    assert (heard.calls, heard.successes, heard.last_used, heard.calls_7d, heard.calls_30d) == (
        10,
        9,
        NOON,
        10,
        10,
    )
    assert heard.p50_ms == pytest.approx(100, rel=0.05)
    await soon(house.keeper.flush(PATIENCE))
    assert not house.usage.has_pending
    assert house.usage.get_statistics("mail.send") == heard
    await soon(house.usage.load())
    assert house.usage.get_statistics("mail.send") == heard


async def test_what_was_written_is_known_to_the_next_gateway(new_record: NewRecord):
    first = House(new_record())
    first.call(times=3)
    await soon(first.keeper.close())
    await first.record.close()
    second = House(new_record())
    await soon(second.usage.load())
    assert second.usage.statistics_by_tool == first.usage.statistics_by_tool


async def test_gateways_on_one_record_know_each_other_s_calls_and_none_is_counted_twice(
    new_record: NewRecord,
):
    ours, theirs = House(new_record()), House(new_record())
    for _ in range(3):
        ours.call(times=2)
        theirs.call("mail.find")
        for house in (ours, theirs):
            await soon(house.keeper.flush(PATIENCE))
        ours.call()  # waits to be written while the record is read
        for house in (ours, theirs):
            await soon(house.usage.load())
    assert {tool: use.calls for tool, use in ours.usage.statistics_by_tool.items()} == {
        "mail.send": 9,
        "mail.find": 3,
    }
    await soon(ours.keeper.flush(PATIENCE))
    await soon(theirs.usage.load())
    assert theirs.usage.statistics_by_tool == ours.usage.statistics_by_tool


async def test_calls_are_kept_one_by_one_with_who_made_them(record: GatewayStore):
    house = House(record)
    house.call("mail.v1.send", ms=12)
    house.call(ok=False, cancelled=True, caller=Caller(name="x" * 10_000))
    await soon(house.keeper.flush(PATIENCE))
    cancelled, sent = await soon(record.load_calls())
    assert sent == CallRow(
        NOON, "mail", "v1.send", "hash", 12.0, True, False, "claude", "work", "session", sent.id
    )
    assert (cancelled.cancelled, cancelled.ok, len(cancelled.client)) == (True, False, 80)


def test_a_call_that_was_taken_back_says_nothing_of_the_tool():
    house = House()
    house.call(ok=False, cancelled=True)
    assert house.usage.statistics_by_tool == {}
    assert house.usage.has_pending


async def test_no_single_call_is_kept_where_the_settings_say_so():
    house = House(retention=Retention(calls_days=0))
    house.call(times=3)
    await soon(house.keeper.flush(PATIENCE))
    assert await soon(house.record.load_calls()) == []
    await soon(house.usage.load())
    assert house.usage.get_statistics("mail.send").calls == 3


def test_what_was_handed_out_does_not_change():
    house = House()
    house.call()
    used, facts = house.usage.statistics_by_tool, house.usage.facts
    assert house.usage.statistics_by_tool is used
    house.call()
    assert (used["mail.send"].calls, facts["mail.send"].calls) == (1, 1)
    assert (
        house.usage.statistics_by_tool["mail.send"].calls
        == house.usage.facts["mail.send"].calls
        == 2
    )


def test_counts_of_the_last_days_fall_as_days_pass():
    house = House()
    house.call()
    weeks: list[tuple[int, int]] = []
    for days in (0, 6, 7, 29, 30):
        house.now = NOON + days * DAY
        weeks.append(
            (
                house.usage.get_statistics("mail.send").calls_7d,
                house.usage.get_statistics("mail.send").calls_30d,
            )
        )
    assert weeks == [(1, 1), (1, 1), (0, 1), (0, 1), (0, 0)]


async def test_days_long_past_are_known_whenever_they_are_read():
    house = House()
    for days in (400, 31, 3, 1, 0):
        house.now = NOON - days * DAY
        house.call()
        await soon(house.keeper.flush(PATIENCE))
    for _ in range(3):
        await soon(house.usage.load())
        assert house.usage.get_statistics("mail.send").calls == 5
    house.now = NOON + 40 * DAY
    await soon(house.usage.load())
    assert (
        house.usage.get_statistics("mail.send").calls,
        house.usage.get_statistics("mail.send").calls_30d,
    ) == (5, 0)


async def test_facts_are_the_median_and_the_successes():
    house = House()
    house.call(ms=200, times=3)
    house.call(ms=9_000, ok=False)
    fact = house.usage.facts["mail.send"]
    assert (fact.calls, fact.successes) == (4, 3)
    assert fact.latency_ms == house.usage.get_statistics("mail.send").p50_ms


# What cannot be written


async def test_what_cannot_be_written_waits_and_nothing_is_counted_twice(disk: Disk):
    house = House(disk.record)
    await disk.fill()
    house.call(times=2)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await soon(house.keeper.flush(PATIENCE))
        house.call()
    assert house.usage.get_statistics("mail.send").calls == 5
    disk.clear()
    await soon(house.keeper.flush(PATIENCE))
    await soon(house.usage.load())
    assert house.usage.get_statistics("mail.send").calls == 5
    assert len(await soon(disk.record.load_calls())) == 5


async def test_what_is_heard_while_it_is_written_is_written_next():
    house = House()
    house.call()
    async with house.usage.take_pending() as heard:
        house.call()
        assert sum(row.calls for row in heard.to_daily_rows()) == 1
        assert house.usage.get_statistics("mail.send").calls == 2
    async with house.usage.take_pending() as heard:
        assert sum(row.calls for row in heard.to_daily_rows()) == 1


async def test_writing_that_is_cut_off_loses_nothing():
    house = House()
    house.call()

    async def write() -> None:
        async with house.usage.take_pending():
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await asyncio.sleep(0)
    house.call()
    writing.cancel()
    await asyncio.wait({writing}, timeout=20)
    async with house.usage.take_pending() as heard:
        assert (len(heard.calls), sum(row.calls for row in heard.to_daily_rows())) == (2, 2)


async def test_what_waits_takes_bounded_room_and_that_is_said_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(tool_usage, "MAX_PENDING_CALLS", 100)
    house = House(disk.record)
    await disk.fill()
    house.call(times=80)
    with pytest.raises(StoreUnavailable):
        await soon(house.keeper.flush(PATIENCE))
    with caplog.at_level(logging.WARNING):
        house.call(times=80)
        with pytest.raises(StoreUnavailable):
            await soon(house.keeper.flush(PATIENCE))
    assert caplog.text.count("than there is room for") == 1
    disk.clear()
    await soon(house.keeper.flush(PATIENCE))
    assert len(await soon(disk.record.load_calls(limit=1_000))) == 100
    await soon(house.usage.load())
    assert house.usage.get_statistics("mail.send").calls == 160


def test_ever_new_names_of_tools_take_bounded_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool_usage, "MAX_TOOLS", 50)
    monkeypatch.setattr(tool_usage, "MAX_PENDING_COUNTS", 60)
    house = House(retention=Retention(calls_days=0))
    for number in range(200):
        house.call(f"mail.t{number}")
        house.call("mail.t0", ms=1.3**number)
    assert len(house.usage.statistics_by_tool) == 50
    assert house.usage.get_statistics("mail.t0").calls == 201


# Forgetting and ending


async def test_a_server_s_use_can_be_forgotten_and_that_of_all(record: GatewayStore):
    house = House(record)
    for tool in ("mail.send", "mailing.send"):
        house.call(tool)
    await soon(house.keeper.flush(PATIENCE))
    house.call()
    assert await soon(house.usage.forget("mail")) > 0
    assert list(house.usage.statistics_by_tool) == list(house.usage.facts) == ["mailing.send"]
    assert not house.usage.has_pending
    await soon(house.usage.forget())
    assert house.usage.statistics_by_tool == {}
    await soon(house.usage.load())
    assert house.usage.statistics_by_tool == {}


async def test_what_another_process_made_the_record_forget_is_forgotten_here(new_record: NewRecord):
    ours, theirs = House(new_record()), new_record()
    for days in (9, 0):
        ours.now = NOON - days * DAY
        ours.call()
    await soon(ours.keeper.flush(PATIENCE))
    await soon(ours.usage.load())
    await soon(theirs.forget_usage())
    await soon(ours.usage.reload())
    assert ours.usage.statistics_by_tool == {}


async def test_nothing_is_heard_after_the_end_and_all_before_is_kept():
    house = House()
    house.call()
    await soon(house.keeper.close())
    house.call()
    other = ToolUsage(house.record, house.bus, Retention(), clock=lambda: NOON)
    await soon(other.load())
    assert other.get_statistics("mail.send").calls == 1
