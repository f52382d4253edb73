"""Assigns what was said to the parameters of all steps together. Pure.

The surest value first, one value for each parameter, and within a step one parameter for each
value. How sure a pair is: what the network points to, how the names fit, whether both are lists,
and whether the step's words speak of the input.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import combinations
from typing import Any

from portico.search import Vector
from portico.workflows.planning.argument_reader import LeafReading
from portico.workflows.planning.name_matching import (
    are_other_things,
    compute_cosine,
    get_context_words,
    score_name,
    to_words,
)
from portico.workflows.planning.offers import (
    LEAST,
    Answered,
    Assignment,
    Offer,
    Source,
    StepReading,
    fit_value,
    is_fit,
    overlaps,
)
from portico.workflows.planning.parameters import Leaf, split_identifier, to_plain_name
from portico.workflows.planning.said_words import SaidInput, SaidWords, write_value
from portico.workflows.planning.tool_choice import ChosenTool
from portico.workflows.planning.value_forms import convert_counted
from portico.workflows.planning.values import (
    NOTHING,
    Each,
)
from portico.workflows.planning.word_offers import (
    assign_left_over_words,
    list_pair_offers,
    list_word_offers,
    order_periods,
)

_NAME_WEIGHT = 0.8
_OWN_NAME = 0.6
"""Added for an input that is named as the plan names the parameter where it is missing."""
_OTHER_THING = 0.6
"""Deduction where both are keys, of things with different names: a board's id is no label's."""
_LIST_WEIGHT = 0.2
_MENTIONED = 0.3
"""Added for an input of which only this step's words speak, deducted where only another's do."""
_REUSED = 0.35
_REUSED_BY_NAME = 0.2
"""Deductions for an input that another step has: most belong to one step, but for parameters of
one name."""
_IN_ORDER = 0.2
"""What two inputs of a step may lose where they are exchanged to have the order of parameters."""
_LEFT_OVER = 0.7
"""An input that no parameter takes otherwise goes to an open one from this score on."""
MAX_LEFT_OVER = 8
"""Inputs without a parameter that are compared with those that are open."""
_MAX_COMPARED = 24
"""Parameters of a tool that are compared by meaning."""
_MEANT_OPTION = 0.77
"""Of an option that a word of the clause spells: `approve` is APPROVE."""
_GUESSED = 0.2
"""Of the likeliest option of a required parameter: it is taken, and named as unsure."""
_ABSENT = 0.5
_MIN_STEM = 4
_MAX_OFFERS = 1_000
"""Values that are compared; a plan has a few dozen."""

Encode = Callable[[str], Vector | None]
"""Returns the meaning of a text, where an encoder is at hand."""


def score_inputs(reading: StepReading, said: SaidWords) -> list[list[float]]:
    """Return how well each input fits each parameter of a tool: up to 2.1, by parameter."""
    tool = reading.choice.tool
    context = get_context_words(tool)
    return [
        [
            likely + _score_names(given, leaf_reading.leaf, tool.name, context)
            for given, likely in zip(said.inputs, leaf_reading.inputs, strict=True)
        ]
        for leaf_reading in reading.leaves
    ]


def fit_input(given: SaidInput, leaf: Leaf, leaves: Sequence[Leaf]) -> Any:
    """Convert an input to what a parameter takes; NOTHING if it takes no such value."""
    counted = convert_counted(given.name, given.value, leaf)
    return counted if is_fit(counted, leaf) else fit_value(given.value, leaf, leaves)


def _score_names(given: SaidInput, leaf: Leaf, tool: str, context: Collection[str]) -> float:
    last = given.name.rpartition(".")[2]
    named = max(score_name(last, leaf, context), score_name(given.name, leaf, context))
    score = _NAME_WEIGHT * named
    if are_other_things(last, leaf):
        score -= _OTHER_THING
    if given.name == leaf.plain_name:
        score += _OWN_NAME
    elif given.name == f"{to_plain_name(tool)}.{leaf.plain_name}":
        score += 2 * _OWN_NAME
    return score


def _score_forms(value: Any, leaf: Leaf) -> float:
    """Return a bonus where both are lists by type or by name, a malus where one is."""
    is_list = isinstance(value, list)
    takes_list = "array" in leaf.types
    if is_list:
        return _LIST_WEIGHT if takes_list or leaf.is_plural else -_LIST_WEIGHT
    return -_LIST_WEIGHT / 2 if takes_list and not isinstance(value, str) else 0.0


def _measure_mentions(readings: Sequence[StepReading], said: SaidWords) -> list[list[float]]:
    """Return by step and input the share of the input's name that only some steps' words have."""
    words = [
        {
            *get_context_words(reading.choice.tool),
            *to_words(said.get_text(*reading.choice.clause)[:400]),
        }
        for reading in readings
    ]
    common: set[str] = set.intersection(*words) if words else set()
    found: list[list[float]] = []
    for own in words:
        shares: list[float] = []
        for given in said.inputs:
            name = [word for word in to_words(given.name) if word not in common]
            shares.append(sum(word in own for word in name) / max(1, len(name)))
        found.append(shares)
    return found


def _measure_leads(mentions: Sequence[Sequence[float]], number: int) -> list[float]:
    """Return by input how much more a step's words speak of it than those of any other step."""
    others = [shares for at, shares in enumerate(mentions) if at != number]
    if not others:
        return [0.0] * len(mentions[number])
    best = map(max, zip(*others, strict=True))
    return [own - other for own, other in zip(mentions[number], best, strict=True)]


def assign_values(
    readings: Sequence[StepReading],
    said: SaidWords,
    encode: Encode,
    answered: "Answered | None" = None,
) -> tuple[Assignment, Sequence[Offer]]:
    """Give each parameter at most one value, the surest pairs first; return all pairs too."""
    answered = answered or Answered()
    mentions = _measure_mentions(readings, said)
    offers: list[Offer] = []
    for number, reading in enumerate(readings):
        leads = _measure_leads(mentions, number)
        offers += filter(answered.is_open, _list_offers(number, reading, said, leads))
    offers = nlargest(_MAX_OFFERS, offers, key=lambda offer: offer.score)
    everything = offers
    known = {(offer.step, offer.leaf, offer.source): offer for offer in offers}
    assigned: Assignment = {}
    while offers:
        best = max(offers, key=lambda offer: offer.score)
        if best.score < LEAST:
            break
        assigned[best.step, best.leaf] = best
        offers = [
            adjusted for offer in offers if (adjusted := _adjust(offer, best, readings)) is not None
        ]
    _put_in_order(assigned, known)
    _assign_left_over(readings, said, assigned, answered, encode)
    if not said.inputs:
        assign_left_over_words(readings, said, assigned, answered)
        order_periods(assigned, readings)
    return assigned, everything


def _list_offers(
    number: int, reading: StepReading, said: SaidWords, leads: Sequence[float]
) -> Iterator[Offer]:
    scores = score_inputs(reading, said)
    all_leaves = [leaf_reading.leaf for leaf_reading in reading.leaves]
    if not said.inputs:
        yield from list_pair_offers(number, all_leaves, reading.choice.clause, said)
    for at, leaf_reading in enumerate(reading.leaves):
        leaf = leaf_reading.leaf
        for which, given in enumerate(said.inputs):
            if scores[at][which] < 0.1:
                continue
            score = scores[at][which] + _score_forms(given.value, leaf)
            score += _MENTIONED * leads[which]
            value = fit_input(given, leaf, all_leaves)
            if value is not NOTHING:
                yield Offer(score, number, at, ("input", which, which), value)
        yield from _list_options(number, at, leaf_reading, reading.choice, said)
        yield from list_word_offers(number, at, leaf_reading, said)


def _list_options(
    number: int, at: int, leaf_reading: LeafReading, choice: ChosenTool, said: SaidWords
) -> Iterator[Offer]:
    leaf = leaf_reading.leaf
    is_open = leaf.required or leaf_reading.absent < _ABSENT
    meant = _find_meant_option(leaf, choice, said) if is_open else None
    for which, likely in enumerate(leaf_reading.options):
        if which == meant:
            likely = max(likely, _MEANT_OPTION)
        is_best = leaf.required and likely == max(leaf_reading.options) and likely > _GUESSED
        if is_best or likely > max(leaf_reading.absent * (which != meant), LEAST):
            value = leaf.options[which]
            value = [value] if "array" in leaf.types else value
            if is_fit(value, leaf):
                yield Offer(
                    max(likely, LEAST * is_best), number, at, ("option", which, which), value
                )


def _adjust(offer: Offer, taken: Offer, readings: Sequence[StepReading]) -> Offer | None:
    """Return an offer as it stands beside one that is taken; None if it is excluded."""
    if (offer.step, offer.leaf) == (taken.step, taken.leaf):
        return None
    if offer.source[0] == "option" or taken.source[0] == "option":
        return offer
    leaf = readings[offer.step].leaves[offer.leaf].leaf
    taken_leaf = readings[taken.step].leaves[taken.leaf].leaf
    if offer.step == taken.step:
        if isinstance(offer.value, Each) and isinstance(taken.value, Each):
            return None
        # A list of objects is given as a whole, or by the parts of its only item.
        shorter = min(len(leaf.path), len(taken_leaf.path))
        if leaf.path[:shorter] == taken_leaf.path[:shorter]:
            return None
        return None if overlaps(offer.source, taken.source) else offer
    if offer.source == taken.source and offer.source[0] == "input":
        is_same_tool = readings[offer.step].choice.tool == readings[taken.step].choice.tool
        is_shared = leaf.name == taken_leaf.name and not is_same_tool
        score = offer.score - (_REUSED_BY_NAME if is_shared else _REUSED)
        return replace(offer, score=score)
    return offer


def _put_in_order(assigned: Assignment, known: dict[tuple[int, int, Source], Offer]) -> None:
    """Exchange two inputs of a step that stand the other way round than its parameters, where the
    scores leave it open: `old_text` and `new_text` are said as they are asked for."""
    for one, other in combinations(sorted(assigned), 2):
        first = assigned[one]
        second = assigned[other]
        if one[0] != other[0] or first.source <= second.source:
            continue
        if first.source[0] != second.source[0] or first.source[0] == "option":
            continue
        changed = known.get((*one, second.source))
        changed_other = known.get((*other, first.source))
        if changed is None or changed_other is None:
            continue
        if changed.score + changed_other.score > first.score + second.score - _IN_ORDER:
            assigned[one] = changed
            assigned[other] = changed_other


def find_unused(said: SaidWords, assigned: Assignment, answered: Answered) -> list[int]:
    """Return the inputs that no step has, nor a part of them, nor the object around them."""
    used = {offer.source[1] for offer in assigned.values() if offer.source[0] == "input"}
    used |= {which for _, which in answered.inputs}
    names = [said.inputs[at].name for at in used]
    return [
        at
        for at, given in enumerate(said.inputs)
        if at not in used
        and not any(
            name.startswith(f"{given.name}.") or given.name.startswith(f"{name}.") for name in names
        )
    ]


def rank_leaves(
    readings: Sequence[StepReading], said: SaidWords, which: int, encode: Encode
) -> list[Offer]:
    """Return the parameters that an input may be meant for, the likeliest first: by the network, by
    name and by meaning. The value is NOTHING where a parameter takes no such."""
    given = said.inputs[which]
    name = " ".join(split_identifier(given.name))
    whole = f"{name}: {write_value(given.value)[:60]}"
    offers: list[Offer] = []
    for step, reading in enumerate(readings):
        tool = reading.choice.tool
        context = get_context_words(tool)
        leaves = [leaf_reading.leaf for leaf_reading in reading.leaves]
        for at, leaf in enumerate(leaves[:_MAX_COMPARED]):
            score = reading.leaves[at].inputs[which] + _score_names(given, leaf, tool.name, context)
            score += _compare_texts(encode, name, " ".join(split_identifier(leaf.name)))
            score += _compare_texts(encode, whole, leaf.describe()[:160])
            value = fit_input(given, leaf, leaves)
            offers.append(Offer(score, step, at, ("input", which, which), value))
    return sorted(offers, key=lambda offer: -offer.score)


def _compare_texts(encode: Encode, one: str, other: str) -> float:
    return compute_cosine(encode(one), encode(other)) or 0.0


def _assign_left_over(
    readings: Sequence[StepReading],
    said: SaidWords,
    assigned: Assignment,
    answered: Answered,
    encode: Encode,
) -> None:
    """Give inputs that no parameter has taken to the open ones that they are meant for."""
    for which in find_unused(said, assigned, answered)[:MAX_LEFT_OVER]:
        if said.inputs[which].is_part:
            continue
        fitting = [
            offer
            for offer in rank_leaves(readings, said, which, encode)
            if (offer.step, offer.leaf) not in assigned
            and answered.is_open(offer)
            and offer.value is not NOTHING
        ]
        if fitting and fitting[0].score >= _LEFT_OVER:
            best = fitting[0]
            assigned[best.step, best.leaf] = best


def _find_meant_option(leaf: Leaf, choice: ChosenTool, said: SaidWords) -> int | None:
    """Return the only option that words of the clause spell, up to their endings."""
    words = to_words(said.get_text(*choice.clause)[:400])
    found = [
        at
        for at, option in enumerate(leaf.options)
        if isinstance(option, str) and any(_has_stem(word, words) for word in to_words(option)[:1])
    ]
    return found[0] if len(found) == 1 else None


def _has_stem(word: str, words: Sequence[str]) -> bool:
    stem = word[: max(_MIN_STEM, len(word) - 2)]
    return len(word) >= _MIN_STEM and any(other.startswith(stem) for other in words)
