"""A query, read: which terms to look for, what each is worth, and which clauses the text falls into.

Ranks nothing. Needs the vocabulary only to know which spellings exist here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from portico.search.lexical.kindred import CONCEPTS
from portico.search.lexical.tokens import split, stem, words

_MAX_TEXT = 4_000
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
    text = text[:_MAX_TEXT]
    wanted = want(words(text)[:_MAX_WORDS], known)
    parts = [(part, want(words(part)[:_MAX_WORDS], known)) for part in _CLAUSE_END.split(text)]
    parts = [(part, terms) for part, terms in parts if sum(not term.kindred for term in terms) >= _MIN_CLAUSE]
    if len(parts[:_MAX_CLAUSES]) < 2:
        return Query(text, wanted)
    texts, clauses = zip(*parts[:_MAX_CLAUSES], strict=True)
    return Query(text, wanted, clauses, texts)


def want(typed: list[str], known: Known) -> tuple[Wanted, ...]:
    """The terms a list of words asks for, each once, with its highest weight."""
    best: dict[str, Wanted] = {}
    for wanted in (*_of_words(typed, known), *_of_neighbours(typed, known)):
        if wanted.term not in best or best[wanted.term].weight < wanted.weight:
            best[wanted.term] = wanted
    return tuple(best.values())


def _of_words(typed: list[str], known: Known) -> Iterable[Wanted]:
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
            if not concepts:
                yield Wanted(term, weight, word)
                if may_be_misspelt and term not in known and (correct := known.meant(term)):
                    yield from _corrected(correct, weight * _CORRECTED, word, known)
            elif term in known:
                yield Wanted(term, weight * (1 - _KINDRED_SHARE), word)


def _corrected(term: str, weight: float, word: str, known: Known) -> Iterable[Wanted]:
    """A misspelt word as it was meant, good to have: it may have been meant otherwise."""
    yield Wanted(term, weight, word, bonus=True, corrected=term)
    for concept in CONCEPTS.get(term, ()):
        if concept in known:
            yield Wanted(concept, weight * _KINDRED_SHARE, word, kindred=True, bonus=True, corrected=term)


def _of_neighbours(typed: list[str], known: Known) -> Iterable[Wanted]:
    for first, second in pairwise(typed):
        if (term := stem((first + second).casefold())) in known:
            yield Wanted(term, _NEIGHBOURS, f"{first} {second}", bonus=True)
