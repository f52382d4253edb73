"""Stored plans on both databases: added up, bounded, forgotten by profile."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from portico.storage.rows import PlanRow
from portico.storage.sql import usage
from portico.storage.sql.database import Database
from portico.storage.sql.database_url import parse_address
from portico.storage.sql.migrations import migrate
from tests.fixtures.postgres import postgres as postgres

PLAN = PlanRow("a", "work/me", "dmVj", "1 2", "[]", "{}", 1, 1.0)


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Database]:
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    made = Database(parse_address(url, tmp_path / "record.sqlite3"))
    await migrate(made)
    yield made
    await made.close()


async def test_the_same_plan_adds_up_and_keeps_what_it_was_for(database: Database):
    await database.write(lambda db: usage.add_plans(db, [PLAN]))
    again = replace(PLAN, intent="", words="", tools='{"x.y":"h"}', used_at=0.5)
    await database.write(lambda db: usage.add_plans(db, [again]))
    (row,) = await database.read(lambda db: usage.load_plans(db, "work/me"))
    assert row == replace(PLAN, tools='{"x.y":"h"}', runs=2)


async def test_each_scope_and_all_together_are_bounded_and_the_longest_unused_go(
    database: Database,
):
    rows = [
        replace(PLAN, id=f"{scope}{n}", scope=scope, used_at=float(n))
        for scope in ("a/1", "b/1")
        for n in range(5)
    ]
    await database.write(lambda db: usage.add_plans(db, rows, per_scope=3, total=4))
    kept = [
        row.id
        for scope in ("a/1", "b/1")
        for row in await database.read(lambda db, s=scope: usage.load_plans(db, s))
    ]
    assert kept == ["a/14", "a/13", "b/14", "b/13"]


async def test_a_profile_is_forgotten_and_one_that_is_named_like_it_is_not(database: Database):
    scopes = ("w_rk/me", "work/me", "w_rk2/me")
    await database.write(
        lambda db: usage.add_plans(db, [replace(PLAN, id=scope, scope=scope) for scope in scopes])
    )
    assert await database.write(lambda db: usage.forget_plans(db, "w_rk")) == 1
    assert await database.write(lambda db: usage.forget_plans(db)) == 2


async def test_any_text_comes_back_as_it_was(database: Database):
    odd = replace(PLAN, scope="x\0/\ud800é", steps='["\x1a"]')
    await database.write(lambda db: usage.add_plans(db, [odd]))
    assert await database.read(lambda db: usage.load_plans(db, odd.scope)) == [odd]
