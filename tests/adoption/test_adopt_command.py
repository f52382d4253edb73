"""`portico adopt` as a person meets it: what it shows, asks, writes and says next."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.config_file import load
from tests.adoption.client_files import ClientHome
from tests.cli.conftest import CommandResult, Home
from tests.fixtures.counter import counter

NO_TABLE = {"TIKTOKEN_CACHE_DIR": ""}
PROGRAM, *ARGS = counter()
WORKS: dict[str, Any] = {"command": PROGRAM, "args": ARGS, "env": {"API_TOKEN": "not a real one"}}
MISSING: dict[str, Any] = {"command": "no-such-program-anywhere"}


class Person:
    """Somebody with clients, in a folder with a project."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.client_home = ClientHome(home.folder, sys.platform, {"APPDATA": str(home.folder)})
        self.config = home.folder / "made" / "portico.yaml"

    def has(self, client: str, servers: dict[str, Any], scope: str = "user") -> Path:
        return self.client_home.put(client, json.dumps({"mcpServers": servers}), scope)

    def adopts(self, *arguments: str, env: dict[str, str] | None = None) -> CommandResult:
        output = ("--output", str(self.config))
        return self.home.run("adopt", *output, *arguments, env={**NO_TABLE, **(env or {})})


@pytest.fixture
def person(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Person:
    return Person(Home(tmp_path, capfd))


def test_servers_that_fail_alike_are_named_in_one_line(person: Person) -> None:
    person.has("cursor", {"missing": MISSING, "gone": {**MISSING, "args": ["x"]}})
    ran = person.adopts("--yes")
    assert ran.out.count("did not start: ") == 1
    assert "missing, gone did not start: " in ran.out


def test_servers_are_started_counted_and_adopted(person: Person) -> None:
    person.has("cursor", {"works": WORKS, "missing": MISSING})
    person.has("gemini", {"same": WORKS})
    ran = person.adopts("--yes")
    assert ran.code == 0, ran.err
    rows = {line.split()[1]: line.split() for line in ran.out.splitlines() if line[:1].isdigit()}
    assert rows["works"][2] == "3"
    assert rows["works"][4:] == ["Cursor,", "Gemini", "CLI", "${API_TOKEN}"]
    assert rows["missing"][2:4] == ["?", "?"]
    assert "missing did not start: " in ran.out
    assert "Next: portico install cursor --config" in ran.out
    servers = load([person.config], environ={}, cwd=person.config.parent).config.servers
    assert set(servers) == {"works", "missing"}
    assert servers["works"].env == WORKS["env"]
    assert "not a real one" not in person.config.read_text()
    called = person.home.run("call", "works.count", "--config", str(person.config))
    assert called.code == 0, called.err


def test_a_second_run_reports_that_nothing_is_left(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    assert person.adopts("--yes", "--no-start").code == 0
    before = {path: path.read_bytes() for path in person.config.parent.iterdir()}
    again = person.adopts("--yes", "--no-start")
    assert again.code == 0
    assert "Nothing to do" in again.out
    assert {path: path.read_bytes() for path in person.config.parent.iterdir()} == before


def test_without_a_terminal_it_shows_the_plan_and_the_next_command(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    ran = person.adopts("--no-start")
    assert ran.code == 1
    assert "works" in ran.out
    assert "--yes" in ran.err
    assert not person.config.parent.exists()


def test_a_dry_run_shows_what_would_be_written(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    ran = person.adopts("--dry-run", "--no-start")
    assert ran.code == 0
    assert "API_TOKEN: ${API_TOKEN}" in ran.out
    assert "not a real one" not in ran.out + ran.err
    assert not person.config.parent.exists()


def test_json_output_is_complete(person: Person) -> None:
    person.has("cursor", {"works": WORKS, "other": MISSING, "odd": {"type": "pigeon"}})
    data = person.adopts("--yes", "--json", "--except", "other", "--no-start").data
    assert data.keys() == {
        "config", "env_file", "written", "backup", "counter", "servers", "tokens", "findings",
            "addition", "next", "other_projects"
    }  # fmt: skip
    assert data["written"] is True
    assert data["env_file"] == str(person.config.with_name("portico.env"))
    assert {one["name"]: (one["standing"], one["chosen"]) for one in data["servers"]} == {
        "works": ("new", True),
        "odd": ("unusable", False),
    }
    assert data["servers"][0]["secrets"] == ["API_TOKEN"]
    assert data["servers"][0]["from"][0]["client"] == "cursor"


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_secrets_are_written_for_their_owner_alone(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    person.adopts("--yes", "--no-start")
    assert stat.S_IMODE(person.config.with_name("portico.env").stat().st_mode) == 0o600


def test_what_is_there_already_is_kept_with_a_backup(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_text("# mine\nexposure: full\nservers:\n  old: {command: x}\n")
    person.has("cursor", {"works": WORKS})
    data = person.adopts("--yes", "--json", "--no-start").data
    assert (
        Path(data["backup"]).read_text()
        == "# mine\nexposure: full\nservers:\n  old: {command: x}\n"
    )
    config = load([person.config], environ={}, cwd=person.config.parent).config
    assert (set(config.servers), config.exposure) == ({"old", "works"}, "full")
    assert person.config.read_text().startswith("# mine\nexposure: full\n")


def test_what_cannot_be_added_to_is_shown_instead(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_text("x-s: &s {old: {command: x}}\nservers: *s\n")
    person.has("cursor", {"works": WORKS})
    ran = person.adopts("--yes", "--no-start")
    assert ran.code == 1
    assert "cannot be added to" in ran.err
    assert "  works:" in ran.out
    assert person.config.read_text() == "x-s: &s {old: {command: x}}\nservers: *s\n"


def test_a_broken_configuration_is_refused_with_its_line(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_text("servers:\n  old: {comand: x}\n")
    person.has("cursor", {"works": WORKS})
    ran = person.adopts("--yes", "--no-start")
    assert ran.code == 2
    assert ":2:" in ran.err


def test_servers_of_a_project_are_not_started_without_consent(
    person: Person, tmp_path: Path
) -> None:
    mark = tmp_path / "started"
    script = f"open({str(mark)!r}, 'w').close()"
    brought = {"command": sys.executable, "args": ["-c", script]}
    (person.home.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"brought": brought}}))
    ran = person.adopts()
    assert ran.code == 1
    assert "Not started before you choose, because this folder brought them: brought" in ran.out
    assert not mark.exists()
    assert person.adopts("--yes").code == 0
    assert mark.exists()


def test_nothing_to_adopt_is_reported_with_advice(person: Person) -> None:
    ran = person.adopts()
    assert ran.code == 1
    assert "--from FILE" in ran.err


def test_a_name_that_nobody_has_gets_the_nearest(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    ran = person.adopts("--only", "wroks")
    assert ran.code == 1
    assert "Did you mean works?" in ran.err


def test_a_broken_file_is_reported_and_not_changed(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    broken = person.client_home.put("gemini", '{"mcpServers": {\n')
    ran = person.adopts("--yes", "--no-start")
    assert ran.code == 0
    assert "settings.json:2: not JSON" in ran.err
    assert broken.read_text() == '{"mcpServers": {\n'


def test_it_is_written_where_any_client_finds_it(person: Person) -> None:
    person.has("cursor", {"works": WORKS})
    data = person.home.run("adopt", "--yes", "--json", "--no-start", env=NO_TABLE).data
    path = Path(data["config"])
    assert path.is_relative_to(person.home.folder)
    assert data["next"] == ["portico install cursor"]
    shown = person.home.run("config", "--json")
    assert set(
        shown.data["config"]["servers"] if "config" in shown.data else shown.data["servers"]
    ) == {"works"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_person_at_a_terminal_chooses(person: Person) -> None:
    import pty
    import subprocess

    from tests.cli.conftest import TIMEOUT_S, command

    person.has(
        "cursor", {"one": {"command": "x"}, "two": {"command": "y"}, "three": {"command": "z"}}
    )
    ours, theirs = pty.openpty()
    arguments = [*command(), "adopt", "--no-start", "--output", str(person.config)]
    process = subprocess.Popen(
        arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=person.home.folder,
        env=person.home.environment,
    )
    os.close(theirs)
    os.write(ours, b"nonsense\n-2\n")
    sent = b""
    try:
        while chunk := os.read(ours, 65_536):
            sent += chunk
    except OSError:
        pass  # Linux says the end as an error
    os.close(ours)
    assert process.wait(TIMEOUT_S) == 0, sent
    assert b"Numbers from 1 to 3 or names, please" in sent
    assert set(load([person.config], environ={}).config.servers) == {"one", "three"}
