"""Index file: replaced atomically, memory-mapped, and never an obstacle to a start."""

import logging
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from portico.search import Index
from portico.storage.search_files import IndexFile, release_memory
from tests.search.catalog import CATALOG


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "search.index"


def loaded(path: Path) -> bytes | None:
    body = IndexFile(path).load()
    return None if body is None else bytes(body)


def test_what_was_saved_last_is_loaded(path: Path):
    IndexFile(path).save(b"first, and longer")
    IndexFile(path).save(b"second")
    assert loaded(path) == b"second"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_new_file_knows_nothing(path: Path, caplog: pytest.LogCaptureFixture):
    assert loaded(path) is None
    assert caplog.text == ""


def test_without_a_path_nothing_is_kept():
    nowhere = IndexFile(None)
    nowhere.save(b"x")
    assert nowhere.load() is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_nobody_else_may_read_the_file(path: Path):
    IndexFile(path).save(b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_an_index_that_was_loaded_stays_good_while_the_file_is_replaced_and_removed(path: Path):
    index = Index.build(CATALOG)
    file = IndexFile(path)
    file.save(index.dump())
    body = file.load()
    assert body is not None
    mapped = Index.load(body)
    for size in (10, 10_000_000, 0):
        file.save(b"\xff" * size)
    path.unlink()
    for query in ("create an issue", "redis.delete", "天气"):
        assert mapped.search(query) == index.search(query)
    assert mapped.replace({"redis": []}).search("redis key").total < index.search("redis key").total


def test_an_index_whose_memory_was_given_back_answers_as_before(path: Path):
    built = Index.build(CATALOG)
    IndexFile(path).save(built.dump())
    view = IndexFile(path).load()
    assert view is not None
    index = Index.load(view)
    release_memory(view)
    assert index.search("create an issue") == built.search("create an issue")
    assert index.dump() == built.dump()
    release_memory(memoryview(b"what is not mapped has nothing to give back"))


def test_an_empty_file_is_no_index_and_that_is_said(path: Path, caplog: pytest.LogCaptureFixture):
    path.parent.mkdir()
    path.touch()
    body = IndexFile(path).load()
    assert not body
    if sys.platform != "win32":
        assert "cannot be read" in caplog.text


def a_folder(path: Path) -> None:
    path.mkdir(parents=True)


def a_file_where_its_folder_should_be(path: Path) -> None:
    path.parent.write_text("a file")


@pytest.mark.parametrize("prepare", [a_folder, a_file_where_its_folder_should_be])
def test_where_no_file_can_be_nothing_is_kept_and_that_is_said(
    path: Path, prepare: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    prepare(path)
    with caplog.at_level(logging.WARNING):
        IndexFile(path).save(b"x")
        assert loaded(path) is None
    assert "cannot be written" in caplog.text
    assert "cannot be read" in caplog.text
    assert [
        file for file in path.parent.parent.rglob("*") if file.is_file() and file != path.parent
    ] == []


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not hold back this user"
)
def test_a_folder_that_may_not_be_written_keeps_the_last_index(
    path: Path, caplog: pytest.LogCaptureFixture
):
    IndexFile(path).save(b"last")
    path.parent.chmod(0o500)
    try:
        IndexFile(path).save(b"next")
        assert loaded(path) == b"last"
    finally:
        path.parent.chmod(0o700)
    assert "cannot be written" in caplog.text


def test_a_reader_sees_one_whole_index_while_many_write(path: Path):
    bodies = [bytes([number]) * 300_000 for number in range(1, 5)]
    IndexFile(path).save(bodies[0])
    stop = threading.Event()

    def write(body: bytes) -> None:
        file = IndexFile(path)
        while not stop.is_set():
            file.save(body)

    threads = [threading.Thread(target=write, args=[body]) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        seen = [loaded(path) for _ in range(100)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert all(body in bodies for body in seen)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
