"""Parses a query into weighted terms and clauses.

Does no ranking. The vocabulary is only used to know which spellings exist.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from portico.search.lexical.synonyms import CONCEPTS
from portico.search.lexical.tokens import extract_words, split_word, stem

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
    r"[.;!?\n]+\s|,\s|[。；！？，]|\s(?:and|then|und|dann|y|luego|et|puis|e|poi)\s", re.IGNORECASE
)
_FILLER_WORDS = """
    able actually assist assistance best could currently give going good got great guide hello help
    hey hi interest interested keep kindly know let like look looking maybe need possible possibly
    quickly really recommend something suggest suggestion sure tell thank thanks thing today try
    use using want way wish wonder
"""
_FILLER_STEMS = frozenset(map(stem, _FILLER_WORDS.split()))


class TermVocabulary(Protocol):
    """The terms of an index."""

    def __contains__(self, term: object, /) -> bool: ...

    def correct_spelling(self, term: str) -> str:
        """Return the correction of a misspelt term, or ""."""
        ...


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One term a query looks for."""

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
    """A query's terms, and its clauses if it has several."""

    text: str
    terms: tuple[QueryTerm, ...]
    clauses: tuple[tuple[QueryTerm, ...], ...] = ()
    clause_texts: tuple[str, ...] = ()


def parse_query(text: str, vocabulary: TermVocabulary) -> ParsedQuery:
    """Parse `text` with the terms of an index."""
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
            weight = share * (_FILLER_WEIGHT if term in _FILLER_STEMS else 1.0)
            concepts = [concept for concept in CONCEPTS.get(term, ()) if concept in vocabulary]
            for concept in concepts:
                yield QueryTerm(concept, weight * _SYNONYM_SHARE, word, is_synonym=True)
            if (
                may_be_misspelt
                and not concepts
                and term not in vocabulary
                and (correction := speller[term])
            ):
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
    """Yield the terms of a corrected word."""
    yield QueryTerm(term, weight, word, correction=term)
    for concept in CONCEPTS.get(term, ()):
        if concept in vocabulary:
            yield QueryTerm(
                concept,
                weight * _SYNONYM_SHARE,
                word,
                is_synonym=True,
                is_bonus=True,
                correction=term,
            )


def _join_neighbours(typed_words: list[str], vocabulary: TermVocabulary) -> Iterable[QueryTerm]:
    for first, second in pairwise(typed_words):
        if (term := stem((first + second).casefold())) in vocabulary:
            yield QueryTerm(term, _NEIGHBOUR_WEIGHT, f"{first} {second}", is_bonus=True)
