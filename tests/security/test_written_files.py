"""Files of `adopt`, `install` and `uninstall`: no shell code, nothing through a foreign link."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from portico.adoption.backups import ConfigHistory, FileChange
from portico.adoption.secret_extraction import render_env_line
from portico.config_file import load
from portico.config_file.placeholders import parse_env_file
from portico.errors import ConfigError
from tests.adoption.test_backups import NOW
from tests.cli.conftest import CommandResult, Home

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="shells, links and owners are POSIX's"
)
AS_ROOT = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files away"
)
STRANGER = 65_534
HOSTILE = (
    "$(touch ran)",
    "`touch ran`",
    "'$(touch ran)'",
    "'; touch ran; '",
    '"; touch ran; "',
    "it's $(touch ran)",
    "it's `touch ran`",
    "it's ${HOME} and $HOME",
    "two\nlines; touch ran",
    "it's\n$(touch ran)\n",
    "\\'$(touch ran)",
    "'\\\\\\",
    "'\\\n$(touch ran)",
    "a\rb'\r\n",
    "\t'\t",
    "~/x",
    "a b # c",
    "'!ls !$",
    "=x\nB=y",
    "",
)


def source_variable(folder: Path, text: str, name: str) -> str:
    """The value of a variable in a shell that has read a file."""
    (folder / "some.env").write_bytes(text.encode())
    shell = shutil.which("sh")
    assert shell is not None
    script = f'set -a; . ./some.env; printf %s "${name}"'
    ended = subprocess.run(
        [shell, "-c", script], cwd=folder, capture_output=True, timeout=240, check=True, env={}
    )
    assert ended.stderr == b""
    return ended.stdout.decode()


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_a_shell_that_reads_the_env_file_expands_and_runs_nothing(
    tmp_path: Path, value: str
) -> None:
    text = "BEFORE=1\n" + render_env_line("SECRET", value) + "AFTER='2'\n"
    assert source_variable(tmp_path, text, "SECRET") == value
    assert not (tmp_path / "ran").exists()
    assert parse_env_file(text) == ({"BEFORE": "1", "SECRET": value, "AFTER": "2"}, [])


@given(
    st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"])
        | st.sampled_from("'\"\\$`\n\r #=!~ab")
    )
)
@example("'\u2028\x85")
@example("\"'\\")
def test_every_text_reads_back_as_it_was_here(value: str) -> None:
    assert parse_env_file(render_env_line("A", value) + render_env_line("B", value)) == (
        {"A": value, "B": value},
        [],
    )


def test_generated_texts_read_back_as_they_were_in_a_shell(tmp_path: Path) -> None:
    import random

    chance = random.Random(14)
    values = [
        "".join(chance.choices("'\"\\$`(){}\n\r\t #=!~;&|*ab", k=chance.randrange(1, 12)))
        for _ in range(500)
    ]
    text = "".join(render_env_line(f"V{number}", value) for number, value in enumerate(values))
    (tmp_path / "some.env").write_bytes(text.encode())
    printed = "; ".join(f'printf "%s\\0" "$V{number}"' for number in range(len(values)))
    ended = subprocess.run(
        ["sh", "-c", f"set -a; . ./some.env; {printed}"],
        cwd=tmp_path,
        capture_output=True,
        timeout=240,
        check=True,
    )
    assert ended.stdout.decode().split("\0")[:-1] == values
    assert [*parse_env_file(text)[0].values()] == values


class Person:
    """Somebody with one server in Cursor, whose folder for a configuration is a stranger's gift."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.home = Home(folder, captured)
        self.gift = folder / "gift"
        self.gift.mkdir()
        self.cursor = folder / ".cursor" / "mcp.json"
        self.cursor.parent.mkdir()
        server = {"command": "x", "env": {"API_TOKEN": "it's $(touch ran)"}}
        self.cursor.write_text(json.dumps({"mcpServers": {"x": server}}))

    def adopts(self) -> CommandResult:
        output = str(self.gift / "portico.yaml")
        return self.home.run(
            "adopt", "--output", output, "--yes", "--no-start", env={"TIKTOKEN_CACHE_DIR": ""}
        )

    def installs(self, *more: str) -> CommandResult:
        (self.home.folder / "portico.yaml").write_text("servers: {}\n")
        return self.home.run("install", "cursor", "--config", "portico.yaml", "--write", *more)


@pytest.fixture
def person(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Person:
    return Person(tmp_path, capfd)


def test_adopting_writes_an_env_file_that_a_shell_can_read_safely(person: Person) -> None:
    assert person.adopts().code == 0
    text = (person.gift / "portico.env").read_text()
    assert source_variable(person.gift, text, "API_TOKEN") == "it's $(touch ran)"
    assert not (person.gift / "ran").exists()
    loaded = load([person.gift / "portico.yaml"], environ={}, cwd=person.gift)
    assert loaded.config.servers["x"].env == {"API_TOKEN": "it's $(touch ran)"}


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_secrets_are_not_written_through_a_link(person: Person, there: bool) -> None:
    victim = person.home.folder / ".profile"
    if there:
        victim.write_text("# mine\n")
        victim.chmod(0o644)
    (person.gift / "portico.env").symlink_to(victim)
    ran = person.adopts()
    assert ran.code != 0
    assert "is a link" in ran.err
    assert victim.exists() == there
    if there:
        assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("# mine\n", 0o644)
    assert sorted(path.name for path in person.gift.iterdir()) == ["portico.env"]


def test_nothing_is_written_where_others_could_replace_it(person: Person) -> None:
    person.gift.chmod(0o777)
    ran = person.adopts()
    assert ran.code != 0
    assert f"chmod go-w {person.gift}" in ran.err
    assert not [*person.gift.iterdir()]


def test_a_copy_of_a_client_s_file_is_not_written_through_a_link(person: Person) -> None:
    assert person.installs().code == 0
    (copy,) = (person.home.folder / "data" / "clients").glob("*/before")
    victim = person.home.folder / "victim"
    victim.write_text("mine")
    copy.unlink()
    copy.symlink_to(victim)
    person.cursor.write_text(person.cursor.read_text().replace("x", "y"))
    ran = person.installs("--exposure", "full")
    assert ran.code != 0
    assert "is a link" in ran.err
    assert victim.read_text() == "mine"


def test_a_client_s_own_file_that_is_a_link_stays_one_and_its_file_is_changed(
    person: Person,
) -> None:
    real = person.home.folder / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    person.cursor.rename(real)
    person.cursor.symlink_to(real)
    assert person.installs().code == 0
    assert person.cursor.is_symlink()
    assert "portico" in json.loads(real.read_text())["mcpServers"]
    assert [*real.parent.iterdir()] == [real]


@pytest.mark.parametrize("weak", ["file", "folder"])
def test_a_link_to_what_others_can_write_is_not_followed(person: Person, weak: str) -> None:
    real = person.home.folder / "shared" / "mcp.json"
    real.parent.mkdir()
    person.cursor.rename(real)
    person.cursor.symlink_to(real)
    (real if weak == "file" else real.parent).chmod(0o777)
    before = real.read_bytes()
    ran = person.installs()
    assert ran.code != 0
    assert "link, which is not followed" in ran.err
    assert (real.read_bytes(), [*real.parent.iterdir()]) == (before, [real])


@AS_ROOT
@pytest.mark.parametrize("foreign", ["link", "file"])
def test_a_link_or_a_file_of_somebody_else_is_not_followed(person: Person, foreign: str) -> None:
    real = person.home.folder / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    person.cursor.rename(real)
    person.cursor.symlink_to(real)
    os.chown(
        person.cursor if foreign == "link" else real, STRANGER, STRANGER, follow_symlinks=False
    )
    before = real.read_bytes()
    ran = person.installs()
    assert ran.code != 0
    assert f"belongs to another user (uid {STRANGER})" in ran.err
    assert real.read_bytes() == before


def test_a_link_that_comes_between_reading_and_writing_is_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "portico.env", tmp_path / "victim"
    victim.write_text("A=1\n")
    path.symlink_to(victim)
    secret = FileChange(path, b"A=1\n", b"B=2\n", is_secret=True)
    history = ConfigHistory(tmp_path / "changes")
    with pytest.raises(ConfigError, match="is a link"):
        history.write("add", [secret], NOW)
    assert victim.read_text() == "A=1\n"


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(person: Person) -> None:
    person.cursor.unlink()
    os.mkfifo(person.cursor)
    ran: Any = person.installs()
    assert ran.code != 0
    assert "no ordinary file" in ran.err
