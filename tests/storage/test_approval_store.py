"""Stored approvals, in a file and in PostgreSQL: each is decided once and used once."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from portico.storage.approval_store import MAX_PENDING_OF_PERSON, ApprovalStore
from portico.storage.rows import ApprovalRow
from tests.fixtures.postgres import postgres as postgres

NOW = 1_000_000.0
ROW = ApprovalRow(
    id="0" * 10,
    binding="ab" * 32,
    person="key ana",
    client="cursor\x00\ud800",
    profile="",
    method="tools/call",
    target="bank.pay",
    definition="hash",
    arguments='{"to":"ana"}',
    rule="rules[0]",
    say="",
    via="call_tool",
    created_at=NOW,
    expires_at=NOW + 600,
)
OpenStore = Callable[[], ApprovalStore]


@pytest.fixture(params=["sqlite", "postgresql"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[OpenStore]:
    """Opens the same approvals, as gateways and commands do beside each other."""
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    opened: list[ApprovalStore] = []

    def make() -> ApprovalStore:
        opened.append(ApprovalStore(url, tmp_path, clock=lambda: NOW))
        return opened[-1]

    yield make
    for store in opened:
        await store.close()


async def test_nothing_is_stored_before_the_first_request(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    assert await store.load() == []
    assert await store.take(ROW) is None
    assert not await store.decide(ROW.id, "approved", by="x", via="cli", valid_s=1)
    assert not os.listdir(tmp_path)


async def test_a_request_is_the_same_for_everybody(open_store: OpenStore) -> None:
    one = open_store()
    other = open_store()
    assert await one.take_or_request(ROW) == ROW
    assert await other.take_or_request(replace(ROW, id="1" * 10)) == ROW
    assert await other.load() == [ROW]


async def test_of_many_decisions_one_counts_and_of_many_uses(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    await stores[0].take_or_request(ROW)
    decided = await asyncio.gather(
        *(store.decide(ROW.id, "approved", by="boss", via="cli", valid_s=60) for store in stores)
    )
    assert sorted(decided) == [False, False, False, True]
    taken = await asyncio.gather(*(store.take(ROW) for store in stores))
    assert [row.state for row in taken if row is not None] == ["used"]


async def test_what_has_expired_is_gone(open_store: OpenStore) -> None:
    store = open_store()
    await store.take_or_request(ROW)
    store.clock = lambda: NOW + 600
    assert await store.load() == []
    assert await store.load_states([ROW.id]) == {}
    assert not await store.decide(ROW.id, "approved", by="x", via="cli", valid_s=1)
    later = replace(ROW, id="1" * 10, created_at=NOW + 600, expires_at=NOW + 1_200)
    assert await store.take_or_request(later) == later
    store.clock = lambda: NOW
    assert await store.load() == [later]


async def test_requests_of_one_person_are_limited(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(MAX_PENDING_OF_PERSON):
        assert await store.take_or_request(replace(ROW, id=f"{number:010}", binding=str(number)))
    assert await store.take_or_request(replace(ROW, id="x", binding="x")) is None
    other = replace(ROW, id="y", binding="y", person="key bob")
    assert await store.take_or_request(other) == other


async def test_approvals_of_an_earlier_version_get_the_column_they_lack(tmp_path: Path) -> None:
    store = ApprovalStore(None, tmp_path, clock=lambda: NOW)
    assert await store.take_or_request(ROW) == ROW
    await store.close()
    file = sqlite3.connect(tmp_path / "approvals.sqlite3")
    file.execute("ALTER TABLE portico_approvals DROP COLUMN reason")
    file.close()
    store = ApprovalStore(None, tmp_path, clock=lambda: NOW)
    assert await store.load() == []
    assert await store.take_or_request(ROW) == ROW
    assert await store.decide(ROW.id, "denied", by="x", via="cli", reason="no", valid_s=9)
    assert (await store.load())[0].reason == "no"
    await store.close()
