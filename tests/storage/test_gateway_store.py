"""Gateway store on SQLite and PostgreSQL: rows are stored, add up, and are shared."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from portico.config import UsageConfig
from portico.storage.gateway_store import GatewayStore
from portico.storage.manifests import Manifest, ToolRow
from portico.storage.rows import (
    CallQuery,
    CallRow,
    ChangeNotification,
    DailyRow,
    LedgerRow,
    LedgerTotal,
    TierRow,
)
from tests.storage.conftest import NewRecord

DAY = 86_400.0
NOW = 1_700_000_000.0
TODAY = int(NOW // DAY)
TIMEOUT_S = 240
HOSTILE = (
    "NUL \x00, half a pair \ud800, the other \udfff, both \ud83d\ude00, \x1a0000, ü, "
    "漢, 😀, ' \" \\ %s :x"
)


def call(
    at: float = NOW, server: str = "s", tool: str = "t", ok: bool = True, **more: Any
) -> CallRow:
    return CallRow(at, server, tool, "hash", 12.5, ok, **more)


def count(
    calls: int = 1,
    successes: int = 1,
    at: float = NOW,
    tool: str = "t",
    day: int = TODAY,
    server: str = "s",
    bucket: int = 3,
) -> DailyRow:
    return DailyRow(day, server, tool, bucket, calls, successes, at)


def session(
    name: str = "one", shown: int = 10, listing: int = 100, at: float = NOW, answers: int = 1
) -> LedgerRow:
    return LedgerRow(name, "claude", "default", NOW - 50, at, listing, shown, answers)


def offering(server: str = "s", *tools: str, at: float = NOW, fingerprint: str = "f") -> Manifest:
    rows = tuple(
        ToolRow(name, f"hash of {name}", b"\x00{}\xff", ("a warning", "another")) for name in tools
    )
    return Manifest(server, fingerprint, "modern", b"hello", b"offers", rows, at)


@contextlib.asynccontextmanager
async def following(
    record: GatewayStore, origin: str
) -> AsyncGenerator["asyncio.Queue[ChangeNotification]"]:
    """Yield the changes that a store reports once it has caught up."""
    received: asyncio.Queue[ChangeNotification] = asyncio.Queue()
    await record.open()
    caught_up = asyncio.Event()
    read = record._read  # pyright: ignore[reportPrivateUsage]

    async def catch_up(work: Any) -> Any:
        found = await read(work)
        caught_up.set()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_read", catch_up)
        task = asyncio.create_task(record.follow_changes(received.put_nowait, origin=origin))
        await asyncio.wait_for(caught_up.wait(), TIMEOUT_S)
    try:
        yield received
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def next_of(received: "asyncio.Queue[ChangeNotification]") -> ChangeNotification:
    async with asyncio.timeout(TIMEOUT_S):
        return await received.get()


# Use


async def test_a_server_takes_its_use_and_its_tiers_to_a_new_name(record: GatewayStore):
    tiers = [TierRow("s", "t", 0.9, "hot"), TierRow("other", "t", 0.5, "warm")]
    await record.save_tiers(tiers, at=NOW, origin="one")
    used = [count(calls=3), count(server="new"), count(server="other")]
    await record.add_usage([call(), call(server="other")], used, [])
    await record.rename_server("s", "new")
    rows = await record.load_daily_usage(0)
    assert {(row.server, row.calls) for row in rows} == {("new", 4), ("other", 1)}
    assert [row.server for row in await record.load_calls(CallQuery(server="new"))] == ["new"]
    assert await record.load_calls(CallQuery(server="s")) == []
    at, found = await record.load_tiers()
    assert at > NOW, "gateways read them again"
    assert [(row.server, row.tier) for row in found] == [("new", "hot"), ("other", "warm")]


async def test_what_was_used_is_there_for_the_next_gateway_that_opens_the_store(
    new_record: NewRecord,
):
    first = new_record()
    given = call(cancelled=True, client="claude", profile="p", session="one")
    await first.add_usage([given], [count()], [session()])
    await first.close()
    second = new_record()
    (found,) = await second.load_calls()
    assert dataclasses.replace(found, id=0) == given
    assert found.id > 0
    assert await second.load_daily_usage(TODAY) == [count()]
    assert await second.load_ledger_sessions() == [session()]
    assert second.problem == ""


async def test_counts_add_up_and_moments_only_move_forward(record: GatewayStore):
    await record.add_usage(
        [], [count(calls=2, successes=1, at=NOW)], [session(shown=10, listing=100)]
    )
    await record.add_usage(
        [], [count(calls=3, successes=3, at=NOW - 5)], [session(shown=5, listing=90, at=NOW + 1)]
    )
    assert await record.load_daily_usage(TODAY) == [count(calls=5, successes=4, at=NOW)]
    assert await record.load_ledger_sessions() == [
        session(shown=15, listing=100, at=NOW + 1, answers=2)
    ]


async def test_the_same_row_twice_in_one_batch_adds_up_too(record: GatewayStore):
    await record.add_usage([], [count(), count()], [session(), session()])
    assert await record.load_daily_usage(TODAY) == [count(calls=2, successes=2)]
    assert await record.load_ledger_total() == LedgerTotal(1, 100, 20, 2)


async def test_a_batch_is_written_as_a_whole_or_not_at_all(record: GatewayStore):
    impossible: Any = None
    with pytest.raises(Exception, match=r"."):
        await record.add_usage(
            [call()], [count(), dataclasses.replace(count(), calls=impossible)], [session()]
        )
    assert await record.load_calls() == []
    assert await record.load_daily_usage(0) == []
    await record.add_usage([call()], [count()], [session()])
    assert len(await record.load_calls()) == 1


async def test_nothing_to_add_opens_nothing(record: GatewayStore):
    await record.add_usage([], [], [])
    await record.save_manifests([], origin="a")
    assert record.problem == ""


async def test_calls_come_newest_first_in_pages_and_by_what_they_were(record: GatewayStore):
    await record.add_usage(
        [call(at=NOW + n, server="ab"[n % 2], tool="xyz"[n % 3], ok=n % 4 != 0) for n in range(12)],
        [],
        [],
    )
    every = await record.load_calls()
    assert [row.at - NOW for row in every] == list(range(11, -1, -1))
    first = await record.load_calls(CallQuery(limit=5))
    second = await record.load_calls(CallQuery(limit=5, before=first[-1].id))
    assert first + second + await record.load_calls(CallQuery(before=second[-1].id)) == every
    assert await record.load_calls(CallQuery(server="a")) == [
        row for row in every if row.server == "a"
    ]
    assert await record.load_calls(CallQuery(server="a", tool="z", ok=False)) == [
        row for row in every if (row.server, row.tool, row.ok) == ("a", "z", False)
    ]
    assert await record.load_calls(CallQuery(ok=True)) == [row for row in every if row.ok]
    assert await record.load_calls(CallQuery(server="nobody")) == []
    assert await record.load_calls(CallQuery(limit=0)) == []


async def test_daily_use_begins_with_the_day_it_is_asked_for(record: GatewayStore):
    await record.add_usage(
        [], [count(day=TODAY - 1), count(), count(tool="u"), count(bucket=-1)], []
    )
    assert {row.day for row in await record.load_daily_usage(TODAY)} == {TODAY}
    assert len(await record.load_daily_usage(TODAY)) == 3
    assert len(await record.load_daily_usage(TODAY - 1)) == 4


async def test_the_ledger_sums_up_every_session_and_lists_the_latest(record: GatewayStore):
    assert await record.load_ledger_total() == LedgerTotal()
    await record.add_usage([], [], [session(f"s{n}", shown=n, at=NOW + n) for n in range(5)])
    total = await record.load_ledger_total()
    assert (total.sessions, total.listing, total.shown, total.saved_tokens) == (5, 500, 10, 490)
    assert [row.session for row in await record.load_ledger_sessions(2)] == ["s4", "s3"]


async def test_large_batches_are_no_other_than_small_ones(record: GatewayStore):
    calls = [call(at=NOW + n, tool=f"t{n % 500}") for n in range(5_000)]
    daily = [count(tool=f"t{n % 4_000}", at=NOW + n) for n in range(8_000)]
    await record.add_usage(calls, daily, [session(f"s{n}") for n in range(1_000)])
    assert len(await record.load_calls(CallQuery(limit=10_000))) == 5_000
    assert sum(row.calls for row in await record.load_daily_usage(TODAY)) == 8_000
    assert (await record.load_ledger_total()).sessions == 1_000


async def test_what_is_forgotten_is_gone_for_one_server_or_for_all(record: GatewayStore):
    await record.add_usage(
        [call(), call(server="other")], [count(), count(server="other")], [session()]
    )
    assert await record.forget_usage("s") == 2
    assert [row.server for row in await record.load_calls()] == ["other"]
    assert [row.server for row in await record.load_daily_usage(0)] == ["other"]
    assert (await record.load_ledger_total()).sessions == 1
    assert await record.forget_usage() == 3
    assert await record.load_ledger_total() == LedgerTotal()
    assert await record.forget_usage() == 0


async def test_two_gateways_that_write_at_once_lose_nothing(new_record: NewRecord):
    one, other = new_record(), new_record()

    async def write(record: GatewayStore, backwards: bool) -> None:
        for _ in range(20):
            tools = [f"t{n}" for n in range(50)]
            rows = [count(tool=tool) for tool in (reversed(tools) if backwards else tools)]
            await record.add_usage([call()], rows, [session()])

    async with asyncio.timeout(TIMEOUT_S * 3):
        await asyncio.gather(write(one, False), write(other, True), write(one, True))
    assert {row.calls for row in await one.load_daily_usage(TODAY)} == {60}
    assert len(await other.load_calls(CallQuery(limit=100))) == 60
    assert (await one.load_ledger_total()).shown == 600


async def test_who_is_cancelled_while_writing_stops_nobody_else(record: GatewayStore):
    await record.open()
    writers = [
        asyncio.create_task(record.add_usage([call() for _ in range(500)], [], []))
        for _ in range(6)
    ]
    await asyncio.sleep(0)
    for writer in writers[::2]:
        writer.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
    assert all(outcome is None for outcome in outcomes[1::2])
    await record.add_usage([call()], [], [])
    found = await record.load_calls(CallQuery(limit=10_000))
    assert len(found) % 500 == 1
    assert len(found) > 1_500


async def test_reading_does_not_wait_for_a_writer(new_record: NewRecord):
    one, other = new_record(), new_record()
    await one.add_usage([call()], [], [])
    await other.open()
    writing = asyncio.create_task(one.add_usage([call(at=NOW + n) for n in range(20_000)], [], []))
    async with asyncio.timeout(TIMEOUT_S):
        while not writing.done():
            assert len(await other.load_calls(CallQuery(limit=30_000))) in (1, 20_001)
        await writing


# UsageConfig


async def test_pruning_drops_what_is_too_old(record: GatewayStore):
    old = NOW - 31 * DAY
    await record.add_usage(
        [call(at=old), call()],
        [count(day=TODAY - 401), count(day=TODAY - 400), count()],
        [session("old", at=NOW - 91 * DAY), session("new")],
    )
    assert await record.prune(UsageConfig(), NOW) == 3
    assert [row.at for row in await record.load_calls()] == [NOW]
    assert [row.day for row in await record.load_daily_usage(0)] == [TODAY - 400, TODAY]
    assert [row.session for row in await record.load_ledger_sessions()] == ["new"]
    assert await record.prune(UsageConfig(), NOW) == 0


async def test_sessions_that_are_dropped_still_count_in_the_total(record: GatewayStore):
    await record.add_usage(
        [],
        [],
        [session("old", at=NOW - 91 * DAY), session("older", at=NOW - 99 * DAY), session("new")],
    )
    total = await record.load_ledger_total()
    assert total.sessions == 3
    await record.prune(UsageConfig(), NOW)
    assert await record.load_ledger_total() == total
    await record.prune(UsageConfig(sessions_days=0), NOW + DAY)
    assert await record.load_ledger_total() == total
    assert await record.load_ledger_sessions() == []
    await record.forget_usage()
    assert (await record.load_ledger_total()).sessions == 0


async def test_pruning_keeps_the_latest_of_too_many_calls(record: GatewayStore):
    await record.add_usage([call(at=NOW + n) for n in range(10)], [], [])
    assert await record.prune(UsageConfig(max_calls=4), NOW) == 6
    assert [row.at - NOW for row in await record.load_calls()] == [9, 8, 7, 6]
    assert await record.prune(UsageConfig(max_calls=0), NOW) == 4
    await record.add_usage([call()], [], [])
    assert (await record.load_calls())[0].id > 10  # no id is given twice


# What exists


async def test_what_a_server_offers_is_found_by_its_fingerprint_as_it_was(new_record: NewRecord):
    given = offering("s", "one", "two")
    await new_record().save_manifests([given, offering("other", "x")], origin="a")
    record = new_record()
    assert await record.load_manifests({"s": "f"}, {}) == {"s": given}
    assert set(await record.load_manifests({"s": "f", "other": "f", "third": "f"}, {})) == {
        "s",
        "other",
    }
    assert await record.load_manifests({"s": "another"}, {}) == {}
    assert await record.load_manifests({"s": "f"}, {"s": NOW}) == {}
    assert set(await record.load_manifests({"s": "f"}, {"s": NOW - 1})) == {"s"}
    assert await record.load_manifests({}, {}) == {}


async def test_the_same_listing_again_only_moves_the_last_moment(record: GatewayStore):
    await record.save_manifests([offering("s", "t")], origin="a")
    await record.save_manifests([offering("s", "t", at=NOW + 5)], origin="a")
    assert (await record.load_manifests({"s": "f"}, {}))["s"].listed_at == NOW + 5


async def test_an_older_listing_that_comes_late_changes_nothing(record: GatewayStore):
    newer = offering("s", "new", at=NOW + 10)
    await record.save_manifests([newer], origin="a")
    await record.save_manifests([offering("s", "old", at=NOW)], origin="b")
    assert await record.load_manifests({"s": "f"}, {}) == {"s": newer}


async def test_a_wrong_clock_does_not_have_the_last_word(record: GatewayStore):
    await record.save_manifests([offering("s", "ahead", at=NOW * 10)], origin="a")
    await record.save_manifests([offering("s", "true", at=NOW)], origin="b")
    assert [tool.name for tool in (await record.load_manifests({"s": "f"}, {}))["s"].tools] == [
        "true"
    ]


async def test_gateways_with_different_configurations_do_not_overwrite_each_other(
    record: GatewayStore,
):
    await record.save_manifests([offering("s", "a", fingerprint="one")], origin="a")
    await record.save_manifests([offering("s", "b", fingerprint="two")], origin="b")
    for fingerprint, tool in (("one", "a"), ("two", "b")):
        found = await record.load_manifests({"s": fingerprint}, {})
        assert [row.name for row in found["s"].tools] == [tool]


async def test_configurations_that_come_and_go_do_not_pile_up(record: GatewayStore):
    for number in range(8):
        await record.save_manifests(
            [offering("s", "t", fingerprint=f"f{number}", at=NOW + number)], origin="a"
        )
    kept = [number for number in range(8) if await record.load_manifests({"s": f"f{number}"}, {})]
    assert kept == [4, 5, 6, 7]


async def test_several_gateways_may_save_one_server_at_once(new_record: NewRecord):
    records = [new_record() for _ in range(3)]
    offers = [offering("s", f"t{n}", "both", at=NOW + n) for n in range(3)]
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(
            *(
                record.save_manifests([offer], origin=str(n))
                for n, (record, offer) in enumerate(zip(records, offers, strict=True))
            )
        )
    found = await records[0].load_manifests({"s": "f"}, {})
    assert found == {"s": offers[2]}


async def test_a_catalog_of_thousands_is_saved_at_once(record: GatewayStore):
    servers = [offering(f"s{n}", *(f"tool_{m}" for m in range(20))) for n in range(200)]
    await record.save_manifests(servers, origin="a")
    found = await record.load_manifests({f"s{n}": "f" for n in range(200)}, {})
    assert found == {server.server: server for server in servers}


async def test_a_server_without_tools_is_known_too(record: GatewayStore):
    await record.save_manifests([offering("s")], origin="a")
    assert (await record.load_manifests({"s": "f"}, {}))["s"].tools == ()


# Tiers


async def test_tiers_are_replaced_whole_and_say_when_they_were_computed(new_record: NewRecord):
    record = new_record()
    assert await record.load_tiers() == (0.0, [])
    await record.save_tiers([TierRow("s", "old", 0.1, "cold")], at=NOW, origin="a")
    rows = [TierRow("s", "hot", 0.9, "hot"), TierRow("s", "cold", 0.25, "cold")]
    await record.save_tiers(rows[::-1], at=NOW + 1, origin="a")
    assert await new_record().load_tiers() == (NOW + 1, rows)
    await record.save_tiers([], at=NOW + 2, origin="a")
    assert await record.load_tiers() == (NOW + 2, [])


async def test_gateways_that_compute_tiers_at_once_leave_one_computation(new_record: NewRecord):
    records = [new_record() for _ in range(3)]
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(
            *(
                record.save_tiers(
                    [TierRow("s", f"t{m}", n, "hot") for m in range(50)], at=NOW + n, origin=str(n)
                )
                for n, record in enumerate(records)
            ),
        )
    at, rows = await records[0].load_tiers()
    assert {row.score for row in rows} == {at - NOW}
    assert len(rows) == 50


# Hostile text


@pytest.mark.parametrize(
    "name", [HOSTILE, "x" * 100_000, HOSTILE * 500, ""], ids=["odd", "long", "both", "empty"]
)
async def test_any_name_comes_back_as_it_was(record: GatewayStore, name: str):
    given = CallRow(NOW, name, name, name, 1.0, True, False, name, name, name)
    daily = DailyRow(TODAY, name, name, 1, 1, 1, NOW)
    ledger = LedgerRow(name, name, name, NOW, NOW, 1)
    await record.add_usage([given], [daily, daily], [ledger, ledger])
    assert [
        dataclasses.replace(row, id=0)
        for row in await record.load_calls(CallQuery(server=name, tool=name))
    ] == [given]
    assert await record.load_daily_usage(0) == [dataclasses.replace(daily, calls=2, successes=2)]
    assert await record.load_ledger_sessions() == [ledger]

    manifest = Manifest(
        name,
        name,
        name,
        b"\x00",
        b"",
        (ToolRow(name, name, b"\x00", (name,) if name else ()),),
        NOW,
    )
    await record.save_manifests([manifest], origin="a")
    assert await record.load_manifests({name: name}, {}) == {name: manifest}

    await record.save_tiers([TierRow(name, name, 0.5, name)], at=NOW, origin=name[:100])
    assert await record.load_tiers() == (NOW, [TierRow(name, name, 0.5, name)])


async def test_names_that_only_look_alike_are_not_mixed_up(record: GatewayStore):
    names = ["\x00", "\x1a0000", "\x1a", "0000", "a", "A", "ä", "a\u0308", " a", "a "]
    await record.add_usage([], [count(tool=name, calls=n) for n, name in enumerate(names)], [])
    assert {row.tool: row.calls for row in await record.load_daily_usage(0)} == {
        name: n for n, name in enumerate(names)
    }
    await record.add_usage([], [count(server="ab", tool="c"), count(server="a", tool="bc")], [])
    assert len(await record.load_daily_usage(0)) == len(names) + 2


# News


async def test_gateways_are_notified_of_each_others_catalog_and_tiers(new_record: NewRecord):
    one, other = new_record(), new_record()
    async with following(one, "one") as received:
        await other.save_manifests([offering("s", "t")], origin="other")
        assert await next_of(received) == ChangeNotification(
            "catalog", "s" if one.is_shared else ""
        )
        assert set(await one.load_manifests({"s": "f"}, {"s": 0.0})) == {"s"}
        await other.save_tiers([], at=NOW, origin="other")
        assert await next_of(received) == ChangeNotification("tiers")


async def test_nobody_is_notified_of_use_of_what_is_the_same_or_of_their_own(new_record: NewRecord):
    one, other = new_record(), new_record()
    await other.save_manifests([offering("s", "t")], origin="other")
    async with following(one, "one") as received:
        await other.save_manifests([offering("s", "t", at=NOW + 1)], origin="other")
        await other.add_usage([call()], [count()], [session()])
        await one.save_manifests([offering("own", "t")], origin="one")
        await other.save_tiers([], at=NOW, origin="other")
        assert await next_of(received) == ChangeNotification("tiers")
        assert received.empty()


async def test_what_was_announced_between_opening_and_following_is_received(new_record: NewRecord):
    one, other = new_record(), new_record()
    await one.open()
    await other.save_manifests([offering("s", "t")], origin="other")
    async with following(one, "one") as received:
        assert await next_of(received) == ChangeNotification("catalog")


async def test_a_change_of_many_servers_is_one_notification(new_record: NewRecord):
    one, other = new_record(), new_record()
    async with following(one, "one") as received:
        await other.save_manifests([offering(f"s{n}", "t") for n in range(200)], origin="other")
        assert await next_of(received) == ChangeNotification("catalog")
        await other.save_manifests([offering("x" * 50_000, "t")], origin="other")
        assert await next_of(received) == ChangeNotification("catalog")


async def test_following_ends_when_it_is_cancelled_and_may_begin_again(new_record: NewRecord):
    one, other = new_record(), new_record()
    async with following(one, "one"):
        pass
    async with following(one, "one") as received:
        await other.save_tiers([], at=NOW, origin="other")
        assert await next_of(received) == ChangeNotification("tiers")


async def test_the_record_opens_once_however_many_ask(record: GatewayStore):
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(
            *(record.open() for _ in range(5)),
            record.add_usage([call()], [], []),
            record.load_calls(),
        )
    assert len(await record.load_calls()) == 1


async def test_a_closed_record_opens_again_when_it_is_used(record: GatewayStore):
    await record.add_usage([call()], [], [])
    await record.close()
    await record.close()
    assert len(await record.load_calls()) == 1
