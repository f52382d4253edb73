"""Contestants take turns: every round measures each of them, and ratios are taken within a round.

On a machine that others use too, a minute is fast or slow for everyone in it; what two contestants
took in the same round can be compared, what they took in different minutes cannot.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Samples:
    """Describes what one contestant took, by round; one round is a list of figures in the same
    unit."""

    rounds: list[list[float]] = field(default_factory=list[list[float]])

    @property
    def all(self) -> list[float]:
        return [figure for one in self.rounds for figure in one]

    def percentile(self, share: float) -> float:
        """The figure that `share` of all figures do not exceed."""
        return percentile(self.all, share)

    def ratio_to(self, other: "Samples") -> float:
        """Return how many times `other`'s median: the median over the rounds in which both were
        measured."""
        pairs = [
            (median(own), median(its))
            for own, its in zip(self.rounds, other.rounds, strict=False)
            if own and its
        ]
        return median(own / its for own, its in pairs)


def percentile(figures: Sequence[float], share: float) -> float:
    """The smallest figure that at least `share` of the figures do not exceed."""
    ordered = sorted(figures)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Return who is measured when: a different contestant begins each round, so that no one always
    follows
    the same one."""
    for number in range(rounds):
        shift = number % len(names)
        yield from ((number, name) for name in (*names[shift:], *names[:shift]))
