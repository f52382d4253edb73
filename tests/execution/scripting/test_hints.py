"""What to do about the usual mistakes."""

import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.scripts.hints import build_hint
from portico.scripts.sandbox.script import Fault, FaultKind, Language, Script, ScriptOutcome

HOUSE = Snapshot(
    {"github": ServerEntry("github", tools={"search": make_tool("github", {"name": "search"})})}
)


def hinted(language: Language, code: str, message: str, kind: FaultKind = "runtime") -> str:
    return build_hint(Script(code, language), ScriptOutcome(fault=Fault(kind, message, 1)), HOUSE)


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("python", "TypeError: 'coroutine' object is not subscriptable"),
        ("lua", "this is a call under way, not its result: write :await() first"),
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


@pytest.mark.parametrize(
    ("language", "message", "advice"),
    [
        ("python", "NameError: name 'asyncio' is not defined", "Add: import asyncio."),
        ("python", "NameError: name 'json' is not defined", "Add: import json."),
        ("python", "NameError: name 'ToolError' is not defined", "except Exception"),
        ("python", "ModuleNotFoundError: No module named 'statistics'", "Modules here: asyncio"),
        (
            "python",
            "AttributeError: module 'asyncio' has no attribute 'create_task'",
            "gather and sleep",
        ),
        (
            "python",
            "NotImplementedError: The monty syntax parser does not yet support yield expressions",
            "is small",
        ),
        ("javascript", "ReferenceError: setTimeout is not defined", "no timers"),
        ("typescript", "ReferenceError: fetch is not defined", "no network"),
        ("lua", "attempt to index a nil value (global 'json')", "becomes JSON by itself"),
    ],
)
def test_what_other_places_have_and_this_one_has_not_is_told_with_what_to_do(
    language: Language, message: str, advice: str
):
    assert advice in hinted(language, "x", message)


def test_an_import_that_hides_a_server_is_seen():
    said = hinted(
        "python",
        "import github\ngithub.search()",
        "AttributeError: module 'github' has no attribute 'search'",
    )
    assert "hides the server github" in said


def test_a_server_called_like_a_function_is_seen():
    assert "github is a server here" in hinted(
        "javascript", "await github('x')", "TypeError: not a function"
    )


def test_javascript_sent_as_python_is_seen():
    said = hinted("python", "const x = 1;", "SyntaxError: invalid syntax", "syntax")
    assert 'language="javascript"' in said


def test_who_took_an_answer_for_something_else_is_told_what_it_was():
    fault = Fault("runtime", "TypeError: string indices must be integers", 1)
    said = build_hint(
        Script("x", "python"),
        ScriptOutcome(fault=fault),
        HOUSE,
        {"github.search": "text, beginning '[{'"},
    )
    assert said == "github.search answered text, beginning '[{'."


def test_a_promise_in_a_text_is_a_forgotten_await():
    assert "must be awaited" in build_hint(
        Script("x", "javascript"), ScriptOutcome("got [object Promise]"), HOUSE
    )


def test_of_a_script_that_was_cut_off_no_call_is_called_forgotten():
    assert "not awaited" not in build_hint(
        Script("x", "python"), ScriptOutcome(unawaited_calls=9, fault=Fault("call", "over")), HOUSE
    )


def test_a_tool_without_its_server_is_told_whose_it_is():
    assert "github.search" in hinted("python", "x", "NameError: name 'search' is not defined")


def test_who_imports_is_told_that_nothing_need_be():
    assert "without an import" in hinted(
        "python", "import requests", "ModuleNotFoundError: No module named 'requests'"
    )


@pytest.mark.parametrize("kind", ["time", "memory", "recursion", "output", "deadlock", "value"])
def test_every_limit_comes_with_advice(kind: FaultKind):
    assert hinted("python", "x", "over", kind)


def test_calls_that_nobody_waited_for_are_said_also_of_a_script_that_went_well():
    assert build_hint(Script("x", "lua"), ScriptOutcome(unawaited_calls=1), HOUSE).startswith(
        "1 call was not awaited"
    )
    assert build_hint(Script("x", "lua"), ScriptOutcome(), HOUSE) == ""
