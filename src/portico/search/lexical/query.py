"""A query, read: which terms to look for, what each is worth, and which clauses the text falls
into.

Ranks nothing. Needs the vocabulary only to know which spellings exist here.
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
"""A longer query is a document: what it is about has been said by then."""
_MAX_CLAUSES = 8
_MIN_CLAUSE = 4
"""Terms a clause needs to be a need of its own."""

_SYNONYM_SHARE = 0.5
"""Of a word that has concepts, the part that asks for them instead of the word itself."""
_PART_WEIGHT = 0.5
"""A part of an identifier whose whole is known here (`git` in GitHub)."""
_NEIGHBOUR_WEIGHT = 0.5
"""Two words that are one word here (`foot note`)."""
_FILLER_WEIGHT = 0.3
"""Words of asking, seldom of what is asked for."""

_CORRECTION_WEIGHT = 0.8
"""A word as it was probably meant, where no document has it as it was typed."""

_MAX_MISSPELT = 12
"""Unknown words of a query that are looked up: a text full of them is in another language."""

_CLAUSE_END = re.compile(
    r"[.;!?\n]+\s|,\s|[。；！？，]|\s(?:and|then|und|dann|y|luego|et|puis|e|poi)\s", re.IGNORECASE
)
_FILLER_WORDS = """
    able actually assist assistance best could currently give going good got great guide hello help hey hi interest
    interested keep kindly know let like look looking maybe need possible possibly quickly really recommend something
    suggest suggestion sure tell thank thanks thing today try use using want way wish wonder
"""
_FILLER_STEMS = frozenset(map(stem, _FILLER_WORDS.split()))


class TermVocabulary(Protocol):
    """The terms of an index."""

    def __contains__(self, term: object, /) -> bool: ...

    def correct_spelling(self, term: str) -> str:
        """The term meant by a misspelt one, if any."""
        ...


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One term a query looks for."""

    term: str
    weight: float
    word: str
    """The word it was read from, as typed."""
    is_synonym: bool = False
    is_bonus: bool = False
    """Good to have; a document without it is no less complete."""
    correction: str = ""
    """What a misspelt word was taken for."""


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query: all its terms, and its clauses where it has several."""

    text: str
    terms: tuple[QueryTerm, ...]
    clauses: tuple[tuple[QueryTerm, ...], ...] = ()
    clause_texts: tuple[str, ...] = ()


def parse_query(text: str, vocabulary: TermVocabulary) -> ParsedQuery:
    """Read `text` against the terms `known` to an index."""
    text = text[:MAX_TEXT]
    speller = _SpellingCache(vocabulary)
    wanted = collect_terms(extract_words(text)[:_MAX_WORDS], vocabulary, speller)
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
        return ParsedQuery(text, wanted)
    texts, clauses = zip(*parts[:_MAX_CLAUSES], strict=True)
    return ParsedQuery(text, wanted, clauses, texts)


class _SpellingCache(dict[str, str]):
    """A misspelt term → the one that was meant, or none; asked once a term, for so many terms of a
    query."""

    def __init__(self, vocabulary: TermVocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, term: str) -> str:
        if len(self) < _MAX_MISSPELT:
            meant = self._vocabulary.correct_spelling(term)
        else:
            meant = ""
        self[term] = meant
        return meant


def collect_terms(
    typed_words: list[str], vocabulary: TermVocabulary, speller: Mapping[str, str]
) -> tuple[QueryTerm, ...]:
    """The terms a list of words asks for, each once, with its highest weight."""
    best: dict[str, QueryTerm] = {}
    for wanted in (
        *_expand_words(typed_words, vocabulary, speller),
        *_join_neighbours(typed_words, vocabulary),
    ):
        if wanted.term not in best or best[wanted.term].weight < wanted.weight:
            best[wanted.term] = wanted
    return tuple(best.values())


def _expand_words(
    typed_words: list[str], vocabulary: TermVocabulary, speller: Mapping[str, str]
) -> Iterable[QueryTerm]:
    for place, word in enumerate(typed_words):
        parts, whole = split_word(word)
        # A capital inside a sentence begins a name, an identifier is meant letter by letter.
        may_be_misspelt = len(parts) == 1 and (not place or not word[:1].isupper())
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
                and (meant := speller[term])
            ):
                yield from _expand_correction(meant, weight * _CORRECTION_WEIGHT, word, vocabulary)
            elif not concepts:
                yield QueryTerm(term, weight, word)
            elif term in vocabulary:
                yield QueryTerm(term, weight * (1 - _SYNONYM_SHARE), word)


def _expand_correction(
    term: str, weight: float, word: str, vocabulary: TermVocabulary
) -> Iterable[QueryTerm]:
    """A misspelt word as it was meant."""
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
