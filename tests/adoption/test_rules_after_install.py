"""A tool that a client denies stays denied when the client uses Portico instead of the server."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Home
from tests.fixtures import broken_command

COMMAND, *ARGS = broken_command("healthy")
SERVER = {"type": "stdio", "command": COMMAND, "args": ARGS}


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


def write_claude(home: Home, permissions: dict[str, Any]) -> Path:
    (home.folder / ".claude").mkdir()
    settings = home.folder / ".claude" / "settings.json"
    settings.write_text(json.dumps({"permissions": permissions}))
    path = home.folder / ".claude.json"
    path.write_text(json.dumps({"mcpServers": {"work": SERVER}}))
    return path


def adopt(home: Home) -> Any:
    done = home.run("adopt", "--from", "claude-code", "--yes", "--output", "portico.yaml", "--json")
    assert done.code == 0, done.err
    return done.data["servers"][0]


def replace(home: Home, *options: str) -> Any:
    done = home.run("install", "claude-code", "--replace", "--write", "--json", *options)
    assert done.code == 0, done.err
    return done.data


def test_a_denied_tool_is_refused_not_found_and_not_listed_through_portico(home: Home) -> None:
    path = write_claude(home, {"deny": ["mcp__work__env"], "allow": ["mcp__work"]})
    assert adopt(home)["denied"] == ["env"]
    installed = replace(home)
    assert (installed["replaced"], installed["lost_rules"]) == (["work"], {})
    assert set(json.loads(path.read_text())["mcpServers"]) == {"portico"}
    refused = home.run("call", "work.env")
    assert refused.code != 0
    assert "work.env is switched off" in refused.err
    assert "HOME" not in refused.out
    assert home.run("call", "work.echo", '{"text": "still here"}').code == 0
    found = home.run("search", "env environment variables", "--json")
    assert "work.echo" in home.run("search", "echo", "--json").out
    assert "work.env" not in found.out


def test_a_server_that_a_client_denies_is_adopted_switched_off(home: Home) -> None:
    write_claude(home, {"deny": ["mcp__work"]})
    adopt(home)
    assert "disabled: true" in (home.folder / "portico.yaml").read_text()


def test_what_a_client_asks_about_is_asked_about_through_portico(home: Home) -> None:
    write_claude(home, {"ask": ["mcp__work__echo"]})
    adopted = adopt(home)
    assert (adopted["asked"], adopted["rules_without_equivalent"]) == (["echo"], [])
    installed = replace(home)
    assert (installed["replaced"], installed["lost_rules"]) == (["work"], {})
    decided = home.run("rules", "test", "work.echo", "--json").data
    assert (decided["may"], decided["rule"]) == ("ask", "rules[0]")
    assert home.run("rules", "test", "work.env", "--json").data["may"] == "allow"


def test_a_rule_that_asks_is_added_after_those_that_are_there(home: Home) -> None:
    write_claude(home, {"ask": ["mcp__work__echo"]})
    config = home.folder / "portico.yaml"
    config.write_text("# ours\nrules:\n  - {tools: ['work.env'], may: deny}   # never\n")
    assert adopt(home)["rules_without_equivalent"] == []
    assert config.read_text().startswith(
        "# ours\nrules:\n  - {tools: ['work.env'], may: deny}   # never\n"
        "  - {tools: [work.echo], may: ask}\n"
    )
    assert home.run("undo").code == 0
    assert "work" not in config.read_text().replace("work.env", "")


@pytest.mark.parametrize(
    "rules", ["rules:\n  - {tools: ['work.*'], may: allow}\n", "default: deny\n"]
)
def test_a_rule_that_asks_is_not_added_where_it_would_not_hold_or_would_loosen(
    home: Home, rules: str
) -> None:
    write_claude(home, {"ask": ["mcp__work__echo"]})
    (home.folder / "portico.yaml").write_text(rules)
    adopted = adopt(home)
    assert adopted["asked"] == []
    assert "may: ask" not in (home.folder / "portico.yaml").read_text()
    assert bool(adopted["rules_without_equivalent"]) == ("allow" in rules)


def test_a_server_with_rules_that_cannot_be_kept_is_replaced_only_when_told_to(home: Home) -> None:
    path = write_claude(home, {"ask": ["mcp__work__echo"]})
    (home.folder / "portico.yaml").write_text("rules: [{tools: [work.echo], may: allow}]\n")
    settings = home.folder / ".claude" / "settings.json"
    rule = f"mcp__work__echo ({settings})"
    assert adopt(home)["rules_without_equivalent"] == [rule]
    kept = replace(home)
    assert (kept["replaced"], kept["lost_rules"]) == ([], {"work": [rule]})
    assert set(json.loads(path.read_text())["mcpServers"]) == {"work", "portico"}
    assert replace(home, "--drop-rules")["replaced"] == ["work"]


def test_a_rule_that_was_added_after_adoption_keeps_the_server_in_the_client(home: Home) -> None:
    path = write_claude(home, {})
    adopt(home)
    (home.folder / ".claude" / "settings.json").write_text(
        json.dumps({"permissions": {"deny": ["mcp__work__env"]}})
    )
    assert replace(home)["replaced"] == []
    assert "work" in json.loads(path.read_text())["mcpServers"]
    again = adopt(home)
    assert again["standing"] == "present"
    assert [rule.partition(" ")[0] for rule in again["rules_without_equivalent"]] == [
        "mcp__work__env"
    ]
    written = (home.folder / "portico.yaml").read_text()
    (home.folder / "portico.yaml").write_text(
        written.replace("  work:\n", "  work:\n    tools: {deny: [env]}\n")
    )
    assert replace(home)["replaced"] == ["work"]
