"""Learning: scopes, immediate effect, failed writes, forgetting, limits."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from portico.callers import Caller
from portico.config import LearningConfig, LearningMode
from portico.events import EventBus, ToolCalled, ToolsFound
from portico.search import Boost
from portico.search.usage_patterns import extract_query_terms, hash_terms
from portico.storage.learning_store import LearningStore
from portico.usage.learner import Learner

DAY = 86_400.0
ME = Caller("session", "claude")
QUERY = "send mail"


class LearnerUnderTest:
    """A learner, the bus it listens to, and a clock that is set by hand."""

    def __init__(self, path: Path | None = None, learning: LearningMode = "caller") -> None:
        self.now = 1_800_000_000.0
        self.bus = EventBus()
        self.learner = Learner(
            learning,
            LearningStore(path, LearningConfig(half_life_days=30)),
            self.bus,
            lambda: self.now,
        )

    def search(self, *shown: str, caller: Caller = ME, query: str = QUERY) -> None:
        self.bus.publish(ToolsFound(query, shown, caller))

    def call(
        self, tool: str, caller: Caller = ME, ok: bool = True, cancelled: bool = False
    ) -> None:
        self.bus.publish(ToolCalled(tool, "hash", 0.05, ok, caller, cancelled))

    async def boosts(self, query: str = QUERY, caller: Caller = ME) -> Mapping[str, Boost]:
        return await asyncio.wait_for(self.learner.compute_boosts(caller, query), 240)


async def test_what_was_received_counts_at_once_and_the_same_after_it_was_written(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    assert await under_test.boosts() == {}
    under_test.search("m.send", "m.find")
    under_test.call("m.send")
    received = await under_test.boosts()
    assert received["m.send"].amount > 0.07
    await under_test.learner.flush()
    assert await under_test.boosts() == received
    under_test.call("m.send")
    assert (await under_test.boosts())["m.send"].amount > received["m.send"].amount
    await under_test.learner.close()


async def test_what_is_received_while_it_is_written_is_not_lost(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    await under_test.boosts()
    under_test.call("m.send")
    writing = asyncio.create_task(under_test.learner.flush())
    await asyncio.sleep(0)
    under_test.call("m.find")
    await asyncio.wait_for(writing, 240)
    await under_test.learner.close()
    assert {row.tool for row in LearningStore(tmp_path / "h.sqlite3").load("/claude").used} == {
        "m.send",
        "m.find",
    }


async def test_writing_that_is_cut_off_is_neither_lost_nor_done_twice(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    under_test.call("m.send")
    writing = asyncio.create_task(under_test.learner.flush())
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait({writing}, timeout=240)
    await under_test.learner.close()
    assert [
        (row.tool, row.weight) for row in LearningStore(tmp_path / "h.sqlite3").load("/claude").used
    ] == [("m.send", 1)]


@pytest.mark.parametrize(
    ("learning", "other", "learned"),
    [
        ("caller", Caller("another session", "claude"), True),
        ("caller", Caller("session", "cursor"), False),
        ("caller", Caller("session", "claude", "work"), False),
        ("shared", Caller("x", "cursor", "work"), True),
        ("off", ME, False),
    ],
)
async def test_who_learns_together(learning: LearningMode, other: Caller, learned: bool):
    under_test = LearnerUnderTest(learning=learning)
    under_test.search("m.send")
    under_test.call("m.send")
    assert bool(await under_test.boosts(caller=other)) == learned


async def test_requests_that_stand_alone_are_one_session_of_their_client():
    under_test, alone = LearnerUnderTest(), Caller("", "claude")
    under_test.search("m.send", caller=alone)
    under_test.call("m.send", caller=alone)
    assert (
        "called after searches like this"
        in (await under_test.boosts(caller=alone))["m.send"].reasons[0]
    )


async def test_tools_used_together_are_boosted_after_one_of_them():
    under_test = LearnerUnderTest()
    for tool in ("m.find", "m.send"):
        under_test.call(tool)
    other = Caller("new session", "claude")
    under_test.call("m.find", caller=other)
    before = (await under_test.boosts("anything"))["m.send"].reasons
    assert any("together" in reason for reason in before)
    assert any(
        "together" in reason
        for reason in (await under_test.boosts("anything", other))["m.send"].reasons
    )
    under_test.now += 3_600
    assert "m.send" not in await under_test.boosts("anything", other)


async def test_a_call_that_failed_or_was_cancelled_teaches_nothing():
    under_test = LearnerUnderTest()
    under_test.search("m.send")
    under_test.call("m.send", ok=False)
    under_test.call("m.send", ok=False, cancelled=True)
    assert await under_test.boosts() == {}


async def test_what_was_learned_fades():
    under_test = LearnerUnderTest()
    under_test.search("m.send")
    under_test.call("m.send")
    fresh = (await under_test.boosts())["m.send"].amount
    under_test.now += 60 * DAY
    assert 0 < (await under_test.boosts())["m.send"].amount < fresh / 2
    under_test.now += 3_000 * DAY
    assert await under_test.boosts() == {}


async def test_a_large_number_of_sessions_and_names_takes_bounded_room(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    for number in range(3_000):
        caller = Caller(f"s{number}", f"name {number % 200}" + "x" * 10_000)
        under_test.search("m.send", caller=caller, query=f"send mail {number}")
        under_test.call("m.send", caller)
    await under_test.learner.flush()
    with sqlite3.connect(tmp_path / "h.sqlite3") as db:
        assert db.execute(
            "select count(distinct scope), max(length(scope)) from used"
        ).fetchone() == (100, 81)
    await under_test.learner.close()


async def test_a_file_that_is_locked_costs_only_what_was_learned(tmp_path: Path):
    path = tmp_path / "h.sqlite3"
    made = LearningStore(path)
    made.load("/claude")
    made.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    under_test = LearnerUnderTest(path)
    under_test.search("m.send")
    under_test.call("m.send")
    assert (await under_test.boosts())["m.send"].amount > 0
    holder.execute("rollback")
    holder.close()
    await under_test.learner.close()


async def test_what_another_gateway_wrote_is_noticed_in_every_scope(tmp_path: Path):
    ours, theirs = (
        LearnerUnderTest(tmp_path / "h.sqlite3"),
        LearnerUnderTest(tmp_path / "h.sqlite3"),
    )
    work, home = Caller("s", "claude", "work"), Caller("s", "claude", "home")
    assert await ours.boosts(caller=work) == {}
    for caller in (work, home):
        theirs.search("m.send", caller=caller)
        theirs.call("m.send", caller)
    await theirs.learner.flush()
    assert await ours.boosts(caller=home)
    ours.call("m.other", home)
    await ours.learner.flush()
    assert await ours.boosts(caller=work)
    for under_test in (ours, theirs):
        await under_test.learner.close()


async def test_rows_that_say_something_else_cost_only_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "h.sqlite3"
    under_test = LearnerUnderTest(path)
    under_test.search("m.send")
    under_test.call("m.send")
    await under_test.learner.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("update followed set weight = 'heavy', terms = 'words'")
        db.execute("update used set weight = 'heavy'")
    under_test = LearnerUnderTest(path)
    assert await under_test.boosts() == {}
    under_test.call("m.send")
    await under_test.learner.close()
    assert "what was learnt cannot be used" in caplog.text


async def test_nothing_is_received_after_the_end():
    under_test = LearnerUnderTest()
    await under_test.learner.close()
    under_test.search("m.send")
    under_test.call("m.send")
    assert not under_test.bus.has_subscribers(ToolsFound)
    assert await under_test.boosts() == {}


# Forgetting


@pytest.mark.parametrize("seen", [True, False])
async def test_what_was_received_before_something_was_forgotten_is_forgotten_too(
    tmp_path: Path, seen: bool
):
    under_test, other = (
        LearnerUnderTest(tmp_path / "h.sqlite3"),
        LearningStore(tmp_path / "h.sqlite3"),
    )
    under_test.search("m.send", "m.find")
    under_test.call("m.send")
    if seen:
        assert await under_test.boosts()
        await under_test.learner.flush()
        under_test.search("m.send", "m.find")
        under_test.call("m.send")
    else:
        await under_test.boosts(caller=Caller("another", "another"))
    other.forget()
    await under_test.learner.flush()
    assert await under_test.boosts() == {}
    under_test.call("m.find")  # of a search that is forgotten
    assert await under_test.boosts() == {}
    await under_test.learner.close()
    assert [row.tool for row in other.load("/claude").used] == ["m.find"]
    assert other.load("/claude").followed == ()


async def test_a_search_of_another_scope_notices_that_something_was_forgotten(tmp_path: Path):
    under_test, work = LearnerUnderTest(tmp_path / "h.sqlite3"), Caller("s", "claude", "work")
    under_test.search("m.send")
    under_test.call("m.send")
    assert await under_test.boosts()
    LearningStore(tmp_path / "h.sqlite3").forget()
    assert await under_test.boosts(caller=work) == {}
    assert await under_test.boosts() == {}
    await under_test.learner.close()


async def test_after_forgetting_words_are_compared_under_the_new_key(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    await under_test.boosts()
    LearningStore(tmp_path / "h.sqlite3").forget()
    await under_test.learner.flush()
    under_test.search("m.send")
    under_test.call("m.send")
    received = await under_test.boosts()
    assert received["m.send"].amount > 0.07
    await under_test.learner.close()
    again = LearnerUnderTest(tmp_path / "h.sqlite3")
    assert await again.boosts() == received
    await again.learner.close()


async def test_the_record_alone_does_not_reveal_words_to_someone_with_a_dictionary(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    under_test.search("m.send")
    under_test.call("m.send")
    await under_test.learner.close()
    (row,) = LearningStore(tmp_path / "h.sqlite3").load("/claude").followed
    kept = frozenset(np.frombuffer(row.terms, dtype="<u8").tolist())
    assert not kept & hash_terms(extract_query_terms(QUERY), b"")
    assert kept == hash_terms(extract_query_terms(QUERY), (tmp_path / "h.key").read_bytes())


# A clock that is wrong


async def test_a_pattern_that_is_dated_ahead_fades_like_any_other(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    under_test.now += 7_300 * DAY
    under_test.search("m.send")
    under_test.call("m.send")
    await under_test.learner.close()
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    fresh = (await under_test.boosts())["m.send"].amount
    under_test.now += 60 * DAY
    assert 0 < (await under_test.boosts())["m.send"].amount < fresh / 2
    await under_test.learner.close()


# What cannot be written


async def test_what_cannot_be_written_is_known_and_tried_again_and_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    assert await under_test.boosts() == {}
    with contextlib.closing(sqlite3.connect(tmp_path / "h.sqlite3")) as db, db:
        db.execute(
            "create trigger full before insert on used begin select raise(abort, 'the "
            "disk is full'); end"
        )
    under_test.search("m.send")
    under_test.call("m.send")
    received = await under_test.boosts()
    for _ in range(3):
        await under_test.learner.flush()
        assert await under_test.boosts() == received
    assert caplog.text.count("the disk is full") == 1
    with contextlib.closing(sqlite3.connect(tmp_path / "h.sqlite3")) as db, db:
        db.execute("drop trigger full")
    await under_test.learner.flush()
    assert await under_test.boosts() == received
    (row,) = LearningStore(tmp_path / "h.sqlite3").load("/claude").used
    assert (row.tool, row.weight) == ("m.send", 1)
    await under_test.learner.close()


async def test_a_scope_that_there_is_no_room_for_is_not_forgotten_meanwhile(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    for number in range(100):
        under_test.call("m.send", Caller("s", f"name {number}"))
    await under_test.learner.flush()
    for _ in range(3):
        under_test.search("m.find")
        under_test.call("m.find")
        await under_test.learner.flush()
        assert (await under_test.boosts())["m.find"].amount > 0.07
    await under_test.learner.close()
    assert [row.weight for row in LearningStore(tmp_path / "h.sqlite3").load("/claude").used] == [
        pytest.approx(3)
    ]


async def test_names_that_come_in_large_numbers_displace_one_another(tmp_path: Path):
    under_test = LearnerUnderTest(tmp_path / "h.sqlite3")
    for _ in range(2):
        under_test.call("m.find")
    for number in range(1_500):
        under_test.call("m.send", Caller("s", f"name {number}"))
    await under_test.learner.flush()
    assert LearningStore(tmp_path / "h.sqlite3").load("/claude").used
    await under_test.learner.close()
