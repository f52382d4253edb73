"""Splits text into terms, the same way for documents and queries.

`createPullRequest` gives `creat`, `pull`, `request` and the unsplit `createpullrequest`, so that a
part finds it and its exact name finds it best. English is stemmed, accents are folded, and scripts
written without spaces (Chinese, Japanese, Korean, Thai …) become overlapping pairs of characters.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import Stemmer

VERSION = f"1-{Stemmer.version()}"
"""Changes whenever the same text gives other terms."""

_MAX_PIECES = 6
"""An identifier of more pieces is a path or a URL, which nobody types as a whole."""
_MAX_TERM = 64
"""Longer runs are data (base64, hashes), not words anyone searches for."""

_SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u2e80-\u2fdf\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    r"\u3040-\u30ff\u3130-\u318f\uac00-\ud7af"  # Kana, Hangul
)
# Marks of Arabic, Hebrew and the Indic scripts are not \w, yet they occur inside words.
_LETTER = r"[^\W_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0e00]"
_IDENTIFIER = re.compile(rf"(?:{_LETTER})+(?:[-_./:]{{1,2}}(?:{_LETTER})+)*")
_ASCII_IDENTIFIER = re.compile(r"[A-Za-z0-9]+(?:[-_./:]{1,2}[A-Za-z0-9]+)*")
_SEPARATORS = re.compile(r"[-_./:]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SCRIPT_RUNS = re.compile(rf"[{_SPACELESS}]+|[^{_SPACELESS}]+")
_IS_SPACELESS = re.compile(rf"[{_SPACELESS}]")
_MARKS = re.compile(r"[\u0300-\u036f\u0591-\u05c7\u064b-\u065f]")
_WORD_THEN_NUMBER = re.compile(r"([a-z]{3,})\d+")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")
_CONTRACTION = re.compile(r"(?<=\w)['’ʼ](?:s|t|re|ve|ll|d|m)\b")

_STOP_WORDS = """
    a about above after again ain all also am an and any are aren as at be because been being below
    between both but by can could couldn did didn do does doesn doing don down during each few for
    from further had has hasn have haven having he her here hers him his how i if in into is isn it
    its itself just me more most my myself no nor not now of off on once only or other our ours out
    over own please same shall she should shouldn so some such than that the their theirs them then
    there these they this those through to too under until up very was wasn we were what when where
    which while who whom why will with won would wouldn you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

stem: Callable[[str], str] = Stemmer.Stemmer("english").stemWord
"""Return the Snowball stem of one lower-case word."""


def extract_words(text: str) -> list[str]:
    """Return the words and whole identifiers of a text, as written."""
    if text.isascii():
        return _ASCII_IDENTIFIER.findall(_CONTRACTION.sub("", text) if "'" in text else text)
    return _IDENTIFIER.findall(_CONTRACTION.sub("", unicodedata.normalize("NFKC", text)))


class WordTerms(NamedTuple):
    """The terms of one word."""

    parts: tuple[str, ...]
    whole: str = ""
    """The unsplit term, if there are several parts."""


def split_word(word: str) -> WordTerms:
    """Split one word into its terms."""
    # Longer words rarely repeat and would make the cache large.
    if len(word) <= _MAX_TERM:
        return _split_cached(word)
    return _split_uncached(word)


def _split_uncached(word: str) -> WordTerms:
    if word.isascii():
        return _split_latin(word)
    runs = [_split_script_run(run) for run in _SCRIPT_RUNS.findall(word)]
    if len(runs) == 1:
        return runs[0]
    return WordTerms(tuple(term for run in runs for term in (*run.parts, run.whole) if term))


_split_cached = lru_cache(maxsize=32_768)(_split_uncached)


def extract_word_terms(word: str) -> tuple[str, ...]:
    """Return all terms of one word: its parts, then the whole."""
    parts, whole = split_word(word)
    if whole:
        return (*parts, whole)
    return parts


def extract_terms(text: str) -> list[str]:
    """Return all terms of a text, in order, with repetitions."""
    return [term for word in extract_words(text) for term in extract_word_terms(word)]


def squash(name: str) -> str:
    """Remove case, accents and separators from a name, so that its spellings compare equal."""
    if name.isascii():
        return _NOT_ALPHANUMERIC.sub("", name).lower()
    folded = _MARKS.sub("", unicodedata.normalize("NFKD", name)).casefold()
    return "".join(character for character in folded if character.isalnum())


def _split_script_run(run: str) -> WordTerms:
    if not _IS_SPACELESS.match(run):
        return _split_latin(
            unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", run)))
        )
    return WordTerms(tuple(run[at : at + 2] for at in range(max(1, len(run) - 1))))


def _split_latin(word: str) -> WordTerms:
    pieces = [part for piece in _SEPARATORS.split(word) if piece for part in _split_humps(piece)]
    parts = tuple(term for piece in pieces for term in _stem_part(piece))
    if not 1 < len(pieces) <= _MAX_PIECES:
        return WordTerms(parts)
    whole = stem("".join(pieces))
    return WordTerms(parts, whole if whole not in parts and len(whole) <= _MAX_TERM else "")


def _split_humps(piece: str) -> list[str]:
    """Split at capitals: `getHTTPResponse` → get, http, response.

    A single first letter stays with what follows (`OAuth`, `iOS`).
    """
    parts = _HUMPS.split(piece)
    if len(parts) > 1 and len(parts[0]) == 1:
        parts[:2] = [parts[0] + parts[1]]
    return [part.casefold() for part in parts]


def _stem_part(part: str) -> tuple[str, ...]:
    if part in STOP_WORDS or len(part) > _MAX_TERM:
        return ()
    numbered = _WORD_THEN_NUMBER.fullmatch(part)
    if numbered:
        return (stem(part), stem(numbered[1]))
    return (stem(part),)
