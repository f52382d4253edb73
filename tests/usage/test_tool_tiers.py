"""Standings: computed from use daily or when use doubles, stored, shared by gateways."""

import asyncio

import pytest

from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import TierRow
from portico.usage import recorder
from portico.usage.tool_tiers import Standing, Standings
from tests.fixtures.postgres import postgres as postgres
from tests.storage.conftest import NewRecord
from tests.storage.conftest import new_record as new_record
from tests.usage.recording import DAY, NOON, UsageServices, soon, until


def standings(services: UsageServices) -> Standings:
    return Standings(services.usage, services.record, clock=lambda: services.now)


async def test_a_new_installation_has_none_and_the_first_call_makes_them_due():
    services = UsageServices()
    known = standings(services)
    await soon(known.maintain())
    assert (
        known.by_address,
        known.monthly_calls,
        known.popularity_boosts,
        known.computed_at,
        known.is_due(),
    ) == (
        {},
        {},
        {},
        0.0,
        False,
    )
    services.call(ms=1)
    assert known.is_due()
    await soon(known.maintain())
    assert known.by_address == {"mail.send": Standing(0.6, "warm")}
    assert (known.monthly_calls, known.computed_at, known.is_due()) == (
        {"mail.send": 1},
        NOON,
        False,
    )


async def test_they_are_due_after_a_day_and_when_use_has_doubled():
    services = UsageServices()
    known = standings(services)
    services.call(times=10)
    await soon(known.recompute())
    services.call(times=9)
    assert not known.is_due()
    services.call()
    assert known.is_due()
    await soon(known.recompute())
    services.now += DAY - 1
    assert not known.is_due()
    services.now += 1
    assert known.is_due()


async def test_a_clock_that_ran_ahead_does_not_keep_them_for_as_long():
    services = UsageServices()
    known = standings(services)
    services.call()
    services.now += 3_000 * DAY
    await soon(known.recompute())
    services.now = NOON
    assert known.is_due()


async def test_they_stand_as_computed_whatever_is_called_since():
    services = UsageServices()
    known = standings(services)
    services.call(times=4)
    computed = await soon(known.recompute())
    services.call("mail.find")
    assert known.by_address is computed
    assert list(known.monthly_calls.items()) == [("mail.send", 4)]


async def test_another_gateway_and_the_next_one_take_them_over(new_record: NewRecord):
    first = UsageServices(new_record())
    first.call("mail.v1.send", times=4)
    await soon(first.usage.flush())
    ours = standings(first)
    await soon(ours.recompute())
    second = UsageServices(new_record())
    await soon(second.usage.load())
    theirs = standings(second)
    await soon(theirs.maintain())
    assert (theirs.by_address, theirs.monthly_calls, theirs.computed_at) == (
        ours.by_address,
        ours.monthly_calls,
        ours.computed_at,
    )
    first.now += 5
    await soon(ours.recompute())
    await soon(theirs.load())
    assert theirs.computed_at == ours.computed_at


async def test_when_use_is_forgotten_they_are_due():
    services = UsageServices()
    known = standings(services)
    services.call(times=4)
    await soon(known.maintain())
    await soon(services.usage.forget())
    assert known.is_due()
    await soon(known.maintain())
    assert known.by_address == {}
    assert not known.is_due()


async def test_what_is_read_while_they_are_computed_does_not_replace_them():
    services = UsageServices()
    known = standings(services)
    for calls in (1, 5, 25):
        services.now += 1
        services.call(times=calls)
        await soon(asyncio.gather(known.load(), known.recompute(), known.load()))
        assert known.computed_at == services.now


async def test_those_on_record_from_a_clock_that_ran_ahead_are_replaced_everywhere(
    new_record: NewRecord,
):
    ahead, other = UsageServices(new_record()), UsageServices(new_record())
    theirs, ours = standings(ahead), standings(other)
    ahead.now += 3_000 * DAY
    ahead.call()
    await soon(theirs.recompute())
    await soon(ours.maintain())
    assert ours.computed_at == NOON
    ahead.now = NOON
    await soon(theirs.load())
    assert theirs.computed_at == NOON


async def test_without_a_record_they_are_computed_for_ourselves():
    services = UsageServices(GatewayStore("postgresql://nobody@127.0.0.1:9/none", None))
    known = standings(services)
    services.call(ms=1)
    await soon(known.maintain())
    assert known.by_address == {"mail.send": Standing(0.6, "warm")}
    with pytest.raises(StoreUnavailable):
        await soon(known.recompute())


async def test_a_tier_on_record_that_nobody_knows_counts_as_cold(new_record: NewRecord):
    services = UsageServices(new_record())
    await soon(
        services.record.save_tiers([TierRow("mail", "send", 0.5, "lukewarm")], at=NOON, origin="x")
    )
    known = standings(services)
    await soon(known.load())
    assert known.by_address == {"mail.send": Standing(0.5, "cold")}


async def test_the_running_gateway_computes_them_daily(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recorder, "READ_INTERVAL_S", 0.01)
    computed: list[float] = []

    async def tend() -> None:
        await known.maintain()
        computed.append(known.computed_at)

    services = UsageServices(tasks=(tend,))
    known = standings(services)
    services.call(times=10)
    services.recorder.start()
    await until(lambda: known.computed_at == NOON)
    services.now += DAY - 1
    rounds = len(computed)
    await until(lambda: len(computed) > rounds + 1)
    assert known.computed_at == NOON
    services.now += 1
    await until(lambda: known.computed_at == NOON + DAY)
    await soon(services.recorder.close())


async def test_a_clock_that_is_set_back_over_midnight_loses_no_call(new_record: NewRecord):
    services = UsageServices(new_record())
    known = standings(services)
    services.now = NOON + DAY / 2 - 1
    services.call()
    await soon(services.recorder.flush())
    services.now += 2
    services.call()
    await soon(services.recorder.flush())
    await soon(services.usage.load())
    await soon(known.recompute())
    assert (services.usage.get_statistics("mail.send").calls_7d, known.monthly_calls) == (
        2,
        {"mail.send": 2},
    )
    services.now -= 3 * DAY
    services.call()
    await soon(services.recorder.flush())
    await soon(services.usage.load())
    assert known.is_due()
    await soon(known.maintain())
    use = services.usage.get_statistics("mail.send")
    assert (use.calls, use.calls_7d, use.calls_30d, known.computed_at) == (3, 3, 3, services.now)
