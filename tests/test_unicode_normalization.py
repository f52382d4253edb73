"""Texts are normalized in pieces, with the result of the whole."""

import unicodedata
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.unicode_normalization import PIECE_CHARS, NormalForm, normalize

FORMS: tuple[NormalForm, ...] = get_args(NormalForm)
LETTERS = [
    "e\u0301",
    "a\u0327\u0301",
    "\uac00",
    "\u1100\u1161\u11a8",
    "\uff76\uff9e",
    "\u09c7\u09be",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LETTERS), st.characters(exclude_categories=["Cs"]))))
def test_pieces_are_normalized_like_the_whole(letters: list[str]) -> None:
    text = "".join(letters) * (1 + 3 * PIECE_CHARS // max(1, len(letters)))
    for form in FORMS:
        assert normalize(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_of_marks_keeps_its_marks(form: NormalForm) -> None:
    text = "a" + "\u0301\u0327" * 1_000
    # The first one may become part of the letter.
    assert len(normalize(form, text)) >= len(text) - 1


def test_what_becomes_longer_is_cut() -> None:
    assert len(normalize("NFKC", "\ufdfa" * 1_000, 500)) == 500
    assert normalize("NFC", "abc", 2) == "ab"
