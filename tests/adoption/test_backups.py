"""A changed configuration is written whole or not at all, and can be given back as it was."""

import os
import stat
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from portico.adoption.backups import MAX_CHANGES, ConfigHistory, FileChange
from portico.errors import ConfigError

NOW = datetime(2026, 11, 16, 7, 30)
POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and links are POSIX's")


@pytest.fixture
def history(tmp_path: Path) -> ConfigHistory:
    return ConfigHistory(tmp_path / "data" / "changes")


def test_changes_are_undone_one_after_the_other_byte_for_byte(
    tmp_path: Path, history: ConfigHistory
) -> None:
    path = tmp_path / "portico.yaml"
    contents: list[bytes | None] = [None, b"one\r\n", b"two", b"three"]
    for index, (before, after) in enumerate(pairwise(contents)):
        assert after is not None
        history.write("add", [FileChange(path, before, after)], NOW + timedelta(seconds=index))
    for before in reversed(contents[:-1]):
        change = history.find_last([path])
        assert change is not None
        assert history.undo(change) == ()
        assert (path.read_bytes() if path.exists() else None) == before
    assert history.find_last([path]) is None
    assert not history.folder.exists()


@POSIX
def test_secrets_and_copies_are_for_their_owner_alone(
    tmp_path: Path, history: ConfigHistory
) -> None:
    path = tmp_path / "portico.yaml"
    old = tmp_path / "old.env"
    path.write_bytes(b"x")
    old.write_bytes(b"A=1\n")
    old.chmod(0o644)
    secret = FileChange(old, b"A=1\n", b"A=1\nB=2\n", is_secret=True)
    change = history.write("add", [secret, FileChange(path, b"x", b"y")], NOW)
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    modes = {stat.S_IMODE(copy.stat().st_mode) for copy in change.folder.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(change.folder.stat().st_mode) == 0o700
    assert history.undo(change) == ()
    assert (old.read_bytes(), path.read_bytes()) == (b"A=1\n", b"x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


@POSIX
def test_a_configuration_that_is_a_link_stays_one(tmp_path: Path, history: ConfigHistory) -> None:
    real = tmp_path / "dotfiles.yaml"
    link = tmp_path / "portico.yaml"
    real.write_bytes(b"old")
    link.symlink_to(real)
    change = history.write("add", [FileChange(link, b"old", b"new")], NOW)
    assert (real.read_bytes(), link.is_symlink()) == (b"new", True)
    assert change.config.copy is not None
    assert change.config.copy.read_bytes() == b"old"


def test_what_somebody_changed_since_is_not_written_over(
    tmp_path: Path, history: ConfigHistory
) -> None:
    path = tmp_path / "portico.yaml"
    path.write_bytes(b"old")
    change = history.write("add", [FileChange(path, b"old", b"new")], NOW)
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="changed after add"):
        history.undo(change)
    with pytest.raises(ConfigError):
        history.write("add", [FileChange(path, b"new", b"newer")], NOW)
    assert path.read_bytes() == b"mine"
    assert history.find_last([path]) == change


def test_an_env_file_that_somebody_changed_stays(tmp_path: Path, history: ConfigHistory) -> None:
    path = tmp_path / "portico.yaml"
    env = tmp_path / "portico.env"
    secret = FileChange(env, None, b"A=1\n", is_secret=True)
    change = history.write("add", [secret, FileChange(path, None, b"new")], NOW)
    env.write_bytes(b"A=2\n")
    assert history.undo(change) == (env,)
    assert (env.read_bytes(), path.exists()) == (b"A=2\n", False)


@POSIX
def test_a_read_only_configuration_is_left_as_it_is(tmp_path: Path, history: ConfigHistory) -> None:
    path = tmp_path / "portico.yaml"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        history.write("add", [FileChange(path, b"old", b"new")], NOW)
    assert path.read_bytes() == b"old"
    assert history.find_last([path]) is None


def test_only_the_newest_changes_are_kept(tmp_path: Path, history: ConfigHistory) -> None:
    path = tmp_path / "portico.yaml"
    before: bytes | None = None
    for index in range(MAX_CHANGES + 3):
        after = str(index).encode()
        history.write("add", [FileChange(path, before, after)], NOW + timedelta(seconds=index))
        before = after
    assert len(list(history.folder.iterdir())) == MAX_CHANGES


def test_a_damaged_record_is_passed_over(tmp_path: Path, history: ConfigHistory) -> None:
    path = tmp_path / "portico.yaml"
    change = history.write("add", [FileChange(path, None, b"new")], NOW)
    (change.folder / "record.json").write_text("{")
    assert history.find_last([path]) is None
