"""The doctor names what in `rules` means nothing: such a rule has no effect, and says nothing."""

from typing import Any

import pytest

from portico.catalog.entries import ServerSource, build_entry, build_manifest
from portico.catalog.listing import ServerListing, salvage_tools
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.cli.doctor.rule_name_checks import check_rule_names
from portico.config import Config
from portico.upstream.backend import InitializeInfo

SERVERS: dict[str, Any] = {
    "github": {"command": "x", "category": "Our code"},
    "jira": {"command": "x", "tools": {"categories": {"list_*": "tickets"}}},
    "slow": {"command": "x"},
}


def _list(name: str, *tools: str) -> ServerEntry:
    source = ServerSource(name, "")
    kept, _ = salvage_tools([{"name": tool, "inputSchema": {"type": "object"}} for tool in tools])
    listing = ServerListing(InitializeInfo("legacy", "2025-11-25"), kept)
    return build_entry(source, listing, build_manifest(source, listing))


ENTRIES = {
    "github": _list("github", "delete_repo", "get_issue"),
    "jira": _list("jira", "list_issues"),
}


def _check(rule: dict[str, Any], **root: Any) -> list[DoctorFinding]:
    config = Config.model_validate({"servers": SERVERS, "rules": [rule], **root})
    return list(check_rule_names(config, ENTRIES, ConfigLocations({})))


@pytest.mark.parametrize(
    ("rule", "key", "remedy"),
    [
        ({"servers": "gihub"}, "rules.0.servers.0", "github"),
        ({"servers": ["jira", "nowhere*"]}, "rules.0.servers.1", "portico status"),
        ({"tools": "githb.delete_*"}, "rules.0.tools.0", "github.delete_*"),
        ({"tools": "ghost.*"}, "rules.0.tools.0", "portico status"),
        ({"tools": "github.delete_rpo"}, "rules.0.tools.0", "github.delete_repo"),
        ({"tools": ["delete_repos"], "servers": "github"}, "rules.0.tools.0", "delete_repo"),
        ({"resources": "gitub.file:///*"}, "rules.0.resources.0", "github.file:///*"),
        ({"categories": "Version control"}, "rules.0.categories.0", "version-control"),
        ({"categories": "databses"}, "rules.0.categories.0", "databases"),
        ({"for": "profile:wrk"}, "rules.0.for.0", "work"),
        ({"for": "person:ana"}, "rules.0.for.0", "auth"),
        ({"for": ["local", "group:dev"]}, "rules.0.for.1", "auth"),
    ],
)
def test_a_name_that_means_nothing_is_reported_with_its_place(
    rule: dict[str, Any], key: str, remedy: str
) -> None:
    [found] = _check({"may": "deny", **rule}, profiles={"work": {"servers": ["jira"]}})
    assert (found.id, found.severity, found.at.key) == ("rules.unknown_name", "warning", key)
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"servers": ["git*", "slow"]},
        {"servers": "GitHub", "may": "deny"},
        {"tools": ["*", "*.delete_*", "delete_repo", "github.*", "jira.list_issues"]},
        {"tools": "GITHUB.Delete_Repo", "may": "deny"},
        {"categories": ["version-control", "our-code", "tickets"]},
        {"for": ["everyone", "local", "token", "key:ci", "profile:work", "profile:default"]},
    ],
)
def test_names_that_mean_something_are_not(rule: dict[str, Any]) -> None:
    assert _check(rule, profiles={"work": {"servers": ["jira"]}}) == []


@pytest.mark.parametrize("tools", ["slow.anything", "perhaps_of_slow"])
def test_tools_of_a_server_that_is_not_listed_are_not_judged(tools: str) -> None:
    assert _check({"tools": tools, "may": "deny"}) == []


def test_a_group_is_judged_only_where_it_nearly_is_a_known_one() -> None:
    issuer = {
        "issuer": "https://id.example.com",
        "audience": "portico",
        "profiles": {"work": ["group:developers"]},
    }
    root = {"profiles": {"work": {"servers": ["jira"]}}, "auth": [issuer]}
    [found] = _check({"for": "group:develpers", "may": "deny"}, **root)
    assert "group:developers" in found.remedy
    assert (
        _check({"for": ["group:finance", "group:dev*", "person:ana"], "may": "deny"}, **root) == []
    )
