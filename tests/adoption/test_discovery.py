"""Servers are found in the files of every client, as those files are: commented, marked, broken or
missing."""

import json
import os
from pathlib import Path

import pytest

from portico.adoption.clients import list_clients
from portico.adoption.discovery import FAST_PARSE_BYTES
from portico.errors import UnknownName
from tests.adoption.client_files import ClientHome

EVERY = {
    "azure", "build", "cloud", "context7", "docs", "figma", "filesystem", "github", "github-cursor",
        "linear",
    "my_server", "notes", "off", "old-shape", "perplexity", "postgres", "search", "sentry",
        "sqlite", "weather",
}  # fmt: skip


@pytest.fixture(params=["linux", "darwin", "win32"])
def anywhere(tmp_path: Path, request: pytest.FixtureRequest) -> ClientHome:
    return ClientHome(tmp_path, request.param)


@pytest.fixture
def home(tmp_path: Path) -> ClientHome:
    return ClientHome(tmp_path)


def test_every_server_of_every_client_is_found_on_every_system(anywhere: ClientHome) -> None:
    anywhere.put_all()
    look = anywhere.discover()
    assert not look.findings
    assert {origin.client for server in look.servers for origin in server.origins} == {
        one.name for one in list_clients()
    }
    assert set(anywhere.candidates()) == EVERY


def test_each_server_has_its_file_and_line(home: ClientHome) -> None:
    home.put_all()
    places = {
        server.name: (at.title, at.file, at.line)
        for server in home.discover().servers
        for at in server.origins
    }
    assert places["postgres"] == ("Cursor", os.path.join("~", ".cursor", "mcp.json"), 13)
    assert places["context7"] == ("Codex", os.path.join("~", ".codex", "config.toml"), 8)
    assert places["build"] == ("Claude Code", ".mcp.json", 3)


def test_portico_itself_is_left_out(home: ClientHome) -> None:
    home.put("cursor", json.dumps({"mcpServers": {
        "portico": {"command": "portico", "args": ["stdio"]},
        "tools": {"command": "/opt/bin/portico", "args": ["stdio", "--profile", "work"]},
        "door": {"url": "http://127.0.0.1:8420/mcp"},
        "other": {"url": "http://127.0.0.1:9000/mcp"},
    }}))  # fmt: skip
    found = home.candidates()
    assert {name: one.status for name, one in found.items()} == {"door": "unusable", "other": "new"}


def test_the_same_server_in_several_clients_is_one(home: ClientHome) -> None:
    home.put_all()
    found = home.candidates()
    assert [origin.client for origin in found["filesystem"].found_server.origins] == [
        "claude-desktop",
        "cursor",
    ]
    assert "files" not in found


def test_another_server_of_the_same_name_is_named_after_its_client(home: ClientHome) -> None:
    home.put_all()
    found = home.candidates()
    assert found["github"].secrets == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_notARealToken00000000000000000000"
    }
    assert found["github-cursor"].entry["env"] == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_CURSOR_GITHUB_PERSONAL_ACCESS_TOKEN}"
    }


def test_an_address_with_a_token_and_one_without_are_one_server_with_it(home: ClientHome) -> None:
    home.put("cursor", json.dumps({"mcpServers": {"hub": {"url": "https://hub.example/mcp"}}}))
    headers = {"Authorization": "Bearer not-a-real-one"}
    home.put(
        "gemini",
        json.dumps(
            {"mcpServers": {"hub": {"httpUrl": "https://hub.example/mcp/", "headers": headers}}}
        ),
    )
    (hub,) = home.candidates().values()
    assert hub.backend is not None
    assert hub.backend.headers == headers


def test_servers_of_a_project_are_started_where_they_were(home: ClientHome) -> None:
    home.put_all()
    found = home.candidates()
    assert found["build"].entry["command"] == str(home.cwd / "tools" / "build-server")
    assert found["build"].entry["cwd"] == found["notes"].entry["cwd"] == str(home.cwd)
    assert found["docs"].entry["cwd"] == str(home.cwd / "scripts")
    assert found["docs"].entry["args"] == [f"{home.cwd}/scripts/docs.js"]
    assert found["docs"].entry["env_file"] == str(home.cwd / ".env")
    assert "cwd" not in found["filesystem"].entry


def test_only_servers_of_a_project_alone_are_untrusted(home: ClientHome) -> None:
    home.put_all()
    assert {name for name, one in home.candidates().items() if one.is_from_project} == {
        "build",
        "docs",
    }


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"mcpServers": {\n "a": {"command": "x"', 2, "not JSON"),
        ('{"mcpServers": {\n "a": 5}}', 2, "expected keys like command or url"),
        ('["mcpServers"]', 1, "expected keys and values"),
        ('{"mcpServers": 7}', 1, "expected a mapping"),
    ],
)
def test_a_broken_file_is_reported_with_its_line_and_does_not_affect_others(
    home: ClientHome, text: str, line: int, words: str
) -> None:
    path = home.put("cursor", text)
    home.put("gemini", json.dumps({"mcpServers": {"fine": {"command": "x"}}}))
    look = home.discover()
    assert [server.name for server in look.servers] == ["fine"]
    (finding,) = look.findings
    assert (finding.file, finding.line) == (os.path.join("~", ".cursor", "mcp.json"), line)
    assert words in finding.message
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "  \n", "{}", '{"mcpServers": {}}', '{"mcpServers": null}', '{"other": 1}']
)
def test_a_file_without_servers_is_not_reported(home: ClientHome, text: str) -> None:
    home.put("cursor", text)
    assert (home.discover().servers, home.discover().findings) == ((), ())


def test_broken_toml_is_reported_with_its_line(home: ClientHome) -> None:
    home.put("codex", 'model = "m"\n[mcp_servers.a]\ncommand = npx\n')
    (finding,) = home.discover().findings
    assert finding.line == 3
    assert "not TOML" in finding.message


def test_a_folder_in_place_of_a_file_is_reported(home: ClientHome) -> None:
    home.path("cursor").mkdir(parents=True)
    (finding,) = home.discover().findings
    assert "cannot be read" in finding.message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_reported(home: ClientHome) -> None:
    home.put("cursor", "{}").chmod(0)
    (finding,) = home.discover().findings
    assert "cannot be read" in finding.message


def test_a_read_only_file_is_read_and_left_as_it_is(home: ClientHome) -> None:
    path = home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    path.chmod(0o444)
    before = path.stat()
    assert set(home.candidates()) == {"a"}
    assert (path.stat().st_mtime_ns, path.stat().st_mode) == (before.st_mtime_ns, before.st_mode)


def test_a_duplicate_name_is_reported(home: ClientHome) -> None:
    home.put("cursor", '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}')
    assert "written twice" in home.discover().findings[0].message


def test_an_unusable_entry_is_reported_with_the_reason(home: ClientHome) -> None:
    home.put(
        "cursor",
        json.dumps(
            {
                "mcpServers": {
                    "a": {"type": "carrier-pigeon"},
                    "b": {},
                    "c": {"command": 3, "args": "x"},
                }
            }
        ),
    )
    found = home.candidates()
    assert {name: one.status for name, one in found.items()} == dict.fromkeys("abc", "unusable")
    assert "carrier-pigeon" in found["a"].problem
    assert "neither command nor url" in found["b"].problem
    assert "expected a list" in found["c"].problem


def test_any_file_can_be_named_and_then_only_that_is_read(home: ClientHome) -> None:
    home.put_all()
    other = home.cwd / "elsewhere.yaml"
    other.write_text("mcpServers:\n  mine: {command: x}\n")
    assert set(home.candidates("elsewhere.yaml")) == {"mine"}
    assert set(home.candidates(str(other), "gemini")) == {"mine", "search"}
    assert set(home.candidates(str(home.path("codex")))) == {"context7", "my_server"}


def test_a_missing_file_is_reported_if_it_was_named(home: ClientHome) -> None:
    (finding,) = home.discover("nowhere.json").findings
    assert "no such file" in finding.message
    with pytest.raises(UnknownName, match="neither a file nor a client"):
        home.discover("curser")


def test_in_a_home_folder_its_own_file_is_no_project(tmp_path: Path) -> None:
    home = ClientHome(tmp_path)
    home.cwd = home.home
    home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    (found,) = home.candidates().values()
    assert not found.is_from_project
    assert "cwd" not in found.entry


def test_a_file_with_a_long_history_is_read_as_well(home: ClientHome) -> None:
    history = ["a line of somebody's history"] * (FAST_PARSE_BYTES // 20)
    project = {"history": history, "mcpServers": {"here": {"command": "x"}}}
    home.put(
        "claude-code",
        json.dumps(
            {"projects": {str(home.cwd): project}, "mcpServers": {"there": {"command": "y"}}}
        ),
    )
    assert set(home.candidates()) == {"here", "there"}


@pytest.mark.skipif(os.name != "posix", reason="devices are files here only")
def test_a_project_link_to_a_device_is_reported_and_does_not_affect_others(
    home: ClientHome,
) -> None:
    endless = home.path("cursor", "project")
    endless.parent.mkdir(parents=True, exist_ok=True)
    endless.symlink_to("/dev/zero")
    home.put("claude-code", json.dumps({"mcpServers": {
        "endless": {"command": "x", "envFile": "/dev/zero"},
        "good": {"command": "y"},
    }}), "project")  # fmt: skip
    assert any("no ordinary file" in finding.message for finding in home.discover().findings)
    found = home.candidates()
    assert "larger than" in found["endless"].problem
    assert (found["good"].status, found["good"].problem) == ("new", "")


def test_a_name_is_made_printable(home: ClientHome) -> None:
    home.put(
        "cursor",
        r'{"mcpServers": {"half \ud800": {"command": "x"}, "a\nNothing to '
        r'do.\u001b[2J": {"command": "y"}}}',
    )
    found = home.candidates()
    assert {name: (one.status, one.entry["title"]) for name, one in found.items()} == {
        "half": ("new", "half \ufffd"),
        "aNothing_to_do_2J": ("new", "a\ufffdNothing to do.\ufffd[2J"),
    }
    assert {server.command for server in home.files().loaded_config.servers.values()} == {"x", "y"}


def test_a_project_does_not_choose_where_a_program_is_searched(home: ClientHome) -> None:
    entry = json.dumps(
        {"mcpServers": {"fetch": {"command": "npx", "args": ["-y", "fetch-server"]}}}
    )
    home.put("claude-code", entry, "project")
    assert home.candidates()["fetch"].entry["cwd"] == str(home.cwd)
    home.put("cursor", entry)
    one = home.candidates()["fetch"]
    assert len(one.found_server.origins) == 2
    assert "cwd" not in one.entry
