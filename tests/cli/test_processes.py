"""Each command as a real process: its exit code, JSON alone on stdout, and no traceback anywhere."""

import pytest

from .conftest import Home


@pytest.mark.parametrize(
    ("words", "code", "key"),
    [
        (["search", "roll dice", "--json"], 0, "tools"),
        (["browse", "--json"], 0, "servers"),
        (["describe", "text.slugify", "--detail", "full", "--json"], 0, "tools"),
        (["call", "calculator.evaluate", "expression=2**10", "--json"], 0, "content"),
        (["call", "calculator.evaluate", "expression=1/0", "--json"], 1, "isError"),
        (["call", "calculator.nothing", "--json"], 1, "error"),
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
    "words", [["search", "roll dice"], ["browse", "text"], ["status"], ["demo"]]
)
def test_a_command_answers_text_in_any_encoding(home: Home, words: list[str]) -> None:
    ran = home.spawn(*words, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert ran.code == 0, ran.err
    assert ran.out
