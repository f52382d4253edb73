"""Entries of a configuration change one at a time; all other text stays as it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.adoption.config_document import ConfigDocument, parse_config_document
from portico.errors import ConfigError

BLOCK = """\
# Servers of the team.
env_file: portico.env   # secrets

servers:
  # from Cursor
  git:
    command: uvx   # pinned below
    args: [mcp-server-git]
    # more of git

  "my db":
    url: 'https://db.example/mcp'
    tools:
      deny:
        - drop_table   # never
        - truncate
  # the last one
  last: {command: x, disabled: true}   # off

pins: [git.status, last.run]
profiles:
  review:
    servers: [git]
"""
FLOW = '{"servers": {"git": {"command": "uvx"}, "db": {"url": "https://x"}}, "pins": ["git.a"]}\n'
BRACES = "{servers: {git: {command: uvx}, db: {url: 'https://x'}}, pins: [git.a]}\n"
JSONC = """{
  // ours
  "servers": {
    "git": { "command": "uvx" }, // one
    "db": { "url": "https://x", "tools": { "deny": ["a"] } }
  },
  "pins": ["git.a"]
}
"""
TOML = """# ours
pins = ["git.a"]

[servers.git]   # one
command = "uvx"   # by uv

[servers.git.env]
A = "1"

[servers.db]
url = "https://x"
"""


def document(text: str, name: str = "portico.yaml") -> ConfigDocument:
    return parse_config_document(Path(name), text.encode())


def lines_changed(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


Edit = Callable[[ConfigDocument], ConfigDocument]


@pytest.mark.parametrize(
    ("edit", "gone", "come"),
    [
        (lambda d: d.set_value(("servers", "new"), {"command": "y", "args": ["-v", "a b"]}),
         [], ["  new:", "    command: y", "    args: [-v, a b]"]),
        (lambda d: d.set_value(("servers", "git", "disabled"), True), [], ["    disabled: true"]),
        (lambda d: d.set_value(("servers", "last", "disabled"), False),
         ["  last: {command: x, disabled: true}   # off"],
         ["  last: {command: x, disabled: false}   # off"]),
        (lambda d: d.remove(("servers", "last", "disabled")),
         ["  last: {command: x, disabled: true}   # off"], ["  last: {command: x}   # off"]),
        (lambda d: d.remove(("servers", "git")),
         ["  # from Cursor", "  git:", "    command: uvx   # pinned below",
          "    args: [mcp-server-git]", "    # more of git"], []),
        (lambda d: d.remove(("servers", "last")),
         ["  # the last one", "  last: {command: x, disabled: true}   # off"], []),
        (lambda d: d.rename(("servers", "my db"), "db"), ['  "my db":'], ["  db:"]),
        (lambda d: d.add_item(("servers", "my db", "tools", "deny"), "alter"),
         [], ["        - alter"]),
        (lambda d: d.remove_item(("servers", "my db", "tools", "deny"), "drop_table"),
         ["        - drop_table   # never"], []),
        (lambda d: d.add_item(("servers", "git", "tools", "deny"), "push"),
         [], ["      deny: [push]"]),
        (lambda d: d.add_item(("servers", "last", "tools", "deny"), "p, q"),
         ["  last: {command: x, disabled: true}   # off"],
         ["  last: {command: x, disabled: true, tools: {deny: ['p, q']}}   # off"]),
        (lambda d: d.replace_item(("pins",), "git.status", "hub.status"),
         ["pins: [git.status, last.run]"], ["pins: [hub.status, last.run]"]),
        (lambda d: d.remove_item(("pins",), "last.run"),
         ["pins: [git.status, last.run]"], ["pins: [git.status]"]),
        (lambda d: d.remove_item(("profiles", "review", "servers"), "git"),
         ["    servers: [git]"], ["    servers: []"]),
        (lambda d: d.insert_first("exposure", "full"), [], ["exposure: full"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_lines_of_an_entry_change(
    edit: Edit, gone: list[str], come: list[str], newline: str
) -> None:
    before = BLOCK.replace("\n", newline)
    after = edit(document(before)).text
    assert lines_changed(before, after) == (gone, come)
    assert newline == "\n" or "\n" not in after.replace("\r\n", "")


@pytest.mark.parametrize("servers", [BLOCK, FLOW, BRACES])
def test_the_last_server_leaves_an_empty_map(servers: str) -> None:
    changed = document(servers)
    for name in list(changed.servers):
        changed = changed.remove(("servers", name))
    assert changed.servers == {}
    assert changed.set_value(("servers", "new"), {"command": "x"}).servers == {
        "new": {"command": "x"}
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.yaml", FLOW), ("p.yaml", BRACES), ("p.json", JSONC), ("p.json", FLOW), ("p.toml", TOML)],
)
def test_files_in_braces_json_and_toml_change_as_well(name: str, text: str) -> None:
    changed = document(text, name)
    changed = changed.set_value(("servers", "new"), {"command": "y", "args": ["a"]})
    changed = changed.set_value(("servers", "git", "disabled"), True)
    changed = changed.add_item(("servers", "db", "tools", "deny"), "drop")
    changed = changed.rename(("servers", "git"), "hub")
    changed = changed.replace_item(("pins",), "git.a", "hub.a")
    changed = changed.set_value(("env_file",), "portico.env")
    assert changed.values["pins"] == ["hub.a"]
    assert changed.servers["hub"]["disabled"] is True
    assert changed.servers["hub"]["command"] == "uvx"
    assert changed.servers["db"]["tools"]["deny"][-1] == "drop"
    changed = changed.remove(("servers", "new")).remove(("servers", "hub", "disabled"))
    assert list(changed.servers) == ["hub", "db"]
    comments = [line for line in text.splitlines() if line.strip().startswith(("//", "#"))]
    assert all(line in changed.text for line in comments)


def test_a_change_is_undone_by_its_opposite_byte_for_byte() -> None:
    yaml_texts = [(text, "p.yaml") for text in (BLOCK, FLOW, BRACES)]
    for text, name in (*yaml_texts, (JSONC, "p.json"), (TOML, "p.toml")):
        before = document(text, name)
        added = before.set_value(("servers", "new"), {"command": "y"})
        assert added.remove(("servers", "new")).text == text
        off = before.set_value(("servers", "git", "disabled"), True)
        assert off.remove(("servers", "git", "disabled")).text == text
        renamed = before.rename(("servers", "git"), "hub")
        assert renamed.rename(("servers", "hub"), "git").text == text


@pytest.mark.parametrize(
    "text",
    [
        "x: &s {a: {command: x}}\nservers: *s\n",
        "servers:\n  b: &b {command: x}\n  a: *b\n",
        "servers:\n  b: {command: y}\n  a:\n    <<: {disabled: true}\n    command: x\n",
    ],
)
def test_what_would_change_something_else_is_refused(text: str) -> None:
    def change(servers: ConfigDocument) -> Any:
        if "<<" in text:
            return servers.remove(("servers", "a", "disabled"))
        return servers.set_value(("servers", "a", "title"), "A")

    with pytest.raises(ConfigError, match="cannot be changed"):
        change(document(text))


def test_a_file_that_is_no_text_or_no_map_is_refused() -> None:
    for data in (b"\xff\xfe\x00x", b"- a\n", b"servers: [\n"):
        with pytest.raises(ConfigError):
            parse_config_document(Path("portico.yaml"), data)
