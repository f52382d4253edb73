"""Result bodies on disk: complete, private and expiring."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.storage.data_files import GRACE_S, ResultBodyTooLarge, ResultFiles

FAR = 4e9


def test_what_was_written_is_read_whole_and_in_parts(tmp_path: Path):
    files = ResultFiles(tmp_path / "results")
    assert files.write("a", ["one\n", "zwei ü\n", "3"], FAR, 100) == 13
    assert files.read("a").decode() == "one\nzwei ü\n3"
    assert files.read("a", 4, 4) == b"zwei"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_nobody_else_can_read_a_body(tmp_path: Path):
    ResultFiles(tmp_path / "results").write("a", ["secret"], FAR, 100)
    (file,) = (tmp_path / "results").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_body_that_is_too_large_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(ResultBodyTooLarge):
        ResultFiles(tmp_path).write("a", ["x" * 60, "x" * 60], FAR, 100)
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_breaks_off_leaves_nothing_behind(tmp_path: Path):
    def broken() -> Iterator[str]:
        yield "x"
        raise ValueError("no JSON after all")

    with pytest.raises(ValueError, match="no JSON"):
        ResultFiles(tmp_path).write("a", broken(), FAR, 100)
    assert list(tmp_path.iterdir()) == []


def test_a_deleted_body_is_not_found_and_may_be_deleted_again(tmp_path: Path):
    files = ResultFiles(tmp_path)
    files.write("a", ["x"], FAR, 100)
    files.delete("a")
    files.delete("a")
    with pytest.raises(FileNotFoundError):
        files.read("a")


def test_a_sweep_takes_what_is_over_its_time_and_nothing_of_others(tmp_path: Path):
    now = 1_000_000.0
    mine, other = ResultFiles(tmp_path, clock=lambda: now), ResultFiles(tmp_path)
    other.write("over", ["x"], now - GRACE_S - 1, 100)
    other.write("just over", ["x"], now - 1, 100)
    other.write("good", ["x"], now + 1_000, 100)
    (tmp_path / "notes.txt").write_text("not a result")
    os.utime(tmp_path / "notes.txt", (1, 1))
    assert mine.sweep() == 1
    assert other.read("good") == b"x"
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["good", "just over", "notes"]


def test_a_sweep_of_a_folder_that_is_not_there_makes_none(tmp_path: Path):
    assert ResultFiles(tmp_path / "results").sweep() == 0
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_bodies_last_until_the_end():
    files = ResultFiles(None)
    files.write("a", ["x"], FAR, 100)
    assert files.read("a") == b"x"
    assert files.sweep() == 0
    files.close()
    with pytest.raises(FileNotFoundError):
        files.read("a")
    files.close()


def test_half_a_surrogate_pair_is_written_as_a_question_mark(tmp_path: Path):
    files = ResultFiles(tmp_path)
    files.write("a", ["x\ud800y"], FAR, 100)
    assert files.read("a") == b"x?y"
