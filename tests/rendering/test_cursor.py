"""A cursor continues its own question over its own catalog, and nothing else."""

import base64
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.errors import StaleCursor
from portico.rendering.cursor import decode, encode


@given(st.text(), st.text(), st.integers(0, 2**32 - 1))
def test_a_cursor_leads_back_to_its_offset(question: str, version: str, offset: int):
    assert decode(encode(question, version, offset), question, version) == offset


def test_a_cursor_is_short_and_needs_no_escaping():
    cursor = encode("search\0" + "words " * 100, "version", 4_000)
    assert len(cursor) == 28
    assert cursor.replace("-", "").replace("_", "").isalnum()


def test_the_cursor_of_another_question_is_refused_with_advice():
    with pytest.raises(StaleCursor, match="another question") as caught:
        decode(encode("search a", "v", 8), "search b", "v")
    assert caught.value.advice == "Repeat the question it came with."


def test_the_cursor_of_another_catalog_is_refused_with_advice():
    with pytest.raises(StaleCursor, match="tools changed") as caught:
        decode(encode("q", "before", 8), "q", "after")
    assert caught.value.advice == "Ask again without a cursor."


@pytest.mark.parametrize(
    "cursor", ["", "1", "not a cursor", "é" * 28, "A" * 28, "A" * 29, "\ud800", "=" * 28, "\0" * 28]
)
def test_what_is_no_cursor_is_refused(cursor: str):
    with pytest.raises(StaleCursor, match="not made here"):
        decode(cursor, "q", "v")


def test_a_cursor_of_another_length_is_refused_unread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(base64, "urlsafe_b64decode", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(StaleCursor, match="not made here"):
        decode("A" * 4_000_000, "q", "v")


@given(st.text())
def test_no_text_is_taken_for_a_cursor(cursor: str):
    with pytest.raises(StaleCursor):
        decode(cursor, "q", "v")


@given(st.integers(0, 27), st.characters(codec="ascii"))
def test_a_cursor_that_was_changed_anywhere_is_refused(place: int, character: str):
    cursor = encode("q", "v", 8)
    changed = cursor[:place] + character + cursor[place + 1 :]
    if changed != cursor:
        with pytest.raises(StaleCursor):
            decode(changed, "q", "v")


@pytest.mark.parametrize(
    "change", [lambda c: c + "A", lambda c: c[:-1], lambda c: c + "=", lambda c: f" {c}"]
)
def test_a_cursor_with_more_or_less_to_it_is_refused(change: object):
    with pytest.raises(StaleCursor):
        decode(change(encode("q", "v", 8)), "q", "v")  # pyright: ignore


def test_the_cursor_of_another_process_is_refused():
    program = "from portico.rendering.cursor import encode; print(encode('q', 'v', 8), end='')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    with pytest.raises(StaleCursor, match="not made here"):
        decode(done.stdout, "q", "v")
