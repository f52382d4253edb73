"""WordPiece tokenizer over an extended vocabulary, as the encoder was trained with.

English is tokenized as by the base model's uncased tokenizer. Unlike it, scripts without spaces
stay whole runs, cut into the longest known pieces, and marks are dropped from Latin, Greek and
Cyrillic letters only (が is not か). An unknown character in such a run costs only itself:
a run is a sentence, not a word.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BytesIO

import numpy as np

from portico.unicode_normalization import normalize


class Vocabulary(Mapping[str, int]):
    """Word pieces mapped to their number: the line in the text, from 0."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._starts = array("I", [0])
        hashes = array("q")
        # Line by line: all lines at once would take as much memory as a dict.
        for line in BytesIO(text):
            self._starts.append(self._starts[-1] + len(line))
            hashes.append(hash(_decode_line(line)))
        order = np.argsort(np.frombuffer(hashes, np.int64), kind="stable")
        self._hashes = array("q", np.frombuffer(hashes, np.int64)[order].tobytes())
        self._numbers = array("I", order.astype(np.uint32).tobytes())

    def __getitem__(self, piece: str) -> int:
        if (number := self._find(piece)) is None:
            raise KeyError(piece)
        return number

    def __contains__(self, piece: object) -> bool:
        return isinstance(piece, str) and self._find(piece) is not None

    def __iter__(self) -> Iterator[str]:
        return map(self._get_piece, range(len(self)))

    def __len__(self) -> int:
        return len(self._numbers)

    def _find(self, piece: str) -> int | None:
        hashed = hash(piece)
        at = bisect_left(self._hashes, hashed)
        while at < len(self._hashes) and self._hashes[at] == hashed:
            # Two texts may have the same hash.
            if self._get_piece(number := self._numbers[at]) == piece:
                return number
            at += 1
        return None

    def _get_piece(self, number: int) -> str:
        return _decode_line(self._text[self._starts[number] : self._starts[number + 1]])


def _decode_line(line: bytes) -> str:
    return line.decode().rstrip("\r\n")


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
    bare = _MARKS.sub("", normalize("NFD", normalize("NFKC", text).lower()))
    return normalize("NFC", bare)


def split_words(text: str) -> list[str]:
    """Split a text into words; each punctuation mark is a word."""
    return _WORD.findall(normalise(text[:_MAX_TEXT]))


class WordPieceTokenizer:
    """Splits text into the pieces of a vocabulary."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self.vocabulary = vocabulary
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

    def encode_words(self, text: str) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return each word of a text as its start, its end and its token numbers, unframed."""
        found: list[tuple[int, int, tuple[int, ...]]] = []
        for match in _WORD.finditer(text[:_MAX_TEXT]):
            pieces: tuple[int, ...] = ()
            for word in split_words(match.group()[:_MAX_WORD]):
                pieces += self._split_word_cached(word)
            found.append((match.start(), match.end(), pieces or (self._unknown,)))
        return found

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Split greedily into the longest known pieces; one unknown token where nothing fits."""
        pieces: list[int] = []
        start = 0
        is_run = _IS_RUN.match(word)
        while start < len(word):
            prefix = _CONTINUED if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.vocabulary), 0)
            if not end and not is_run:
                return (self._unknown,)
            pieces.append(self.vocabulary[prefix + word[start:end]] if end else self._unknown)
            start = end or start + 1
        return tuple(pieces)
