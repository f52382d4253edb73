"""Explanations: which rule decides, and which came close and why."""

from collections.abc import Mapping
from typing import Any

import pytest

from portico.calls.rule_enforcement import build_rules
from portico.config import Config
from portico.policy.explanation import describe_near, explain, make_test_caller
from portico.policy.target import Target

RULES: list[Mapping[str, Any]] = [
    {"for": ["group:dev"], "tools": ["github.*"], "may": "allow"},
    {"tools": ["*.delete_*"], "may": "ask"},
    {"tools": ["db.query"], "when": {"sql": {"pattern": "^select"}}, "may": "allow"},
    {"tools": ["db.*"], "may": "deny", "say": "Ask #data."},
    {"for": ["key:ci"], "may": "deny"},
]


def explain_call(who: str, address: str, arguments: Any = None, **caller: Any) -> Any:
    rules = build_rules(Config.model_validate({"rules": RULES}))
    server, _, name = address.partition(".")
    return explain(
        rules, make_test_caller(who, **caller), Target("tool", server, name), arguments or {}
    )


@pytest.mark.parametrize(
    ("who", "caller", "address", "arguments", "decided", "near"),
    [
        (
            "ana",
            {"groups": ("dev",)},
            "github.delete_repo",
            {},
            "rules[0]",
            ["later", "for others"],
        ),
        ("ana", {}, "github.delete_repo", {}, "rules[1]", ["for others", "for others"]),
        ("ana", {}, "db.query", {"sql": "drop"}, "rules[3]", ["arguments", "for others"]),
        ("ana", {}, "db.query", {"sql": "select"}, "rules[2]", ["later", "for others"]),
        ("key:ci", {}, "mail.send", {}, "rules[4]", []),
        ("local", {}, "mail.send", {}, "default", ["for others"]),
    ],
)
def test_the_rule_that_decides_and_those_that_came_close_are_named(
    who: str,
    caller: Any,
    address: str,
    arguments: Any,
    decided: str,
    near: list[str],
) -> None:
    found = explain_call(who, address, arguments, **caller)
    assert found.decision.rule == decided
    assert [one.reason for one in found.near] == near


def test_arguments_that_do_not_fit_are_named() -> None:
    found = explain_call("ana", "db.query", {"sql": "drop"})
    assert describe_near(found.near[0]) == "the arguments do not fit its `when`: sql"
    assert found.is_seen, "it is allowed with other arguments"
    assert not explain_call("ana", "db.dump").is_seen


@pytest.mark.parametrize(
    ("who", "person"),
    [
        ("local", "local user"),
        ("token", "gateway token"),
        ("key:ci", "key ci"),
        ("ana", "person ana"),
        ("person:ana", "person ana"),
        ("person:https://login.example ana", "https://login.example ana"),
    ],
)
def test_people_are_named_as_in_rules(who: str, person: str) -> None:
    assert make_test_caller(who).principal.id == person
