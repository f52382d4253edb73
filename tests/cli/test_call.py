"""`call` runs one tool, and its exit code tells whether the tool succeeded."""

import sys

import psutil
import pytest

from .conftest import EVERYTHING, Home


def test_arguments_are_read_by_the_tools_types(home: Home) -> None:
    ran = home.run(
        "call", "units.convert_units", "value=26.2", "from_unit=miles", "to_unit=km", "digits=3"
    )
    assert (ran.code, ran.out) == (0, '{"value":42.2,"unit":"km","quantity":"length"}\n')


@pytest.mark.parametrize(
    "name", ["calculator.evaluate", "calculator::evaluate", "calculator__evaluate", "evaluate"]
)
def test_arguments_come_as_json_from_stdin_and_names_in_any_spelling(home: Home, name: str) -> None:
    ran = home.run("call", name, "-", stdin='{"expression": "1/4"}')
    assert (ran.code, ran.out) == (0, '{"decimal":"0.25","fraction":"1/4","exact":true}\n')


def test_the_result_as_json_is_the_tools_own(home: Home) -> None:
    ran = home.run("call", "clock.add_to_date", '{"start": "2024-02-28", "days": 1}', "--json")
    assert ran.code == 0
    assert ran.data["structuredContent"] == {"date": "2024-02-29", "weekday": "Thursday"}
    assert ran.data["content"][0]["type"] == "text"


def test_a_tool_that_fails_makes_the_command_fail(home: Home) -> None:
    ran = home.run("call", "calculator.evaluate", "expression=1/0")
    assert (ran.code, ran.out) == (1, "")
    assert "division by zero" in ran.err
    again = home.run("call", "calculator.evaluate", "expression=1/0", "--json")
    assert again.code == 1
    assert again.data["isError"] is True


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["decimals=many"], '"expression" is a required property'),
        (["expression=1", "extra=1"], "extra"),
        (["expression"], "is no argument"),
        (["{"], "not JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_answered_with_the_parameters(
    home: Home, words: list[str], reason: str
) -> None:
    ran = home.run("call", "calculator.evaluate", *words, "--json")
    assert ran.code == 1
    assert reason in ran.data["error"]["message"]
    assert " expression: string" in ran.err


def test_a_real_server_is_started_for_its_call_and_gone_after_it(home: Home) -> None:
    marker = str(home.folder)  # in the server's command line, so that it can be told from any other
    home.write(
        {
            "mcpServers": {
                "all": {**EVERYTHING, "args": ["-X", f"portico={marker}", *EVERYTHING["args"]]}
            }
        }
    )
    ran = home.run("call", "all.whoami", "--json")
    assert ran.code == 0, ran.err
    assert not ran.data.get("isError")
    left = [
        one
        for one in psutil.process_iter(["cmdline"])
        if any(marker in word for word in one.info["cmdline"] or ())
    ]
    assert left == []


def test_a_server_that_is_down_is_known_but_unavailable(home: Home) -> None:
    home.write({"servers": {"gone": {"command": "no-such-command-anywhere"}}})
    ran = home.run("call", "gone.thing", "--json")
    assert ran.code == 1
    assert ran.data["error"]["kind"] == "unavailable"
    assert "gone is known but unavailable" in ran.err
    assert "no-such-command-anywhere" in ran.err


WILD = r"""
def wild(fail: bool = False) -> str:
    "Wild."
    if fail:
        raise ValueError("\x1b[2Jgone")
    return "a\tb\x1b]0;title\x07c"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_what_a_tool_answers_cannot_steer_a_terminal_and_reaches_a_program_as_it_is(
    home: Home,
) -> None:
    (home.folder / "wild.py").write_text(WILD)
    home.write({"servers": {"wild": {"functions": "wild"}}})
    path = {"PYTHONPATH": str(home.folder)}
    assert home.spawn("call", "wild.wild", env=path).out == "a\tb\x1b]0;title\x07c\n"
    assert "\x1b" not in home.spawn("call", "wild.wild", "fail=true", env=path).err
    code, shown = home.on_a_terminal("call", "wild.wild", env=path)
    assert code == 0
    assert "title" not in shown
