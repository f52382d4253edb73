"""Tokens that clients were shown, by session and in total, counted late and bounded."""

import threading
from pathlib import Path
from typing import Any

import pytest

from portico.callers import Caller
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import LedgerRow, LedgerTotal
from portico.testing import connect
from portico.upstream.backends.functions import FunctionsBackend, make_function_tool
from portico.usage import token_ledger
from tests.storage.conftest import NewRecord
from tests.usage.recording import ME, NOON, TIMEOUT_S, Disk, UsageServices, soon, until

ALONE = Caller("", "claude", "work")


async def test_a_session_s_account_has_what_it_was_shown_and_what_a_listing_would_have_cost(
    record: GatewayStore,
):
    services = UsageServices(record)
    assert services.ledger.get_session(ME) is None
    services.show({"tools": []}, listing=True)
    services.now += 60
    services.show("x" * 100)
    await soon(services.recorder.flush(TIMEOUT_S))
    account = LedgerRow(
        "session", "claude", "work", NOON, NOON + 60, 9_000, 100 + len('{"tools":[]}'), 2
    )
    assert services.ledger.get_session(ME) == account
    assert services.ledger.list_sessions() == await soon(record.load_ledger_sessions()) == [account]
    assert (
        services.ledger.total
        == await soon(record.load_ledger_total())
        == LedgerTotal(1, 9_000, 112, 2)
    )
    assert services.ledger.total.saved_tokens == 8_888


async def test_what_was_written_before_is_not_written_again(record: GatewayStore):
    services = UsageServices(record)
    for _ in range(3):
        services.show("x" * 10, listing=True)
        await soon(services.recorder.flush(TIMEOUT_S))
    assert not services.ledger.has_pending
    assert (
        await soon(record.load_ledger_total())
        == services.ledger.total
        == LedgerTotal(1, 9_000, 30, 3)
    )


async def test_a_listing_is_charged_once_and_the_largest_counts():
    services = UsageServices()
    for cost in (100, 300, 200):
        services.costs["work"] = cost
        services.show("", listing=True)
        await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(1, 300, 0, 3)
    assert await soon(services.record.load_ledger_total()) == LedgerTotal(1, 300, 0, 3)


async def test_a_listing_whose_cost_nobody_knows_yet_is_charged_when_somebody_does():
    services = UsageServices()
    services.costs.clear()
    services.show("abc", listing=True)
    await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(1, 0, 3, 1)
    services.costs["work"] = 700
    await soon(services.recorder.flush(TIMEOUT_S))
    assert (
        await soon(services.record.load_ledger_total())
        == services.ledger.total
        == LedgerTotal(1, 700, 3, 1)
    )


async def test_a_session_that_was_only_greeted_owes_no_listing():
    services = UsageServices()
    services.show("abc")
    await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(1, 0, 3, 1)


async def test_a_session_that_knows_our_tools_from_earlier_would_have_needed_a_listing_as_well():
    services = UsageServices()
    for _ in range(3):
        services.show("abc")
    await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(1, 9_000, 9, 3)


async def test_of_requests_without_a_session_each_list_they_ask_for_counts():
    services = UsageServices()
    for listing in (True, False, True, False, False):
        services.show("abc", ALONE, listing=listing)
        await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(1, 18_000, 15, 5)
    assert await soon(services.record.load_ledger_total()) == services.ledger.total


async def test_requests_without_a_session_are_one_until_their_client_is_silent_for_half_an_hour():
    services = UsageServices()
    for _ in range(3):
        services.now += 29 * 60
        services.show("abc", ALONE)
    services.show("abc", Caller("", "claude", "home"))
    services.show("abc", Caller("", "cursor", "work"))
    assert services.ledger.total.sessions == 3
    services.now += 31 * 60
    services.show("abc", ALONE)
    await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(4, 9_000, 18, 6)
    assert len({row.session for row in await soon(services.record.load_ledger_sessions())}) == 4
    account = services.ledger.get_session(ALONE)
    assert account is not None
    assert (account.shown, account.started_at) == (3, services.now)


async def test_a_session_of_its_own_is_one_however_long_its_client_is_silent():
    services = UsageServices()
    for _ in range(2):
        services.show("abc")
        services.now += 86_400
    assert services.ledger.total.sessions == 1


async def test_the_total_knows_earlier_gateways_and_others(new_record: NewRecord):
    first, second = UsageServices(new_record()), UsageServices(new_record())
    first.show("abc", listing=True)
    await soon(first.recorder.close())
    await soon(second.ledger.load())
    second.show("abcd", Caller("other"))
    await soon(second.recorder.flush(TIMEOUT_S))
    assert second.ledger.total == LedgerTotal(2, 9_000, 7, 2)
    second.show("abc", Caller("other"))
    await soon(second.ledger.load())
    assert second.ledger.total.answers == 3
    await soon(first.ledger.load())
    assert first.ledger.total == LedgerTotal(2, 9_000, 7, 2)


# Counting


async def test_nothing_is_counted_while_it_is_received():
    counted: list[str] = []

    def count(text: str) -> int:
        assert threading.current_thread() is not threading.main_thread()
        counted.append(text)
        return 1

    services = UsageServices(count=count)
    services.show("abc")
    assert counted == []
    assert services.ledger.total == LedgerTotal(1, 0, 0, 1)
    await soon(services.recorder.flush(TIMEOUT_S))
    assert (counted, services.ledger.total.shown) == (["abc"], 1)


async def test_a_long_answer_that_comes_again_is_counted_once():
    counted: list[int] = []
    services = UsageServices(count=lambda text: counted.append(len(text)) or len(text))
    for _ in range(3):
        services.show({"tools": ["x" * 5_000]}, listing=True)
        await soon(services.recorder.flush(TIMEOUT_S))
    assert len(counted) == 1
    assert services.ledger.total.shown == 3 * counted[0]


@pytest.mark.parametrize(
    "what", [2**80, "\ud800", {"a": "\ud800"}, {1: object()}, [float("nan")], None]
)
async def test_an_answer_that_is_hardly_json_is_counted_somehow(what: Any):
    services = UsageServices()
    services.show(what)
    services.show("abc")
    await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total.shown > 3


async def test_more_than_can_wait_is_estimated_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(token_ledger, "MAX_UNCOUNTED", 10)
    services = UsageServices()
    for _ in range(30):
        services.show("x" * 100)
    assert services.ledger.total.shown == 20 * 25
    await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(1, 9_000, 20 * 25 + 10 * 100, 30)


async def test_large_answers_that_wait_take_bounded_room():
    services = UsageServices()
    for _ in range(5):
        services.show("x" * 6_000_000)
    assert services.ledger.total.shown == 3 * 1_500_000
    for _ in range(1_000):
        services.show(["x"])
    assert services.ledger.total.shown > 3 * 1_500_000


async def test_sessions_take_bounded_room_and_all_are_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(token_ledger, "MAX_SESSIONS", 10)
    services = UsageServices()
    for number in range(25):
        services.show("abc", Caller(f"s{number}", "x" * 10_000), listing=True)
    assert len(services.ledger.list_sessions()) == 10
    assert services.ledger.list_sessions()[0].session == "s24"
    await soon(services.recorder.flush(TIMEOUT_S))
    assert (
        await soon(services.record.load_ledger_total())
        == services.ledger.total
        == LedgerTotal(25, 25 * 5_000, 75, 25)
    )
    assert max(len(row.client) for row in await soon(services.record.load_ledger_sessions())) == 80


# What cannot be written


async def test_what_cannot_be_written_waits_and_is_written_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(token_ledger, "MAX_SESSIONS", 3)
    services = UsageServices(disk.record)
    await disk.fill()
    for number in range(5):
        services.show("abc", Caller(f"s{number}"), listing=True)
        with pytest.raises(StoreUnavailable):
            await soon(services.recorder.flush(TIMEOUT_S))
    assert services.ledger.total == LedgerTotal(5, 25_000, 15, 5)
    disk.clear()
    await soon(services.recorder.flush(TIMEOUT_S))
    await soon(services.ledger.load())
    assert services.ledger.total == LedgerTotal(5, 25_000, 15, 5)


async def test_what_takes_long_to_count_holds_up_nothing_and_is_written_later():
    go_on = threading.Event()
    services = UsageServices(count=lambda text: len(text) if go_on.wait(20) else 0)
    services.show("abc")
    services.call()
    await soon(services.recorder.flush())
    assert (
        services.ledger.total.shown,
        services.ledger.has_pending,
        services.usage.has_pending,
    ) == (
        0,
        True,
        False,
    )
    assert len(await soon(services.record.load_calls())) == 1
    go_on.set()
    await soon(services.recorder.flush(TIMEOUT_S))
    assert (await soon(services.record.load_ledger_total())).shown == 3


async def test_nothing_is_received_after_the_end():
    services = UsageServices()
    services.show("abc")
    await soon(services.recorder.close())
    services.show("abc")
    assert services.ledger.total.answers == 1
    await until(lambda: not services.ledger.has_pending)


async def test_what_was_counted_here_leaves_out_others_and_never_falls():
    one = UsageServices()
    other = UsageServices(record=one.record)
    other.show("abcdef", listing=True)
    await soon(other.recorder.flush(TIMEOUT_S))
    one.show("abc", listing=True)
    await soon(one.recorder.flush(TIMEOUT_S))
    await soon(one.ledger.load())
    assert one.ledger.total.shown == 9
    assert one.ledger.process_total == LedgerTotal(1, 9_000, 3, 1)
    await soon(one.record.forget_usage())
    await soon(one.ledger.load())
    assert one.ledger.total.shown == 0
    assert one.ledger.process_total == LedgerTotal(1, 9_000, 3, 1)


async def test_a_conversation_that_is_over_at_once_has_saved_something_too(tmp_path: Path):
    functions = FunctionsBackend(
        "s", tuple(make_function_tool(lambda: "x", f"tool_{number}") for number in range(40))
    )
    async with GatewayRuntime(Config(data_dir=tmp_path), backends={"s": functions}) as gateway:
        await gateway.wait_until_listed()
        async with connect(gateway) as client:
            await client.list_tools()
    async with GatewayRuntime(Config(data_dir=tmp_path), backends={"s": functions}) as later:
        await later.load_usage()
        assert later.usage_data.ledger.total.listing > 0
