"""The record of use: bounded, fading, shared by gateways, and never worth more trouble than itself."""

import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from portico.storage.habits import FollowedRow, Forgotten, HabitStore, Keeping, Learnt, OutcomeRow, PairRow, UsedRow

DAY = 86_400.0
NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "habits.sqlite3"


def learnt(tool: str = "s.t", query: bytes = b"12345678", weight: float = 1, at: float = NOW) -> Learnt:
    return Learnt(
        (FollowedRow(query, tool, weight, at, b"\x01\x02"),),
        (PairRow("a.first", tool, weight, at),),
        (UsedRow(tool, weight, at),),
    )


def outcome(tool: str = "s.t", calls: int = 1, successes: int = 1, ms: float = 100, at: float = NOW) -> OutcomeRow:
    return OutcomeRow(tool, calls, successes, ms, at)


# Remembering


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_was_recorded_is_loaded_as_it_was(path: Path, in_memory: bool):
    store = HabitStore(None if in_memory else path)
    store.record({"/claude": learnt()}, [outcome()])
    if not in_memory:
        store.close()
        store = HabitStore(path)
    assert store.load("/claude") == learnt()
    assert store.load("/other") == Learnt()
    assert store.outcomes(NOW) == (outcome(),)


def test_nothing_is_opened_until_it_is_wanted(path: Path):
    HabitStore(path).close()
    assert not path.parent.exists()


def test_repetitions_add_up_and_what_was_there_fades(path: Path):
    store = HabitStore(path, Keeping(half_life_s=30 * DAY))
    store.record({"/c": learnt(weight=2, at=NOW)})
    store.record({"/c": learnt(weight=1, at=NOW + 30 * DAY)})
    assert store.load("/c") == learnt(weight=2, at=NOW + 30 * DAY)


def test_what_comes_late_counts_by_when_it_happened(path: Path):
    store = HabitStore(path, Keeping(half_life_s=30 * DAY))
    store.record({"/c": learnt(weight=1, at=NOW + 30 * DAY)})
    store.record({"/c": learnt(weight=2, at=NOW)})
    assert store.load("/c") == learnt(weight=2, at=NOW + 30 * DAY)


def test_a_search_without_a_vector_leaves_the_one_that_is_known(path: Path):
    store = HabitStore(path)
    store.record({"/c": learnt()})
    store.record({"/c": Learnt((FollowedRow(b"12345678", "s.t", 1, NOW, None),))})
    (row,) = store.load("/c").followed
    assert (row.weight, row.vector) == (2, b"\x01\x02")


def test_nobody_else_may_read_what_was_learnt(path: Path):
    HabitStore(path).record({"/c": learnt()})
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600


# How calls went


def test_calls_and_successes_are_counted_and_latency_runs_along(path: Path):
    store = HabitStore(path)
    store.record({}, [outcome(calls=3, successes=2, ms=100)])
    store.record({}, [outcome(calls=1, successes=0, ms=0, at=NOW + 1)])
    assert store.outcomes(NOW) == (outcome(calls=4, successes=2, ms=100, at=NOW + 1),)
    store.record({}, [outcome(calls=2, successes=2, ms=400)])
    (row,) = store.outcomes(NOW)
    assert row.latency_ms == pytest.approx(200)


def test_one_slow_start_is_soon_outweighed(path: Path):
    store = HabitStore(path)
    store.record({}, [outcome(ms=8_000)])
    for _ in range(30):
        store.record({}, [outcome(ms=10)])
    (row,) = store.outcomes(NOW)
    assert row.latency_ms < 20


def test_a_tool_that_was_mended_recovers(path: Path):
    store = HabitStore(path)
    store.record({}, [outcome(calls=5_000, successes=0, ms=0)])
    for _ in range(10):
        store.record({}, [outcome(calls=100, successes=100)])
    (row,) = store.outcomes(NOW)
    assert row.calls <= 200
    assert row.successes / row.calls > 0.95


def test_a_tool_that_was_not_called_for_a_half_life_is_unknown_again(path: Path):
    store = HabitStore(path, Keeping(half_life_s=30 * DAY))
    store.record({}, [outcome("s.old", at=NOW), outcome("s.new", at=NOW + 20 * DAY)])
    assert [row.tool for row in store.outcomes(NOW + 31 * DAY)] == ["s.new"]


# Bounds


def test_each_scope_keeps_its_strongest_and_no_more(path: Path):
    store = HabitStore(path, Keeping(30 * DAY, followed=10, together=5))
    rows = Learnt(
        tuple(FollowedRow(number.to_bytes(8), "s.t", 1 + number, NOW) for number in range(50)),
        tuple(PairRow("a.a", f"s.t{number}", 1 + number, NOW) for number in range(50)),
        tuple(UsedRow(f"s.t{number}", 1 + number, NOW) for number in range(600)),
    )
    store.record({"/c": rows, "/d": learnt()})
    kept = store.load("/c")
    assert {row.weight for row in kept.followed} == set(range(41, 51))
    assert {row.weight for row in kept.together} == set(range(46, 51))
    assert len(kept.used) == 200
    assert store.load("/d") == learnt()


def test_what_is_strong_but_old_goes_before_what_is_weak_but_new(path: Path):
    store = HabitStore(path, Keeping(30 * DAY, followed=1))
    old, new = b"old-old-", b"new-new-"
    store.record({"/c": learnt(query=old, weight=3, at=NOW)})
    store.record({"/c": learnt(query=new, weight=1, at=NOW + 90 * DAY)})
    assert [row.terms for row in store.load("/c").followed] == [new]


def test_callers_under_ever_new_names_do_not_fill_the_disk(path: Path):
    store = HabitStore(path)
    store.record({f"/{number}": learnt(at=NOW + number) for number in range(130)})
    assert store.load("/0") == Learnt()
    assert store.load("/129") == learnt(at=NOW + 129)
    db = sqlite3.connect(path)
    for table in ("followed", "together", "used"):
        assert db.execute(f"select count(distinct scope) from {table}").fetchone() == (100,)
    db.close()


# Forgetting


def test_everything_can_be_forgotten_and_it_is_said_how_much(path: Path):
    store = HabitStore(path)
    store.record({"/c": learnt(), "p/c": learnt()}, [outcome()])
    assert store.forget() == Forgotten(2, 2, 2, 1)
    assert store.forget() == Forgotten()
    assert store.load("/c") == store.load("p/c") == Learnt()
    assert store.outcomes(NOW) == ()


def test_forgetting_can_be_narrowed_to_a_profile_or_a_server(path: Path):
    store = HabitStore(path)
    scopes = {"/c": learnt(), "work/c": learnt(), "workshop/c": learnt("other.t")}
    store.record(scopes, [outcome("s.t"), outcome("other.t")])
    assert store.forget(profile="work") == Forgotten(1, 1, 1, 0)
    assert store.forget(server="other") == Forgotten(1, 1, 1, 1)
    assert store.forget(server="othe") == Forgotten()
    assert store.load("/c") == learnt()


def test_forgetting_that_fails_says_so(path: Path):
    store = HabitStore(path)
    store.close()
    assert store.forget() is None


# Several gateways

_ADD = """
import sys
from pathlib import Path
from portico.storage.habits import *
store = HabitStore(Path(sys.argv[1]))
for _ in range(25):
    store.record({"/c": Learnt((FollowedRow(b"12345678", "s.t", 1, 5.0),), (), (UsedRow("s.t", 1, 5.0),))},
                 [OutcomeRow("s.t", 1, 1, 10.0, 5.0)])
store.close()
"""


def test_processes_that_write_at_once_lose_nothing(path: Path):
    adding = [subprocess.Popen([sys.executable, "-c", _ADD, str(path)]) for _ in range(3)]
    assert [process.wait(60) for process in adding] == [0, 0, 0]
    store = HabitStore(path)
    assert store.load("/c") == Learnt((FollowedRow(b"12345678", "s.t", 75, 5.0),), (), (UsedRow("s.t", 75, 5.0),))
    (row,) = store.outcomes(6.0)
    assert (row.calls, row.successes, row.latency_ms) == (75, 75, pytest.approx(10.0))


def test_a_gateway_can_tell_that_another_has_written(path: Path):
    ours, theirs = HabitStore(path), HabitStore(path)
    before = ours.version()
    assert ours.version() == before
    theirs.record({"/c": learnt()})
    assert ours.version() != before


# Whatever lies in its place


@pytest.mark.parametrize("content", [b"no database " * 999, b"SQLite format 3\0" + bytes(range(256)) * 64])
def test_a_file_that_is_no_database_is_set_aside(path: Path, content: bytes, caplog: pytest.LogCaptureFixture):
    path.parent.mkdir()
    path.write_bytes(content)
    store = HabitStore(path)
    with caplog.at_level(logging.WARNING):
        assert store.load("/c") == Learnt()
    assert "the record of use" in caplog.text
    assert path.with_name("habits.sqlite3.unreadable").read_bytes() == content
    store.record({"/c": learnt()})
    assert store.load("/c") == learnt()


def test_pages_that_are_damaged_cost_what_was_learnt_and_nothing_else(path: Path):
    store = HabitStore(path)
    store.record({f"/{number}": learnt(f"s.t{number}") for number in range(90)})
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:4_096] + os.urandom(len(content) - 4_096))
    store = HabitStore(path)
    store.load("/3")
    store.record({"/c": learnt()}, [outcome()])
    assert store.load("/c") == learnt()


def test_where_no_file_can_be_memory_takes_its_place(path: Path, caplog: pytest.LogCaptureFixture):
    path.mkdir(parents=True)
    store = HabitStore(path)
    store.record({"/c": learnt()})
    assert store.load("/c") == learnt()
    assert "nothing will be remembered" in caplog.text


def test_a_closed_record_takes_and_gives_nothing(path: Path):
    store = HabitStore(path)
    store.record({"/c": learnt()})
    store.close()
    store.record({"/c": learnt()})
    assert store.load("/c") == Learnt()
    assert HabitStore(path).load("/c") == learnt()
