"""Learning store: bounded, decaying, shared by gateways, and recreated when damaged."""

import contextlib
import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from portico.config import LearningConfig
from portico.storage.learning_store import (
    FollowedRow,
    ForgottenCounts,
    LearnedRows,
    LearningStore,
    PairRow,
    UsedRow,
)

DAY = 86_400.0
NOW = 1_800_000_000.0
LATER = NOW + 365 * DAY
"""When things are written: after all of them happened."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "habits.sqlite3"


def learned(
    tool: str = "s.t", query: bytes = b"12345678", weight: float = 1, at: float = NOW
) -> LearnedRows:
    return LearnedRows(
        (FollowedRow(query, tool, weight, at, b"\x01\x02"),),
        (PairRow("a.first", tool, weight, at),),
        (UsedRow(tool, weight, at),),
    )


# Remembering


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_was_recorded_is_loaded_as_it_was(path: Path, in_memory: bool):
    store = LearningStore(None if in_memory else path)
    store.record({"/claude": learned()}, now=LATER)
    if not in_memory:
        store.close()
        store = LearningStore(path)
    assert store.load("/claude") == learned()
    assert store.load("/other") == LearnedRows()


def test_nothing_is_opened_until_it_is_wanted(path: Path):
    LearningStore(path).close()
    assert not path.parent.exists()


def test_repetitions_add_up_and_what_was_there_fades(path: Path):
    store = LearningStore(path, LearningConfig(half_life_days=30))
    store.record({"/c": learned(weight=2, at=NOW)}, now=LATER)
    store.record({"/c": learned(weight=1, at=NOW + 30 * DAY)}, now=LATER)
    assert store.load("/c") == learned(weight=2, at=NOW + 30 * DAY)


def test_what_comes_late_counts_by_when_it_happened(path: Path):
    store = LearningStore(path, LearningConfig(half_life_days=30))
    store.record({"/c": learned(weight=1, at=NOW + 30 * DAY)}, now=LATER)
    store.record({"/c": learned(weight=2, at=NOW)}, now=LATER)
    assert store.load("/c") == learned(weight=2, at=NOW + 30 * DAY)


def test_a_search_without_a_vector_leaves_the_one_that_is_known(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned()}, now=LATER)
    store.record({"/c": LearnedRows((FollowedRow(b"12345678", "s.t", 1, NOW, None),))}, now=LATER)
    (row,) = store.load("/c").followed
    assert (row.weight, row.vector) == (2, b"\x01\x02")


def test_nobody_else_may_read_what_was_learned(path: Path):
    LearningStore(path).record({"/c": learned()}, now=LATER)
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600


# Bounds


def test_each_scope_keeps_its_strongest_and_no_more(path: Path):
    store = LearningStore(path, LearningConfig(max_followed=10, max_together=5))
    rows = LearnedRows(
        tuple(FollowedRow(number.to_bytes(8), "s.t", 1 + number, NOW) for number in range(50)),
        tuple(PairRow("a.a", f"s.t{number}", 1 + number, NOW) for number in range(50)),
        tuple(UsedRow(f"s.t{number}", 1 + number, NOW) for number in range(600)),
    )
    store.record({"/c": rows, "/d": learned()}, now=LATER)
    kept = store.load("/c")
    assert {row.weight for row in kept.followed} == set(range(41, 51))
    assert {row.weight for row in kept.together} == set(range(46, 51))
    assert len(kept.used) == 200
    assert store.load("/d") == learned()


def test_what_is_strong_but_old_goes_before_what_is_weak_but_new(path: Path):
    store = LearningStore(path, LearningConfig(max_followed=1))
    old, new = b"old-old-", b"new-new-"
    store.record({"/c": learned(query=old, weight=3, at=NOW)}, now=LATER)
    store.record({"/c": learned(query=new, weight=1, at=NOW + 90 * DAY)}, now=LATER)
    assert [row.terms for row in store.load("/c").followed] == [new]


def test_callers_under_ever_new_names_do_not_fill_the_disk(path: Path):
    store = LearningStore(path)
    store.record({f"/{number}": learned(at=NOW + number) for number in range(130)}, now=LATER)
    assert store.load("/0") == LearnedRows()
    assert store.load("/129") == learned(at=NOW + 129)
    db = sqlite3.connect(path)
    for table in ("followed", "together", "used"):
        assert db.execute(f"select count(distinct scope) from {table}").fetchone() == (100,)
    db.close()


# Forgetting


def test_everything_can_be_forgotten_and_it_is_said_how_much(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned(), "p/c": learned()}, now=LATER)
    assert store.forget() == ForgottenCounts(2, 2, 2)
    assert store.forget() == ForgottenCounts()
    assert store.load("/c") == store.load("p/c") == LearnedRows()


def test_forgetting_can_be_narrowed_to_a_profile_or_a_server(path: Path):
    store = LearningStore(path)
    scopes = {"/c": learned(), "work/c": learned(), "workshop/c": learned("other.t")}
    store.record(scopes, now=LATER)
    assert store.forget(profile="work") == ForgottenCounts(1, 1, 1)
    assert store.forget(server="other") == ForgottenCounts(1, 1, 1)
    assert store.forget(server="othe") == ForgottenCounts()
    assert store.load("/c") == learned()


def test_what_was_learned_of_a_server_goes_with_its_new_name(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned("s.t", weight=2), "work/c": learned("sun.t")}, now=LATER)
    store.record({"/c": learned("new.t", weight=1)}, now=LATER)
    store.rename_server("s", "new", now=LATER)
    assert store.load("/c") == learned("new.t", weight=3)
    assert store.load("work/c") == learned("sun.t"), "only begins with the same letter"


def test_forgetting_that_fails_says_so(path: Path):
    store = LearningStore(path)
    store.close()
    assert store.forget() is None


# Several gateways

_ADD = """
import sys
from pathlib import Path
from portico.storage.learning_store import *
store = LearningStore(Path(sys.argv[1]))
for _ in range(25):
    store.record({"/c": LearnedRows((FollowedRow(b"12345678", "s.t", 1, 5.0),), (), (UsedRow("s.t", 1, 5.0),))}, now=6.0)
store.close()
"""  # noqa: E501


def test_processes_that_write_at_once_lose_nothing(path: Path):
    adding = [subprocess.Popen([sys.executable, "-c", _ADD, str(path)]) for _ in range(3)]
    assert [process.wait(60) for process in adding] == [0, 0, 0]
    store = LearningStore(path)
    assert store.load("/c") == LearnedRows(
        (FollowedRow(b"12345678", "s.t", 75, 5.0),), (), (UsedRow("s.t", 75, 5.0),)
    )


def test_a_gateway_can_tell_that_another_has_written(path: Path):
    ours, theirs = LearningStore(path), LearningStore(path)
    before = ours.read_version()
    assert ours.read_version() == before
    theirs.record({"/c": learned()}, now=LATER)
    assert ours.read_version() != before


# Whatever lies in its place


@pytest.mark.parametrize(
    "content", [b"no database " * 999, b"SQLite format 3\0" + bytes(range(256)) * 64]
)
def test_a_file_that_is_no_database_is_set_aside(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
):
    path.parent.mkdir()
    path.write_bytes(content)
    store = LearningStore(path)
    with caplog.at_level(logging.WARNING):
        assert store.load("/c") == LearnedRows()
    assert "the record of use" in caplog.text
    assert path.with_name("habits.sqlite3.unreadable").read_bytes() == content
    store.record({"/c": learned()}, now=LATER)
    assert store.load("/c") == learned()


def test_pages_that_are_damaged_cost_what_was_learned_and_nothing_else(path: Path):
    store = LearningStore(path)
    store.record({f"/{number}": learned(f"s.t{number}") for number in range(90)}, now=LATER)
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:4_096] + os.urandom(len(content) - 4_096))
    store = LearningStore(path)
    store.load("/3")
    store.record({"/c": learned()}, now=LATER)
    assert store.load("/c") == learned()


def test_where_no_file_can_be_memory_takes_its_place(path: Path, caplog: pytest.LogCaptureFixture):
    path.mkdir(parents=True)
    store = LearningStore(path)
    store.record({"/c": learned()}, now=LATER)
    assert store.load("/c") == learned()
    assert "nothing will be remembered" in caplog.text


def test_a_closed_record_takes_and_gives_nothing(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned()}, now=LATER)
    store.close()
    store.record({"/c": learned()}, now=LATER)
    assert store.load("/c") == LearnedRows()
    assert LearningStore(path).load("/c") == learned()


def test_rows_that_say_something_else_are_replaced_by_what_is_learned(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned()}, now=LATER)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for table in ("followed", "together", "used"):
            db.execute(f"update {table} set weight = 'heavy', at = 'once'")
    assert store.record({"/c": learned()}, now=LATER) == set()
    assert store.load("/c") == learned()


# A clock that is wrong


def test_a_row_that_is_dated_ahead_fades_from_the_next_write_on_and_real_calls_count_beside_it(
    path: Path,
):
    store = LearningStore(path, LearningConfig(half_life_days=30))
    store.record({"/c": learned(at=NOW + 7_300 * DAY)}, now=NOW + 7_300 * DAY)
    store.record({"/c": learned("s.new", weight=5)}, now=NOW)
    assert {(row.tool, row.weight, row.at) for row in store.load("/c").used} == {
        ("s.t", 1, NOW),
        ("s.new", 5, NOW),
    }
    store.record({"/c": learned(weight=50)}, now=NOW)
    assert learned(weight=51).used[0] in store.load("/c").used


def test_what_is_dated_ahead_outlives_nothing_that_is_stronger(path: Path):
    store = LearningStore(path, LearningConfig(max_followed=1))
    store.record({"/c": learned(query=b"aheadahe", at=NOW + 900 * DAY)}, now=NOW + 900 * DAY)
    store.record({"/c": learned(query=b"stronger", weight=2)}, now=NOW)
    assert [row.terms for row in store.load("/c").followed] == [b"stronger"]


def test_a_clock_that_was_never_set_puts_no_date_right(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned()}, now=NOW)
    store.record({"/c": learned("s.new", at=60)}, now=60)
    assert learned().used[0] in store.load("/c").used


# Who stays


def test_names_with_a_call_each_push_out_nobody(path: Path):
    store = LearningStore(path)
    store.record({"/me": learned()}, now=NOW)
    rejected = store.record(
        {f"/{number}": learned(at=NOW + 1) for number in range(300)}, now=NOW + 1
    )
    assert rejected is not None
    assert len(rejected) == 201
    assert store.load("/me") == learned()


def test_no_more_than_a_few_are_pushed_out_at_once(path: Path):
    store = LearningStore(path)
    store.record({f"/{number}": learned() for number in range(100)}, now=NOW)
    store.record({f"/busy{number}": learned(weight=1_000) for number in range(100)}, now=NOW)
    assert sum(store.load(f"/{number}") == LearnedRows() for number in range(100)) == 10


def test_a_scope_used_more_than_a_stored_one_displaces_it(path: Path):
    store = LearningStore(path)
    store.record({f"/{number}": learned() for number in range(100)}, now=NOW)
    assert store.record({"/me": learned()}, now=NOW + 1) == {"/me"}
    assert store.record({"/me": learned(weight=3)}, now=NOW + 1) == set()


# Forgotten means forgotten


def test_what_was_received_before_something_was_forgotten_is_not_kept(path: Path):
    ours, theirs = LearningStore(path), LearningStore(path)
    ours.record({"/c": learned()}, now=NOW)
    epoch = ours.read_epoch()
    theirs.forget(server="another")
    assert ours.read_epoch() != epoch
    assert ours.record({"/c": learned("s.late")}, now=NOW, epoch=epoch) == set()
    assert ours.load("/c") == learned()


def test_nothing_of_what_was_forgotten_is_left_in_any_file(path: Path):
    store = LearningStore(path)
    store.record(
        {f"/{number}": learned(f"hr.secret_{number}", b"TERMTERM") for number in range(90)}, now=NOW
    )
    path.with_name(f"{path.name}.unreadable").write_bytes(b"hr.secret")
    path.with_name(f"{path.name}.unreadable-wal").write_bytes(b"hr.secret")
    forgotten = store.forget()
    assert forgotten is not None
    assert forgotten.unreadable == 2
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"hr.secret" not in left
    assert b"TERMTERM" not in left


def test_what_cannot_be_reached_is_not_said_to_be_forgotten(path: Path):
    store = LearningStore(path)
    store.record({"/c": learned()}, now=NOW)
    store.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    assert LearningStore(path).forget() is None
    holder.close()


# The key


def test_the_key_is_made_once_for_its_owner_alone_and_renewed_when_all_is_forgotten(path: Path):
    ours, theirs = LearningStore(path), LearningStore(path)
    key = ours.get_key()
    assert len(key) == 32
    assert ours.get_key() == theirs.get_key() == LearningStore(path).get_key() == key
    if sys.platform != "win32":
        assert path.with_name("habits.key").stat().st_mode & 0o777 == 0o600
    theirs.forget(profile="work")
    assert ours.get_key() == key
    theirs.forget()
    assert ours.get_key() == theirs.get_key() != key
    assert sorted(file.name for file in path.parent.iterdir() if "key" in file.name) == [
        "habits.key"
    ]


_KEY = """
import sys
from pathlib import Path
from portico.storage.learning_store import LearningStore
print(LearningStore(Path(sys.argv[1])).get_key().hex())
"""


def test_processes_that_want_a_key_at_once_get_the_same(path: Path):
    asking = [
        subprocess.Popen([sys.executable, "-c", _KEY, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    (key,) = {process.communicate(timeout=240)[0] for process in asking}
    assert key.strip()


def test_a_key_that_is_damaged_is_replaced_and_one_that_cannot_be_is_done_without(
    path: Path, caplog: pytest.LogCaptureFixture
):
    store, file = LearningStore(path), path.with_name("habits.key")
    store.get_key()
    file.write_bytes(b"short")
    assert store.get_key() == file.read_bytes() != b"short"
    file.unlink()
    file.mkdir()
    assert store.get_key() == store.get_key() != b"short"
    assert caplog.text.count("cannot be used") == 1
    assert store.forget() is None
