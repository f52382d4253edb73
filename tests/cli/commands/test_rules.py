"""`portico rules`: what the rules make of a call, and what somebody sees."""

import json

import pytest

from tests.cli.conftest import Home, start
from tests.cli.local_gateway.conftest import Serve, serve

__all__ = ["serve", "start"]


@pytest.fixture
def ruled_home(home: Home) -> Home:
    home.write(
        {
            "servers": {"text": {"functions": "portico.demo.text:TOOLS"}},
            "rules": [
                {"for": ["group:dev"], "may": "allow"},
                {"tools": ["text.count_text"], "when": {"text": ["a", "b"]}, "may": "allow"},
                {"tools": ["text.count_text"], "may": "deny", "say": "Ask Ana."},
                {"tools": ["text.*"], "may": "deny"},
            ],
        }
    )
    assert home.run("status").code in (0, 1)
    return home


def test_the_rule_that_decides_is_named_and_those_that_came_close(ruled_home: Home) -> None:
    shown = ruled_home.run("rules", "test", "--as", "bob", "text.count_text", "text=long").out
    assert shown.splitlines() == [
        "deny, by rules[2]: Ask Ana.",
        "  rules[0] (allow): is for others",
        "  rules[1] (allow): the arguments do not fit its `when`: text",
        "  rules[3] (deny): fits too, and comes later",
    ]
    assert ruled_home.run("rules", "test", "text.count_text", "text=a").out.startswith(
        "allow, by rules[1]"
    )
    dev = ruled_home.run("rules", "test", "--as", "bob", "-g", "dev", "text.count_text", "--json")
    assert json.loads(dev.out)["rule"] == "rules[0]"


def test_what_does_not_exist_for_somebody_is_said(ruled_home: Home) -> None:
    assert "does not exist for this caller" in ruled_home.run("rules", "test", "text.other").out
    answer = ruled_home.run("rules", "test", "resource:text.file:///a", "--json")
    assert json.loads(answer.out)["may"] == "allow"
    assert ruled_home.run("rules", "test", "nothing").code == 1


def test_what_somebody_sees_is_listed(ruled_home: Home) -> None:
    listed = json.loads(ruled_home.run("rules", "list", "--as", "bob", "--json").out)
    assert [row["name"] for row in listed["seen"]] == ["text.count_text"]
    assert listed["seen"][0]["may"] == "depends"
    assert listed["hidden"] > 1
    assert "text.count_text" in ruled_home.run("rules", "list", "--as", "bob").out
    everything = json.loads(ruled_home.run("rules", "list", "--as", "x", "-g", "dev", "--json").out)
    assert everything["hidden"] == 0


REASONS = [
    "deny, by rules[2]: Ask Ana.",
    "  rules[0] (allow): is for others",
    "  rules[1] (allow): the arguments do not fit its `when`: text",
    "  rules[3] (deny): fits too, and comes later",
]


@pytest.mark.parametrize("where", ["alone", "by the running gateway"])
def test_a_call_says_by_which_rule_it_was_decided(
    ruled_home: Home, where: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "by the running gateway":
        serve()
        # The command opens no gateway of its own.
        monkeypatch.setattr("portico.cli.setup.GatewayRuntime", None)
    refused = ruled_home.run("call", "--explain", "text.count_text", "text=long")
    assert (refused.code, refused.out) == (1, "")
    error, *rest = refused.err.splitlines()
    assert "you may not use text.count_text" in error
    assert rest[-4:] == REASONS
    ran = ruled_home.run("call", "--explain", "text.count_text", "text=a")
    assert ran.code == 0
    assert '"characters":1' in ran.out
    assert ran.err.splitlines()[0] == "allow, by rules[1]"
    hidden = ruled_home.run("call", "text.slugify", "-", "--explain", stdin='{"text": "a"}')
    assert hidden.code == 1
    assert "there is no tool" in hidden.err
    assert "deny, by rules[3]\ntext.slugify does not exist for this caller.\n" in hidden.err
    assert "rules[" not in ruled_home.run("call", "text.count_text", "text=a").err


def test_a_call_explained_as_json_is_one_object(ruled_home: Home) -> None:
    words = ("call", "text.count_text", "--explain", "--json")
    ran = ruled_home.run(*words, "text=a")
    assert ran.data["result"]["structuredContent"]["characters"] == 1
    assert (ran.data["rules"]["may"], ran.data["rules"]["rule"]) == ("allow", "rules[1]")
    refused = ruled_home.run(*words, "text=long")
    assert refused.code == 1
    assert refused.data["error"]["kind"] == "permission_denied"
    tested = ruled_home.run("rules", "test", "text.count_text", "text=long", "--json")
    assert refused.data["rules"] == tested.data
    unknown = ruled_home.run("call", "nothing", "--explain", "--json")
    assert unknown.code == 1
    assert set(unknown.data) == {"error"}
    misfit = ruled_home.run(*words, "text=a", "other=1")
    assert misfit.data["error"]["kind"] == "invalid_arguments"
