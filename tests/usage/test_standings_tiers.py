"""A tool's score from its use, and its tier."""

import pytest

from portico.usage.statistics import UNUSED, Statistics
from portico.usage.tool_tiers import COLD_STANDING, compute_standing, compute_tier_score, to_tier


def use(
    calls: int = 10_000, successes: int | None = None, ms: float = 0, week: int = 1, month: int = 1
) -> Statistics:
    well = calls if successes is None else successes
    return Statistics(calls, well, ms, ms, ms, 1.0, week, month)


@pytest.mark.parametrize(
    ("known", "score"),
    [
        (use(), 1.0),
        (use(calls=5_000), 0.8),
        (use(calls=1_000_000), 1.0),
        (use(successes=5_000), 0.85),
        (use(ms=500), 0.9),
        (use(ms=60_000), 0.8),
        (use(week=1, month=5), 0.92),
        (use(week=0, month=0), 0.9),
        (use(successes=0), 0.5),
        (UNUSED, 0.0),
    ],
)
def test_popularity_reliability_speed_and_recency_make_the_score(known: Statistics, score: float):
    assert compute_tier_score(known) == pytest.approx(score)


@pytest.mark.parametrize(
    ("score", "tier"),
    [
        (1.0, "hot"),
        (0.8, "hot"),
        (0.79, "warm"),
        (0.6, "warm"),
        (0.59, "standard"),
        (0.3, "standard"),
        (0.29, "cold"),
        (0.0, "cold"),
    ],
)
def test_the_score_decides_the_tier(score: float, tier: str):
    assert to_tier(score) == tier


def test_a_tool_that_nobody_called_is_cold():
    assert compute_standing(UNUSED) == COLD_STANDING
