"""Text that is joined in steps is the text that it would be in one."""

import sys

import pytest

from portico.json_text import chunked_decoder
from portico.json_text.chunked_decoder import join_text

LETTERS = [
    *("a", "\x7f", "\x80", "é", "ÿ", "Ā"),
    *("\ufffd", "\uffff", "\U00010000", "😀", "\U0010ffff", "\ud800"),
]


@pytest.mark.parametrize("last", LETTERS)
@pytest.mark.parametrize("first", LETTERS)
def test_text_of_every_width_is_the_same_in_steps(
    monkeypatch: pytest.MonkeyPatch, first: str, last: str
) -> None:
    monkeypatch.setattr(chunked_decoder, "LONG", 1)
    pieces = [first * 1_000, "", "plain", last]
    wanted = "".join(pieces)
    made = join_text(pieces)
    assert made == wanted
    assert hash(made) == hash(wanted)
    assert sys.getsizeof(made) == sys.getsizeof(wanted)
    assert {wanted: 1}[made] == 1


def test_nothing_else_refers_to_the_text_or_to_its_pieces() -> None:
    pieces = [chr(97 + number) * 1024**2 for number in range(3)]
    before = [sys.getrefcount(piece) for piece in pieces]
    made = join_text(pieces)
    other = "".join(pieces)
    assert sys.getrefcount(made) == sys.getrefcount(other)
    assert [sys.getrefcount(piece) for piece in pieces] == before


def test_pythons_without_the_c_interface_join_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_decoder, "LONG", 1)
    monkeypatch.setattr(chunked_decoder, "_load_functions", lambda: None)
    assert join_text(["a", "😀"]) == "a😀"
