"""Audit log on disk: whole lines from any number of writers, rotation, retention."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from portico.storage.audit_file import AuditFile, iter_lines_backwards
from portico.storage.data_files import load_or_create_key

TIMEOUT_S = 240
WRITER = """
import sys
from pathlib import Path
from portico.storage.audit_file import AuditFile

file = AuditFile(Path(sys.argv[1]), max_bytes=20_000, files=100)
sys.stdin.read(1)
for number in range(1_000):
    file.append(f"{sys.argv[2]}-{number} {'x' * (number % 90)}\\n".encode())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "audit.jsonl"


def read(path: Path) -> list[bytes]:
    return list(iter_lines_backwards(path, 100))[::-1]


def test_nothing_is_made_before_the_first_line(path: Path) -> None:
    file = AuditFile(path, max_bytes=1_000, files=3)
    assert not path.parent.exists()
    assert read(path) == []
    file.append(b"one\n")
    assert path.read_bytes() == b"one\n"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_only_its_owner_can_read_it(path: Path) -> None:
    AuditFile(path, max_bytes=1_000, files=3).append(b"one\n")
    load_or_create_key(path.with_name("key"))
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.with_name("key"))] == [
        0o600,
        0o600,
    ]


def test_a_full_file_is_followed_by_another_and_the_oldest_goes(path: Path) -> None:
    file = AuditFile(path, max_bytes=100, files=3)
    lines = [f"{number:049}\n".encode() for number in range(10)]
    for line in lines:
        file.append(line)
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
    ]
    assert read(path) == [line.rstrip() for line in lines[4:]]


def test_one_file_is_recreated_where_no_other_is_kept(path: Path) -> None:
    file = AuditFile(path, max_bytes=10, files=1)
    for line in (b"first\n", b"second\n"):
        file.append(line)
    assert [one.name for one in path.parent.iterdir()] == ["audit.jsonl"]
    assert path.read_bytes() == b"second\n"


def test_a_line_larger_than_a_file_is_still_written(path: Path) -> None:
    file = AuditFile(path, max_bytes=10, files=3)
    file.append(b"x" * 50 + b"\n")
    file.append(b"y\n")
    assert read(path) == [b"x" * 50, b"y"]


def test_a_line_that_was_cut_short_spoils_no_other(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'whole\n{"cut')
    AuditFile(path, max_bytes=1_000, files=3).append(b"next\n")
    assert path.read_bytes() == b'whole\n{"cut\nnext\n'


def test_a_file_that_was_taken_away_is_begun_again(path: Path) -> None:
    file = AuditFile(path, max_bytes=1_000, files=3)
    file.append(b"one\n")
    path.rename(path.with_name("elsewhere"))
    file.append(b"two\n")
    assert path.read_bytes() == b"two\n"


def test_lines_are_read_backwards_across_blocks(path: Path) -> None:
    file = AuditFile(path, max_bytes=10**9, files=1)
    lines = [f"{number} {'x' * (number % 3_000)}".encode() for number in range(300)]
    for line in lines:
        file.append(line + b"\n")
    assert list(iter_lines_backwards(path, 1)) == lines[::-1]


def test_processes_that_write_and_turn_over_together_lose_and_mix_nothing(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE)
        for name in "abc"
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"!")
        writer.stdin.close()
    assert [writer.wait(TIMEOUT_S) for writer in writers] == [0, 0, 0]
    assert path.with_name("audit.jsonl.1").exists()
    wanted = {
        f"{name}-{number} {'x' * (number % 90)}".encode().rstrip()
        for name in "abc"
        for number in range(1_000)
    }
    lines = [line.rstrip() for line in read(path)]
    assert len(lines) == 3_000
    assert set(lines) == wanted


def test_a_key_is_made_once_and_one_that_is_none_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    key = load_or_create_key(path)
    assert len(key) == 32
    assert load_or_create_key(path) == key
    path.write_bytes(b"not a key")
    assert load_or_create_key(path) not in (key, b"not a key")
    assert [one.name for one in path.parent.iterdir()] == ["key"]
