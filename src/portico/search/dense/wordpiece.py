"""WordPiece tokenizer over an extended vocabulary, as the encoder was trained with.

English is tokenized as by the base model's uncased tokenizer. Unlike it, scripts without spaces
stay whole runs, cut into the longest known pieces, and marks are dropped from Latin, Greek and
Cyrillic letters only (が is not か). An unknown character in such a run costs only itself:
a run is a sentence, not a word.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

_MAX_TEXT = 4_000
_MAX_WORD = 48
"""Longer words are data and are cut off; longer runs are split and read to their end."""
_CONTINUED = "##"

_SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    # Han, Kana
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = rf"[{_SPACELESS}]{{1,{_MAX_WORD}}}"
_WORD = re.compile(
    rf"{_RUN}|(?:(?![{_SPACELESS}_])[\w\u0590-\u05cf\u0610-\u065f\u0900-\u0dff])+|[^\w\s]|_"
)
_IS_RUN = re.compile(_RUN)
_MARKS = re.compile(r"[\u0300-\u036f]")
_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ud800-\udfff]")


def normalise(text: str) -> str:
    """Lower-case text, without accents, in one normal form."""
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text.lower()
    bare = _MARKS.sub("", unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).lower()))
    return unicodedata.normalize("NFC", bare)


def split_words(text: str) -> list[str]:
    """Split a text into words; each punctuation mark is a word."""
    return _WORD.findall(normalise(text[:_MAX_TEXT]))


class WordPieceTokenizer:
    """Splits text into the pieces of a vocabulary."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._first = vocabulary["[CLS]"]
        self._last = vocabulary["[SEP]"]
        self._unknown = vocabulary["[UNK]"]
        self._split_word_cached = lru_cache(maxsize=16_384)(self._split_word)

    def encode(self, text: str, limit: int) -> list[int]:
        """Return the numbers of at most `limit` tokens, including the two that frame a text."""
        found = [self._first]
        for word in split_words(text):
            # Cut first, to bound the size of the cache.
            found += self._split_word_cached(word[:_MAX_WORD])
            if len(found) >= limit:
                break
        return [*found[: limit - 1], self._last]

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Split greedily into the longest known pieces; one unknown token where nothing fits."""
        pieces: list[int] = []
        start = 0
        is_run = _IS_RUN.match(word)
        while start < len(word):
            prefix = _CONTINUED if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), 0)
            if not end and not is_run:
                return (self._unknown,)
            pieces.append(self._vocabulary[prefix + word[start:end]] if end else self._unknown)
            start = end or start + 1
        return tuple(pieces)
