"""Tier of a tool: a score computed from its use, and the tier that it gives. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from portico.usage.statistics import Statistics

Tier = Literal["hot", "warm", "standard", "cold"]
TIERS: tuple[Tier, ...] = ("hot", "warm", "standard", "cold")

_POPULARITY = 0.4
_RELIABILITY = 0.3
_SPEED = 0.2
_RECENCY = 0.1
_MANY_CALLS = 10_000
_SLOW_MS = 1_000
_MIN_SCORES: Mapping[Tier, float] = {"hot": 0.8, "warm": 0.6, "standard": 0.3}


@dataclass(frozen=True, slots=True)
class Standing:
    """Score and tier of a tool."""

    score: float = 0.0
    tier: Tier = "cold"


COLD_STANDING = Standing()


def compute_tier_score(statistics: Statistics) -> float:
    """Return 0 to 1 from popularity, reliability, speed and recency; 0 for an unused tool."""
    if not statistics.calls:
        return 0.0
    popularity = min(statistics.calls / _MANY_CALLS, 1.0)
    # Without a success there is no meaningful latency.
    if statistics.successes:
        speed = max(0.0, 1 - statistics.mean_ms / _SLOW_MS)
    else:
        speed = 0.0
    if statistics.calls_30d:
        recency = statistics.calls_7d / statistics.calls_30d
    else:
        recency = 0.0
    score = (
        _POPULARITY * popularity
        + _RELIABILITY * statistics.success_rate
        + _SPEED * speed
        + _RECENCY * recency
    )
    return round(score, 2)


def to_tier(score: float) -> Tier:
    """Return the tier of a score."""
    for tier, min_score in _MIN_SCORES.items():
        if score >= min_score:
            return tier
    return "cold"


def compute_standing(statistics: Statistics) -> Standing:
    """Return a tool's score and tier."""
    score = compute_tier_score(statistics)
    return Standing(score, to_tier(score))
