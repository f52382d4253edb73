"""Popularity boosts for search: so small that only equally relevant tools change places. Pure."""

import math
from collections.abc import Mapping

from portico.search import Boost
from portico.search.usage_patterns import MAX_POPULARITY_BOOST, POPULARITY_REASON
from portico.usage.tiers import Standing

_OFTEN_CALLS = 100
"""Monthly calls at which a tool is as popular as its standing allows."""
MAX_TOOLS = 500
"""Maximum number of boosted tools, the best: every search examines each."""


def compute_popularity_boosts(
    standings: Mapping[str, Standing], monthly_calls: Mapping[str, int]
) -> dict[str, Boost]:
    """Return what each tool's standing and monthly calls add to its score."""
    amounts = {
        tool: _compute_amount(standing.score, monthly_calls.get(tool, 0))
        for tool, standing in standings.items()
    }
    best = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOOLS]
    return {tool: _make_boost(amount) for tool, amount in best if amount > 0}


def merge_popularity_boosts(
    caller_boosts: Mapping[str, Boost], shared_boosts: Mapping[str, Boost]
) -> Mapping[str, Boost]:
    """Merge a caller's boosts with everybody's; of two popularity parts the larger counts."""
    if not shared_boosts:
        return caller_boosts
    return {
        **shared_boosts,
        **{
            tool: _merge_boost(boost, shared_boosts.get(tool))
            for tool, boost in caller_boosts.items()
        },
    }


def _merge_boost(caller_boost: Boost, shared_boost: Boost | None) -> Boost:
    if shared_boost is None or shared_boost.popularity <= caller_boost.popularity:
        return caller_boost
    others = tuple(
        reason for reason in caller_boost.reasons if not reason.startswith(POPULARITY_REASON)
    )
    amount = caller_boost.amount - caller_boost.popularity + shared_boost.popularity
    return Boost(amount, (*others, *shared_boost.reasons), shared_boost.popularity)


def _compute_amount(score: float, calls: int) -> float:
    # A standing says little about frequency: one good call makes a tool as warm as a hundred.
    frequency = min(1.0, math.log1p(calls) / math.log1p(_OFTEN_CALLS))
    if calls:
        return MAX_POPULARITY_BOOST * min(score, 1.0) * (1 + frequency) / 2
    return 0.0


def _make_boost(amount: float) -> Boost:
    return Boost(amount, (f"used often here (+{amount:.3f})",), amount)
