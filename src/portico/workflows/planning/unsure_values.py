"""Finds the parameters whose values are guesses, and those that may have been meant too. Pure."""

from collections.abc import Sequence

from portico.calls.cache import is_read_only
from portico.workflows.planning.assignment import (
    MAX_LEFT_OVER,
    Encode,
    find_unused,
    rank_leaves,
)
from portico.workflows.planning.offers import Answered, Assignment, Offer, Place, StepReading
from portico.workflows.planning.said_words import SaidWords
from portico.workflows.planning.values import NOTHING

_SURE = 1.6
_CLEAR = 0.4
"""Score of a value from which it is no guess, and how far it is before the next."""
_MAX_MEANT = 2
"""Parameters that are named for an unused input."""
_MAX_OPEN = 6
_LEAST_OPEN = 0.2
_IS_CHOICE = 0.2
"""Parameters without a value that are named for each step, and how likely they are meant at least;
a choice may be what a verb means."""


def find_unsure(
    readings: Sequence[StepReading],
    said: SaidWords,
    assigned: Assignment,
    offers: Sequence[Offer],
    answered: Answered,
    encode: Encode,
) -> list[Place]:
    """Return the parameters whose values are guesses, those that an unused input may be for, and
    those without a value that may be meant: the likeliest of each step."""
    guesses = [
        place for place, offer in assigned.items() if _is_guess(offer, offers, readings, said)
    ]
    for which in find_unused(said, assigned, answered)[:MAX_LEFT_OVER]:
        ranked = rank_leaves(readings, said, which, encode)
        fitting = [offer for offer in ranked if offer.value is not NOTHING][:_MAX_MEANT]
        guesses += [(offer.step, offer.leaf) for offer in (*fitting, *ranked[:1])]
    best: dict[Place, float] = {}
    for offer in offers:
        best[offer.step, offer.leaf] = max(offer.score, best.get((offer.step, offer.leaf), 0.0))
    for step, reading in enumerate(readings):
        filled = [reading.leaves[at].leaf.path for number, at in assigned if number == step]
        likely: list[tuple[float, Place]] = []
        for at, found in enumerate(reading.leaves):
            path = found.leaf.path
            is_whole = any(one[: len(path)] == path or path[: len(one)] == one for one in filled)
            if is_whole or found.leaf.required or (step, at) in answered.places:
                continue
            score = max(1 - found.absent, best.get((step, at), 0.0))
            if found.leaf.options and True not in found.leaf.options:
                score += _IS_CHOICE
            likely.append((score, (step, at)))
        likely.sort(key=lambda item: -item[0])
        # A step that says which thing, but not what becomes of it, lacks something.
        is_bare = not is_read_only(reading.choice.tool) and all(
            reading.leaves[at].leaf.required for number, at in assigned if number == step
        )
        is_guessed = any(number == step for number, _ in guesses)
        least = 0.0 if is_bare or is_guessed else _LEAST_OPEN
        guesses += [place for score, place in likely[:_MAX_OPEN] if score >= least]
    open_ones = (place for place in guesses if place not in answered.places)
    return list(dict.fromkeys(open_ones))


def _is_guess(
    offer: Offer, offers: Sequence[Offer], readings: Sequence[StepReading], said: SaidWords
) -> bool:
    """Return whether little speaks for a value, or as much for another one."""
    leaf = readings[offer.step].leaves[offer.leaf].leaf
    kind, which, _ = offer.source
    is_named = kind == "input" and said.inputs[which].name in (leaf.name, leaf.plain_name)
    if (offer.score < _SURE and not is_named) or (
        leaf.types & {"any", "union"} and isinstance(offer.value, str)
    ):
        return True
    if isinstance(offer.value, list) and any(" " in str(one) for one in offer.value[:20]):
        # A list of names, which may be spelt in another way.
        return not leaf.options
    return any(
        other.score > offer.score - _CLEAR
        for other in offers
        if other.step == offer.step and (other.leaf == offer.leaf) != (other.source == offer.source)
    )
