"""Answers as a model reads them."""

import pytest

from portico.errors import BackendUnavailable, InvalidArguments, RecordedOnly, UnknownName
from portico.rendering.tool_result import LONG_TEXT_CHARS, make_error_result, make_text_result


def test_a_short_answer_may_interest_anyone():
    (block,) = make_text_result("x" * LONG_TEXT_CHARS)["content"]
    assert block == {
        "type": "text",
        "text": "x" * LONG_TEXT_CHARS,
        "annotations": {"priority": 0.7},
    }


def test_a_long_answer_is_material_for_the_assistant():
    (block,) = make_text_result("x" * (LONG_TEXT_CHARS + 1))["content"]
    assert block["annotations"] == {"audience": ["assistant"], "priority": 0.3}


def test_a_refusal_says_what_happened_and_what_to_do():
    answer = make_error_result(InvalidArguments("a is missing", advice="Give a."), hint="t(a)")
    assert answer["isError"] is True
    assert answer["content"][0]["text"] == "invalid_arguments: a is missing\nGive a.\nt(a)"


def test_a_refusal_names_the_nearest_once():
    with_advice = UnknownName("no t", nearest=("s.t", "s.u"), advice="Did you mean s.t, s.u?")
    assert make_error_result(with_advice)["content"][0]["text"].count("s.t") == 1
    without = UnknownName("no t", nearest=("s.t", "s.u"))
    assert make_error_result(without)["content"][0]["text"].endswith("Nearest: s.t, s.u")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(BackendUnavailable("x"), "unavailable"), (RecordedOnly("x"), "recorded_only")],
)
def test_a_refusal_begins_with_its_kind(error: BackendUnavailable, kind: str):
    assert make_error_result(error)["content"][0]["text"] == f"{kind}: x"


def test_what_a_server_hid_in_its_words_is_not_shown():
    shown = make_error_result(BackendUnavailable("died: \x1b[31mred\x1b[0m\u200b\x07"))["content"][
        0
    ]["text"]
    assert shown == "unavailable: died: red"
