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
            "AttributeError: type object 'asyncio' has no attribute 'TaskGroup'",
            "gather, sleep",
        ),
        (
            "python",
            "NotImplementedError: The monty syntax parser does not yet support yield expressions",
            "Append to a list",
        ),
        (
            "python",
            "NotImplementedError: The monty syntax parser does not yet support the 'x' statement",
            "is small",
        ),
        ("python", "RuntimeError: 'os.getenv' is not supported in this environment", "no system"),
        ("python", "TypeError: callable replacement is not yet supported", "finditer"),
        ("python", "NameError: name 'github' is not defined", "github is a server here"),
        ("javascript", "ReferenceError: tools is not defined", "by their own names"),
        ("python", "PermissionError: Permission denied: '/tmp/x'", "use a server's tools"),
        ("python", "ModuleNotFoundError: No module named 'pandas'", "Use lists and dicts"),
        ("javascript", "ReferenceError: URL is not defined", "take texts apart"),
        ("typescript", "ReferenceError: fetch is not defined", "no network"),
        ("lua", "attempt to index a nil value (global 'io')", "no files here"),
        ("lua", "there are no modules here but json: socket", "without an import"),
    ],
)
def test_names_that_are_missing_here_are_explained_with_what_to_do(
    language: Language, message: str, advice: str
):
    assert advice in hinted(language, "x", message)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("if a != b then", "~="),
        ("total += order.amount", "total = total +"),
        ("text ..= 'x'", "text = text .."),
        ("n++", "n = n + 1"),
        ("if a && b then", "and"),
        ("if a || b then", "or"),
        ("if !a then", "not"),
        ("  continue", "goto continue"),
    ],
)
def test_what_other_languages_say_differently_is_named_for_lua(line: str, advice: str):
    assert advice in hinted("lua", line, "unexpected symbol", "syntax")


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


def test_an_answer_of_unexpected_shape_is_described():
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


def test_a_tool_without_its_server_is_explained_with_its_server():
    assert "github.search" in hinted("python", "x", "NameError: name 'search' is not defined")


def test_an_import_is_answered_with_what_is_there_already():
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
    late = build_hint(Script("x", "lua"), ScriptOutcome(late_calls=2), HOUSE)
    assert late.startswith("2 calls were not awaited and ended after the script")
    assert build_hint(Script("x", "lua"), ScriptOutcome(), HOUSE) == ""


@pytest.mark.parametrize(
    ("kind", "message"),
    [("syntax", "SyntaxError: invalid"), ("runtime", "TypeError: 'int' object is not callable")],
)
def test_a_script_of_nothing_but_line_ends_is_read_once(kind: FaultKind, message: str):
    # Read again from each line, 256 kB take minutes: the time limit of a test would end it.
    assert hinted("python", "\n" * 256 * 1024 + "[", message, kind) == ""
