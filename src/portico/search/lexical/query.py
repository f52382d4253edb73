"""A query, read: which terms to look for, what each is worth, and which clauses the text falls into.

Ranks nothing. Needs the vocabulary only to know which spellings exist here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from portico.search.lexical.kindred import CONCEPTS
from portico.search.lexical.tokens import split, stem, words

MAX_TEXT = 4_000
"""Characters of a query that are read."""
_MAX_WORDS = 160
"""A longer query is a document: what it is about has been said by then."""
_MAX_CLAUSES = 8
_MIN_CLAUSE = 4
"""Terms a clause needs to be a need of its own."""

_KINDRED_SHARE = 0.5
"""Of a word that has concepts, the part that asks for them instead of the word itself."""
_PART = 0.5
"""A part of an identifier whose whole is known here (`git` in GitHub)."""
_NEIGHBOURS = 0.5
"""Two words that are one word here (`foot note`)."""
_FILLER = 0.3
"""Words of asking, seldom of what is asked for."""

_CORRECTED = 0.8
"""A word as it was probably meant, where no document has it as it was typed."""

_MAX_MISSPELT = 12
"""Unknown words of a query that are looked up: a text full of them is in another language."""

_CLAUSE_END = re.compile(r"[.;!?\n]+\s|,\s|[。；！？，]|\s(?:and|then|und|dann|y|luego|et|puis|e|poi)\s", re.IGNORECASE)
_FILLER_WORDS = """
    able actually assist assistance best could currently give going good got great guide hello help hey hi interest
    interested keep kindly know let like look looking maybe need possible possibly quickly really recommend something
    suggest suggestion sure tell thank thanks thing today try use using want way wish wonder
"""
_FILLERS = frozenset(map(stem, _FILLER_WORDS.split()))


class Known(Protocol):
    """The terms of an index."""

    def __contains__(self, term: object, /) -> bool: ...

    def meant(self, term: str) -> str:
        """The term meant by a misspelt one, if any."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """One term a query looks for."""

    term: str
    weight: float
    word: str
    """The word it was read from, as typed."""
    kindred: bool = False
    bonus: bool = False
    """Good to have; a document without it is no less complete."""
    corrected: str = ""
    """What a misspelt word was taken for."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query: all its terms, and its clauses where it has several."""

    text: str
    wanted: tuple[Wanted, ...]
    clauses: tuple[tuple[Wanted, ...], ...] = ()
    clause_texts: tuple[str, ...] = ()


def read_query(text: str, known: Known) -> Query:
    """Read `text` against the terms `known` to an index."""
    text = text[:MAX_TEXT]
    speller = _Speller(known)
    wanted = want(words(text)[:_MAX_WORDS], known, speller)
    parts = [(part, want(words(part)[:_MAX_WORDS], known, speller)) for part in _CLAUSE_END.split(text)]
    parts = [(part, terms) for part, terms in parts if sum(not term.kindred for term in terms) >= _MIN_CLAUSE]
    if len(parts[:_MAX_CLAUSES]) < 2:
        return Query(text, wanted)
    texts, clauses = zip(*parts[:_MAX_CLAUSES], strict=True)
    return Query(text, wanted, clauses, texts)


class _Speller(dict[str, str]):
    """A misspelt term → the one that was meant, or none; asked once a term, for so many terms of a query."""

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, term: str) -> str:
        meant = self._known.meant(term) if len(self) < _MAX_MISSPELT else ""
        self[term] = meant
        return meant


def want(typed: list[str], known: Known, speller: Mapping[str, str]) -> tuple[Wanted, ...]:
    """The terms a list of words asks for, each once, with its highest weight."""
    best: dict[str, Wanted] = {}
    for wanted in (*_of_words(typed, known, speller), *_of_neighbours(typed, known)):
        if wanted.term not in best or best[wanted.term].weight < wanted.weight:
            best[wanted.term] = wanted
    return tuple(best.values())


def _of_words(typed: list[str], known: Known, speller: Mapping[str, str]) -> Iterable[Wanted]:
    for place, word in enumerate(typed):
        parts, whole = split(word)
        # A capital inside a sentence begins a name, an identifier is meant letter by letter.
        may_be_misspelt = len(parts) == 1 and (not place or not word[:1].isupper())
        share = 1.0
        if whole in known:
            yield Wanted(whole, 1.0, word)
            share = _PART
        for term in parts:
            weight = share * (_FILLER if term in _FILLERS else 1.0)
            concepts = [concept for concept in CONCEPTS.get(term, ()) if concept in known]
            for concept in concepts:
                yield Wanted(concept, weight * _KINDRED_SHARE, word, kindred=True)
            if may_be_misspelt and not concepts and term not in known and (meant := speller[term]):
                yield from _corrected(meant, weight * _CORRECTED, word, known)
            elif not concepts:
                yield Wanted(term, weight, word)
            elif term in known:
                yield Wanted(term, weight * (1 - _KINDRED_SHARE), word)


def _corrected(term: str, weight: float, word: str, known: Known) -> Iterable[Wanted]:
    """A misspelt word as it was meant."""
    yield Wanted(term, weight, word, corrected=term)
    for concept in CONCEPTS.get(term, ()):
        if concept in known:
            yield Wanted(concept, weight * _KINDRED_SHARE, word, kindred=True, bonus=True, corrected=term)


def _of_neighbours(typed: list[str], known: Known) -> Iterable[Wanted]:
    for first, second in pairwise(typed):
        if (term := stem((first + second).casefold())) in known:
            yield Wanted(term, _NEIGHBOURS, f"{first} {second}", bonus=True)
