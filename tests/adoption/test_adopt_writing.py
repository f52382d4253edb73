"""What is written: a new configuration, or an old one with new servers in it and every byte of its
own still there."""

import json
import os
import stat
import textwrap
from datetime import datetime
from pathlib import Path

import pytest

from portico.adoption.adoption_plan import filter_candidates
from portico.adoption.config_writer import write_config, write_secrets
from portico.adoption.selection import parse_selection
from portico.adoption.yaml_editor import insert_servers
from portico.config_file.tree_reader import read_tree
from portico.errors import ConfigError

from .adopt_world import World

NOW = datetime(2026, 11, 16, 7, 30)
NEW = {"hub": {"command": "npx", "args": ["-y", "hub"], "env": {"TOKEN": "${TOKEN}"}}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def written(text: str, env_file: str | None = None) -> str | None:
    data = insert_servers(
        textwrap.dedent(text).lstrip("\n").encode(), NEW, {"hub": "from Cursor"}, env_file
    )
    return data.decode() if data is not None else None


def test_new_servers_stand_below_the_old_ones_in_their_indentation() -> None:
    assert written("""
        # mine
        servers:
            old:   # keep
                command: x

            # about the last one
            other: {url: 'https://x.example'}   # and this

        # the door
        gateway:
            port: 9000
    """) == textwrap.dedent("""\
        # mine
        servers:
            old:   # keep
                command: x

            # about the last one
            other: {url: 'https://x.example'}   # and this
            # from Cursor
            hub:
              command: npx
              args: [-y, hub]
              env:
                TOKEN: ${TOKEN}

        # the door
        gateway:
            port: 9000
    """)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but this\n",
        "servers:\n",
        "servers: {}\n",
        "servers: {}   # none yet\nexposure: full\n",
        "exposure: full\nservers:\n# end\n",
        "servers: null",
        "exposure: full",
        "exposure: full\n\n\n",
        "servers:\n  a: {command: x}",
        "servers:\n  a:\n    command: x\n    description: |\n      one\n      two\n",
        "servers:\n  a:\n    command: x\n    args:\n    - one\n    - two\nexposure: full\n",
        "servers:\n  a:\n    command: x\n    args: [one,\n      two]\n# after\n",
        "x-base: &base {command: x}\nservers:\n  a:\n    <<: *base\n",
        "---\nservers:\n  a: {command: x}\n",
        "mcpServers:\n  a: {command: x}\n",
        "servers:\r\n  a:\r\n    command: x\r\nexposure: full\r\n",
        "\ufeffservers:\n  a: {command: x}\n",
        "'servers':\n    a:\n        command: x\n        title: 'two\n          lines'\n",
    ],
)
def test_what_was_there_is_still_there_line_by_line(text: str) -> None:
    changed = written(text, "portico.env")
    assert changed is not None
    root, findings = read_tree(changed.encode(), "portico.yaml")
    assert findings == []
    assert root is not None
    assert root.entries is not None
    servers = root.entries["servers"].entries
    assert servers is not None
    assert "hub" in servers
    assert root.entries["env_file"].value == "portico.env"
    kept = [line for line in changed.splitlines() if line.strip()]
    missing = [
        line for line in text.lstrip("\ufeff").splitlines() if line.strip() and line not in kept
    ]
    assert all(line.startswith("servers: ") for line in missing)
    assert ("\r\n" in text) == ("\r\n" in changed)
    assert "\r\n" not in text or "\n" not in changed.replace("\r\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "{servers: {a: {command: x}}}",
        "servers: {a: {command: x}}\n",
        "x: &s {a: {command: x}}\nservers: *s\n",
        "- a\n",
    ],
)
def test_what_cannot_be_added_to_safely_is_not_touched(text: str) -> None:
    assert written(text) is None


def test_adopting_twice_changes_nothing(world: World) -> None:
    world.environ = {"SENTRY_TOKEN": "st"}
    world.put_all()
    files = world.write()
    before = (world.config.read_bytes(), files.env_path.read_bytes())
    assert {one.status for one in world.candidates().values()} == {"present"}
    again = world.write()
    assert (world.config.read_bytes(), files.env_path.read_bytes()) == before
    assert again.env is None


def test_adopting_twice_changes_nothing_when_the_environment_has_changed(world: World) -> None:
    world.put_all()
    world.write()
    world.environ = {"GITHUB_PERSONAL_ACCESS_TOKEN": "another one", "SENTRY_TOKEN": "now set"}
    assert {one.status for one in world.candidates().values()} <= {"present", "differs"}


def test_a_new_server_is_added_to_what_was_adopted(world: World) -> None:
    world.put(
        "cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "one"}}}})
    )
    world.write()
    first = world.config.read_text()
    world.put(
        "gemini", json.dumps({"mcpServers": {"b": {"command": "y", "env": {"TOKEN": "two"}}}})
    )
    files = world.write()
    assert world.config.read_text().startswith(first)
    servers = world.load().config.servers
    assert {name: server.env for name, server in servers.items()} == {
        "a": {"TOKEN": "one"},
        "b": {"TOKEN": "two"},
    }
    assert files.env_path.read_text().count("=") == 2


def test_a_renewed_token_in_a_client_leaves_the_configuration_alone(world: World) -> None:
    world.put(
        "cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "one"}}}})
    )
    world.write()
    world.put(
        "cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "two"}}}})
    )
    assert world.candidates()["a"].status == "differs"


def test_a_server_of_a_taken_name_gets_another(world: World) -> None:
    world.config.parent.mkdir()
    world.config.write_text("servers:\n  A: {command: mine}\n")
    world.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    assert set(world.candidates()) == {"a-cursor"}
    world.write()
    assert {name: one.command for name, one in world.load().config.servers.items()} == {
        "A": "mine",
        "a-cursor": "x",
    }


def test_names_that_would_become_one_stay_two(world: World) -> None:
    names = {
        "my server": {"command": "a"},
        "my_server": {"command": "b"},
        "文件": {"command": "c"},
        "天气": {"command": "d"},
    }
    world.put("cursor", json.dumps({"mcpServers": names}))
    world.write()
    assert sorted(one.command or "" for one in world.load().config.servers.values()) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_an_env_file_of_another_name_is_added_to(world: World) -> None:
    world.config.parent.mkdir()
    world.config.write_text("env_file: mine.env\nservers:\n  old: {command: x, env: {A: '${A}'}}\n")
    mine = world.config.with_name("mine.env")
    mine.write_text("# my own\nA=1")
    world.put(
        "cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "one"}}}})
    )
    files = world.write()
    assert files.env_path == mine
    assert mine.read_text() == "# my own\nA=1\nTOKEN=one\n"
    assert world.load().config.servers["old"].env == {"A": "1"}


def test_a_broken_configuration_is_told_and_not_written_over(world: World) -> None:
    world.config.parent.mkdir()
    world.config.write_text("servers:\n  a: {comand: x}\n")
    with pytest.raises(ConfigError) as caught:
        world.there()
    assert caught.value.line == 2


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_secrets_are_for_their_owner_alone_also_where_they_were_not_before(tmp_path: Path) -> None:
    old, new = tmp_path / "old.env", tmp_path / "folder" / "new.env"
    old.write_text("A=1\n")
    old.chmod(0o644)
    write_secrets(old, b"A=1\nB=2\n", b"A=1\n")
    write_secrets(new, b"C=3\n", None)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new)] == [0o600, 0o600]
    assert old.read_text() == "A=1\nB=2\n"


def test_a_configuration_keeps_a_backup_and_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.yaml", tmp_path / "portico.yaml"
    real.write_text("old")
    link.symlink_to(real)
    backups = [write_config(link, b"new", b"old", NOW), write_config(link, b"newer", b"new", NOW)]
    assert [path.name for path in backups if path] == [
        "portico.yaml.backup-20261116-073000",
        "portico.yaml.backup-20261116-073000-2",
    ]
    assert [path.read_text() for path in backups if path] == ["old", "new"]
    assert (real.read_text(), link.is_symlink()) == ("newer", True)
    assert sorted(path.name for path in tmp_path.iterdir() if "backup" not in path.name) == [
        "dotfiles.yaml",
        "portico.yaml",
    ]


def test_a_configuration_that_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "portico.yaml"
    path.write_text("somebody was quicker")
    with pytest.raises(ConfigError):
        write_config(path, b"new", b"old", NOW)
    assert [one.name for one in tmp_path.iterdir()] == ["portico.yaml"]


def test_a_read_only_configuration_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "portico.yaml"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        write_config(path, b"new", b"old", NOW)
    assert path.read_text() == "old"


def test_servers_are_chosen_by_name_however_it_is_cased(world: World) -> None:
    world.put_all()
    found = list(world.candidates().values())
    assert [one.name for one in filter_candidates(found, only=["GitHub", "my.server"])[0]] == [
        "github",
        "my.server",
    ]
    assert "github" not in [one.name for one in filter_candidates(found, without=["github"])[0]]
    assert filter_candidates(found, only=["gitub"])[1] == ["gitub"]


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ("", [1, 2, 3, 4, 5]),
        (" all ", [1, 2, 3, 4, 5]),
        ("n", []),
        ("2", [2]),
        ("1, 3-5", [1, 3, 4, 5]),
        ("-2", [1, 3, 4, 5]),
        ("1-4 -2", [1, 3, 4]),
        ("0", None),
        ("6", None),
        ("3-2", None),
        ("github", None),
        ("1 x", [1, 5]),
        ("Git -3 my-db", [1, 4]),
        ("-time", [1, 3, 4, 5]),
        ("1 nobody", None),
    ],
)
def test_a_person_chooses_by_numbers_and_names(typed: str, numbers: list[int] | None) -> None:
    assert parse_selection(typed, ["git", "time", "fetch", "my-db", "x"]) == numbers


@pytest.mark.skipif(os.name != "posix", reason="links and modes are other things there")
def test_a_backup_is_a_new_file_and_never_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_bytes(b"old")
    (tmp_path / "portico.yaml").chmod(0o640)
    (tmp_path / "portico.yaml.backup-20261116-073000").symlink_to(tmp_path / "elsewhere")
    copy = write_config(tmp_path / "portico.yaml", b"new", b"old", NOW)
    assert copy is not None
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (b"old", 0o640)
    assert not (tmp_path / "elsewhere").exists()
