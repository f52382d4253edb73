"""Tokens that clients were shown: by session and in total, counted later, and bounded whatever
comes."""

import threading
from pathlib import Path
from typing import Any

import pytest

from portico.access import Caller
from portico.app import GatewayRuntime
from portico.config import Config
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import LedgerRow, LedgerTotal
from portico.testing import connect
from portico.upstream.backends.functions import FunctionsBackend, make_function_tool
from portico.usage import token_ledger
from tests.observability.house import ME, NOON, PATIENCE, Disk, House, soon, until
from tests.storage.conftest import NewRecord

ALONE = Caller("", "claude", "work")


async def test_a_session_s_account_has_what_it_was_shown_and_what_a_listing_would_have_cost(
    record: GatewayStore,
):
    house = House(record)
    assert house.ledger.get_session(ME) is None
    house.show({"tools": []}, listing=True)
    house.now += 60
    house.show("x" * 100)
    await soon(house.keeper.flush(PATIENCE))
    account = LedgerRow(
        "session", "claude", "work", NOON, NOON + 60, 9_000, 100 + len('{"tools":[]}'), 2
    )
    assert house.ledger.get_session(ME) == account
    assert house.ledger.list_sessions() == await soon(record.load_ledger_sessions()) == [account]
    assert (
        house.ledger.total
        == await soon(record.load_ledger_total())
        == LedgerTotal(1, 9_000, 112, 2)
    )
    assert house.ledger.total.saved_tokens == 8_888


async def test_what_was_written_before_is_not_written_again(record: GatewayStore):
    house = House(record)
    for _ in range(3):
        house.show("x" * 10, listing=True)
        await soon(house.keeper.flush(PATIENCE))
    assert not house.ledger.has_pending
    assert (
        await soon(record.load_ledger_total()) == house.ledger.total == LedgerTotal(1, 9_000, 30, 3)
    )


async def test_a_listing_is_charged_once_and_the_largest_counts():
    house = House()
    for cost in (100, 300, 200):
        house.costs["work"] = cost
        house.show("", listing=True)
        await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(1, 300, 0, 3)
    assert await soon(house.record.load_ledger_total()) == LedgerTotal(1, 300, 0, 3)


async def test_a_listing_whose_cost_nobody_knows_yet_is_charged_when_somebody_does():
    house = House()
    house.costs.clear()
    house.show("abc", listing=True)
    await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(1, 0, 3, 1)
    house.costs["work"] = 700
    await soon(house.keeper.flush(PATIENCE))
    assert (
        await soon(house.record.load_ledger_total())
        == house.ledger.total
        == LedgerTotal(1, 700, 3, 1)
    )


async def test_a_session_that_was_only_greeted_owes_no_listing():
    house = House()
    house.show("abc")
    await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(1, 0, 3, 1)


async def test_a_session_that_knows_our_tools_from_earlier_would_have_needed_a_listing_as_well():
    house = House()
    for _ in range(3):
        house.show("abc")
    await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(1, 9_000, 9, 3)


async def test_of_requests_without_a_session_each_list_they_ask_for_counts():
    house = House()
    for listing in (True, False, True, False, False):
        house.show("abc", ALONE, listing=listing)
        await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(1, 18_000, 15, 5)
    assert await soon(house.record.load_ledger_total()) == house.ledger.total


async def test_requests_without_a_session_are_one_until_their_client_is_silent_for_half_an_hour():
    house = House()
    for _ in range(3):
        house.now += 29 * 60
        house.show("abc", ALONE)
    house.show("abc", Caller("", "claude", "home"))
    house.show("abc", Caller("", "cursor", "work"))
    assert house.ledger.total.sessions == 3
    house.now += 31 * 60
    house.show("abc", ALONE)
    await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(4, 9_000, 18, 6)
    assert len({row.session for row in await soon(house.record.load_ledger_sessions())}) == 4
    account = house.ledger.get_session(ALONE)
    assert account is not None
    assert (account.shown, account.started_at) == (3, house.now)


async def test_a_session_of_its_own_is_one_however_long_its_client_is_silent():
    house = House()
    for _ in range(2):
        house.show("abc")
        house.now += 86_400
    assert house.ledger.total.sessions == 1


async def test_the_total_knows_earlier_gateways_and_others(new_record: NewRecord):
    first, second = House(new_record()), House(new_record())
    first.show("abc", listing=True)
    await soon(first.keeper.close())
    await soon(second.ledger.load())
    second.show("abcd", Caller("other"))
    await soon(second.keeper.flush(PATIENCE))
    assert second.ledger.total == LedgerTotal(2, 9_000, 7, 2)
    second.show("abc", Caller("other"))
    await soon(second.ledger.load())
    assert second.ledger.total.answers == 3
    await soon(first.ledger.load())
    assert first.ledger.total == LedgerTotal(2, 9_000, 7, 2)


# Counting


async def test_nothing_is_counted_while_it_is_heard():
    counted: list[str] = []

    def count(text: str) -> int:
        assert threading.current_thread() is not threading.main_thread()
        counted.append(text)
        return 1

    house = House(count=count)
    house.show("abc")
    assert counted == []
    assert house.ledger.total == LedgerTotal(1, 0, 0, 1)
    await soon(house.keeper.flush(PATIENCE))
    assert (counted, house.ledger.total.shown) == (["abc"], 1)


async def test_a_long_answer_that_comes_again_is_counted_once():
    counted: list[int] = []
    house = House(count=lambda text: counted.append(len(text)) or len(text))
    for _ in range(3):
        house.show({"tools": ["x" * 5_000]}, listing=True)
        await soon(house.keeper.flush(PATIENCE))
    assert len(counted) == 1
    assert house.ledger.total.shown == 3 * counted[0]


@pytest.mark.parametrize(
    "what", [2**80, "\ud800", {"a": "\ud800"}, {1: object()}, [float("nan")], None]
)
async def test_an_answer_that_is_hardly_json_is_counted_somehow(what: Any):
    house = House()
    house.show(what)
    house.show("abc")
    await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total.shown > 3


async def test_more_than_can_wait_is_estimated_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(token_ledger, "MAX_UNCOUNTED", 10)
    house = House()
    for _ in range(30):
        house.show("x" * 100)
    assert house.ledger.total.shown == 20 * 25
    await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(1, 9_000, 20 * 25 + 10 * 100, 30)


async def test_large_answers_that_wait_take_bounded_room():
    house = House()
    for _ in range(5):
        house.show("x" * 6_000_000)
    assert house.ledger.total.shown == 3 * 1_500_000
    for _ in range(1_000):
        house.show(["x"])
    assert house.ledger.total.shown > 3 * 1_500_000


async def test_sessions_take_bounded_room_and_all_are_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(token_ledger, "MAX_SESSIONS", 10)
    house = House()
    for number in range(25):
        house.show("abc", Caller(f"s{number}", "x" * 10_000), listing=True)
    assert len(house.ledger.list_sessions()) == 10
    assert house.ledger.list_sessions()[0].session == "s24"
    await soon(house.keeper.flush(PATIENCE))
    assert (
        await soon(house.record.load_ledger_total())
        == house.ledger.total
        == LedgerTotal(25, 25 * 5_000, 75, 25)
    )
    assert max(len(row.client) for row in await soon(house.record.load_ledger_sessions())) == 80


# What cannot be written


async def test_what_cannot_be_written_waits_and_is_written_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(token_ledger, "MAX_SESSIONS", 3)
    house = House(disk.record)
    await disk.fill()
    for number in range(5):
        house.show("abc", Caller(f"s{number}"), listing=True)
        with pytest.raises(StoreUnavailable):
            await soon(house.keeper.flush(PATIENCE))
    assert house.ledger.total == LedgerTotal(5, 25_000, 15, 5)
    disk.clear()
    await soon(house.keeper.flush(PATIENCE))
    await soon(house.ledger.load())
    assert house.ledger.total == LedgerTotal(5, 25_000, 15, 5)


async def test_what_takes_long_to_count_holds_up_nothing_and_is_written_later():
    go_on = threading.Event()
    house = House(count=lambda text: len(text) if go_on.wait(20) else 0)
    house.show("abc")
    house.call()
    await soon(house.keeper.flush())
    assert (house.ledger.total.shown, house.ledger.has_pending, house.usage.has_pending) == (
        0,
        True,
        False,
    )
    assert len(await soon(house.record.load_calls())) == 1
    go_on.set()
    await soon(house.keeper.flush(PATIENCE))
    assert (await soon(house.record.load_ledger_total())).shown == 3


async def test_nothing_is_heard_after_the_end():
    house = House()
    house.show("abc")
    await soon(house.keeper.close())
    house.show("abc")
    assert house.ledger.total.answers == 1
    await until(lambda: not house.ledger.has_pending)


async def test_what_was_counted_here_leaves_out_others_and_never_falls():
    one = House()
    other = House(record=one.record)
    other.show("abcdef", listing=True)
    await soon(other.keeper.flush(PATIENCE))
    one.show("abc", listing=True)
    await soon(one.keeper.flush(PATIENCE))
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
