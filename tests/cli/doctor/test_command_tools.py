"""Command-line programs that are tools, as the commands of Portico show them."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import REPOSITORY, Home

PYTHON = [sys.executable, "-I", "-S", "-c"]
ADD = "import sys; print(sum(map(int, sys.argv[1:])))"


def _server(**commands: Any) -> dict[str, Any]:
    return {"servers": {"sums": {"env": {"SERVICE_TOKEN": "correct-horse"}, "commands": commands}}}


def _findings(home: Home, server: dict[str, Any]) -> dict[str, dict[str, Any]]:
    home.write({"servers": {"one": server}})
    result = home.run("doctor", "--json", "--server", "one", "--offline")
    return {finding["id"]: finding for finding in result.data["findings"]}


def test_a_command_is_called_from_the_command_line(home: Home) -> None:
    numbers = {"type": "array", "items": "integer"}
    add = {
        "command": [*PYTHON, ADD, "{numbers}"],
        "arguments": {"numbers": numbers},
        "output": "json",
    }
    home.write(_server(add=add))
    called = home.run("call", "sums.add", json.dumps({"numbers": [1, 2, 39]}), "--json")
    assert called.code == 0, called.err
    assert called.data["structuredContent"] == {"result": 42}


def test_status_and_config_show_the_kind_and_no_secret(home: Home) -> None:
    home.write(
        _server(
            add=[*PYTHON, ADD],
            later=["curl", "--header", "Authorization: Bearer abcdef0123456789abcd"],
        )
    )
    status = home.run("status", "--json")
    assert [(one["name"], one["kind"], one["tools"]) for one in status.data["servers"]] == [
        ("sums", "commands", 2)
    ]
    for result in (status, home.run("status"), home.run("config"), home.run("config", "--json")):
        assert result.code == 0, result.err
        assert "correct-horse" not in result.out
        assert "abcdef0123456789abcd" not in result.out
    assert "commands" in home.run("status").out


def test_secrets_in_the_words_of_a_command_are_not_shown(home: Home) -> None:
    in_words = [
        "curl",
        "--token",
        "hunter-two",
        "--key={key}",
        "--password",
        "{password}",
        "${USER_PW}",
    ]
    home.write(
        _server(
            listed={"command": in_words},
            bare=in_words,
            line="curl -u ${USER_PW} {x}",
            known={"command": "x", "stdin": "${USER_PW}"},
        )
    )
    result = home.run("config", "--json", env={"USER_PW": "battery staple"})
    assert result.code == 0, result.err
    shown = result.data["config"]["servers"]["sums"]["commands"]
    assert shown["bare"]["command"] == shown["listed"]["command"]
    assert shown["listed"]["command"] == [
        "curl",
        "--token",
        "***",
        "--key={key}",
        "--password",
        "{password}",
        "${USER_PW}",
    ]
    assert shown["line"]["command"] == ["curl", "-u", "${USER_PW}", "{x}"]
    assert shown["known"]["stdin"] == "${USER_PW}"
    assert "battery" not in result.out
    findings = home.run(
        "doctor", "--json", "--offline", "--server", "sums", env={"USER_PW": "battery staple"}
    )
    plain = [one["key"] for one in findings.data["findings"] if one["id"] == "secret.in_file"]
    assert plain == ["servers.sums.env.SERVICE_TOKEN", "servers.sums.commands.listed.command.2"]
    assert "battery" not in findings.out
    assert "hunter-two" not in findings.out


def test_a_wrong_command_is_refused_with_its_place(home: Home) -> None:
    path = home.folder / "portico.yaml"
    path.write_text(
        "servers:\n  s:\n    commands:\n      show: {command: 'cat {paht}', arguments: "
        "{path: string}}\n"
    )
    result = home.run("status")
    assert result.code != 0
    assert "portico.yaml:4" in result.err
    assert "{paht} is none of its arguments (path)" in result.err


def test_a_file_in_yaml_is_read_as_its_writer_means_it(home: Home) -> None:
    """Unquoted braces, one line, and a program alone."""
    (home.folder / "portico.yaml").write_text(
        f"servers:\n  s:\n    commands:\n      version: {sys.executable} --version\n"
        f"      add:\n        command: [{sys.executable}, -c, '{ADD}', 1, {{query}}]\n"
        "        arguments:\n          query: {type: integer, default: 41}\n"
    )
    assert home.run("call", "s.version").out.startswith("Python ")
    assert home.run("call", "s.add").out.strip() == "42"
    assert home.run("call", "s.add", "query=2").out.strip() == "3"


def test_the_doctor_finds_a_program_that_is_missing_and_goes_on(home: Home) -> None:
    home.write(_server(lost="no-such-program-here", glued=["cat file", "x"], add=[*PYTHON, ADD]))
    result = home.run("doctor", "--json", "--server", "sums")
    found = [
        (one["id"], one["severity"], one["key"])
        for one in result.data["findings"]
        if one["id"][:8] == "program."
    ]
    assert found == [
        ("program.missing", "broken", "servers.sums.commands.lost.command"),
        ("program.missing", "broken", "servers.sums.commands.glued.command"),
    ]
    assert "Each word by itself: [cat, file, …]" in result.out
    assert result.code != 0


def test_the_doctor_warns_of_words_that_are_run_or_chosen_by_callers(home: Home) -> None:
    assert (
        _findings(home, {"commands": {"x": ["sh", "-c", "{script}"]}})["program.runs_code"][
            "severity"
        ]
        == "warning"
    )
    assert "program.any_option" in _findings(home, {"commands": {"x": "ls -{letters}"}})
    lonely = {"command": "ls --sort {by} .", "arguments": {"by": "string"}}
    assert (
        "flag: '--sort {}'"
        in _findings(home, {"commands": {"x": lonely}})["program.lonely_option"]["remedy"]
    )
    unplaced = {"command": "ls", "arguments": {"path": "string"}}
    assert _findings(home, {"commands": {"x": unplaced}})["program.unplaced"]["severity"] == "note"


def test_the_doctor_is_silent_about_a_sound_command(home: Home, tmp_path: Path) -> None:
    sound = {
        "command": [*PYTHON, ADD, "--sort={by}", "--", "{path}"],
        "arguments": {"by": "string", "path": "string", "all": {"type": "boolean", "flag": "-a"}},
    }
    home.write({"servers": {"a": {"commands": {"x": sound}}, "b": {"commands": {"y": sound}}}})
    assert "server.duplicate" not in home.run("doctor", "--offline").out
    found = _findings(home, {"commands": {"x": sound}, "cwd": str(tmp_path)})
    assert not [one for one in found if one.startswith("program.")]
    assert "program.cwd_missing" in _findings(
        home, {"commands": {"x": sound}, "cwd": str(tmp_path / "no")}
    )


@pytest.mark.skipif(
    shutil.which("grep") is None or shutil.which("sort") is None,
    reason="there is no grep or sort here",
)
def test_the_example_works_as_it_lies_there(home: Home) -> None:
    config = ("--config", str(REPOSITORY / "examples" / "commands" / "portico.yaml"))
    found = home.run("call", "notes.find", "text=kiln", "ignore_case=true", *config)
    assert [line.partition(":")[0] for line in found.out.splitlines() if line] == ["1", "4"], (
        found.err
    )
    assert (
        "(no output; exit code 1)" in home.run("call", "notes.find", "text=--version", *config).out
    )
    assert (
        home.run(
            "call", "notes.sorted", json.dumps({"text": "10\n9", "numeric": True}), *config
        ).out
        == "9\n10\n\n"
    )
