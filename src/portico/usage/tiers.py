"""How much a tool matters here: a score from its use, and the tier that gives it. Pure."""

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
    """Where a tool stands among the others."""

    score: float = 0.0
    tier: Tier = "cold"


COLD_STANDING = Standing()


def compute_tier_score(statistics: Statistics) -> float:
    """0 … 1 from popularity, reliability, speed and recency; 0 for a tool nobody has called."""
    if not statistics.calls:
        return 0.0
    popularity = min(statistics.calls / _MANY_CALLS, 1.0)
    # Without a success there is no latency to speak of.
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
    """The tier of a score."""
    for tier, least in _MIN_SCORES.items():
        if score >= least:
            return tier
    return "cold"


def compute_standing(statistics: Statistics) -> Standing:
    """A tool's score and tier."""
    score = compute_tier_score(statistics)
    return Standing(score, to_tier(score))
