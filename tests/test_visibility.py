"""Names outside a scope do not exist for a client that has it."""

import pytest

from portico.callers import Caller, choose_entry_to_drop
from portico.visibility import UNRESTRICTED_SCOPE, Scope


def test_the_scope_of_everything_leaves_nothing_out():
    assert UNRESTRICTED_SCOPE.is_unrestricted
    assert UNRESTRICTED_SCOPE.can_see_tool("any.tool")
    assert UNRESTRICTED_SCOPE.can_see_server("any")


@pytest.mark.parametrize(
    "scope", [Scope(servers=("git*",)), Scope(tools=("get_*",)), Scope(servers=()), Scope(tools=())]
)
def test_any_other_scope_leaves_something_out(scope: Scope):
    assert not scope.is_unrestricted


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
    assert Scope(tuple(servers), tuple(tools)).can_see_tool(address) is seen


def test_a_caller_is_nobody_until_the_endpoint_knows_better():
    assert Caller() == Caller("", "")


def test_when_there_are_too_many_the_oldest_of_who_holds_most_goes():
    assert choose_entry_to_drop({"a": "ann", "b": "bob", "c": "bob"}) == "b"
    assert choose_entry_to_drop({"a": "ann"}) == "a"


def test_a_token_and_a_name_find_nothing_that_is_kept():
    claimed = Caller(name="client")
    assert (claimed.state_key, claimed.instance_key) == ("", "")
    assert Caller(session="s", handle="h").state_key == "s"
    assert Caller(session="s", handle="h").instance_key == "h"
