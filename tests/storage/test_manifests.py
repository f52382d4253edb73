"""Manifest file: what is stored, and that a damaged file never stops a start."""

import logging
import os
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from portico.storage.manifests import Manifest, ManifestStore, ToolRow

ALL = {"s": "f"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "manifest.sqlite3"


def manifest(server: str = "s", fingerprint: str = "f", tools: int = 2) -> Manifest:
    rows = tuple(
        ToolRow(f"t{n}", f"h{n}", b'{"name": "t"}', ("odd", "very odd")[:n]) for n in range(tools)
    )
    return Manifest(server, fingerprint, "legacy", b"{}", b'{"prompts": []}', rows, 12.5)


# Remembering


def test_what_was_saved_is_loaded_as_it_was(path: Path):
    first = ManifestStore(path)
    first.save(manifest())
    first.close()
    second = ManifestStore(path)
    assert second.load(ALL) == {"s": manifest()}


def test_a_new_file_knows_nothing(path: Path):
    assert ManifestStore(path).load(ALL) == {}


def test_memory_is_as_good_as_a_file_while_it_lasts():
    manifests = ManifestStore(None)
    manifests.save(manifest())
    assert manifests.load(ALL) == {"s": manifest()}


def test_another_fingerprint_finds_nothing(path: Path):
    manifests = ManifestStore(path)
    manifests.save(manifest(fingerprint="before"))
    assert manifests.load({"s": "after"}) == {}
    manifests.save(manifest(fingerprint="after"))
    assert manifests.load({"s": "before"}) == {}
    assert manifests.load({"s": "after"})["s"].fingerprint == "after"


def test_saving_replaces_a_server_whole_and_no_other(path: Path):
    manifests = ManifestStore(path)
    manifests.save(manifest("s", tools=5))
    manifests.save(manifest("r", tools=3))
    manifests.save(manifest("s", tools=1))
    loaded = manifests.load({"s": "f", "r": "f"})
    assert {name: len(found.tools) for name, found in loaded.items()} == {"s": 1, "r": 3}


def test_a_server_can_be_forgotten(path: Path):
    manifests = ManifestStore(path)
    manifests.save(manifest("s"))
    manifests.save(manifest("r"))
    manifests.forget(["s", "never known"])
    assert list(manifests.load({"s": "f", "r": "f"})) == ["r"]


def test_a_moment_that_was_not_given_is_now(path: Path):
    manifests = ManifestStore(path)
    manifests.save(Manifest("s", "f", "modern", b"{}", b"{}", (), 0))
    assert manifests.load(ALL)["s"].listed_at > 1_700_000_000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_nobody_else_may_read_the_file(path: Path):
    ManifestStore(path).save(manifest())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_gateways_write_one_file(path: Path):
    files = [ManifestStore(path) for _ in range(4)]

    def write(number: int) -> None:
        for turn in range(10):
            files[number].save(manifest(f"s{number}", tools=turn))

    threads = [threading.Thread(target=write, args=[number]) for number in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    loaded = files[0].load({f"s{number}": "f" for number in range(4)})
    assert {name: len(found.tools) for name, found in loaded.items()} == {
        f"s{number}": 9 for number in range(4)
    }


@pytest.mark.parametrize("attempt", range(8))
def test_gateways_that_make_the_file_at_the_same_time_make_one(path: Path, attempt: int):
    made: list[ManifestStore] = []
    start = threading.Barrier(6)

    def make(number: int) -> None:
        start.wait(30)
        manifests = ManifestStore(path)
        manifests.save(manifest(f"s{number}"))
        made.append(manifests)

    threads = [threading.Thread(target=make, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 6
    assert len(ManifestStore(path).load({f"s{number}": "f" for number in range(6)})) == 6
    assert [other.name for other in path.parent.iterdir() if "unreadable" in other.name] == []


# Whatever lies in its place


def aside(path: Path) -> Path:
    return path.with_name("manifest.sqlite3.unreadable")


def works(path: Path) -> bool:
    """Whether a manifest saved there is there."""
    first = ManifestStore(path)
    first.save(manifest())
    first.close()
    second = ManifestStore(path)
    found = second.load(ALL)
    second.close()
    return found == {"s": manifest()}


@pytest.mark.parametrize(
    "content",
    [b"not a database " * 1_000, b"SQLite format 3\0" + bytes(range(256)) * 64],
    ids=["text", "a bad header"],
)
def test_a_file_that_is_no_database_is_set_aside(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
):
    path.parent.mkdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert ManifestStore(path).load(ALL) == {}
    assert "a new one is used" in caplog.text
    assert aside(path).read_bytes() == content
    assert works(path)


def test_the_database_of_another_program_is_set_aside_unharmed(
    path: Path, caplog: pytest.LogCaptureFixture
):
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("create table tools (precious text)")
        db.execute("insert into tools values ('data')")
        db.execute("pragma user_version = 1")
    assert works(path)
    assert "another program" in caplog.text
    assert sqlite3.connect(aside(path)).execute("select precious from tools").fetchall() == [
        ("data",)
    ]


def test_an_empty_file_is_a_new_one(path: Path, caplog: pytest.LogCaptureFixture):
    path.parent.mkdir()
    path.touch()
    assert works(path)
    assert caplog.text == ""


def test_another_layout_of_our_own_is_recreated_in_place(
    path: Path, caplog: pytest.LogCaptureFixture
):
    ManifestStore(path).save(manifest())
    with sqlite3.connect(path) as db:
        db.execute("drop table tools")
        db.execute("create table tools (other text)")
        db.execute("pragma user_version = 99")
    assert works(path)
    assert not aside(path).exists()


def test_the_first_layout_kept_an_index_here_and_it_is_dropped(path: Path):
    ManifestStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute(
            "create table indexes (id integer primary key check (id = 1), body blob not null)"
        )
        db.execute("insert into indexes values (1, ?)", (bytes(100_000),))
        db.execute("pragma user_version = 1")
    assert works(path)
    with sqlite3.connect(path) as db:
        assert db.execute("select name from sqlite_master where name = 'indexes'").fetchall() == []
    assert not aside(path).exists()


def test_a_table_that_is_gone_is_found_out_when_it_is_read(
    path: Path, caplog: pytest.LogCaptureFixture
):
    ManifestStore(path).save(manifest())
    with sqlite3.connect(path) as db:
        db.execute("drop table tools")
    manifests = ManifestStore(path)
    assert manifests.load(ALL) == {}
    assert "a new one is used" in caplog.text
    manifests.save(manifest())
    assert manifests.load(ALL) == {"s": manifest()}


def test_pages_that_are_damaged_are_found_out_when_they_are_read(
    path: Path, caplog: pytest.LogCaptureFixture
):
    first = ManifestStore(path)
    for number in range(60):
        first.save(manifest(f"s{number}", tools=40))
    first.close()
    content = path.read_bytes()
    path.write_bytes(content[:4_096] + os.urandom(len(content) - 4_096))
    manifests = ManifestStore(path)
    assert manifests.load({f"s{number}": "f" for number in range(60)}) == {}
    manifests.save(manifest())
    assert manifests.load(ALL) == {"s": manifest()}
    assert "a new one is used" in caplog.text


def test_a_file_that_was_cut_short_is_recreated(path: Path):
    first = ManifestStore(path)
    for number in range(60):
        first.save(manifest(f"s{number}", tools=40))
    first.close()
    path.write_bytes(path.read_bytes()[:6_000])
    manifests = ManifestStore(path)
    assert manifests.load({"s1": "f"}) == {}
    manifests.save(manifest())
    assert manifests.load(ALL) == {"s": manifest()}


def test_a_locked_file_is_left_alone_and_nothing_waits_for_it(
    path: Path, caplog: pytest.LogCaptureFixture
):
    first = ManifestStore(path)
    first.save(manifest())
    first.close()
    before = path.read_bytes()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    try:
        manifests = ManifestStore(path)
        assert manifests.load(ALL) == {}
    finally:
        holder.execute("rollback")
        holder.close()
    assert "locked" in caplog.text
    assert path.read_bytes() == before
    assert not aside(path).exists()
    assert ManifestStore(path).load(ALL) == {"s": manifest()}


def a_folder(path: Path) -> None:
    path.mkdir(parents=True)


def a_file_where_its_folder_should_be(path: Path) -> None:
    path.parent.write_text("a file")


@pytest.mark.parametrize("prepare", [a_folder, a_file_where_its_folder_should_be])
def test_where_no_file_can_be_memory_takes_its_place(
    path: Path, prepare: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    prepare(path)
    manifests = ManifestStore(path)
    manifests.save(manifest())
    assert manifests.load(ALL) == {"s": manifest()}
    assert "nothing will be remembered" in caplog.text


def test_a_closed_file_answers_nothing_and_is_not_set_aside(
    path: Path, caplog: pytest.LogCaptureFixture
):
    manifests = ManifestStore(path)
    manifests.save(manifest())
    manifests.close()
    manifests.save(manifest(tools=9))
    manifests.forget(["s"])
    assert manifests.load(ALL) == {}
    assert "closed database" in caplog.text
    assert ManifestStore(path).load(ALL) == {"s": manifest()}
