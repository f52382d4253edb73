"""Plans that worked are offered again, without anything that was said in them."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from portico.catalog.snapshot import Snapshot
from portico.errors import PorticoError
from portico.storage.plan_rows import PlanRow
from portico.storage.sql import plans as sql
from portico.storage.sql.database import Database
from portico.storage.sql.database_url import SqliteAddress
from portico.storage.sql.migration import migrate
from portico.workflows.planning.plan_memory import PlanMemory
from portico.workflows.planning.planner import PlanSuggestion, make_index_search, suggest_plan
from portico.workflows.planning.templates import make_template
from portico.workflows.validation import InvalidWorkflow, validate_workflow
from tests.disclosure.house import by_meaning as by_meaning_too
from tests.disclosure.house import by_words, entry
from tests.execution.workflow.test_suggesting import CHAT, FILES, HOUSE, HUB, tool

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


async def offered(
    known: PlanMemory, intent: str, snapshot: Snapshot = HOUSE, scope: str = ME
) -> PlanSuggestion | None:
    fresh = await suggest_plan(intent, snapshot, make_index_search(snapshot))
    return await known.find_plan(scope, intent, snapshot, fresh)


def arguments(made: PlanSuggestion | None) -> list[Mapping[str, Any]]:
    assert made is not None
    return [step["arguments"] for step in made.steps]


async def test_nothing_that_was_said_is_kept(store: Kept):
    assert await plans(store).remember(ME, STEPS, HOUSE, INTENT)
    (row,) = await store.load_plans(ME)
    for secret in ("bob", "diary", "C0SECRET", "Ann", "Dear", "repository"):
        assert secret not in row.steps + row.words + row.tools, secret
    assert "17" not in row.steps
    assert row.intent == ""  # this catalog knows no meanings


def test_tools_joins_and_what_definitions_name_are_kept():
    kept = make_template(STEPS, HOUSE)
    assert kept is not None
    assert kept.steps == (
        {
            "id": "list_issues",
            "tool": "hub.list_issues",
            "arguments": {"owner": "${inputs.owner}", "repo": "${inputs.repo}", "state": "open"},
        },
        {
            "id": "post_message",
            "tool": "chat.post_message",
            "arguments": {
                "channel_id": "${inputs.channel_id}",
                "text": "${list_issues.issues[0].title}",
            },
        },
    )


def test_a_condition_that_may_compare_with_somebodys_words_is_not_kept():
    guarded = [STEPS[0], {**STEPS[1], "if": "bobs_issues.issues[0].title == 'Ann'"}]
    assert make_template(guarded, HOUSE) is None
    filtered = "${bobs_issues.issues[?title=='Ann'].url | [0]}"
    kept = make_template(
        [STEPS[0], {**STEPS[1], "arguments": {"channel_id": "C", "text": filtered}}], HOUSE
    )
    assert kept is not None
    assert kept.steps[1]["arguments"]["text"] == "${inputs.text}"


def test_loops_and_what_is_asked_for_twice_stay_one():
    close = {
        "id": "b",
        "tool": "hub.close_issue",
        "arguments": {"owner": "bob", "repo": "diary", "issue_number": "${item.number}"},
        "for_each": "${bobs_issues.issues}",
    }
    kept = make_template([STEPS[0], close], HOUSE)
    assert kept is not None
    assert kept.steps[1] == {
        "id": "close_issue",
        "tool": "hub.close_issue",
        "arguments": {
            "owner": "${inputs.owner}",
            "repo": "${inputs.repo}",
            "issue_number": "${item.number}",
        },
        "for_each": "${list_issues.issues}",
    }


async def test_a_plan_that_worked_is_offered_again_with_what_is_said_now(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE, INTENT)
    made = await offered(
        known, "list the open issues of the repository acme/web and post them to chat"
    )
    assert made is not None
    assert made.success_count == 1
    assert arguments(made)[0] == {"owner": "acme", "repo": "web", "state": "open"}
    assert made.missing_inputs == ("channel_id",)
    assert made.inputs["channel_id"].needed_by == ("post_message.channel_id",)
    assert made.changing_tools
    assert not isinstance(
        validate_workflow([dict(step) for step in made.steps], {"channel_id": "C"}, HOUSE),
        InvalidWorkflow,
    )


async def test_it_says_how_often_it_worked(store: Kept):
    known = plans(store)
    for _ in range(3):
        await known.remember(ME, STEPS, HOUSE, INTENT)
    made = await offered(known, INTENT)
    assert made is not None
    assert (made.success_count, made.why) == (3, ("a plan like this has worked 3 times",))
    assert len(await store.load_plans(ME)) == 1


async def test_a_plan_written_by_hand_is_offered_where_the_same_tools_would_be_planned(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE)
    made = await offered(
        known, "list the issues of the repository acme/web, then post a message to the chat channel"
    )
    assert made is not None
    assert arguments(made)[1]["text"] == "${list_issues.issues[0].title}"


async def test_other_words_for_the_same_are_offered_it(store: Kept):
    known, house = plans(store), by_meaning_too(HUB, CHAT, FILES)
    await known.remember(
        ME, STEPS, house, "fetch the tickets of bob/diary and announce them in chat"
    )
    intent = "announce in chat the tickets of acme/web that we fetched"
    nothing_planned = PlanSuggestion()
    assert await known.find_plan(ME, intent, house, nothing_planned) is not None
    assert (
        await known.find_plan(ME, "copy a file to another place on disk", house, nothing_planned)
        is None
    )


async def test_another_intent_is_not_offered_it(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE, INTENT)
    assert (
        await offered(known, "read the file /tmp/a.md and write it to the file /tmp/b.md") is None
    )


async def test_another_scope_is_not_offered_it(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE, INTENT)
    assert await offered(known, INTENT, scope="/you") is None


async def test_it_is_not_offered_once_a_tool_is_gone_or_hidden(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE, INTENT)
    assert await offered(known, INTENT, by_words(HUB, FILES)) is None


async def test_it_is_offered_while_a_changed_tool_takes_what_it_gives_and_no_longer(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE, INTENT)
    kinder = entry(
        "chat",
        tool("post_message", "Post a message to chat, now with feeling.", "channel_id", "text"),
    )
    assert await offered(known, INTENT, by_words(HUB, kinder)) is not None
    stricter = entry(
        "chat", tool("post_message", "Post a message to chat.", "channel_id", "text", "workspace")
    )
    assert await offered(known, INTENT, by_words(HUB, stricter)) is None


async def test_one_step_is_no_plan(store: Kept):
    assert not await plans(store).remember(ME, STEPS[:1], HOUSE, INTENT)
    assert await store.load_plans(ME) == []


async def test_with_learning_off_nothing_is_kept_or_offered(store: Kept):
    await plans(store).remember(ME, STEPS, HOUSE, INTENT)
    deaf = plans(store, is_learning=False)
    assert not await deaf.remember("/other", STEPS, HOUSE, INTENT)
    assert await store.load_plans("/other") == []
    assert await offered(deaf, INTENT) is None


async def test_the_longest_unused_plans_go_first(store: Kept):
    small = Kept(store._database, per_scope=2)  # pyright: ignore[reportPrivateUsage]
    now = iter(range(10))
    known = plans(small, clock=lambda: float(next(now)))
    third = {
        "id": "c",
        "tool": "files.write_file",
        "arguments": {"path": "/a", "content": "${bobs_issues.issues}"},
    }
    for steps in (STEPS, [*STEPS, third], [STEPS[0], third]):
        await known.remember(ME, steps, HOUSE, INTENT)
    assert [len(json.loads(row.steps)) for row in await small.load_plans(ME)] == [2, 3]


async def test_plans_of_a_profile_can_be_forgotten(store: Kept):
    known = plans(store)
    await known.remember("work/me", STEPS, HOUSE, INTENT)
    await known.remember("home/me", STEPS, HOUSE, INTENT)
    assert await store.forget("work") == 1
    assert [len(await store.load_plans(scope)) for scope in ("work/me", "home/me")] == [0, 1]


async def test_a_database_that_is_away_costs_only_the_memory():
    known = plans(Broken())
    assert not await known.remember(ME, STEPS, HOUSE, INTENT)
    assert await offered(known, INTENT) is None


async def test_a_row_that_says_something_else_is_passed_over(store: Kept):
    known = plans(store)
    await known.remember(ME, STEPS, HOUSE, INTENT)
    (row,) = await store.load_plans(ME)
    for n, steps in enumerate(("no json", '{"a":1}', '[{"id":1}]', "[1]")):
        await store.add_plans([PlanRow(f"x{n}", ME, "???", row.words, steps, "[]", 9, 1e12)])
    made = await offered(known, INTENT)
    assert made is not None
    assert made.success_count == 1
