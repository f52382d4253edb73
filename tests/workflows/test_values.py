"""Words and inputs become what a parameter takes, where that is certain, and nothing elsewhere."""

from typing import Any

import pytest

from portico.workflows.planning.values import (
    NOTHING,
    Each,
    convert_input,
    convert_text,
    match_option,
    strip_quotes,
    to_iso_date,
    wants_date,
)
from tests.workflows.test_parameters import make_leaf

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STATE = {"type": "string", "enum": ["OPEN", "in_progress", "closed"]}
STRINGS = {"type": "array", "items": STRING}
INTEGERS = {"type": "array", "items": INTEGER}
DATE = {"type": "string", "format": "date"}


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('"Road Map"', "Road Map"),
        ("„Grüße“.", "Grüße"),
        ("«a»,", "a"),
        (" plain, ", "plain"),
        ("it's", "it's"),
        ('""', '""'),
        ('"Deploy now!"', "Deploy now!"),
    ],
)
def test_quotation_marks_and_what_ends_a_sentence_are_no_part_of_a_value(text: str, inner: str):
    assert strip_quotes(text) == inner


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("42", INTEGER, 42),
        ("#42", INTEGER, 42),
        ("twelve", INTEGER, 12),
        ("1,250", INTEGER, 1250),
        ("1.250.000", INTEGER, 1_250_000),
        ("12,5", NUMBER, 12.5),
        ("-3.5", NUMBER, -3.5),
        ("12.5", INTEGER, NOTHING),
        ("many", INTEGER, NOTHING),
        ("9" * 40, INTEGER, NOTHING),
        ("in progress", STATE, "in_progress"),
        ("Open", STATE, "OPEN"),
        ("close", STATE, "closed"),
        ("sideways", STATE, NOTHING),
        ("yes", {"type": "boolean"}, True),
        ("off", {"type": "boolean"}, False),
        ("perhaps", {"type": "boolean"}, NOTHING),
        ("red, green and blue", STRINGS, ["red", "green", "blue"]),
        ('["a", "b"]', STRINGS, ["a", "b"]),
        ("1; 2; 3", INTEGERS, [1, 2, 3]),
        ("1; two hundred", INTEGERS, NOTHING),
        ("open, closed", {"type": "array", "items": STATE}, ["OPEN", "closed"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("[1]", {"type": "object"}, NOTHING),
        ("a thing", {"type": "object"}, NOTHING),
        ("[" * 5_000, {"type": "object"}, NOTHING),
        ("31 January 2025", DATE, "2025-01-31"),
        ("tomorrow", DATE, "tomorrow"),
        ("31 January 2025", STRING, "31 January 2025"),
        (" ", STRING, NOTHING),
    ],
)
def test_words_are_converted_to_the_type_of_their_parameter(
    text: str, schema: dict[str, Any], value: Any
):
    assert convert_text(text, make_leaf(schema)) == value


@pytest.mark.parametrize(
    ("given", "schema", "value"),
    [
        ("keep, this. ", STRING, "keep, this. "),
        ("7", INTEGER, 7),
        (7, STRING, "7"),
        (7.0, INTEGER, 7),
        (7.5, INTEGER, NOTHING),
        (7, NUMBER, 7),
        (2.5, STRING, "2.5"),
        (7, INTEGERS, [7]),
        (True, {"type": "boolean"}, True),
        (True, INTEGER, NOTHING),
        (True, STRING, NOTHING),
        ("closed", STATE, "closed"),
        ("IN PROGRESS", STATE, "in_progress"),
        ("nowhere", STATE, NOTHING),
        (2, {"enum": [1, 2]}, 2),
        (["1", 2], INTEGERS, [1, 2]),
        (["x"], INTEGERS, NOTHING),
        (["a", "b"], STRING, Each(["a", "b"])),
        (["a", "b"], {"type": "string", "description": "Comma-separated."}, "a,b"),
        (["a", "b"], {"type": "string", "description": "A JSON array."}, '["a", "b"]'),
        ("Show HN", {"type": "string", "description": "top or show_hn"}, "show_hn"),
        ("top", {"type": "string", "description": "`top` or show_hn"}, "top"),
        ("paused", {"type": "string", "description": "ACTIVE or PAUSED"}, "PAUSED"),
        ("Maintainer", {"type": "integer", "description": "30=Developer, 40=Maintainer"}, 40),
        ("urgent", {"type": "number", "description": "Priority: none (0), urgent (1)"}, 1),
        ("nobody", {"type": "integer", "description": "30=Developer, 40=Maintainer"}, NOTHING),
        (["a"], STRING, "a"),
        (["open", "closed"], STATE, Each(["OPEN", "closed"])),
        (["open", "nowhere"], STATE, NOTHING),
        (["a"], INTEGER, NOTHING),
        ([{"a": 1}], {"type": "array", "items": {"type": "object"}}, [{"a": 1}]),
        ({"a": 1}, {"type": "object"}, {"a": 1}),
        ({"a": 1}, STRING, NOTHING),
        ("31.1.2025", DATE, "2025-01-31"),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_an_input_is_converted_only_where_it_certainly_fits(
    given: Any, schema: dict[str, Any], value: Any
):
    found = convert_input(given, make_leaf(schema))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), 1e300])
def test_a_number_that_is_no_integer_is_refused_without_an_error(given: float):
    if given == 1e300:
        assert convert_input(given, make_leaf(INTEGER)) == int(given)
    else:
        assert convert_input(given, make_leaf(INTEGER)) is NOTHING


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2025-01-31", "2025-01-31"),
        ("2025/1/3", "2025-01-03"),
        ("2025-01-31T10:00:00Z", "2025-01-31T10:00:00Z"),
        ("31. 1. 2025", "2025-01-31"),
        ("January 31st, 2025", "2025-01-31"),
        ("3. März 2025", "2025-03-03"),
        ("15 août 2024", "2024-08-15"),
        ("30 February 2025", ""),
        ("2025-13-45", ""),
        ("2025-13-45T10:00", ""),
        ("01/02/2025", ""),
        ("next week", ""),
        ("March", ""),
    ],
)
def test_a_date_that_can_be_read_in_one_way_only_is_written_in_iso_8601(text: str, iso: str):
    assert to_iso_date(text) == iso


def test_a_parameter_wants_a_date_if_its_format_or_description_says_so():
    assert wants_date(make_leaf(DATE))
    assert wants_date(make_leaf({"type": "string", "description": "As YYYY-MM-DD"}))
    assert not wants_date(make_leaf({"type": "string", "description": "A date"}))
    assert not wants_date(make_leaf({"type": "integer", "description": "ISO 8601"}))


def test_an_option_is_chosen_by_all_of_its_value():
    assert match_option("1", make_leaf({"enum": [-1, 1]})) == 1
    assert match_option("1.5", make_leaf({"enum": [15, 1.5]})) == 1.5


def test_an_ending_that_fits_two_options_chooses_neither():
    assert match_option("close", make_leaf({"enum": ["closed", "opened"]})) == "closed"
    assert match_option("close", make_leaf({"enum": ["closed", "closes"]})) is NOTHING


def test_a_key_with_a_dash_is_no_negative_number():
    assert convert_text("ENG-482", make_leaf(INTEGER)) in (482, NOTHING)


@pytest.mark.parametrize("unit", [" ", ",", "1 ", "and ", '"', "[", "1,", "."])
@pytest.mark.parametrize("schema", [STRING, INTEGER, NUMBER, STRINGS, INTEGERS, DATE, STATE])
def test_texts_that_repeat_one_thing_are_read_in_bounded_steps(unit: str, schema: dict[str, Any]):
    # Steps that grow with the square of the length would exceed the time limit of a test.
    convert_text(unit * 100_000, make_leaf(schema))
    convert_input(unit * 100_000, make_leaf(schema))
