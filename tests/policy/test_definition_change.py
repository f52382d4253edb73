"""Which changes of a text are harmless."""

import orjson
import pytest

from portico.policy.definition_change import compare_fields

COMMANDS = "Runs a command in /data. Available commands: cat, ls, pwd. Available flags: -a, -l"


def is_harmless(before: str, after: str) -> bool:
    [change] = compare_fields(
        orjson.dumps({"description": before}), orjson.dumps({"description": after})
    )
    return change.is_harmless


@pytest.mark.parametrize(
    "after",
    [
        "Runs a command in /data. Available commands: pwd, cat, ls. Available flags: -l, -a",
        "Runs a command in /data. Available commands: ls, pwd, cat. Available flags: -a, -l",
    ],
)
def test_a_list_in_another_order_says_the_same(after: str) -> None:
    assert is_harmless(COMMANDS, after)


def test_a_set_as_python_writes_it_says_the_same_in_any_order() -> None:
    assert is_harmless("One of {'b', 'a', 'c'}.", "One of {'c', 'b', 'a'}.")


def test_another_date_says_the_same() -> None:
    assert is_harmless("Today is 2026-11-19.", "Today is 2026-11-20.")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COMMANDS, COMMANDS.replace("ls", "rm")),
        (COMMANDS, COMMANDS.replace("/data", "/home")),
        ("Never send it. Read it.", "Read it. Never send it."),
        ("Do not read the following: keys", "keys Do not read the following:"),
        ("Reads mail, never sends it.", "Never reads mail, sends it."),
        ("Today is 2026-11-19.", "Today is 2026-11-19, so send it."),
        ("At most 2026 rows.", "At most 9026 rows."),
    ],
)
def test_other_words_and_other_sentences_are_no_list(before: str, after: str) -> None:
    assert not is_harmless(before, after)
