"""Measures how good a ranking is, and how sure that figure is: recall, nDCG, reciprocal rank, and
bootstrap
intervals.

A question's groups are its needs: each is a set of tools of which any one will do. Pure; every
figure is 0 … 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Marks = NDArray[np.float64]
"""One row per question, one column per measure."""
Groups = Sequence[frozenset[str]]

_RECALLS = (1, 3, 5, 10)
_GAIN_DEPTH = 10
MEASURES = (*(f"R@{k}" for k in _RECALLS), f"nDCG@{_GAIN_DEPTH}", "MRR")

_ROUNDS = 2_000
_SEED = 20_261_115
_COVERED = 95.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions, and the interval that other questions of the kind would put it in, 95
    times in 100."""

    value: float
    low: float
    high: float


def marks(ranked: Sequence[str], groups: Groups) -> tuple[float, ...]:
    """Return what one ranking earns, measure by measure."""
    recalls = (recall_at(ranked[:k], groups) for k in _RECALLS)
    return *recalls, ndcg(ranked[:_GAIN_DEPTH], groups), reciprocal_rank(ranked, groups)


def recall_at(ranked: Sequence[str], groups: Groups) -> float:
    """The share of the groups that have a member among the ranked."""
    return sum(not group.isdisjoint(ranked) for group in groups) / len(groups)


def ndcg(ranked: Sequence[str], groups: Groups) -> float:
    """Discounted gain over the best possible; the first tool that serves a group earns it, its
    doubles earn nothing."""
    open_groups = list(groups)
    gain = 0.0
    for place, tool in enumerate(ranked):
        served = next((group for group in open_groups if tool in group), None)
        if served is not None:
            open_groups.remove(served)
            gain += _discount(place)
    return gain / sum(map(_discount, range(min(len(groups), _GAIN_DEPTH))))


def reciprocal_rank(ranked: Sequence[str], groups: Groups) -> float:
    """One over the place of the first tool that serves any group; 0 if none does."""
    right = frozenset[str]().union(*groups)
    return next((1 / place for place, tool in enumerate(ranked, 1) if tool in right), 0.0)


def estimates(of_questions: Marks) -> tuple[Estimate, ...]:
    """Each measure over the questions of one set."""
    return mean_estimates([of_questions])


def mean_estimates(of_sets: Sequence[Marks]) -> tuple[Estimate, ...]:
    """Each measure's mean over sets: every set counts the same, and only its own questions vary."""
    values = np.mean([of_set.mean(axis=0) for of_set in of_sets], axis=0)
    chance = np.random.default_rng(_SEED)
    rounds = np.mean([_resample(of_set, chance) for of_set in of_sets], axis=0)
    outside = (100 - _COVERED) / 2
    low, high = np.percentile(rounds, (outside, 100 - outside), axis=0)
    return tuple(Estimate(*map(float, row)) for row in zip(values, low, high, strict=True))


def _resample(of_questions: Marks, chance: np.random.Generator) -> Marks:
    """The means of as many questions, drawn again and again with replacement: one row per round."""
    count = len(of_questions)
    # How often each question is drawn is all that matters, so a round is one row of counts.
    drawn = chance.multinomial(count, np.full(count, 1 / count), size=_ROUNDS)
    return drawn @ of_questions / count


def _discount(place: int) -> float:
    return 1 / math.log2(place + 2)
