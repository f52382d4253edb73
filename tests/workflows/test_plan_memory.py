"""The tools of plans that worked are offered again, without anything that was said in them."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from portico.errors import PorticoError
from portico.storage.rows import PlanRow
from portico.storage.sql import usage as sql
from portico.storage.sql.database import Database
from portico.storage.sql.database_url import SqliteAddress
from portico.storage.sql.migrations import migrate
from portico.workflows.planning.plan_memory import PlanMemory
from tests.meta_tools.search_catalog import by_words
from tests.workflows.test_planner import FILES, HUB, SNAPSHOT, get_catalog

ME = "/me"
STEPS: list[dict[str, Any]] = [
    {
        "id": "bobs_issues",
        "tool": "hub.list_issues",
        "arguments": {"owner": "bob", "repo": "diary", "state": "open", "limit": 17},
    },
    {
        "id": "tell",
        "tool": "chat.post_message",
        "arguments": {"channel_id": "C0SECRET", "text": "Dear Ann: ${bobs_issues.issues[0].title}"},
    },
]
TOOLS = ("hub.list_issues", "chat.post_message")
INTENT = "list the open issues of the repository bob/diary and post them to chat"


class Kept:
    """Plans in a real database."""

    def __init__(self, database: Database, per_scope: int = 500) -> None:
        self._database = database
        self._per_scope = per_scope

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        await self._database.write(lambda db: sql.add_plans(db, rows, per_scope=self._per_scope))

    async def load_plans(self, scope: str) -> list[PlanRow]:
        return await self._database.read(lambda db: sql.load_plans(db, scope))

    async def forget(self, profile: str | None) -> int:
        return await self._database.write(lambda db: sql.forget_plans(db, profile))


class Broken:
    """A database that cannot be reached."""

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        raise PorticoError("the database is away")

    async def load_plans(self, scope: str) -> list[PlanRow]:
        raise PorticoError("the database is away")


@pytest.fixture
async def store() -> AsyncGenerator[Kept]:
    database = Database(SqliteAddress(None))
    await migrate(database)
    yield Kept(database)
    await database.close()


def plans(store: Any, **options: Any) -> PlanMemory:
    return PlanMemory(store, key=lambda: b"key", **options)


async def test_nothing_that_was_said_is_kept(store: Kept):
    for scope, snapshot in ((ME, SNAPSHOT), ("/meaning", get_catalog())):
        assert await plans(store).remember(scope, STEPS, snapshot, INTENT)
        (row,) = await store.load_plans(scope)
        for secret in ("bob", "diary", "C0SECRET", "Ann", "Dear", "repository", "open"):
            assert secret not in row.steps + row.words, secret
        for secret in ("bob", "diary", "C0SECRET", "Ann", "Dear", "repository"):
            assert secret not in row.tools + row.id, secret
        assert json.loads(row.steps) == list(TOOLS)
    assert (await store.load_plans(ME))[0].intent == ""  # this catalog knows no meanings


async def test_the_tools_of_a_plan_that_worked_are_offered_for_words_like_these(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    like = "list the open issues of the repository acme/web and post them to chat"
    assert await known.recall(ME, like, SNAPSHOT) == TOOLS


async def test_the_same_tools_are_one_plan_that_worked_more_often(store: Kept):
    known = plans(store)
    for _ in range(3):
        await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    (row,) = await store.load_plans(ME)
    assert row.runs == 3


async def test_of_plans_for_the_same_words_the_one_that_worked_most_often_is_offered(store: Kept):
    known = plans(store)
    other = [STEPS[0], {"id": "w", "tool": "files.write_file", "arguments": {}}]
    for steps in (STEPS, STEPS, other):
        await known.remember(ME, steps, SNAPSHOT, INTENT)
    assert await known.recall(ME, INTENT, SNAPSHOT) == TOOLS


async def test_other_words_for_the_same_are_offered_them(store: Kept):
    known = plans(store)
    snapshot = get_catalog()
    await known.remember(
        ME, STEPS, snapshot, "list the open issues of a repository and post them to the chat"
    )
    intent = "get a repository's issues that are open, then send them to the chat"
    assert await known.recall(ME, intent, snapshot) == TOOLS
    assert await known.recall(ME, "copy a file to another place on disk", snapshot) == ()


async def test_another_intent_is_not_offered_them(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    for intent in ("read the file /tmp/a.md and write it to the file /tmp/b.md", "", "?!"):
        assert await known.recall(ME, intent, SNAPSHOT) == ()


async def test_another_scope_is_not_offered_them(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    assert await known.recall("/you", INTENT, SNAPSHOT) == ()


async def test_they_are_not_offered_once_one_is_gone_or_hidden(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    assert await known.recall(ME, INTENT, by_words(HUB, FILES)) == ()


async def test_what_was_learnt_by_words_is_found_by_meaning_too(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    assert await known.recall(ME, INTENT, get_catalog()) == TOOLS


async def test_one_step_a_tool_that_is_not_seen_or_no_intent_is_no_plan(store: Kept):
    known = plans(store)
    assert not await known.remember(ME, STEPS[:1], SNAPSHOT, INTENT)
    assert not await known.remember(ME, STEPS, SNAPSHOT, "")
    assert not await known.remember(ME, STEPS, by_words(HUB), INTENT)
    assert not await known.remember(ME, STEPS * 100, SNAPSHOT, INTENT)
    assert await store.load_plans(ME) == []


async def test_with_learning_off_nothing_is_kept_or_offered(store: Kept):
    await plans(store).remember(ME, STEPS, SNAPSHOT, INTENT)
    deaf = plans(store, is_learning=False)
    assert not await deaf.remember("/other", STEPS, SNAPSHOT, INTENT)
    assert await store.load_plans("/other") == []
    assert await deaf.recall(ME, INTENT, SNAPSHOT) == ()


async def test_the_longest_unused_plans_go_first(store: Kept):
    small = Kept(store._database, per_scope=2)  # pyright: ignore[reportPrivateUsage]
    now = iter(range(10))
    known = plans(small, clock=lambda: float(next(now)))
    third = {"id": "c", "tool": "files.write_file", "arguments": {}}
    for steps in (STEPS, [*STEPS, third], [STEPS[0], third]):
        await known.remember(ME, steps, SNAPSHOT, INTENT)
    assert [len(json.loads(row.steps)) for row in await small.load_plans(ME)] == [2, 3]


async def test_plans_of_a_profile_can_be_forgotten(store: Kept):
    known = plans(store)
    await known.remember("work/me", STEPS, SNAPSHOT, INTENT)
    await known.remember("home/me", STEPS, SNAPSHOT, INTENT)
    assert await store.forget("work") == 1
    assert [len(await store.load_plans(scope)) for scope in ("work/me", "home/me")] == [0, 1]


async def test_a_database_that_is_away_costs_only_the_memory():
    known = plans(Broken())
    assert not await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    assert await known.recall(ME, INTENT, SNAPSHOT) == ()


@pytest.mark.parametrize(
    "steps", ["no json", '{"a":1}', '[{"id":1}]', "[1]", "[]", '["gone.tool"]']
)
@pytest.mark.parametrize("vector", ["???", "", "AAAA"])
async def test_a_row_that_says_something_else_is_passed_over(store: Kept, steps: str, vector: str):
    known = plans(store)
    await known.remember(ME, STEPS, SNAPSHOT, INTENT)
    (row,) = await store.load_plans(ME)
    await store.add_plans([PlanRow("x", ME, vector, row.words, steps, "[]", 9, 1e12)])
    assert await known.recall(ME, INTENT, SNAPSHOT) == TOOLS


async def test_an_intent_of_any_length_is_remembered_and_recalled(store: Kept):
    known = plans(store)
    long = INTENT + " word" * 20_000
    assert await known.remember(ME, STEPS, SNAPSHOT, long)
    assert await known.recall(ME, long, SNAPSHOT) == TOOLS
    (row,) = await store.load_plans(ME)
    assert len(row.words) < 100_000
