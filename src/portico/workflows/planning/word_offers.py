"""Gives what was said in the words of an intent to parameters: values, and other spans. Pure.

A part of a value is no value of its own, nor are two of them one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from portico.workflows.planning.argument_reader import LeafReading
from portico.workflows.planning.name_matching import to_words
from portico.workflows.planning.offers import (
    LEAST,
    Answered,
    Assignment,
    Offer,
    StepReading,
    is_fit,
    overlaps,
)
from portico.workflows.planning.parameters import Leaf
from portico.workflows.planning.said_values import SaidValue, ValueKind
from portico.workflows.planning.said_words import SaidWords
from portico.workflows.planning.value_forms import convert_value, score_form
from portico.workflows.planning.values import NOTHING, Each, convert_text, to_iso_date

_LEAST_SPAN = 0.59
_LEAST_NEEDED = 0.39
_LEAST_LIKELY = 0.1
_NEEDED = 0.1
"""Added to a value of the words for a parameter that is required."""
_LEAST_BESIDE_INPUTS = 0.74
"""Words of the intent are taken for an argument beside inputs only if that is likely."""
_ENDS = frozenset(("end", "until", "to", "due", "before", "finish", "latest", "max", "expire"))
"""What the second of two dates is called."""
_PAIR = re.compile(
    r"(?:[,;:]|\band)\s+([^\W\d][^,;:\d]{0,40}?):?\s(\d(?:[\d.,]*\d)?)(?=\s*(?:[,;.]|$|and\b))"
)
_MIN_PAIRS = 2
_LEFT_OVER_OF_WORDS = 0.3
_LEFT_OVER_NEEDED = 0.1
"""A value in the words that no parameter takes goes to an open one from this score on, and to one
that is required."""


def score_values(reading: StepReading, said: SaidWords) -> list[list[float]]:
    """Return how well each value in the words fits each parameter of a tool, by parameter."""
    return [
        [
            likely + score_form(value, leaf_reading.leaf)
            for value, likely in zip(said.values, leaf_reading.values, strict=True)
        ]
        for leaf_reading in reading.leaves
    ]


def fit_said_value(value: SaidValue, leaf: Leaf) -> Any:
    """Convert a value of the words to what a parameter takes; NOTHING if it takes no such value."""
    converted = convert_value(value, leaf)
    items = converted.values if isinstance(converted, Each) else [converted]
    return converted if all(is_fit(item, leaf) for item in items) else NOTHING


def list_word_offers(
    number: int, at: int, leaf_reading: LeafReading, said: SaidWords
) -> Iterator[Offer]:
    leaf = leaf_reading.leaf
    least = _LEAST_BESIDE_INPUTS if said.inputs else _LEAST_SPAN
    if leaf.required and not said.inputs:
        # A parameter that is needed takes the likeliest words, whatever speaks for none.
        least = _LEAST_NEEDED
    elif leaf_reading.absent > least:
        least = leaf_reading.absent
    for value, likely in zip(said.values, leaf_reading.values, strict=True):
        score = likely + score_form(value, leaf)
        score += _NEEDED * leaf.required
        if score < _LEAST_LIKELY or (converted := fit_said_value(value, leaf)) is NOTHING:
            continue
        # Unlikely ones are not taken, but may be exchanged.
        score = max(score, LEAST) if score >= least else min(score, LEAST - 0.01)
        yield Offer(score, number, at, ("words", value.first, value.last), converted)
    for likely, first, last in leaf_reading.spans:
        if likely < least:
            break
        if any(_cuts(value, first, last, said.values) for value in said.values):
            continue
        value = convert_text(said.get_text(first, last), leaf)
        if is_fit(value, leaf):
            yield Offer(max(likely, LEAST), number, at, ("words", first, last), value)
            return


def list_pair_offers(
    number: int, leaves: Sequence[Leaf], clause: tuple[int, int], said: SaidWords
) -> Iterator[Offer]:
    """Yield names with numbers (`Rent 3000, Food 800`) for lists of objects of a text and a
    number."""
    start, end = said.spans[clause[0]][0], said.spans[clause[1]][1]
    pairs = list(_PAIR.finditer(said.intent, start, end))
    if len(pairs) < _MIN_PAIRS:
        return
    first = bisect_right(said.spans, (pairs[0].start(1) + 1,)) - 1
    last = bisect_right(said.spans, (pairs[-1].end(2),)) - 1
    for at, leaf in enumerate(leaves):
        parts = [one for one in leaves if one.path[:-1] == (*leaf.path, 0) and one.required_beside]
        texts = [one for one in parts if "string" in one.types and not one.options]
        counts = [one for one in parts if one.types & {"integer", "number"}]
        if len(texts) != 1 or len(counts) != 1 or len(parts) != len({*texts, *counts}):
            continue
        items = [
            {texts[0].path[-1]: pair[1], counts[0].path[-1]: convert_text(pair[2], counts[0])}
            for pair in pairs
        ]
        if is_fit(items, leaf):
            yield Offer(1.0, number, at, ("words", first, last), items)


def _cuts(value: SaidValue, first: int, last: int, values: Sequence[SaidValue]) -> bool:
    """Return whether words are a part of a value, or more than one value."""
    is_within = value.first <= first and last <= value.last
    is_around = first <= value.first and value.last <= last
    if is_around and (first, last) != (value.first, value.last):
        return any(
            first <= other.first and other.last <= last and other != value for other in values
        )
    if is_within and value.kind is ValueKind.NAME and "/" in value.text:
        # `acme/web-store` may be two values.
        return (first, last) == (value.first, value.last)
    return value.first <= last and first <= value.last


def assign_left_over_words(
    readings: Sequence[StepReading], said: SaidWords, assigned: Assignment, answered: Answered
) -> None:
    """Give values of the words that no parameter has taken to the open ones that they fit best."""
    offers: list[Offer] = []
    for step, reading in enumerate(readings):
        first, last = reading.choice.clause
        scores = score_values(reading, said)
        for at, leaf_reading in enumerate(reading.leaves):
            for value, score in zip(said.values, scores[at], strict=True):
                least = _LEFT_OVER_OF_WORDS
                if leaf_reading.leaf.required:
                    least = _LEFT_OVER_NEEDED
                if score < least or not first <= value.first <= last:
                    continue
                converted = fit_said_value(value, leaf_reading.leaf)
                source = ("words", value.first, value.last)
                if converted is not NOTHING:
                    offers.append(Offer(score, step, at, source, converted))
    for offer in sorted(offers, key=lambda one: -one.score):
        around = [place for place in assigned if place[0] == offer.step]
        if (offer.step, offer.leaf) in assigned or not answered.is_open(offer):
            continue
        if any(overlaps(offer.source, one.source) for one in assigned.values()):
            continue
        path = readings[offer.step].leaves[offer.leaf].leaf.path
        paths = [readings[offer.step].leaves[at].leaf.path for _, at in around]
        if any(path[: len(one)] == one or one[: len(path)] == path for one in paths):
            continue
        assigned[offer.step, offer.leaf] = offer


def _is_end(leaf: Leaf) -> bool:
    return bool(_ENDS & set(to_words(leaf.name)))


def order_periods(assigned: Assignment, readings: Sequence[StepReading]) -> None:
    """Let the two dates of a step follow one another, as its parameters do."""
    for step in {step for step, _ in assigned}:
        places = sorted(
            place
            for place, offer in assigned.items()
            if place[0] == step
            and offer.source[0] == "words"
            and isinstance(offer.value, str)
            and len(to_iso_date(offer.value)) >= 10
        )
        if len(places) != 2:
            continue
        ends = [_is_end(readings[step].leaves[at].leaf) for step, at in places]
        if ends == [True, False]:
            places.reverse()
        first, second = (assigned[place] for place in places)
        if first.value > second.value and len(first.value) == len(second.value):
            assigned[places[0]] = replace(second, leaf=places[0][1])
            assigned[places[1]] = replace(first, leaf=places[1][1])
