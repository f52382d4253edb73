"""Splits text into terms, the same way for documents and queries, and queries into clauses.

`createPullRequest` gives `creat`, `pull`, `request` and the unsplit `createpullrequest`, so that a
part finds it and its exact name finds it best. English is stemmed, accents are folded, and scripts
written without spaces (Chinese, Japanese, Korean, Thai …) become overlapping pairs of characters.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import Stemmer

from portico.unicode_normalization import normalize

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
MAX_TEXT = 4_000
"""Characters of a query that are read."""
_MAX_WORDS = 160
"""A longer query is a document; its subject is clear by then."""
_MAX_CLAUSES = 8
_MIN_CLAUSE = 4
"""Terms a clause needs to count as a separate need."""

_SYNONYM_SHARE = 0.5
"""Of a word that has concepts, the part of its weight that goes to them."""
_PART_WEIGHT = 0.5
"""Weight of an identifier's part if the whole is a known term (`git` in GitHub)."""
_NEIGHBOUR_WEIGHT = 0.5
"""Weight of two words that are one term here (`foot note`)."""
_FILLER_WEIGHT = 0.3
"""Weight of words that phrase a request and seldom name its subject."""

_CORRECTION_WEIGHT = 0.8
"""Weight of the correction of a word that no document contains."""

_MAX_MISSPELT = 12
"""Unknown words per query that are corrected; a text full of them is in another language."""

_CLAUSE_END = re.compile(
    r"(?<![.;!?\n])[.;!?\n]+\s|,\s|[。；！？，]"
    r"|\s(?:and|then|und|dann|y|luego|et|puis|e|poi)\s",
    re.IGNORECASE,
)
_FILLER_WORDS = """
    able actually assist assistance best could currently give going good got great guide hello help
    hey hi interest interested keep kindly know let like look looking maybe need possible possibly
    quickly really recommend something suggest suggestion sure tell thank thanks thing today try
    use using want way wish wonder
"""
FILLER_STEMS = frozenset(map(stem, _FILLER_WORDS.split()))


def extract_words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_IDENTIFIER.findall(_CONTRACTION.sub("", text) if "'" in text else text)
    return _IDENTIFIER.findall(_CONTRACTION.sub("", normalize("NFKC", text)))


class WordTerms(NamedTuple):
    parts: tuple[str, ...]
    whole: str = ""
    """The unsplit term, if there are several parts."""


def split_word(word: str) -> WordTerms:
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
    return (*parts, whole) if whole else parts


def extract_terms(text: str) -> list[str]:
    return [term for word in extract_words(text) for term in extract_word_terms(word)]


def squash(name: str) -> str:
    """Remove case, accents and separators from a name, so that its spellings compare equal."""
    if name.isascii():
        return _NOT_ALPHANUMERIC.sub("", name).lower()
    folded = _MARKS.sub("", normalize("NFKD", name)).casefold()
    return "".join(character for character in folded if character.isalnum())


def _split_script_run(run: str) -> WordTerms:
    if not _IS_SPACELESS.match(run):
        return _split_latin(normalize("NFC", _MARKS.sub("", normalize("NFD", run))))
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


CONCEPT_PREFIX = "~"
"""Prefix of a concept's term; no term from text can start with it."""


def _load_concepts() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    text = Path(__file__).with_name("synonyms.txt").read_text(encoding="utf-8")
    for members in map(str.split, text.splitlines()):
        concept = CONCEPT_PREFIX + members[0]
        for term in map(stem, members):
            if concept not in found.get(term, ()):
                found[term] = (*found.get(term, ()), concept)
    return found


CONCEPTS = _load_concepts()
"""Concepts of each term. Loaded on import, in well under a millisecond."""

ALL_CONCEPTS = tuple(
    dict.fromkeys(concept for concepts in CONCEPTS.values() for concept in concepts)
)


class TermVocabulary(Protocol):
    def __contains__(self, term: object, /) -> bool: ...

    def correct_spelling(self, term: str) -> str:
        """Return the correction of a misspelt term, or ""."""
        ...


@dataclass(frozen=True, slots=True)
class QueryTerm:
    term: str
    weight: float
    word: str
    """The word it was derived from, as typed."""
    is_synonym: bool = False
    is_bonus: bool = False
    """Optional: a document without it is not less complete."""
    correction: str = ""
    """The correction of a misspelt word."""


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    text: str
    terms: tuple[QueryTerm, ...]
    clauses: tuple[tuple[QueryTerm, ...], ...] = ()
    clause_texts: tuple[str, ...] = ()


def parse_query(text: str, vocabulary: TermVocabulary) -> ParsedQuery:
    text = text[:MAX_TEXT]
    speller = _SpellingCache(vocabulary)
    query_terms = collect_terms(extract_words(text)[:_MAX_WORDS], vocabulary, speller)
    parts = [
        (part, collect_terms(extract_words(part)[:_MAX_WORDS], vocabulary, speller))
        for part in _CLAUSE_END.split(text)
    ]
    parts = [
        (part, terms)
        for part, terms in parts
        if sum(not term.is_synonym for term in terms) >= _MIN_CLAUSE
    ]
    if len(parts[:_MAX_CLAUSES]) < 2:
        return ParsedQuery(text, query_terms)
    texts, clauses = zip(*parts[:_MAX_CLAUSES], strict=True)
    return ParsedQuery(text, query_terms, clauses, texts)


class _SpellingCache(dict[str, str]):
    """Corrections of misspelt terms, each looked up once, up to `_MAX_MISSPELT` per query."""

    def __init__(self, vocabulary: TermVocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, term: str) -> str:
        correction = ""
        if len(self) < _MAX_MISSPELT:
            correction = self._vocabulary.correct_spelling(term)
        self[term] = correction
        return correction


def collect_terms(
    typed_words: list[str], vocabulary: TermVocabulary, speller: Mapping[str, str]
) -> tuple[QueryTerm, ...]:
    """Return the terms of a list of words, each once with its highest weight."""
    best: dict[str, QueryTerm] = {}
    for candidate in (
        *_expand_words(typed_words, vocabulary, speller),
        *_join_neighbours(typed_words, vocabulary),
    ):
        if candidate.term not in best or best[candidate.term].weight < candidate.weight:
            best[candidate.term] = candidate
    return tuple(best.values())


def _expand_words(
    typed_words: list[str], vocabulary: TermVocabulary, speller: Mapping[str, str]
) -> Iterable[QueryTerm]:
    for position, word in enumerate(typed_words):
        parts, whole = split_word(word)
        # A capital within a sentence starts a name, and identifiers are typed exactly.
        may_be_misspelt = len(parts) == 1 and (not position or not word[:1].isupper())
        share = 1.0
        if whole in vocabulary:
            yield QueryTerm(whole, 1.0, word)
            share = _PART_WEIGHT
        for term in parts:
            weight = share * (_FILLER_WEIGHT if term in FILLER_STEMS else 1.0)
            concepts = [concept for concept in CONCEPTS.get(term, ()) if concept in vocabulary]
            for concept in concepts:
                yield QueryTerm(concept, weight * _SYNONYM_SHARE, word, is_synonym=True)
            correction = ""
            if may_be_misspelt and not concepts and term not in vocabulary:
                correction = speller[term]
            if correction:
                yield from _expand_correction(
                    correction, weight * _CORRECTION_WEIGHT, word, vocabulary
                )
            elif not concepts:
                yield QueryTerm(term, weight, word)
            elif term in vocabulary:
                yield QueryTerm(term, weight * (1 - _SYNONYM_SHARE), word)


def _expand_correction(
    term: str, weight: float, word: str, vocabulary: TermVocabulary
) -> Iterable[QueryTerm]:
    yield QueryTerm(term, weight, word, correction=term)
    for concept in CONCEPTS.get(term, ()):
        if concept in vocabulary:
            yield QueryTerm(concept, weight * _SYNONYM_SHARE, word, True, True, term)


def _join_neighbours(typed_words: list[str], vocabulary: TermVocabulary) -> Iterable[QueryTerm]:
    for first, second in pairwise(typed_words):
        if (term := stem((first + second).casefold())) in vocabulary:
            yield QueryTerm(term, _NEIGHBOUR_WEIGHT, f"{first} {second}", is_bonus=True)
