"""`call` runs one tool, and its exit code tells whether the tool succeeded."""

import sys

import psutil
import pytest

from portico.cli.commands.call import render_progress
from tests.cli.conftest import EVERYTHING, Home, start
from tests.cli.local_gateway.conftest import Serve, serve
from tests.upstream.scripted import script

__all__ = ["serve", "start"]


def test_arguments_are_read_by_the_tools_types(home: Home) -> None:
    ran = home.run(
        "call", "units.convert_units", "value=26.2", "from_unit=miles", "to_unit=km", "digits=3"
    )
    assert (ran.code, ran.out) == (0, '{"value":42.2,"unit":"km","quantity":"length"}\n')


@pytest.mark.parametrize(
    "name", ["units.list_units", "units::list_units", "units__list_units", "list_units"]
)
def test_arguments_come_as_json_from_stdin_and_names_in_any_spelling(home: Home, name: str) -> None:
    ran = home.run("call", name, "-", stdin='{"quantity": "speed"}')
    assert (ran.code, ran.out) == (0, '{"speed":["m/s","km/h","mph","kn"]}\n')


def test_the_result_as_json_is_the_tools_own(home: Home) -> None:
    ran = home.run("call", "clock.add_to_date", '{"start": "2024-02-28", "days": 1}', "--json")
    assert ran.code == 0
    assert ran.data["structuredContent"] == {"date": "2024-02-29", "weekday": "Thursday"}
    assert ran.data["content"][0]["type"] == "text"


def test_a_tool_that_fails_makes_the_command_fail(home: Home) -> None:
    ran = home.run("call", "clock.now", "zone=Mars")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no time zone 'Mars'" in ran.err
    again = home.run("call", "clock.now", "zone=Mars", "--json")
    assert again.code == 1
    assert again.data["isError"] is True


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["max_length=many"], '"text" is a required property'),
        (["text=1", "extra=1"], "extra"),
        (["text"], "is no argument"),
        (["{"], "not JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_answered_with_the_parameters(
    home: Home, words: list[str], reason: str
) -> None:
    ran = home.run("call", "text.slugify", *words, "--json")
    assert ran.code == 1
    assert reason in ran.data["error"]["message"]
    assert " text: string" in ran.err


def test_a_real_server_is_started_for_its_call_and_gone_after_it(home: Home) -> None:
    marker = str(home.folder)  # in the server's command line, so that it can be distinguished
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
    code, shown = home.run_in_terminal("call", "wild.wild", env=path)
    assert code == 0
    assert "title" not in shown


def test_what_is_switched_off_is_called_so_with_the_way_back(home: Home) -> None:
    text = {"functions": "portico.demo.text:TOOLS", "tools": {"deny": ["slug*"]}}
    clock = {"functions": "portico.demo.clock:TOOLS", "disabled": True}
    profiles = {"writing": {"servers": ["text"]}}
    home.write({"servers": {"text": text, "clock": clock}, "profiles": profiles})
    ran = home.run("call", "clock.now")
    assert ran.code == 1
    assert ran.err == "Error: clock is switched off\n`portico enable clock` switches it on.\n"
    ran = home.run("call", "text.slugify", "text=A")
    assert "Error: text.slugify is switched off\n`portico enable text.slugify`" in ran.err
    assert "there is no tool" in home.run("call", "clock.now", "--profile", "writing").err
    assert "there is no tool" in home.run("call", "text.nothing").err


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CONFIG_HOME")
def test_a_clients_file_that_hides_the_users_own_is_named(home: Home) -> None:
    servers = {"text": {"command": "no-such-program"}}
    home.write({"mcpServers": servers}, ".mcp.json")
    assert "exists too" not in home.run("search", "text", "--offline").err
    folder = home.folder / "settings" / "portico"
    folder.mkdir(parents=True)
    own = home.write({"servers": {}}, "settings/portico/portico.yaml")
    env = {"XDG_CONFIG_HOME": str(folder.parent)}
    ran = home.run("search", "text", "--offline", env=env)
    assert ran.err.count(f"Using .mcp.json of this folder; {own} exists too") == 1
    for words in (["--json"], ["--config", ".mcp.json"]):
        assert "exists too" not in home.run("search", "text", "--offline", *words, env=env).err


REPORTER = """
shake()
for id, method, params in requests():
    if method == "tools/list":
        send(id=id, result={"tools": [{"name": "copy", "inputSchema": {"type": "object"}}]})
        continue
    token = (params.get("_meta") or {}).get("progressToken")
    if token is not None:
        report = {"progressToken": token, "progress": 3, "total": 4}
        report["message"] = "copied [3] of \\x1b]0;4"
        send(method="notifications/progress", params=report)
    send(id=id, result={"content": [{"type": "text", "text": f"asked: {token is not None}"}]})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX terminals")
def test_progress_of_the_server_is_shown_in_a_terminal_only(home: Home, serve: Serve) -> None:
    program, *args = script(REPORTER)
    home.write({"servers": {"reporter": {"command": program, "args": args}}})
    assert home.spawn("call", "reporter.copy").out == "asked: False\n"
    serve()
    for option in ([], ["--alone"]):
        code, sent = home.run_in_terminal("call", "reporter.copy", *option)
        assert code == 0, sent
        assert "reporter.copy … 75% copied [3] of" in sent, option
        assert "\x1b]0;" not in sent
        assert "asked: True" in sent


def test_a_report_of_progress_says_the_share_and_the_message():
    assert render_progress({"progress": 5, "total": 4, "message": "almost"}) == "100% almost"
    assert render_progress({"progress": 7}) == ""
    assert render_progress({"progress": "x", "total": 0, "message": "a\nb"}) == "a b"
    assert render_progress({"progress": 10**400, "total": 1.5}) == ""
