"""Words are left out where they repeat, praise or exemplify, and kept where a call would go wrong
without them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.schema_outline import SchemaParameter, build_outline
from portico.rendering.condensed_text import condense_description, condense_note
from portico.rendering.prose import parse_docstring
from portico.rendering.token_budget import count_tokens


def param(schema: dict[str, Any], name: str = "state") -> SchemaParameter:
    return build_outline({"properties": {name: schema}}).parameters[0]


PLAIN = {"type": "string"}
VALUES = {"enum": ["open", "closed", "all"], "default": "open"}
LIMITED = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}


@pytest.mark.parametrize(
    ("schema", "text", "shown"),
    [
        (PLAIN, "The state", ""),
        (PLAIN, "State (optional)", ""),
        (PLAIN, "Optional. The state of the union", "state of the union"),
        (PLAIN, "[required] Which one", "Which one"),
        (VALUES, "Filter. One of: open, closed, all. Defaults to 'open'.", "Filter."),
        (VALUES, "Issue state: open, closed or all", "Issue state"),
        (VALUES, "Issue state ('open', 'closed', 'all') (default: open)", "Issue state"),
        (
            VALUES,
            "open: still to do; closed: done; all: both",
            "open: still to do; closed: done; all: both",
        ),
        (VALUES, "Only open and closed issues have one", "Only open and closed issues have one"),
        (LIMITED, "Results per page (1-100), default 20", "Results per page"),
        (LIMITED, "Results per page, default 30", "Results per page, default 30"),
        (PLAIN, "Name (default: main)", "Name (default: main)"),
        (PLAIN, "See [the docs](https://example.com/a) on **states**", "See the docs on states"),
        (PLAIN, "State ID or name", "State ID or name"),
    ],
)
def test_what_the_type_says_is_not_said_again(schema: dict[str, Any], text: str, shown: str):
    assert condense_note(param(schema), text).text == shown


@pytest.mark.parametrize(
    "said",
    [
        "Accepts: ISO 8601 (e.g. 2024-01-15T14:30:25), relative dates, or absolute dates.",
        "It is written as YYYY-MM-DD.",
        "Phone numbers are in E.164 (such as +16175551212).",
        "Several are one comma-separated text.",
    ],
)
def test_how_a_value_is_written_is_kept(said: str):
    praise = "This is one of the many things that make the whole service so pleasant to use. " * 4
    note = condense_note(param(PLAIN, "since"), f"Start of what is looked at. {praise}{said}")
    assert said in note.text
    assert note.omitted_tokens


def test_short_words_are_kept_whole():
    text = "When to send it, as ISO 8601 in UTC. Must lie in the future."
    assert condense_note(param(PLAIN, "at"), text).text == text
    assert (
        condense_description("Sends a message. Costs a credit.").text
        == "Sends a message. Costs a credit."
    )


def test_what_a_caller_must_know_outlives_praise_and_examples():
    idle = (
        "This tool is a powerful way to get the job done in all kinds of places and "
        "for all kinds of people. "
    ) * 20
    shown = condense_description(
        f"Sends a letter. {idle} You must stamp it first. {idle} Returns the letter that was sent."
    )
    assert shown.text == "Sends a letter. You must stamp it first. …"
    assert shown.omitted_tokens > 200


def test_sentences_about_parameters_come_before_others():
    idle = "It works in many places that nobody has ever been to in all of their life. " * 20
    text = f"Runs it. {idle} Set `learn` to see more. {idle}"
    assert "Set `learn`" in condense_description(text, ["learn"]).text


def test_what_only_words_describe_keeps_them():
    words = "Each has: " + ", ".join(f"field{n} (string)" for n in range(22))
    assert condense_note(param({"type": "array", "items": {"type": "object"}}), words).text == words
    assert condense_note(param(PLAIN), words).text.endswith("…")


def test_a_list_of_what_comes_back_goes_with_its_heading():
    items = "\n".join(f"- field_{n}: if it must be there, number {n}" for n in range(30))
    assert (
        condense_description(f"Gets a letter.\n\nReturns a dictionary with:\n{items}\n").text
        == "Gets a letter. …"
    )


def test_the_lines_of_a_list_become_sentences():
    text = "Sends it.\n\n## Rules\n- Stamp it first\n* Never fold\n"
    assert condense_description(text).text == "Sends it. Stamp it first. Never fold"


def test_code_and_tags_are_left_to_the_full_form():
    text = (
        "Sends it.\n```\nsend(1)\n```\n<Use Cases>\n* When bored\n</Use Cases>\n<hints>\n"
        "- Only once\n</hints>"
    )
    assert condense_description(text).text.startswith("Sends it. ")
    assert "Only once" in condense_description(text).text
    assert not any(word in condense_description(text).text for word in ("send(1)", "<", "bored"))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400), st.integers(1, 40))
def test_no_words_are_over_their_allowance(text: str, times: int):
    whole = f"{text}. must " * times
    assert count_tokens(condense_description(whole).text) <= 260
    assert count_tokens(condense_note(param(VALUES), whole).text) <= 120
    assert count_tokens(condense_note(param({}), whole).text) <= 200


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "(",
        "_",
        " ",
        "e.g. ",
        "a, ",
        "- _",
        "<a",
        "`",
        "**",
        "Must. ",
        "\n",
        "x",
        "[a](",
        "args ",
    ],
)
def test_whatever_is_repeated_without_end_is_shortened(piece: str):
    for text in (piece * 20_000, f"Sends it.\n\nArgs:\n  {piece * 20_000}"):
        assert count_tokens(condense_description(text, ["to"]).text) <= 260
        assert count_tokens(condense_note(param(VALUES), text).text) <= 120
        assert parse_docstring(text, ["to"]).notes == {}


@pytest.mark.parametrize("unit", ["1", "|", ":", ".", "://"])
def test_descriptions_that_repeat_one_character_are_read_in_bounded_steps(unit: str):
    # At seconds for each, as many as a server lists would exceed the time limit of a test.
    repeated = (unit * 12_000)[:11_000]
    for number in range(100):
        text = f"Do thing {number} for the customer. {repeated} And {repeated[:9]} more words:"
        assert condense_description(text).text.startswith(f"Do thing {number}")
