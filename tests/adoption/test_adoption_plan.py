"""What is written: a new configuration, or an old one with new servers in it and every byte of its
own still there."""

import json
import textwrap
from pathlib import Path

import pytest

from portico.adoption.adoption_plan import filter_candidates
from portico.adoption.config_document import insert_servers
from portico.cli.commands.adopt import parse_selection
from portico.config_file.tree_reader import read_tree
from portico.errors import ConfigError
from tests.adoption.client_files import ClientHome

NEW = {"hub": {"command": "npx", "args": ["-y", "hub"], "env": {"TOKEN": "${TOKEN}"}}}


@pytest.fixture
def home(tmp_path: Path) -> ClientHome:
    return ClientHome(tmp_path)


def written(text: str, env_file: str | None = None) -> str | None:
    data = textwrap.dedent(text).lstrip("\n").encode()
    data = insert_servers(Path("portico.yaml"), data, NEW, {"hub": "from Cursor"}, env_file)
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
    servers = root.entries.get("mcpServers", root.entries.get("servers"))
    assert servers is not None
    assert "hub" in (servers.entries or {})
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
        "x: &s {a: {command: x}}\nservers: *s\n",
        "- a\n",
    ],
)
def test_what_cannot_be_added_to_safely_is_not_touched(text: str) -> None:
    assert written(text) is None


def test_adopting_twice_changes_nothing(home: ClientHome) -> None:
    home.environ = {"SENTRY_TOKEN": "st"}
    home.put_all()
    files = home.write()
    before = (home.config.read_bytes(), files.env_path.read_bytes())
    assert {one.status for one in home.candidates().values()} == {"present"}
    again = home.write()
    assert (home.config.read_bytes(), files.env_path.read_bytes()) == before
    assert again.env is None


def test_adopting_twice_changes_nothing_when_the_environment_has_changed(home: ClientHome) -> None:
    home.put_all()
    home.write()
    home.environ = {"GITHUB_PERSONAL_ACCESS_TOKEN": "another one", "SENTRY_TOKEN": "now set"}
    assert {one.status for one in home.candidates().values()} <= {"present", "differs"}


def test_a_new_server_is_added_to_what_was_adopted(home: ClientHome) -> None:
    home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "one"}}}}))
    home.write()
    first = home.config.read_text()
    home.put("gemini", json.dumps({"mcpServers": {"b": {"command": "y", "env": {"TOKEN": "two"}}}}))
    files = home.write()
    assert home.config.read_text().startswith(first)
    servers = home.load().config.servers
    assert {name: server.env for name, server in servers.items()} == {
        "a": {"TOKEN": "one"},
        "b": {"TOKEN": "two"},
    }
    assert files.env_path.read_text().count("=") == 2


def test_a_renewed_token_in_a_client_leaves_the_configuration_alone(home: ClientHome) -> None:
    home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "one"}}}}))
    home.write()
    home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "two"}}}}))
    assert home.candidates()["a"].status == "differs"


def test_a_server_of_a_taken_name_gets_another(home: ClientHome) -> None:
    home.config.parent.mkdir()
    home.config.write_text("servers:\n  A: {command: mine}\n")
    home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    assert set(home.candidates()) == {"a-cursor"}
    home.write()
    assert {name: one.command for name, one in home.load().config.servers.items()} == {
        "A": "mine",
        "a-cursor": "x",
    }


def test_names_that_would_become_one_stay_two(home: ClientHome) -> None:
    names = {
        "my server": {"command": "a"},
        "my_server": {"command": "b"},
        "文件": {"command": "c"},
        "天气": {"command": "d"},
    }
    home.put("cursor", json.dumps({"mcpServers": names}))
    home.write()
    assert sorted(one.command or "" for one in home.load().config.servers.values()) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_an_env_file_of_another_name_is_added_to(home: ClientHome) -> None:
    home.config.parent.mkdir()
    home.config.write_text("env_file: mine.env\nservers:\n  old: {command: x, env: {A: '${A}'}}\n")
    mine = home.config.with_name("mine.env")
    mine.write_text("# my own\nA=1")
    home.put("cursor", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "one"}}}}))
    files = home.write()
    assert files.env_path == mine
    assert mine.read_text() == "# my own\nA=1\nTOKEN=one\n"
    assert home.load().config.servers["old"].env == {"A": "1"}


def test_a_broken_configuration_is_reported_and_not_overwritten(home: ClientHome) -> None:
    home.config.parent.mkdir()
    home.config.write_text("servers:\n  a: {comand: x}\n")
    with pytest.raises(ConfigError) as caught:
        home.load_existing()
    assert caught.value.line == 2


def test_servers_are_chosen_by_name_however_it_is_cased(home: ClientHome) -> None:
    home.put_all()
    found = list(home.candidates().values())
    assert [one.name for one in filter_candidates(found, only=["GitHub", "my.server"])[0]] == [
        "github",
        "my_server",
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
