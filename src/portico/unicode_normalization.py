"""Unicode normalization in pieces. Pure; imports nothing of Portico.

`unicodedata.normalize` takes time that grows with the square of a run of combining marks, and holds
the interpreter's lock meanwhile: 0.8 seconds for 32,768 of them.
"""

import unicodedata
from collections.abc import Iterator
from typing import Literal

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
PIECE_CHARS = 256
"""Characters that are normalized at once: 0.05 ms at most."""
_LOOK_BACK = 64
"""Characters before the end of a piece among which the next one may begin."""
_JAMO = ("\u1160", "\u11ff")
_HALF_WIDTH = ("\uff61", "\uffdc")
"""Marks and letters that become combining ones."""


def normalize(form: NormalForm, text: str, max_chars: int | None = None) -> str:
    """Return a text in a normal form; what is longer than `max_chars` then is cut.

    Equal to what `unicodedata` returns, but for texts with a hundred marks after one letter.
    """
    if not text.isascii():
        text = "".join(_normalize_pieces(form, text, max_chars))
    return text if max_chars is None else text[:max_chars]


def _normalize_pieces(form: NormalForm, text: str, max_chars: int | None) -> Iterator[str]:
    start = 0
    made = 0
    while start < len(text) and (max_chars is None or made < max_chars):
        end = _find_end(text, start)
        piece = unicodedata.normalize(form, text[start:end])
        made += len(piece)
        yield piece
        start = end


def _find_end(text: str, start: int) -> int:
    """Return where a piece ends: before a character that cannot change what is before it."""
    end = start + PIECE_CHARS
    if end >= len(text):
        return len(text)
    for at in range(end, end - _LOOK_BACK, -1):
        if _is_independent(text[at]):
            return at
    return end


def _is_independent(char: str) -> bool:
    return (
        not unicodedata.category(char).startswith("M")
        and not _JAMO[0] <= char <= _JAMO[1]
        and not _HALF_WIDTH[0] <= char <= _HALF_WIDTH[1]
    )
