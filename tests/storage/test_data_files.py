"""Restart requests reach every gateway of a data directory."""

import os
import sys
from pathlib import Path

import pytest

from portico.storage.data_files import list_restart_requests, request_restart


def test_what_was_marked_since_is_named_with_when(tmp_path: Path):
    folder = tmp_path / "data" / "restart"
    assert list_restart_requests(folder, 0) == {}, "nobody ever said anything"
    at = request_restart(folder, "git")
    os.utime(folder / "git", (at - 100, at - 100))
    mail = request_restart(folder, "mail")
    assert list_restart_requests(folder, at - 50) == {"mail": mail}
    assert list_restart_requests(folder, at - 200).keys() == {"git", "mail"}
    again = request_restart(folder, "git")
    assert list_restart_requests(folder, at - 50)["git"] == again


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_only_its_owner_may_look_into_the_folder(tmp_path: Path):
    request_restart(tmp_path / "restart", "git")
    assert (tmp_path / "restart").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["", "../git", "a/b", "a.b", "x" * 65, "nul\0"])
def test_a_name_that_is_no_servers_marks_nothing(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="is no server's name"):
        request_restart(tmp_path / "restart", name)
    assert not (tmp_path / "restart").exists()


def test_what_is_no_request_is_ignored(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / ".hidden").touch()
    (tmp_path / "link").symlink_to("/")
    assert list_restart_requests(tmp_path, 0) == {}
