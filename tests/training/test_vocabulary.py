"""A vocabulary grown for other languages."""

from pathlib import Path

import pytest

pytest.importorskip(
    "tokenizers", reason="growing a vocabulary needs tokenizers (the `training` extra)"
)
pytest.importorskip(
    "safetensors", reason="reading the base needs safetensors (the `training` extra)"
)

from training.prepare import new_pieces
from training.vocabulary import grow, parts_of

BASE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "file", "##s", "re", "##ch"]


def test_new_pieces_are_of_the_new_language_and_not_known_already() -> None:
    pieces = grow(BASE, [("de", "Rechnung senden"), ("de", "Rechnung files")] * 20, 30)
    assert "rechnung" in pieces
    assert not set(pieces) & set(BASE)


def test_a_new_piece_is_made_of_what_the_base_knows_of_it() -> None:
    assert parts_of(BASE, ["files", "##rech", "öö"]) == [[4, 5], [6, 7], []]


def test_a_vocabulary_grown_before_is_used_again(tmp_path: Path) -> None:
    stored = tmp_path / "vocabulary.txt"
    stored.write_text("\n".join([*BASE, "rechnung", "##ung"]) + "\n")
    assert new_pieces(stored, BASE) == ["rechnung", "##ung"]


def test_a_vocabulary_of_another_base_is_refused(tmp_path: Path) -> None:
    stored = tmp_path / "vocabulary.txt"
    stored.write_text("\n".join(["other", *BASE]) + "\n")
    with pytest.raises(SystemExit, match="another base"):
        new_pieces(stored, BASE)
