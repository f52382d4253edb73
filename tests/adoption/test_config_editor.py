"""Changes of one's own configuration: looked at first, then written, and undone."""

from pathlib import Path
from typing import Any

import pytest

from portico.adoption.backups import ConfigHistory
from portico.adoption.config_editor import ConfigEditor
from portico.config_file import load
from portico.config_file.config_changes import RequestedChange, is_editable
from portico.errors import InvalidArguments, PorticoError, UnknownName

TEXT = """\
# The servers of the team.
servers:
  git: {command: uvx}   # pinned
rules:
  # Money is a person's business.
  - {tools: ["*.pay"], may: ask}
  # Nobody deletes.
  - tools: ["*.delete_*"]
    may: deny
limits: {call_s: 60}
"""
RULE = {"for": ["key:ana"], "tools": ["git.push"], "may": "deny"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "portico.yaml"
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


@pytest.fixture
def editor(file: Path, tmp_path: Path) -> ConfigEditor:
    return ConfigEditor([file], ConfigHistory(tmp_path / "changes"))


def write(editor: ConfigEditor, **change: Any) -> None:
    wanted = RequestedChange(**change)
    planned = editor.change(wanted, "")
    assert not planned.is_written
    assert editor.change(wanted, planned.seen).is_written


def test_a_rule_gets_its_place_and_comments_stay(editor: ConfigEditor, file: Path) -> None:
    write(editor, kind="add_rule", rule=RULE, position=1)
    lines = file.read_text().splitlines()
    assert lines[5:8] == [
        '  - {tools: ["*.pay"], may: ask}',
        "  - {for: ['key:ana'], tools: [git.push], may: deny}",
        "  # Nobody deletes.",
    ]
    write(editor, kind="remove_rule", position=2)
    assert "Nobody deletes" not in file.read_text()
    assert "# pinned" in file.read_text()
    assert [rule.may for rule in load(file).config.rules] == ["ask", "deny"]


@pytest.mark.parametrize("position", [0, 2, 99])
def test_a_rule_is_added_at_either_end(editor: ConfigEditor, file: Path, position: int) -> None:
    write(editor, kind="add_rule", rule=RULE, position=position)
    place = min(position, 2)
    assert load(file).config.rules[place].callers == ("key:ana",)
    line = "  - {for: ['key:ana'], tools: [git.push], may: deny}\n"
    assert file.read_text().replace(line, "") == TEXT


def test_the_first_rule_and_a_file_in_json(tmp_path: Path) -> None:
    path = tmp_path / "portico.json"
    path.write_text('{"servers": {"git": {"command": "uvx"}}}\n')
    editor = ConfigEditor([path], ConfigHistory(tmp_path / "changes"))
    write(editor, kind="add_rule", rule=RULE)
    assert len(load(path).config.rules) == 1
    write(editor, kind="remove_rule", position=0)
    assert not load(path).config.rules


def test_a_setting_is_changed_reset_and_undone(editor: ConfigEditor, file: Path) -> None:
    write(editor, kind="set", key="limits.call_s", value=90)
    assert load(file).config.limits.call_s == 90
    write(editor, kind="set", key="servers.git.description", value="Our code.")
    write(editor, kind="reset", key="limits.call_s")
    assert "call_s" not in file.read_text()
    for _ in range(3):
        editor.undo(editor.undo("").seen)
    assert file.read_text() == TEXT
    with pytest.raises(PorticoError):
        editor.undo("")


def test_a_server_is_switched_off_and_on(editor: ConfigEditor, file: Path) -> None:
    write(editor, kind="disable", server="git")
    assert load(file).config.servers["git"].disabled
    write(editor, kind="enable", server="git")
    assert file.read_text() == TEXT
    with pytest.raises(UnknownName):
        editor.change(RequestedChange("disable", server="hub"), "")


def test_only_what_was_looked_at_is_written(editor: ConfigEditor, file: Path) -> None:
    change = RequestedChange("set", key="limits.call_s", value=90)
    seen = editor.change(change, "").seen
    file.write_text(TEXT.replace("60", "70"))
    with pytest.raises(PorticoError, match="changed since you looked"):
        editor.change(change, seen)
    with pytest.raises(PorticoError):
        editor.change(RequestedChange("set", key="limits.call_s", value=-1), "")
    with pytest.raises(PorticoError):
        editor.change(RequestedChange("add_rule", rule={"may": "perhaps"}), "")
    assert "70" in file.read_text()


@pytest.mark.parametrize(
    "key",
    ["servers.git.command", "servers.hub", "servers.git.env.KEY", "gateway.token", "audit.enabled"],
)
def test_commands_secrets_and_the_audit_log_are_not_changed(editor: ConfigEditor, key: str) -> None:
    with pytest.raises(InvalidArguments, match="not changed from here"):
        editor.change(RequestedChange("set", key=key, value="x"), "")


@pytest.mark.parametrize("key", ["", "servers", "auth", "env_file", "limits.", "data_dir", "code"])
def test_other_keys_are_not_editable(key: str) -> None:
    assert not is_editable(key.split("."))
