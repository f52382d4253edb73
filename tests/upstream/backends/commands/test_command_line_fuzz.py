"""Whatever a caller writes, a program gets exactly the configured words with the values in them; no
shell reads any."""

import asyncio
import os
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config import BackendConfig, LimitsConfig
from portico.config.command_tool import CommandTool
from portico.upstream.backend import Connection, Raw, RequestOptions
from portico.upstream.backends.command_line import (
    InvalidCommandLine,
    build_command_line,
    check_arguments,
)
from portico.upstream.backends.factory import make_backend
from portico.upstream.transports.process import ProcessGuard
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener

ECHO_ARGUMENTS = [sys.executable, "-I", "-S", str(Path(__file__).with_name("echo_arguments.py"))]
NASTY = [
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "x; touch owned #",
    "| touch owned",
    "&& touch owned",
    "|| touch owned",
    "& touch owned &",
    "\ntouch owned\n",
    "\r\ntouch owned",
    "> owned",
    ">>owned",
    "< /etc/passwd",
    "' ; touch owned ; '",
    '" ; touch owned ; "',
    "\\'; touch owned",
    "${IFS}touch${IFS}owned",
    "%PATH%",
    "!PATH!",
    "^& echo > owned",
    "$HOME",
    "~",
    "~root",
    "*",
    "?",
    "[a-z]*",
    "{a,b}",
    "{value}",
    "{{value}}",
    "{0}",
    "%s%n",
    "../../owned",
    "@/etc/passwd",
    "a b\tc",
    "",
    " ",
    " -x",
    "\u2212x",
    "\u2014owned",
    "\u202eowned",
    "\u00e9\u0301 \U0001f600",
    "\ufeffx",
    "\x01\x1b[31m\x7f",
    "=x",
    "/c calc",
    "'",
    '"',
    "\\",
    "#",
    "x" * 100_000,
]
DASHED = [
    "-x",
    "-",
    "--",
    "--output=owned",
    "-oProxyCommand=touch owned",
    "-\n",
    "--$(touch owned)",
]
NO_TEXT = ["\0", "a\0b", "-\0", "\ud800", "a\udfffb", "\udcff"]

ARGUMENTS: dict[str, Any] = {
    "value": {"type": "string"},
    "flagged": {"flag": "--flag"},
    "apart": {"flag": "-f"},
    "many": {"type": "array"},
    "number": {"type": "integer"},
}
TOOL = CommandTool.model_validate(
    {
        "command": [*ECHO_ARGUMENTS, "first", "{value}", "--glued={value}", "--", "{many}"],
        "arguments": ARGUMENTS,
        "stdin": "{value}",
        "output": "json",
    }
)

texts = st.one_of(
    st.sampled_from([*NASTY, *DASHED, *NO_TEXT]), st.text(max_size=40), st.text(string.printable)
)


def usable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def expected(given_values: dict[str, Any]) -> list[str] | None:
    """The words as a reader of the configuration would write them down; None where they must be
    refused."""
    value, flagged, apart = (given_values.get(name) for name in ("value", "flagged", "apart"))
    many = given_values.get("many", [])
    if not all(
        usable(text)
        for text in (*(one for one in (value, flagged, apart) if one is not None), *many)
    ):
        return None
    if any(one is not None and one.startswith("-") for one in (value, apart)):
        return None
    words = ["first"]
    if value is not None:
        words += [value, f"--glued={value}"]
    if flagged is not None:
        words.append(f"--flag={flagged}")
    if apart is not None:
        words += ["-f", apart]
    return [
        *words,
        "--",
        *many,
        *([str(given_values["number"])] if "number" in given_values else []),
    ]


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "value": texts,
            "flagged": texts,
            "apart": texts,
            "many": st.lists(texts, max_size=5),
            "number": st.integers(-(10**6), 10**6),
        },
    )
)
def test_the_words_are_the_template_with_the_values_and_nothing_else(given_values: dict[str, Any]):
    call = check_arguments(TOOL, given_values)
    wanted = expected(given_values)
    if wanted is None:
        if not call.problems:
            with pytest.raises(InvalidCommandLine):
                build_command_line(TOOL, call)
        return
    assert not call.problems
    command = build_command_line(TOOL, call)
    assert list(command.words) == [*ECHO_ARGUMENTS, *wanted]
    assert command.stdin == given_values.get("value", "")


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from([*ARGUMENTS, "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | texts,
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=2)
            ),
            max_leaves=4,
        ),
    )
)
def test_no_json_at_all_makes_words_that_are_not_text(arguments: dict[str, Any]):
    call = check_arguments(TOOL, arguments)
    if call.problems:
        return
    try:
        command = build_command_line(TOOL, call)
    except InvalidCommandLine:
        return
    operands = command.words.index("--")
    assert list(command.words[: len(ECHO_ARGUMENTS)]) == ECHO_ARGUMENTS
    for word in command.words:
        assert "\0" not in word
        word.encode()
    options = [
        word for word in command.words[len(ECHO_ARGUMENTS) : operands] if word.startswith("-")
    ]
    assert all(word == "-f" or word.startswith(("--glued=", "--flag=")) for word in options)


class Room:
    """A folder with a program in it that can be called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.guard = folder, ProcessGuard()
        config = BackendConfig(commands={"it": TOOL}, cwd=str(folder))
        self.runner = asyncio.Runner()
        backend = make_backend("p", config, LimitsConfig(), self.guard)
        self.connection: Connection = self.runner.run(backend.connect(RecordingListener()))

    def call(self, **arguments: Any) -> Raw:
        params = {"name": "it", "arguments": arguments}
        return self.runner.run(
            self.connection.request("tools/call", params, RequestOptions(timeout=TEST_TIMEOUT_S))
        )

    def close(self) -> None:
        self.runner.run(self.connection.close())
        self.runner.close()
        self.guard.close()


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    made = Room(tmp_path_factory.mktemp("room"))
    yield made
    made.close()


def received(result: Raw) -> list[str]:
    assert not result.get("isError"), result
    return result["structuredContent"]["words"]


def test_nothing_nasty_is_run_and_every_word_arrives_as_it_was_written(room: Room):
    every = [*(text for text in NASTY if len(text) < 1_000), *DASHED]
    words = received(room.call(value="x", many=every))
    assert words == ["first", "x", "--glued=x", "--", *every]
    assert os.listdir(room.folder) == []


@pytest.mark.parametrize("value", NASTY[:18] + NASTY[-1:], ids=range(19))
def test_a_nasty_value_is_one_word_and_one_input(room: Room, value: str):
    result = room.call(value=value)
    assert received(result) == ["first", value, f"--glued={value}", "--"]
    assert result["structuredContent"]["stdin"] == value
    assert os.listdir(room.folder) == []


@pytest.mark.parametrize("value", [*DASHED, *NO_TEXT], ids=range(len(DASHED) + len(NO_TEXT)))
def test_what_would_be_an_option_or_is_no_text_never_arrives(room: Room, value: str):
    result = room.call(value=value)
    assert result["isError"]
    assert "do not fit" in result["content"][0]["text"]
    assert os.listdir(room.folder) == []


@settings(max_examples=25)
@given(
    st.lists(texts.filter(usable).filter(lambda text: len(text) < 1_000), min_size=1, max_size=30)
)
def test_a_real_program_gets_what_was_written(room: Room, values: list[str]):
    assert received(room.call(many=values))[1:] == ["--", *values]
    assert os.listdir(room.folder) == []
