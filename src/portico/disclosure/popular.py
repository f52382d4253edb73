"""What everybody's use says for a tool in search: so little that only tools that fit alike change places. Pure."""

import math
from collections.abc import Mapping

from portico.disclosure.tiers import Standing
from portico.search import Lift
from portico.search.habits import CALLED_OFTEN, POPULAR

_OFTEN = 100
"""Calls in a month after which a tool is as popular as its standing allows."""
MOST_TOOLS = 500
"""Tools that are lifted, the best: every search looks at each."""


def popular(scores: Mapping[str, Standing], month: Mapping[str, int]) -> dict[str, Lift]:
    """What each tool's standing, and its calls of the last month, add to its score."""
    amounts = {tool: _amount(one.score, month.get(tool, 0)) for tool, one in scores.items()}
    best = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:MOST_TOOLS]
    return {tool: _lift(amount) for tool, amount in best if amount > 0}


def with_popular(own: Mapping[str, Lift], everybodys: Mapping[str, Lift]) -> Mapping[str, Lift]:
    """A caller's own lifts and everybody's: of what both say of a tool's being popular, the larger counts."""
    if not everybodys:
        return own
    return {**everybodys, **{tool: _larger(lift, everybodys.get(tool)) for tool, lift in own.items()}}


def _larger(own: Lift, everybodys: Lift | None) -> Lift:
    if everybodys is None or everybodys.popular <= own.popular:
        return own
    others = tuple(reason for reason in own.reasons if not reason.startswith(CALLED_OFTEN))
    amount = own.amount - own.popular + everybodys.popular
    return Lift(amount, (*others, *everybodys.reasons), everybodys.popular)


def _amount(score: float, calls: int) -> float:
    # A standing says little of how often: one good call makes a tool as warm as a hundred.
    often = min(1.0, math.log1p(calls) / math.log1p(_OFTEN))
    return POPULAR * min(score, 1.0) * (1 + often) / 2 if calls else 0.0


def _lift(amount: float) -> Lift:
    return Lift(amount, (f"used often here (+{amount:.3f})",), amount)
