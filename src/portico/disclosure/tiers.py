"""How much a tool matters here: a score from its use, and the tier that gives it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from portico.observability.statistics import Statistics

Tier = Literal["hot", "warm", "standard", "cold"]
TIERS: tuple[Tier, ...] = ("hot", "warm", "standard", "cold")

_POPULARITY, _RELIABILITY, _SPEED, _RECENCY = 0.4, 0.3, 0.2, 0.1
_MANY_CALLS = 10_000
_SLOW_MS = 1_000
_LEAST: Mapping[Tier, float] = {"hot": 0.8, "warm": 0.6, "standard": 0.3}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a tool stands among the others."""

    score: float = 0.0
    tier: Tier = "cold"


COLD = Standing()


def tier_score(use: Statistics) -> float:
    """0 … 1 from popularity, reliability, speed and recency; 0 for a tool nobody has called."""
    if not use.calls:
        return 0.0
    popularity = min(use.calls / _MANY_CALLS, 1.0)
    # Without a success there is no latency to speak of.
    speed = max(0.0, 1 - use.mean_ms / _SLOW_MS) if use.successes else 0.0
    recency = use.week / use.month if use.month else 0.0
    score = _POPULARITY * popularity + _RELIABILITY * use.success_rate + _SPEED * speed + _RECENCY * recency
    return round(score, 2)


def tier_of(score: float) -> Tier:
    """The tier of a score."""
    for tier, least in _LEAST.items():
        if score >= least:
            return tier
    return "cold"


def standing(use: Statistics) -> Standing:
    """A tool's score and tier."""
    score = tier_score(use)
    return Standing(score, tier_of(score))
