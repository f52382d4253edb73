"""What to do about the usual mistakes."""

import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.execution.sandbox.script import Fault, FaultKind, Language, Outcome, Script
from portico.execution.scripting.hints import hint

HOUSE = Snapshot({"github": ServerEntry("github", tools={"search": make_tool("github", {"name": "search"})})})


def hinted(language: Language, code: str, message: str, kind: FaultKind = "runtime") -> str:
    return hint(Script(code, language), Outcome(fault=Fault(kind, message, 1)), HOUSE)


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("python", "TypeError: 'coroutine' object is not subscriptable"),
        ("lua", "attempt to index a handle"),
        ("javascript", "the answer is a Promise"),
    ],
)
def test_a_forgotten_await_is_shown_in_the_script_s_own_language(language: Language, message: str):
    said = hinted(language, "x", message)
    assert "must be awaited" in said
    assert ("await()" in said) is (language == "lua")


@pytest.mark.parametrize(
    ("language", "code", "message"),
    [
        ("python", "result = 5\nresult(6)", "TypeError: 'int' object is not callable"),
        ("javascript", "const result = 5; result(6)", "TypeError: not a function"),
        ("typescript", "let result: number = 5; result(6)", "TypeError: not a function"),
        ("lua", "local result = 5 result(6)", "attempt to call a number value (local 'result')"),
    ],
)
def test_a_shadowed_result_is_seen(language: Language, code: str, message: str):
    assert "choose another name" in hinted(language, code, message)
    assert "choose another name" not in hinted(language, "foo(6)", message)


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("python", "NameError: name 'gihub' is not defined"),
        ("javascript", "ReferenceError: gihub is not defined"),
        ("javascript", "ReferenceError: 'gihub' is not defined"),
        ("lua", "attempt to index a nil value (global 'gihub')"),
    ],
)
def test_a_misspelt_server_gets_the_nearest(language: Language, message: str):
    assert hinted(language, "x", message) == "Did you mean the server github?"


def test_a_tool_without_its_server_is_told_whose_it_is():
    assert "github.search" in hinted("python", "x", "NameError: name 'search' is not defined")


def test_who_imports_is_told_that_nothing_need_be():
    assert "without an import" in hinted("python", "import requests", "ModuleNotFoundError: No module named 'requests'")


@pytest.mark.parametrize("kind", ["time", "memory", "recursion", "output", "deadlock", "value"])
def test_every_limit_comes_with_advice(kind: FaultKind):
    assert hinted("python", "x", "over", kind)


def test_calls_that_nobody_waited_for_are_said_also_of_a_script_that_went_well():
    assert hint(Script("x", "lua"), Outcome(unawaited=1), HOUSE).startswith("1 call was not awaited")
    assert hint(Script("x", "lua"), Outcome(), HOUSE) == ""
