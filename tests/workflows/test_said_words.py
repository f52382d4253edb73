"""What was said, as words with places: names stay whole, inputs are read in part."""

from typing import Any

import pytest

from portico.search.dense.wordpiece import WordPieceTokenizer
from portico.workflows.planning.said_values import MAX_VALUES
from portico.workflows.planning.said_words import (
    MAX_INPUTS,
    MAX_VALUE_CHARS,
    SaidWords,
    iter_inputs,
    read_said_words,
    write_value,
)

TOKENIZER = WordPieceTokenizer({"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "issue": 3, "=": 4, "open": 5})


def read(intent: str, **inputs: Any) -> SaidWords:
    return read_said_words(intent, inputs, TOKENIZER)


def test_words_have_their_places_and_text():
    said = read("Close  issue, ok")
    assert [said.intent[start:end] for start, end in said.spans] == ["Close", "issue", ",", "ok"]
    assert said.get_text(0, 1) == "Close  issue"
    assert said.pieces[1] == (3,)


def test_inputs_follow_the_words_with_the_places_of_their_values():
    said = read("issue", issueState="open", other="")
    (state, other) = said.inputs
    assert (state.name, state.value) == ("issueState", "open")
    assert said.pieces[state.first : state.last + 1] == ((5,),)
    assert other.first == other.last == len(said.pieces) - 1
    assert len(said.spans) == 1


def test_the_parts_of_an_object_are_inputs_behind_it():
    assert list(iter_inputs({"to": {"city": "Rome", "zip": 1}, "note": "x"})) == [
        ("to", {"city": "Rome", "zip": 1}, False),
        ("to.city", "Rome", True),
        ("to.zip", 1, True),
        ("note", "x", False),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (3, "3"),
        (True, "true"),
        (None, "null"),
        (["a", 1], "a, 1"),
        ({"city": "Rome"}, "city"),
    ],
)
def test_a_value_is_read_as_it_would_be_written(value: Any, text: str):
    assert write_value(value) == text


def test_long_values_are_cut_and_many_inputs_left_out():
    assert len(write_value("x" * 100_000)) == MAX_VALUE_CHARS
    assert len(write_value(["x" * 100_000] * 1_000)) == MAX_VALUE_CHARS
    assert len(write_value({"k" * 1_000 + str(number): 1 for number in range(100)})) <= 400
    assert len(list(iter_inputs({f"i{number}": number for number in range(1_000)}))) == MAX_INPUTS
    wide = {f"i{number}": dict.fromkeys(map(str, range(1_000))) for number in range(1_000)}
    assert len(list(iter_inputs(wide))) <= 2 * MAX_INPUTS


@pytest.mark.parametrize("depth", [100, 1_000])
def test_deep_values_are_read_without_an_error(depth: int):
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    assert len(write_value(value)) <= MAX_VALUE_CHARS


@pytest.mark.parametrize(
    "text",
    [
        "a-" * 50_000,
        "a" * 100_000,
        ". " * 50_000,
        "/" * 100_000,
        "1 to 2 de " * 10_000,
        '"a" ,' * 20_000,
        "1 May 2026 at 10:00 " * 5_000,
        "x" + "\n" * 50_000 + "y",
    ],
)
def test_long_intents_are_read_in_bounded_steps(text: str):
    said = read(text)
    assert said.spans[-1][1] <= len(text)
    assert len(said.values) <= 2 * MAX_VALUES
