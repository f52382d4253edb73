"""Clients' rules about tools, servers and projects are carried over, or named if they cannot be."""

import json
from pathlib import Path

import pytest

from portico.adoption.discovery import discover_servers
from tests.adoption.client_files import ClientHome
from tests.adoption.client_rule_cases import CASES, ClientRuleCase, ExpectedServer


def put_files(tmp_path: Path, case: ClientRuleCase) -> ClientHome:
    home = ClientHome(tmp_path)
    folders = {"home": home.home, "project": home.cwd, "system": home.context.system}
    for name, text in case.files.items():
        folder, _, rest = name.partition("/")
        path = folders[folder] / rest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("$PROJECT", str(home.cwd)), encoding="utf-8")
    return home


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rules_of_a_client_hold_after_adoption(tmp_path: Path, case: ClientRuleCase) -> None:
    home = put_files(tmp_path, case)
    found = home.discover()
    assert not found.findings
    candidates = home.candidates()
    home.write()
    adopted = {
        name: ExpectedServer(
            server.tools.deny,
            () if server.tools.allow == ("*",) else server.tools.allow,
            server.disabled,
        )
        for name, server in home.load().config.servers.items()
    }
    assert adopted == case.servers
    lost = {
        (name, rule.partition(" (")[0])
        for name, candidate in candidates.items()
        for rule in candidate.lost_rules
    }
    assert lost == case.lost
    rules = home.load().config.rules
    assert {rule.may for rule in rules} <= {"ask"}
    assert {tool for rule in rules for tool in rule.tools or ()} == case.asked
    assert sum(found.other_projects.values()) == case.elsewhere
    if case.trusted:
        untrusted = {name for name, one in candidates.items() if one.is_from_project}
        assert set(candidates) - untrusted == case.trusted


def test_servers_of_other_folders_are_found_when_asked_for_and_run_there(tmp_path: Path) -> None:
    case = next(one for one in CASES if one.elsewhere)
    home = put_files(tmp_path, case)
    found = discover_servers(home.context, all_projects=True)
    folders = {server.name: server.folder for server in found.servers if server.folder}
    assert folders == {"stripe": "/srv/shop", "ghost": "/srv/blog", "here": str(home.cwd)}
    assert found.other_projects == {}
    assert {server.name for server in found.servers} == {*case.servers, "stripe", "sentry", "ghost"}


def test_a_file_of_rules_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    home = ClientHome(tmp_path)
    (home.home / ".claude").mkdir()
    (home.home / ".claude" / "settings.json").write_text('{"permissions": {"deny": [')
    (finding,) = home.discover().findings
    assert finding.file.endswith("settings.json")
    assert "its rules are unknown" in finding.message


def test_of_one_server_in_two_clients_the_stricter_rules_hold(tmp_path: Path) -> None:
    home = ClientHome(tmp_path)
    server = {"command": "notes", "args": ["--all"]}
    home.put(
        "cursor", json.dumps({"mcpServers": {"notes": {**server, "includeTools": ["a", "b"]}}})
    )
    home.put(
        "gemini",
        json.dumps(
            {"mcpServers": {"notes": {**server, "includeTools": ["b"], "excludeTools": ["z"]}}}
        ),
    )
    home.put("claude-code", json.dumps({"mcpServers": {"denied": {"command": "x"}}}))
    home.put("windsurf", json.dumps({"mcpServers": {"denied": {"command": "x"}}}))
    (home.home / ".claude").mkdir()
    rules = {"permissions": {"deny": ["mcp__denied"]}}
    (home.home / ".claude" / "settings.json").write_text(json.dumps(rules))
    home.write()
    servers = home.load().config.servers
    assert (servers["notes"].tools.allow, servers["notes"].tools.deny) == (("b",), ("z",))
    assert servers["notes"].prompts.allow == ("*",), "rules about tools leave prompts alone"
    assert servers["denied"].disabled
