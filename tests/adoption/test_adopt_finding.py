"""Servers are found in the files of every client, as those files are: commented, marked, broken or
missing."""

import json
import os
from pathlib import Path

import pytest

from portico.adoption.clients import list_clients
from portico.adoption.discovery import FAST_PARSE_BYTES
from portico.errors import UnknownName

from .adopt_world import World

EVERY = {
    "azure", "build", "cloud", "context7", "docs", "figma", "filesystem", "github", "github-cursor", "linear",
    "my.server", "notes", "off", "old-shape", "perplexity", "postgres", "search", "sentry", "sqlite", "weather",
}  # fmt: skip


@pytest.fixture(params=["linux", "darwin", "win32"])
def anywhere(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, request.param)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_every_server_of_every_client_is_found_on_every_system(anywhere: World) -> None:
    anywhere.put_all()
    look = anywhere.look()
    assert not look.findings
    assert {origin.client for server in look.servers for origin in server.origins} == {
        one.name for one in list_clients()
    }
    assert set(anywhere.candidates()) == EVERY


def test_each_knows_its_file_and_line(world: World) -> None:
    world.put_all()
    places = {
        server.name: (at.title, at.file, at.line)
        for server in world.look().servers
        for at in server.origins
    }
    assert places["postgres"] == ("Cursor", os.path.join("~", ".cursor", "mcp.json"), 13)
    assert places["context7"] == ("Codex", os.path.join("~", ".codex", "config.toml"), 8)
    assert places["build"] == ("Claude Code", ".mcp.json", 3)


def test_portico_itself_is_left_out(world: World) -> None:
    world.put("cursor", json.dumps({"mcpServers": {
        "portico": {"command": "portico", "args": ["stdio"]},
        "tools": {"command": "/opt/bin/portico", "args": ["stdio", "--profile", "work"]},
        "door": {"url": "http://127.0.0.1:8420/mcp"},
        "other": {"url": "http://127.0.0.1:9000/mcp"},
    }}))  # fmt: skip
    found = world.candidates()
    assert {name: one.status for name, one in found.items()} == {"door": "unusable", "other": "new"}


def test_the_same_server_in_several_clients_is_one(world: World) -> None:
    world.put_all()
    found = world.candidates()
    assert [origin.client for origin in found["filesystem"].found_server.origins] == [
        "claude-desktop",
        "cursor",
    ]
    assert "files" not in found


def test_another_server_of_the_same_name_is_named_after_its_client(world: World) -> None:
    world.put_all()
    found = world.candidates()
    assert found["github"].secrets == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_notARealToken00000000000000000000"
    }
    assert found["github-cursor"].entry["env"] == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_CURSOR_GITHUB_PERSONAL_ACCESS_TOKEN}"
    }


def test_an_address_with_a_token_and_one_without_are_one_server_with_it(world: World) -> None:
    world.put("cursor", json.dumps({"mcpServers": {"hub": {"url": "https://hub.example/mcp"}}}))
    headers = {"Authorization": "Bearer not-a-real-one"}
    world.put(
        "gemini",
        json.dumps(
            {"mcpServers": {"hub": {"httpUrl": "https://hub.example/mcp/", "headers": headers}}}
        ),
    )
    (hub,) = world.candidates().values()
    assert hub.backend is not None
    assert hub.backend.headers == headers


def test_servers_of_a_project_are_started_where_they_were(world: World) -> None:
    world.put_all()
    found = world.candidates()
    assert found["build"].entry["command"] == str(world.cwd / "tools" / "build-server")
    assert found["build"].entry["cwd"] == found["notes"].entry["cwd"] == str(world.cwd)
    assert found["docs"].entry["cwd"] == str(world.cwd / "scripts")
    assert found["docs"].entry["args"] == [f"{world.cwd}/scripts/docs.js"]
    assert found["docs"].entry["env_file"] == str(world.cwd / ".env")
    assert "cwd" not in found["filesystem"].entry


def test_only_what_a_folder_brought_is_not_trusted(world: World) -> None:
    world.put_all()
    assert {name for name, one in world.candidates().items() if one.is_from_project} == {
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
def test_a_broken_file_is_told_with_its_line_and_costs_no_other_anything(
    world: World, text: str, line: int, words: str
) -> None:
    path = world.put("cursor", text)
    world.put("gemini", json.dumps({"mcpServers": {"fine": {"command": "x"}}}))
    look = world.look()
    assert [server.name for server in look.servers] == ["fine"]
    (finding,) = look.findings
    assert (finding.file, finding.line) == (os.path.join("~", ".cursor", "mcp.json"), line)
    assert words in finding.message
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "  \n", "{}", '{"mcpServers": {}}', '{"mcpServers": null}', '{"other": 1}']
)
def test_a_file_without_servers_is_nothing_to_speak_of(world: World, text: str) -> None:
    world.put("cursor", text)
    assert (world.look().servers, world.look().findings) == ((), ())


def test_broken_toml_is_told_with_its_line(world: World) -> None:
    world.put("codex", 'model = "m"\n[mcp_servers.a]\ncommand = npx\n')
    (finding,) = world.look().findings
    assert finding.line == 3
    assert "not TOML" in finding.message


def test_a_folder_in_the_place_of_a_file_is_told(world: World) -> None:
    world.path("cursor").mkdir(parents=True)
    (finding,) = world.look().findings
    assert "cannot be read" in finding.message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_told(world: World) -> None:
    world.put("cursor", "{}").chmod(0)
    (finding,) = world.look().findings
    assert "cannot be read" in finding.message


def test_a_read_only_file_is_read_and_left_as_it_is(world: World) -> None:
    path = world.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    path.chmod(0o444)
    before = path.stat()
    assert set(world.candidates()) == {"a"}
    assert (path.stat().st_mtime_ns, path.stat().st_mode) == (before.st_mtime_ns, before.st_mode)


def test_a_name_written_twice_is_told(world: World) -> None:
    world.put("cursor", '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}')
    assert "written twice" in world.look().findings[0].message


def test_an_entry_that_cannot_be_used_is_told_why(world: World) -> None:
    world.put(
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
    found = world.candidates()
    assert {name: one.status for name, one in found.items()} == dict.fromkeys("abc", "unusable")
    assert "carrier-pigeon" in found["a"].problem
    assert "neither command nor url" in found["b"].problem
    assert "expected a list" in found["c"].problem


def test_any_file_can_be_named_and_then_only_that_is_read(world: World) -> None:
    world.put_all()
    other = world.cwd / "elsewhere.yaml"
    other.write_text("mcpServers:\n  mine: {command: x}\n")
    assert set(world.candidates("elsewhere.yaml")) == {"mine"}
    assert set(world.candidates(str(other), "gemini")) == {"mine", "search"}
    assert set(world.candidates(str(world.path("codex")))) == {"context7", "my.server"}


def test_a_file_that_is_not_there_is_told_when_it_was_named(world: World) -> None:
    (finding,) = world.look("nowhere.json").findings
    assert "no such file" in finding.message
    with pytest.raises(UnknownName, match="neither a file nor a client"):
        world.look("curser")


def test_in_a_home_folder_its_own_file_is_no_project(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cwd = world.home
    world.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    (found,) = world.candidates().values()
    assert not found.is_from_project
    assert "cwd" not in found.entry


def test_a_file_with_a_long_history_is_read_as_well(world: World) -> None:
    history = ["a line of somebody's history"] * (FAST_PARSE_BYTES // 20)
    project = {"history": history, "mcpServers": {"here": {"command": "x"}}}
    world.put(
        "claude-code",
        json.dumps(
            {"projects": {str(world.cwd): project}, "mcpServers": {"there": {"command": "y"}}}
        ),
    )
    assert set(world.candidates()) == {"here", "there"}


@pytest.mark.skipif(os.name != "posix", reason="devices are files here only")
def test_a_project_that_leads_to_a_device_is_told_and_costs_nothing_else(world: World) -> None:
    endless = world.path("cursor", "project")
    endless.parent.mkdir(parents=True, exist_ok=True)
    endless.symlink_to("/dev/zero")
    world.put("claude-code", json.dumps({"mcpServers": {
        "endless": {"command": "x", "envFile": "/dev/zero"},
        "good": {"command": "y"},
    }}), "project")  # fmt: skip
    assert any("no ordinary file" in finding.message for finding in world.look().findings)
    found = world.candidates()
    assert "larger than" in found["endless"].problem
    assert (found["good"].status, found["good"].problem) == ("new", "")


def test_a_name_is_made_one_that_can_be_written_and_shown(world: World) -> None:
    world.put(
        "cursor",
        r'{"mcpServers": {"half \ud800": {"command": "x"}, "a\nNothing to do.\u001b[2J": {"command": "y"}}}',
    )
    found = world.candidates()
    assert {name: one.status for name, one in found.items()} == {
        "half \ufffd": "new",
        "a\ufffdNothing to do.\ufffd[2J": "new",
    }
    assert {server.command for server in world.files().loaded_config.servers.values()} == {"x", "y"}


def test_a_project_does_not_choose_where_a_servers_program_is_looked_for(world: World) -> None:
    entry = json.dumps(
        {"mcpServers": {"fetch": {"command": "npx", "args": ["-y", "fetch-server"]}}}
    )
    world.put("claude-code", entry, "project")
    assert world.candidates()["fetch"].entry["cwd"] == str(world.cwd)
    world.put("cursor", entry)
    one = world.candidates()["fetch"]
    assert len(one.found_server.origins) == 2
    assert "cwd" not in one.entry
