"""Tool statistics: current at once, written in batches, shared by gateways, bounded."""

import asyncio
import logging

import pytest

from portico.callers import LOCAL_USER, Caller
from portico.config import UsageConfig
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import CallQuery, CallRow
from portico.usage import tool_usage
from portico.usage.statistics import UNUSED
from portico.usage.tool_usage import ToolUsage
from tests.storage.conftest import NewRecord
from tests.usage.recording import DAY, NOON, TIMEOUT_S, Disk, UsageServices, soon


def test_a_tool_that_nobody_called_has_no_use():
    services = UsageServices()
    assert services.usage.get_statistics("mail.send") == UNUSED
    assert services.usage.statistics_by_tool == services.usage.facts == {}


async def test_a_call_counts_at_once_and_the_same_after_it_was_written(record: GatewayStore):
    services = UsageServices(record)
    services.call(ms=100, times=9)
    services.call(ms=100, ok=False)
    received = services.usage.get_statistics("mail.send")
    assert (
        received.calls,
        received.successes,
        received.last_used,
        received.calls_7d,
        received.calls_30d,
    ) == (
        10,
        9,
        NOON,
        10,
        10,
    )
    assert received.p50_ms == pytest.approx(100, rel=0.05)
    await soon(services.recorder.flush(TIMEOUT_S))
    assert not services.usage.has_pending
    assert services.usage.get_statistics("mail.send") == received
    await soon(services.usage.load())
    assert services.usage.get_statistics("mail.send") == received


async def test_what_was_written_is_known_to_the_next_gateway(new_record: NewRecord):
    first = UsageServices(new_record())
    first.call(times=3)
    await soon(first.recorder.close())
    await first.record.close()
    second = UsageServices(new_record())
    await soon(second.usage.load())
    assert second.usage.statistics_by_tool == first.usage.statistics_by_tool


async def test_gateways_on_one_record_know_each_other_s_calls_and_none_is_counted_twice(
    new_record: NewRecord,
):
    ours, theirs = UsageServices(new_record()), UsageServices(new_record())
    for _ in range(3):
        ours.call(times=2)
        theirs.call("mail.find")
        for services in (ours, theirs):
            await soon(services.recorder.flush(TIMEOUT_S))
        ours.call()  # waits to be written while the record is read
        for services in (ours, theirs):
            await soon(services.usage.load())
    assert {tool: use.calls for tool, use in ours.usage.statistics_by_tool.items()} == {
        "mail.send": 9,
        "mail.find": 3,
    }
    await soon(ours.recorder.flush(TIMEOUT_S))
    await soon(theirs.usage.load())
    assert theirs.usage.statistics_by_tool == ours.usage.statistics_by_tool


async def test_calls_are_kept_one_by_one_with_who_made_them(record: GatewayStore):
    services = UsageServices(record)
    services.call("mail.v1.send", ms=12)
    services.call(ok=False, cancelled=True, caller=Caller(name="x" * 10_000))
    await soon(services.recorder.flush(TIMEOUT_S))
    cancelled, sent = await soon(record.load_calls())
    assert sent == CallRow(
        NOON,
        "mail",
        "v1.send",
        "hash",
        12.0,
        True,
        False,
        "claude",
        "work",
        "session",
        sent.id,
        LOCAL_USER.id,
        stages="0.00 0.00 0.00 0.00 0.00",
    )
    assert (cancelled.cancelled, cancelled.ok, len(cancelled.client)) == (True, False, 80)


def test_a_call_that_was_cancelled_says_nothing_of_the_tool():
    services = UsageServices()
    services.call(ok=False, cancelled=True)
    assert services.usage.statistics_by_tool == {}
    assert services.usage.has_pending


async def test_no_single_call_is_kept_where_the_settings_say_so():
    services = UsageServices(retention=UsageConfig(calls_days=0))
    services.call(times=3)
    await soon(services.recorder.flush(TIMEOUT_S))
    assert await soon(services.record.load_calls()) == []
    await soon(services.usage.load())
    assert services.usage.get_statistics("mail.send").calls == 3


def test_what_was_handed_out_does_not_change():
    services = UsageServices()
    services.call()
    used, facts = services.usage.statistics_by_tool, services.usage.facts
    assert services.usage.statistics_by_tool is used
    services.call()
    assert (used["mail.send"].calls, facts["mail.send"].calls) == (1, 1)
    assert (
        services.usage.statistics_by_tool["mail.send"].calls
        == services.usage.facts["mail.send"].calls
        == 2
    )


def test_counts_of_the_last_days_fall_as_days_pass():
    services = UsageServices()
    services.call()
    weeks: list[tuple[int, int]] = []
    for days in (0, 6, 7, 29, 30):
        services.now = NOON + days * DAY
        weeks.append(
            (
                services.usage.get_statistics("mail.send").calls_7d,
                services.usage.get_statistics("mail.send").calls_30d,
            )
        )
    assert weeks == [(1, 1), (1, 1), (0, 1), (0, 1), (0, 0)]


async def test_days_long_past_are_known_whenever_they_are_read():
    services = UsageServices()
    for days in (400, 31, 3, 1, 0):
        services.now = NOON - days * DAY
        services.call()
        await soon(services.recorder.flush(TIMEOUT_S))
    for _ in range(3):
        await soon(services.usage.load())
        assert services.usage.get_statistics("mail.send").calls == 5
    services.now = NOON + 40 * DAY
    await soon(services.usage.load())
    assert (
        services.usage.get_statistics("mail.send").calls,
        services.usage.get_statistics("mail.send").calls_30d,
    ) == (5, 0)


async def test_facts_are_the_median_and_the_successes():
    services = UsageServices()
    services.call(ms=200, times=3)
    services.call(ms=9_000, ok=False)
    fact = services.usage.facts["mail.send"]
    assert (fact.calls, fact.successes) == (4, 3)
    assert fact.latency_ms == services.usage.get_statistics("mail.send").p50_ms


# What cannot be written


async def test_what_cannot_be_written_waits_and_nothing_is_counted_twice(disk: Disk):
    services = UsageServices(disk.record)
    await disk.fill()
    services.call(times=2)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await soon(services.recorder.flush(TIMEOUT_S))
        services.call()
    assert services.usage.get_statistics("mail.send").calls == 5
    disk.clear()
    await soon(services.recorder.flush(TIMEOUT_S))
    await soon(services.usage.load())
    assert services.usage.get_statistics("mail.send").calls == 5
    assert len(await soon(disk.record.load_calls())) == 5


async def test_what_is_received_while_it_is_written_is_written_next():
    services = UsageServices()
    services.call()
    async with services.usage.take_pending() as received:
        services.call()
        assert sum(row.calls for row in received.to_daily_rows()) == 1
        assert services.usage.get_statistics("mail.send").calls == 2
    async with services.usage.take_pending() as received:
        assert sum(row.calls for row in received.to_daily_rows()) == 1


async def test_writing_that_is_cut_off_loses_nothing():
    services = UsageServices()
    services.call()

    async def write() -> None:
        async with services.usage.take_pending():
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await asyncio.sleep(0)
    services.call()
    writing.cancel()
    await asyncio.wait({writing}, timeout=240)
    async with services.usage.take_pending() as received:
        assert (len(received.calls), sum(row.calls for row in received.to_daily_rows())) == (2, 2)


async def test_what_waits_takes_bounded_room_and_that_is_said_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(tool_usage, "MAX_PENDING_CALLS", 100)
    services = UsageServices(disk.record)
    await disk.fill()
    services.call(times=80)
    with pytest.raises(StoreUnavailable):
        await soon(services.recorder.flush(TIMEOUT_S))
    with caplog.at_level(logging.WARNING):
        services.call(times=80)
        with pytest.raises(StoreUnavailable):
            await soon(services.recorder.flush(TIMEOUT_S))
    assert caplog.text.count("than there is room for") == 1
    disk.clear()
    await soon(services.recorder.flush(TIMEOUT_S))
    assert len(await soon(disk.record.load_calls(CallQuery(limit=1_000)))) == 100
    await soon(services.usage.load())
    assert services.usage.get_statistics("mail.send").calls == 160


def test_ever_new_names_of_tools_take_bounded_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool_usage, "MAX_TOOLS", 50)
    monkeypatch.setattr(tool_usage, "MAX_PENDING_COUNTS", 60)
    services = UsageServices(retention=UsageConfig(calls_days=0))
    for number in range(200):
        services.call(f"mail.t{number}")
        services.call("mail.t0", ms=1.3**number)
    assert len(services.usage.statistics_by_tool) == 50
    assert services.usage.get_statistics("mail.t0").calls == 201


# Forgetting and ending


async def test_a_server_s_use_can_be_forgotten_and_that_of_all(record: GatewayStore):
    services = UsageServices(record)
    for tool in ("mail.send", "mailing.send"):
        services.call(tool)
    await soon(services.recorder.flush(TIMEOUT_S))
    services.call()
    assert await soon(services.usage.forget("mail")) > 0
    assert list(services.usage.statistics_by_tool) == list(services.usage.facts) == ["mailing.send"]
    assert not services.usage.has_pending
    await soon(services.usage.forget())
    assert services.usage.statistics_by_tool == {}
    await soon(services.usage.load())
    assert services.usage.statistics_by_tool == {}


async def test_what_another_process_made_the_record_forget_is_forgotten_here(new_record: NewRecord):
    ours, theirs = UsageServices(new_record()), new_record()
    for days in (9, 0):
        ours.now = NOON - days * DAY
        ours.call()
    await soon(ours.recorder.flush(TIMEOUT_S))
    await soon(ours.usage.load())
    await soon(theirs.forget_usage())
    await soon(ours.usage.reload())
    assert ours.usage.statistics_by_tool == {}


async def test_nothing_is_received_after_the_end_and_all_before_is_kept():
    services = UsageServices()
    services.call()
    await soon(services.recorder.close())
    services.call()
    other = ToolUsage(services.record, services.bus, UsageConfig(), clock=lambda: NOON)
    await soon(other.load())
    assert other.get_statistics("mail.send").calls == 1
