"""The predicate: which rule decides, for whom, about what, and with which arguments."""

from collections.abc import Mapping
from typing import Any

import pytest

from portico.callers import KEY_ISSUER, LOCAL_USER, TOKEN_HOLDER, Caller, Principal
from portico.calls.rule_enforcement import build_rules
from portico.config import Config
from portico.errors import ConfigError
from portico.policy.rules import CallerRules, RuleSet
from portico.policy.target import Target

ANA = Caller(principal=Principal("https://login.example", "ana", groups=("dev", "data")))
BOB = Caller(principal=Principal("https://login.example", "bob"))
CI = Caller(principal=Principal(KEY_ISSUER, "ci"))
READER = Caller(principal=Principal(KEY_ISSUER, "reader", is_read_only=True))
LOCAL = Caller(principal=LOCAL_USER)
TOKEN = Caller(principal=TOKEN_HOLDER)
EXAMPLE: list[Mapping[str, Any]] = [
    {"for": ["group:dev"], "tools": ["github.*"], "may": "allow"},
    {"tools": ["*.delete_*"], "may": "ask"},
    {
        "for": ["group:dev"],
        "tools": ["db.query"],
        "when": {"sql": {"pattern": r"(?i)^\s*select "}},
        "may": "allow",
    },
    {"tools": ["db.*"], "may": "deny", "say": "Read-only access: ask #data."},
]


def compile_all(*rules: Mapping[str, Any], default: str = "allow") -> RuleSet:
    return build_rules(Config.model_validate({"rules": list(rules), "default": default}))


def rules_of(caller: Caller, *rules: Mapping[str, Any], default: str = "allow") -> CallerRules:
    return compile_all(*rules, default=default).select_for(caller)


def tool(address: str, **facts: Any) -> Target:
    server, _, name = address.partition(".")
    return Target("tool", server, name, **facts)


def resource(uri: str, server: str = "docs") -> Target:
    return Target("resource", server, uri)


@pytest.mark.parametrize(
    ("caller", "address", "arguments", "expected"),
    [
        (ANA, "github.delete_repo", {}, ("allow", "rules[0]")),
        (BOB, "github.delete_repo", {}, ("ask", "rules[1]")),
        (BOB, "github.create_issue", {}, ("allow", "default")),
        (ANA, "db.query", {"sql": " SELECT 1"}, ("allow", "rules[2]")),
        (ANA, "db.query", {"sql": "drop table x"}, ("deny", "rules[3]")),
        (BOB, "db.query", {"sql": "select 1"}, ("deny", "rules[3]")),
        (ANA, "db.query", {}, ("deny", "rules[3]")),
        (ANA, "db.query", {"sql": ["select 1"]}, ("deny", "rules[3]")),
    ],
)
def test_the_first_rule_that_fits_decides(
    caller: Caller, address: str, arguments: Any, expected: tuple[str, str]
) -> None:
    decision = rules_of(caller, *EXAMPLE).decide(tool(address), arguments)
    assert (decision.effect, decision.rule) == expected
    if decision.rule == "rules[3]":
        assert decision.say == "Read-only access: ask #data."


@pytest.mark.parametrize(
    ("entry", "callers"),
    [
        ("everyone", [ANA, BOB, CI, LOCAL, TOKEN]),
        ("person:ana", [ANA]),
        ("person:https://login.example ana", [ANA]),
        ("person:*", [ANA, BOB]),
        ("group:d*", [ANA]),
        ("key:ci", [CI]),
        ("key:ana", []),
        ("person:ci", []),
        ("person:user", []),
        ("local", [LOCAL]),
        ("token", [TOKEN]),
        ("profile:default", [ANA, BOB, CI, LOCAL, TOKEN]),
        ("profile:work", []),
    ],
)
def test_a_rule_is_for_the_callers_it_names(entry: str, callers: list[Caller]) -> None:
    rules = compile_all({"for": [entry], "may": "deny"})
    found = [
        caller
        for caller in (ANA, BOB, CI, LOCAL, TOKEN)
        if rules.select_for(caller).decide(tool("a.b"), {}).effect == "deny"
    ]
    assert found == callers


def test_a_profile_has_its_own_rules() -> None:
    rules = compile_all({"for": "profile:work", "tools": "a.*", "may": "deny"})
    assert rules.select_for(Caller(profile="work")).decide(tool("a.b"), {}).effect == "deny"
    assert rules.select_for(Caller()).decide(tool("a.b"), {}).effect == "allow"


def test_a_claimed_client_name_only_restricts() -> None:
    rules = compile_all({"for": ["client:*bot*"], "tools": ["a.*"], "may": "deny"})
    assert rules.select_for(Caller(name="My-Bot")).decide(tool("a.b"), {}).effect == "deny"
    assert rules.select_for(Caller(name="cursor")).decide(tool("a.b"), {}).effect == "allow"
    with pytest.raises(ValueError, match="only a claim"):
        compile_all({"for": ["group:dev", "client:cursor"], "may": "allow"})


@pytest.mark.parametrize(
    ("rule", "covered", "free"),
    [
        ({"tools": ["a.b*"]}, [tool("a.bc")], [tool("a.c"), tool("x.bc"), resource("bc", "a")]),
        ({"tools": ["delete_*"]}, [tool("a.delete_x"), tool("b.DELETE_x")], [tool("a.undelete")]),
        ({"tools": ["*.delete_*"]}, [tool("a.delete_x"), tool("a.sub.delete_x")], [tool("a.x")]),
        ({"servers": ["a"]}, [tool("a.x"), resource("u", "a")], [tool("b.x")]),
        ({"servers": ["a"], "tools": ["*x"]}, [tool("a.x")], [tool("b.x"), resource("x", "a")]),
        ({"categories": ["mail"]}, [tool("a.x", category="mail")], [tool("a.y"), resource("u")]),
        ({"read_only": True}, [tool("a.x", is_read_only=True)], [tool("a.y"), resource("u")]),
        ({"read_only": False}, [tool("a.x")], [tool("a.y", is_read_only=True)]),
        ({"destructive": True}, [tool("a.x", is_destructive=True)], [tool("a.y")]),
        ({"resources": ["docs.file:///a/*"]}, [resource("file:///a/b")], [resource("file:///b")]),
        ({"prompts": ["docs.*"]}, [Target("prompt", "docs", "p")], [tool("docs.p")]),
        ({"tools": ["*"], "prompts": ["*"]}, [tool("a.x")], [resource("u")]),
        ({}, [tool("a.x"), resource("u"), Target("prompt", "a", "p")], []),
    ],
)
def test_a_rule_covers_what_it_names(
    rule: Mapping[str, Any], covered: list[Target], free: list[Target]
) -> None:
    own = rules_of(LOCAL, {**rule, "may": "deny"})
    assert [own.decide(target, {}).effect for target in covered] == ["deny"] * len(covered)
    assert [own.decide(target, {}).effect for target in free] == ["allow"] * len(free)
    assert not any(map(own.can_see, covered))
    assert all(map(own.can_see, free))


@pytest.mark.parametrize(
    "uri",
    [
        "file:///secret/x",
        "file:///%73ecret/x",
        "FILE:///secret/x",
        "file:////secret/x",
        "file:///public/../secret/x",
        "file:///public/%2e%2e/secret/x",
        "file:///" + "a" * 5_000,
    ],
)
def test_a_denied_resource_has_no_other_spelling(uri: str) -> None:
    own = rules_of(LOCAL, {"resources": ["docs.file:///secret/*"], "may": "deny"})
    assert own.decide(resource(uri), {}).effect == "deny"
    assert own.decide(resource("file:///public/x"), {}).effect == "allow"


@pytest.mark.parametrize("uri", ["file:///a/../b", "file:///a/%2e%2e/b", "FILE:///a/b"])
def test_a_resource_is_allowed_only_by_its_plain_spelling(uri: str) -> None:
    rule = {"resources": ["docs.file:///a/*"], "may": "allow"}
    own = rules_of(LOCAL, rule, default="deny")
    assert own.decide(resource("file:///a/b"), {}).effect == "allow"
    assert own.decide(resource(uri), {}).effect == "deny"


def test_what_some_arguments_allow_is_seen_and_what_none_allows_is_not() -> None:
    select = {"when": {"sql": {"pattern": "^select"}}, "tools": ["db.query"]}
    own = rules_of(LOCAL, {**select, "may": "allow"}, {"tools": ["db.*"], "may": "deny"})
    assert own.can_see(tool("db.query"))
    assert not own.can_see(tool("db.drop"))
    assert rules_of(LOCAL, {**select, "may": "deny"}).can_see(tool("db.query"))
    visible = rules_of(LOCAL, {"tools": ["db.*"], "may": "deny", "visible": True})
    assert visible.can_see(tool("db.drop"))
    assert rules_of(LOCAL, {"tools": ["db.*"], "may": "ask"}).can_see(tool("db.drop"))


def test_what_no_arguments_allow_may_not_be_used_even_where_it_is_seen() -> None:
    target = tool("db.drop")
    denied = {"tools": ["db.*"], "may": "deny"}
    some = {"tools": ["db.drop"], "when": {"table": "t"}}
    assert not rules_of(LOCAL, {**denied, "visible": True}).may_use(target)
    assert not rules_of(LOCAL, {**some, "may": "deny"}, denied).may_use(target)
    assert not rules_of(LOCAL, {**some, "may": "deny"}, default="deny").may_use(target)
    assert rules_of(LOCAL, {**some, "may": "deny"}).may_use(target)
    assert rules_of(LOCAL, {**some, "may": "ask"}, denied).may_use(target)
    assert rules_of(LOCAL, {**denied, "may": "ask"}, denied).may_use(target)
    assert rules_of(LOCAL, {**denied, "tools": ["mail.*"]}).may_use(target)


def test_a_server_all_of_which_is_denied_is_not_seen() -> None:
    own = rules_of(
        ANA,
        {"tools": ["mail.send"], "may": "allow"},
        {"servers": ["mail", "db"], "may": "deny"},
    )
    assert [own.can_see_server(name) for name in ("mail", "db", "x")] == [True, False, True]
    tools_only = rules_of(ANA, {"tools": ["db.*"], "may": "deny"})
    assert tools_only.can_see_server("db"), "it may have resources"
    assert not rules_of(ANA, default="deny").can_see_server("db")


def test_a_read_only_key_is_a_rule_before_all_others() -> None:
    own = rules_of(READER, {"for": ["key:reader"], "may": "allow"})
    denied = own.decide(tool("a.write"), {})
    assert (denied.effect, denied.rule) == ("deny", "key")
    assert "read-only" in denied.say
    assert own.can_see(tool("a.write"))
    assert own.decide(tool("a.read", is_read_only=True), {}).effect == "allow"
    assert own.decide(resource("file:///a"), {}).effect == "allow"
    assert own.decide(Target("server", "a", "vendor/delete"), {}).effect == "deny"


def test_a_method_of_a_server_may_do_whatever_is_denied_there() -> None:
    own = rules_of(LOCAL, {"tools": ["a.delete"], "may": "deny"})
    assert own.decide(Target("server", "a", "vendor/x"), {}).effect == "deny"
    assert own.decide(Target("server", "b", "vendor/x"), {}).effect == "allow"
    only_tools = rules_of(LOCAL, {"tools": ["a.*"], "may": "allow"}, default="deny")
    assert only_tools.decide(Target("server", "a", "vendor/x"), {}).effect == "deny"


def test_callers_with_the_same_rules_share_them() -> None:
    rules = compile_all({"for": ["group:dev"], "tools": ["a.*"], "may": "deny"})
    assert rules.select_for(BOB) is rules.select_for(CI)
    assert rules.select_for(ANA) is not rules.select_for(BOB)
    names = [Caller(name=f"client {number}") for number in range(10)]
    assert len({id(rules.select_for(caller)) for caller in names}) == 1


@pytest.mark.parametrize(
    ("wanted", "fitting", "unfitting"),
    [
        ("acme", ["acme"], ["other", ["acme"], None]),
        (["a", "b"], ["a", "b"], ["c", ["a", "b"]]),
        ({"pattern": "^a"}, ["ab"], ["b", 5, ["ab"], {"a": 1}]),
        ({"maximum": 10}, [3, 3.5], [11, "3"]),
        ({"items": {"pattern": "^a"}}, [["ab"], []], ["ab", [5]]),
        ({"properties": {"x": {"minimum": 1}}}, [{"x": 2}, {}], [{"x": "2"}, [], "x"]),
        ({"anyOf": [{"pattern": "^a"}, {"const": 3}]}, ["ab", 3], [4, "b"]),
    ],
)
def test_a_rule_that_allows_takes_no_value_of_another_type(
    wanted: Any, fitting: list[Any], unfitting: list[Any]
) -> None:
    own = rules_of(LOCAL, {"when": {"x": wanted}, "may": "allow"}, default="deny")
    effects = {True: "allow", False: "deny"}
    for value in fitting:
        assert own.decide(tool("a.b"), {"x": value}).effect == effects[True], value
    for value in unfitting:
        assert own.decide(tool("a.b"), {"x": value}).effect == effects[False], value
    assert own.decide(tool("a.b"), {}).effect == "deny", "it was not given"


def test_a_rule_that_denies_takes_a_value_that_it_cannot_judge() -> None:
    own = rules_of(LOCAL, {"when": {"path": {"pattern": "^/etc"}}, "may": "deny"})
    assert own.decide(tool("a.b"), {"path": "/tmp/x"}).effect == "allow"
    for value in ("/etc/passwd", ["/etc/passwd"], {"path": "/etc"}):
        assert own.decide(tool("a.b"), {"path": value}).effect == "deny", value


def test_arguments_too_large_to_check_are_denied_and_never_allowed() -> None:
    large = {"x": "a" * 5_000_000}
    allowing = rules_of(LOCAL, {"when": {"x": {"pattern": "^a.*z?$"}}}, default="deny")
    assert allowing.decide(tool("a.b"), {"x": "aaa"}).effect == "allow"
    assert allowing.decide(tool("a.b"), large).effect == "deny"
    denying = rules_of(LOCAL, {"when": {"x": {"pattern": "^b.*z?$"}}, "may": "deny"})
    assert denying.decide(tool("a.b"), {"x": "aaa"}).effect == "allow"
    assert denying.decide(tool("a.b"), large).effect == "deny"


@pytest.mark.parametrize(
    "when",
    [
        {"x": {"pattern": "("}},
        {"x": {"type": "nonsense"}},
        {"x": {"pattern": r"\p{L}" * 1_000}},
        {"x": {"$ref": "https://example.com/schema.json"}},
    ],
)
def test_a_condition_that_cannot_be_checked_whole_is_refused_at_the_start(when: Any) -> None:
    with pytest.raises(ConfigError, match=r"rules\[1\]\.when"):
        compile_all({"may": "allow"}, {"when": when, "may": "allow"})


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"for": ["ana"]}, "'ana' is nobody"),
        ({"for": []}, "leave it out"),
        ({"tools": [""]}, "1 to 400"),
        ({"resources": ["file:///a"]}, "names no server"),
        ({"may": "allow", "visible": True}, "visible is for"),
        ({"may": "perhaps"}, "allow"),
        ({"tool": ["a"]}, "tool"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        compile_all(rule)
