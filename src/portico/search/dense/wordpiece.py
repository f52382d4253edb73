"""Text to token numbers, as the encoder was trained to read them: WordPiece over an extended
vocabulary.

English reads as in the base model's uncased tokenizer. Unlike it, scripts written without spaces
stay whole runs, cut by the longest pieces known, and marks are dropped from Latin, Greek and
Cyrillic letters only (a Japanese が is no か). One character that is unknown costs such a run only
itself: a run is a sentence, not a word.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

_MAX_TEXT = 4_000
_MAX_WORD = 48
"""Longer words are data: their beginning is as good as all of it. Longer runs are cut, and read to
their end."""
_CONTINUED = "##"

_SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han, Kana
)
_RUN = rf"[{_SPACELESS}]{{1,{_MAX_WORD}}}"
_WORD = re.compile(
    rf"{_RUN}|(?:(?![{_SPACELESS}_])[\w\u0590-\u05cf\u0610-\u065f\u0900-\u0dff])+|[^\w\s]|_"
)
_IS_RUN = re.compile(_RUN)
_MARKS = re.compile(r"[\u0300-\u036f]")
_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ud800-\udfff]")


def normalise(text: str) -> str:
    """Lower case, without accents, one form for what looks the same."""
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text.lower()
    bare = _MARKS.sub("", unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).lower()))
    return unicodedata.normalize("NFC", bare)


def split_words(text: str) -> list[str]:
    """The words of a text, punctuation marks being words of their own."""
    return _WORD.findall(normalise(text[:_MAX_TEXT]))


class WordPieceTokenizer:
    """A vocabulary, and how text is cut into its pieces."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._first = vocabulary["[CLS]"]
        self._last = vocabulary["[SEP]"]
        self._unknown = vocabulary["[UNK]"]
        self._split_word_cached = lru_cache(maxsize=16_384)(self._split_word)

    def encode(self, text: str, limit: int) -> list[int]:
        """The numbers of at most `limit` tokens, the two that frame a text included."""
        found = [self._first]
        for word in split_words(text):
            found += self._split_word_cached(
                word[:_MAX_WORD]
            )  # cut first: what is remembered is then small
            if len(found) >= limit:
                break
        return [*found[: limit - 1], self._last]

    def _split_word(self, word: str) -> tuple[int, ...]:
        """The longest known piece, then the longest that continues it; one unknown token where
        nothing fits."""
        pieces: list[int] = []
        start = 0
        is_run = _IS_RUN.match(word)
        while start < len(word):
            if start:
                prefix = _CONTINUED
            else:
                prefix = ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), 0)
            if not end and not is_run:
                return (self._unknown,)
            pieces.append(self._vocabulary[prefix + word[start:end]] if end else self._unknown)
            start = end or start + 1
        return tuple(pieces)
