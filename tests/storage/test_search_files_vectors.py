"""Vector file: stored vectors are found, and damaged records are skipped."""

import errno
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from portico.storage.search_files import VectorFile

WIDTH = 8
RECORD = 16 + WIDTH + 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "vectors.bin"


def key(number: int) -> str:
    return f"{number:016x}"


def vector(number: int) -> NDArray[np.int8]:
    return np.full(WIDTH, number % 100 + 1, dtype=np.int8)


def vectors(*numbers: int) -> dict[str, NDArray[np.int8]]:
    return {key(number): vector(number) for number in numbers}


def kept(path: Path, *numbers: int) -> list[int]:
    """Which of these are found, each as it was."""
    found = VectorFile(path, WIDTH).find(map(key, numbers))
    for name, row in found.items():
        assert np.array_equal(row, vector(int(name, 16)))
    return sorted(int(name, 16) for name in found)


# Keeping


def test_what_was_added_is_found_by_another(path: Path):
    VectorFile(path, WIDTH).add(vectors(1, 2))
    VectorFile(path, WIDTH).add(vectors(3))
    assert kept(path, 1, 2, 3, 4) == [1, 2, 3]
    assert kept(path, 2) == [2]
    assert VectorFile(path, WIDTH).find([]) == {}


def test_a_new_file_knows_nothing(path: Path, caplog: pytest.LogCaptureFixture):
    assert kept(path, 1) == []
    assert not path.exists()
    assert caplog.text == ""


def test_without_a_path_nothing_is_kept():
    nowhere = VectorFile(None, WIDTH)
    nowhere.add(vectors(1))
    assert nowhere.find([key(1)]) == {}


def test_adding_nothing_makes_no_file(path: Path):
    VectorFile(path, WIDTH).add({})
    assert not path.exists()


def test_a_key_that_is_added_again_is_found_once_with_its_last_vector(path: Path):
    file = VectorFile(path, WIDTH)
    file.add({key(1): vector(7)})
    file.add(vectors(1))
    assert kept(path, 1) == [1]


def test_keys_that_end_in_zeros_or_are_alike_are_distinguished(path: Path):
    numbers = (0, 0x10, 0x1000000000000000, 0xFFFFFFFFFFFFFFF0)
    VectorFile(path, WIDTH).add(vectors(*numbers))
    assert kept(path, *numbers, 0x100) == sorted(numbers)


def test_what_was_found_stays_good_when_the_file_goes(path: Path):
    VectorFile(path, WIDTH).add(vectors(1))
    found = VectorFile(path, WIDTH).find([key(1)])
    path.unlink()
    assert np.array_equal(found[key(1)], vector(1))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_nobody_else_may_read_the_file(path: Path):
    VectorFile(path, WIDTH).add(vectors(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_would_grow_too_large_keeps_its_newer_half(path: Path):
    file = VectorFile(path, WIDTH, limit=5)
    file.add(vectors(1, 2, 3))
    file.add(vectors(4, 5))
    assert kept(path, 1, 2, 3, 4, 5) == [1, 2, 3, 4, 5]
    file.add(vectors(6))
    assert kept(path, 1, 2, 3, 4, 5, 6) == [4, 5, 6]
    assert path.stat().st_size == 3 * RECORD
    file.add(vectors(7, 8))
    file.add(vectors(9))
    assert kept(path, *range(10)) == [7, 8, 9]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_file_that_was_halved_is_still_nobody_else_s(path: Path):
    file = VectorFile(path, WIDTH, limit=2)
    file.add(vectors(1, 2))
    file.add(vectors(3))
    assert kept(path, 1, 2, 3) == [2, 3]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_more_at_once_than_the_limit_is_kept_all_the_same(path: Path):
    VectorFile(path, WIDTH, limit=2).add(vectors(*range(10)))
    assert kept(path, *range(10)) == list(range(10))


# Damage


@pytest.mark.parametrize("lost", [1, 4, RECORD - 1, RECORD, RECORD + 3])
def test_a_torn_tail_costs_only_what_was_torn_and_what_follows_is_found(path: Path, lost: int):
    VectorFile(path, WIDTH).add(vectors(1, 2, 3))
    os.truncate(path, 3 * RECORD - lost)
    whole = [1, 2] if lost <= RECORD else [1]
    assert kept(path, 1, 2, 3) == whole
    VectorFile(path, WIDTH).add(vectors(4))
    VectorFile(path, WIDTH).add(vectors(5))
    assert kept(path, 1, 2, 3, 4, 5) == [*whole, 4, 5]


@pytest.mark.parametrize("at", [0, 5, 16, 20, 24, 27], ids=lambda at: f"byte {at}")
def test_a_record_that_does_not_fit_its_checksum_is_not_there(path: Path, at: int):
    VectorFile(path, WIDTH).add(vectors(1, 2, 3))
    body = bytearray(path.read_bytes())
    body[RECORD + at] ^= 0xFF
    path.write_bytes(body)
    assert kept(path, 1, 2, 3) == [1, 3]


def test_a_record_that_is_damaged_is_added_again(path: Path):
    VectorFile(path, WIDTH).add(vectors(1))
    body = bytearray(path.read_bytes())
    body[20] ^= 0xFF
    path.write_bytes(body)
    VectorFile(path, WIDTH).add(vectors(1))
    assert kept(path, 1) == [1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"\0" * 1_000,
        b"SQLite format 3\0" * 50,
        bytes(range(256)) * 10,
        key(1).encode() * 100,
    ],
    ids=["empty", "one byte", "zeros", "a database", "binary", "keys"],
)
def test_foreign_bytes_are_no_vectors_and_in_nobody_s_way(path: Path, content: bytes):
    path.parent.mkdir()
    path.write_bytes(content)
    assert kept(path, 0, 1) == []
    VectorFile(path, WIDTH).add(vectors(1))
    assert kept(path, 0, 1) == [1]


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
        VectorFile(path, WIDTH).add(vectors(1))
        assert kept(path, 1) == []
    assert "cannot be kept" in caplog.text


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not hold back this user"
)
def test_a_folder_that_may_not_be_read_keeps_nothing(path: Path, caplog: pytest.LogCaptureFixture):
    VectorFile(path, WIDTH).add(vectors(1))
    path.parent.chmod(0)
    try:
        assert kept(path, 1) == []
        VectorFile(path, WIDTH).add(vectors(2))
    finally:
        path.parent.chmod(0o700)
    assert "cannot be read" in caplog.text
    assert "cannot be kept" in caplog.text


def a_disk_that_takes(monkeypatch: pytest.MonkeyPatch, *portions: int) -> None:
    """Each write takes this many bytes; after the last, the disk is full."""
    write, left = os.write, list(portions)

    def partly(handle: int, body: memoryview) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, body[: left.pop(0)])

    monkeypatch.setattr(os, "write", partly)


def test_what_a_disk_takes_in_portions_is_kept_whole(path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        a_disk_that_takes(patch, 5, RECORD, 1, 3 * RECORD)
        VectorFile(path, WIDTH).add(vectors(1, 2, 3))
    assert kept(path, 1, 2, 3) == [1, 2, 3]
    assert path.stat().st_size == 3 * RECORD


def test_a_full_disk_keeps_whole_records_and_is_said_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    file = VectorFile(path, WIDTH)
    file.add(vectors(1))
    with monkeypatch.context() as patch:
        a_disk_that_takes(patch, RECORD + 5)
        for first in (2, 4, 6):
            file.add(vectors(first, first + 1))
    assert path.stat().st_size == 2 * RECORD
    assert kept(path, 1, 2, 3, 4) == [1, 2]
    assert caplog.text.count("cannot be kept") == 1
    file.add(vectors(8))
    assert kept(path, 1, 2, 3, 8) == [1, 2, 8]


def test_a_full_disk_costs_no_vector_when_the_file_is_halved(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    file = VectorFile(path, WIDTH, limit=4)
    file.add(vectors(1, 2, 3, 4))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        file.add(vectors(5))
        file.add(vectors(6))
    assert caplog.text.count("cannot be kept") == 1
    assert kept(path, 1, 2, 3, 4, 5) == [1, 2, 3, 4]
    assert list(path.parent.iterdir()) == [path]


# Several gateways


_WRITER = """
import sys
from pathlib import Path
import numpy as np
from portico.storage.search_files import VectorFile
path, width, first = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
file = VectorFile(path, width)
sys.stdin.readline()
for start in range(first, first + 200, 20):
    file.add({f"{n:016x}": np.full(width, n % 100 + 1, dtype=np.int8) for n in range(start, start + 20)})
"""  # noqa: E501


def test_several_processes_append_and_nothing_is_lost(path: Path):
    writers: list[subprocess.Popen[Any]] = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(WIDTH), str(number * 1_000)],
            stdin=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=240)
        assert writer.returncode == 0
    wanted = [number * 1_000 + at for number in range(4) for at in range(200)]
    assert kept(path, *wanted) == wanted
    assert path.stat().st_size == len(wanted) * RECORD


def test_a_file_that_is_halved_while_another_reads_it_serves_both(path: Path):
    reader = VectorFile(path, WIDTH)
    VectorFile(path, WIDTH).add(vectors(1, 2))
    assert set(reader.find([key(1), key(2)])) == {key(1), key(2)}
    VectorFile(path, WIDTH, limit=2).add(vectors(3))
    assert set(reader.find([key(1), key(3)])) == {key(3)}
