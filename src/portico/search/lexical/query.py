"""A query, read: which terms to look for, what each is worth, and which clauses the text falls into.

Ranks nothing. Needs the vocabulary only to know which spellings exist here.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import pairwise

from portico.search.lexical.kindred import CONCEPTS
from portico.search.lexical.tokens import split, stem, words

_MAX_TEXT = 4_000
_MAX_WORDS = 160
"""A longer query is a document: what it is about has been said by then."""
_MAX_CLAUSES = 12
_MIN_CLAUSE = 3
"""Terms a clause needs to be a need of its own."""

_KINDRED_SHARE = 0.5
"""Of a word that has concepts, the part that asks for them instead of the word itself."""
_PART = 0.5
"""A part of an identifier whose whole is known here (`git` in GitHub)."""
_NEIGHBOURS = 0.5
"""Two words that are one word here (`foot note`)."""
_FILLER = 0.3
"""Words of asking, seldom of what is asked for."""

_CLAUSE_END = re.compile(r"[.;!?\n]+\s|,\s|[。；！？，]|\s(?:and|then|und|dann|y|luego|et|puis|e|poi)\s", re.IGNORECASE)
_FILLER_WORDS = """
    able actually assist assistance best could currently give going good got great guide hello help hey hi interest
    interested keep kindly know let like look looking maybe need possible possibly quickly really recommend something
    suggest suggestion sure tell thank thanks thing today try use using want way wish wonder
"""
_FILLERS = frozenset(map(stem, _FILLER_WORDS.split()))


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


@dataclass(frozen=True, slots=True)
class Query:
    """A query: all its terms, and its clauses where it has several."""

    wanted: tuple[Wanted, ...]
    clauses: tuple[tuple[Wanted, ...], ...] = ()


def read_query(text: str, known: Container[str]) -> Query:
    """Read `text` against the terms `known` to an index."""
    text = text[:_MAX_TEXT]
    clauses = [want(words(clause)[:_MAX_WORDS], known) for clause in _CLAUSE_END.split(text)]
    clauses = [clause for clause in clauses if sum(not wanted.kindred for wanted in clause) >= _MIN_CLAUSE]
    return Query(want(words(text)[:_MAX_WORDS], known), tuple(clauses[:_MAX_CLAUSES]) if len(clauses) > 1 else ())


def want(typed: list[str], known: Container[str]) -> tuple[Wanted, ...]:
    """The terms a list of words asks for, each once, with its highest weight."""
    best: dict[str, Wanted] = {}
    for wanted in (*_of_words(typed, known), *_of_neighbours(typed, known)):
        if wanted.term not in best or best[wanted.term].weight < wanted.weight:
            best[wanted.term] = wanted
    return tuple(best.values())


def _of_words(typed: list[str], known: Container[str]) -> Iterable[Wanted]:
    for word in typed:
        parts, whole = split(word)
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
            elif term in known:
                yield Wanted(term, weight * (1 - _KINDRED_SHARE), word)


def _of_neighbours(typed: list[str], known: Container[str]) -> Iterable[Wanted]:
    for first, second in pairwise(typed):
        if (term := stem((first + second).casefold())) in known:
            yield Wanted(term, _NEIGHBOURS, f"{first} {second}", bonus=True)
