"""What a scope does not name does not exist for whoever has it."""

import pytest

from portico.access import EVERYTHING, Caller, Scope


def test_the_scope_of_everything_leaves_nothing_out():
    assert EVERYTHING.everything
    assert EVERYTHING.sees("any.tool")
    assert EVERYTHING.sees_server("any")


@pytest.mark.parametrize(
    "scope", [Scope(servers=("git*",)), Scope(tools=("get_*",)), Scope(servers=()), Scope(tools=())]
)
def test_any_other_scope_leaves_something_out(scope: Scope):
    assert not scope.everything


@pytest.mark.parametrize(
    ("servers", "tools", "address", "seen"),
    [
        (["github"], ["*"], "github.create_issue", True),
        (["github"], ["*"], "gitlab.create_issue", False),
        (["git*"], ["*"], "gitlab.create_issue", True),
        (["*"], ["github.*"], "github.create_issue", True),
        (["*"], ["github.*"], "gitlab.create_issue", False),
        (["*"], ["create_*"], "gitlab.create_issue", True),
        (["*"], ["create_*"], "gitlab.list_issues", False),
        (["github"], ["gitlab.*"], "gitlab.create_issue", False),
        (["*"], ["s.a.b"], "s.a.b", True),
        (["*"], ["GITHUB.*"], "github.create_issue", False),
        ([], ["*"], "github.create_issue", False),
        (["*"], [], "github.create_issue", False),
    ],
)
def test_a_tool_is_seen_when_its_server_and_its_name_are(
    servers: list[str], tools: list[str], address: str, seen: bool
):
    assert Scope(tuple(servers), tuple(tools)).sees(address) is seen


def test_a_caller_is_nobody_until_the_door_knows_better():
    assert Caller() == Caller("", "")
