"""Who learns together, what counts at once, and that neither disk nor crowd stands in anybody's
way."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from portico.access import Caller
from portico.config import LearningMode
from portico.events import EventBus, ToolCalled, ToolsFound
from portico.search import Boost
from portico.search.usage_patterns import extract_query_terms, hash_terms
from portico.storage.learning_store import LearningLimits, LearningStore
from portico.usage.learner import Learner

DAY = 86_400.0
ME = Caller("session", "claude")
QUERY = "send mail"


class House:
    """A learner, the bus it listens to, and a clock that is set by hand."""

    def __init__(self, path: Path | None = None, learning: LearningMode = "caller") -> None:
        self.now = 1_800_000_000.0
        self.bus = EventBus()
        self.learner = Learner(
            learning, LearningStore(path, LearningLimits(30 * DAY)), self.bus, lambda: self.now
        )

    def search(self, *shown: str, caller: Caller = ME, query: str = QUERY) -> None:
        self.bus.publish(ToolsFound(query, shown, caller))

    def call(
        self, tool: str, caller: Caller = ME, ok: bool = True, cancelled: bool = False
    ) -> None:
        self.bus.publish(ToolCalled(tool, "hash", 0.05, ok, caller, cancelled))

    async def lifts(self, query: str = QUERY, caller: Caller = ME) -> Mapping[str, Boost]:
        return await asyncio.wait_for(self.learner.compute_boosts(caller, query), 20)


async def test_what_was_heard_counts_at_once_and_the_same_after_it_was_written(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    assert await house.lifts() == {}
    house.search("m.send", "m.find")
    house.call("m.send")
    heard = await house.lifts()
    assert heard["m.send"].amount > 0.07
    await house.learner.flush()
    assert await house.lifts() == heard
    house.call("m.send")
    assert (await house.lifts())["m.send"].amount > heard["m.send"].amount
    await house.learner.close()


async def test_what_is_heard_while_it_is_written_is_not_lost(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    await house.lifts()
    house.call("m.send")
    writing = asyncio.create_task(house.learner.flush())
    await asyncio.sleep(0)
    house.call("m.find")
    await asyncio.wait_for(writing, 20)
    await house.learner.close()
    assert {row.tool for row in LearningStore(tmp_path / "h.sqlite3").load("/claude").used} == {
        "m.send",
        "m.find",
    }


async def test_writing_that_is_cut_off_is_neither_lost_nor_done_twice(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    house.call("m.send")
    writing = asyncio.create_task(house.learner.flush())
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait({writing}, timeout=20)
    await house.learner.close()
    assert [
        (row.tool, row.weight) for row in LearningStore(tmp_path / "h.sqlite3").load("/claude").used
    ] == [("m.send", 1)]


@pytest.mark.parametrize(
    ("learning", "other", "learnt"),
    [
        ("caller", Caller("another session", "claude"), True),
        ("caller", Caller("session", "cursor"), False),
        ("caller", Caller("session", "claude", "work"), False),
        ("shared", Caller("x", "cursor", "work"), True),
        ("off", ME, False),
    ],
)
async def test_who_learns_together(learning: LearningMode, other: Caller, learnt: bool):
    house = House(learning=learning)
    house.search("m.send")
    house.call("m.send")
    assert bool(await house.lifts(caller=other)) == learnt


async def test_requests_that_stand_alone_are_one_session_of_their_client():
    house, alone = House(), Caller("", "claude")
    house.search("m.send", caller=alone)
    house.call("m.send", caller=alone)
    assert (
        "called after searches like this" in (await house.lifts(caller=alone))["m.send"].reasons[0]
    )


async def test_tools_used_together_are_lifted_after_one_of_them():
    house = House()
    for tool in ("m.find", "m.send"):
        house.call(tool)
    other = Caller("new session", "claude")
    house.call("m.find", caller=other)
    before = (await house.lifts("anything"))["m.send"].reasons
    assert any("together" in reason for reason in before)
    assert any(
        "together" in reason for reason in (await house.lifts("anything", other))["m.send"].reasons
    )
    house.now += 3_600
    assert "m.send" not in await house.lifts("anything", other)


async def test_a_call_that_failed_or_was_taken_back_teaches_nothing():
    house = House()
    house.search("m.send")
    house.call("m.send", ok=False)
    house.call("m.send", ok=False, cancelled=True)
    assert await house.lifts() == {}


async def test_what_was_learnt_fades():
    house = House()
    house.search("m.send")
    house.call("m.send")
    fresh = (await house.lifts())["m.send"].amount
    house.now += 60 * DAY
    assert 0 < (await house.lifts())["m.send"].amount < fresh / 2
    house.now += 3_000 * DAY
    assert await house.lifts() == {}


async def test_a_crowd_of_sessions_and_names_takes_bounded_room(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    for number in range(3_000):
        caller = Caller(f"s{number}", f"name {number % 200}" + "x" * 10_000)
        house.search("m.send", caller=caller, query=f"send mail {number}")
        house.call("m.send", caller)
    await house.learner.flush()
    with sqlite3.connect(tmp_path / "h.sqlite3") as db:
        assert db.execute(
            "select count(distinct scope), max(length(scope)) from used"
        ).fetchone() == (100, 81)
    await house.learner.close()


async def test_a_file_that_is_locked_costs_only_what_was_learnt(tmp_path: Path):
    path = tmp_path / "h.sqlite3"
    made = LearningStore(path)
    made.load("/claude")
    made.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    house = House(path)
    house.search("m.send")
    house.call("m.send")
    assert (await house.lifts())["m.send"].amount > 0
    holder.execute("rollback")
    holder.close()
    await house.learner.close()


async def test_what_another_gateway_wrote_is_noticed_in_every_scope(tmp_path: Path):
    ours, theirs = House(tmp_path / "h.sqlite3"), House(tmp_path / "h.sqlite3")
    work, home = Caller("s", "claude", "work"), Caller("s", "claude", "home")
    assert await ours.lifts(caller=work) == {}
    for caller in (work, home):
        theirs.search("m.send", caller=caller)
        theirs.call("m.send", caller)
    await theirs.learner.flush()
    assert await ours.lifts(caller=home)
    ours.call("m.other", home)
    await ours.learner.flush()
    assert await ours.lifts(caller=work)
    for house in (ours, theirs):
        await house.learner.close()


async def test_rows_that_say_something_else_cost_only_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "h.sqlite3"
    house = House(path)
    house.search("m.send")
    house.call("m.send")
    await house.learner.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("update followed set weight = 'heavy', terms = 'words'")
        db.execute("update used set weight = 'heavy'")
    house = House(path)
    assert await house.lifts() == {}
    house.call("m.send")
    await house.learner.close()
    assert "what was learnt cannot be used" in caplog.text


async def test_nothing_is_heard_after_the_end():
    house = House()
    await house.learner.close()
    house.search("m.send")
    house.call("m.send")
    assert not house.bus.has_subscribers(ToolsFound)
    assert await house.lifts() == {}


# Forgetting


@pytest.mark.parametrize("seen", [True, False])
async def test_what_was_heard_before_something_was_forgotten_is_forgotten_too(
    tmp_path: Path, seen: bool
):
    house, other = House(tmp_path / "h.sqlite3"), LearningStore(tmp_path / "h.sqlite3")
    house.search("m.send", "m.find")
    house.call("m.send")
    if seen:
        assert await house.lifts()
        await house.learner.flush()
        house.search("m.send", "m.find")
        house.call("m.send")
    else:
        await house.lifts(caller=Caller("another", "another"))
    other.forget()
    await house.learner.flush()
    assert await house.lifts() == {}
    house.call("m.find")  # of a search that is forgotten
    assert await house.lifts() == {}
    await house.learner.close()
    assert [row.tool for row in other.load("/claude").used] == ["m.find"]
    assert other.load("/claude").followed == ()


async def test_a_search_of_another_scope_notices_that_something_was_forgotten(tmp_path: Path):
    house, work = House(tmp_path / "h.sqlite3"), Caller("s", "claude", "work")
    house.search("m.send")
    house.call("m.send")
    assert await house.lifts()
    LearningStore(tmp_path / "h.sqlite3").forget()
    assert await house.lifts(caller=work) == {}
    assert await house.lifts() == {}
    await house.learner.close()


async def test_after_forgetting_words_are_compared_under_the_new_key(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    await house.lifts()
    LearningStore(tmp_path / "h.sqlite3").forget()
    await house.learner.flush()
    house.search("m.send")
    house.call("m.send")
    heard = await house.lifts()
    assert heard["m.send"].amount > 0.07
    await house.learner.close()
    again = House(tmp_path / "h.sqlite3")
    assert await again.lifts() == heard
    await again.learner.close()


async def test_the_record_alone_does_not_tell_words_to_whoever_has_a_dictionary(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    house.search("m.send")
    house.call("m.send")
    await house.learner.close()
    (row,) = LearningStore(tmp_path / "h.sqlite3").load("/claude").followed
    kept = frozenset(np.frombuffer(row.terms, dtype="<u8").tolist())
    assert not kept & hash_terms(extract_query_terms(QUERY), b"")
    assert kept == hash_terms(extract_query_terms(QUERY), (tmp_path / "h.key").read_bytes())


# A clock that is wrong


async def test_a_habit_that_is_dated_ahead_fades_like_any_other(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    house.now += 7_300 * DAY
    house.search("m.send")
    house.call("m.send")
    await house.learner.close()
    house = House(tmp_path / "h.sqlite3")
    fresh = (await house.lifts())["m.send"].amount
    house.now += 60 * DAY
    assert 0 < (await house.lifts())["m.send"].amount < fresh / 2
    await house.learner.close()


# What cannot be written


async def test_what_cannot_be_written_is_known_and_tried_again_and_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    house = House(tmp_path / "h.sqlite3")
    assert await house.lifts() == {}
    with contextlib.closing(sqlite3.connect(tmp_path / "h.sqlite3")) as db, db:
        db.execute(
            "create trigger full before insert on used begin select raise(abort, 'the disk is full'); end"
        )
    house.search("m.send")
    house.call("m.send")
    heard = await house.lifts()
    for _ in range(3):
        await house.learner.flush()
        assert await house.lifts() == heard
    assert caplog.text.count("the disk is full") == 1
    with contextlib.closing(sqlite3.connect(tmp_path / "h.sqlite3")) as db, db:
        db.execute("drop trigger full")
    await house.learner.flush()
    assert await house.lifts() == heard
    (row,) = LearningStore(tmp_path / "h.sqlite3").load("/claude").used
    assert (row.tool, row.weight) == ("m.send", 1)
    await house.learner.close()


async def test_whoever_there_is_no_room_for_is_not_forgotten_meanwhile(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    for number in range(100):
        house.call("m.send", Caller("s", f"name {number}"))
    await house.learner.flush()
    for _ in range(3):
        house.search("m.find")
        house.call("m.find")
        await house.learner.flush()
        assert (await house.lifts())["m.find"].amount > 0.07
    await house.learner.close()
    assert [row.weight for row in LearningStore(tmp_path / "h.sqlite3").load("/claude").used] == [
        pytest.approx(3)
    ]


async def test_names_that_come_in_crowds_take_room_from_one_another(tmp_path: Path):
    house = House(tmp_path / "h.sqlite3")
    for _ in range(2):
        house.call("m.find")
    for number in range(1_500):
        house.call("m.send", Caller("s", f"name {number}"))
    await house.learner.flush()
    assert LearningStore(tmp_path / "h.sqlite3").load("/claude").used
    await house.learner.close()
