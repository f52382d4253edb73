"""Each command as a real process: its exit code, JSON alone on stdout, and no traceback
anywhere."""

import pytest

from portico.cli.exit import print_warning
from portico.cli.streams import ProcessStreams, use_streams
from tests.cli.conftest import Home


@pytest.mark.parametrize(
    ("words", "code", "key"),
    [
        (["search", "delete a note", "--json"], 0, "tools"),
        (["browse", "--json"], 0, "servers"),
        (["describe", "text.slugify", "--detail", "full", "--json"], 0, "tools"),
        (["call", "text.slugify", "text=A B", "--json"], 0, "content"),
        (["call", "clock.now", "zone=Mars", "--json"], 1, "isError"),
        (["call", "clock.nothing", "--json"], 1, "error"),
        (["config", "--json"], 0, "config"),
        (["status", "--json"], 0, "servers"),
        (["demo", "--json"], 0, "steps"),
        (["status", "--config", "missing.yaml", "--json"], 2, "error"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_command_answers_json_and_an_exit_code(
    home: Home, words: list[str], code: int, key: str
) -> None:
    ran = home.spawn(*words)
    assert ran.code == code, ran.err
    assert key in ran.data
    assert ran.out.count("\n") == 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words", [["search", "delete a note"], ["browse", "text"], ["status"], ["demo"]]
)
def test_a_command_answers_text_in_any_encoding(home: Home, words: list[str]) -> None:
    ran = home.spawn(*words, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert ran.code == 0, ran.err
    assert ran.out


def test_a_warning_is_printed_once_in_a_run(capfd: pytest.CaptureFixture[str]) -> None:
    use_streams(ProcessStreams())
    for text in ("the key is old", "the key is old", "another"):
        print_warning(text)
    assert capfd.readouterr().err.count("Warning: ") == 2
