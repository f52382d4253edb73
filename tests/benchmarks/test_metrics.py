"""Recall, nDCG, reciprocal rank and their intervals, against values worked out by hand."""

import numpy as np
import pytest
from benchmarks.metrics import (
    MEASURES,
    estimates,
    marks,
    mean_estimates,
    ndcg,
    recall_at,
    reciprocal_rank,
)

_GROUPS = (frozenset({"a", "b"}), frozenset({"c"}))


def test_each_measure_of_one_ranking_has_the_value_worked_out_by_hand():
    earned = dict(zip(MEASURES, marks(["x", "a", "y", "c"], _GROUPS), strict=True))
    gain, best = 1 / np.log2(3) + 1 / np.log2(5), 1 + 1 / np.log2(3)
    assert earned == pytest.approx(
        {"R@1": 0.0, "R@3": 0.5, "R@5": 1.0, "R@10": 1.0, "nDCG@10": gain / best, "MRR": 0.5}
    )
    assert gain / best == pytest.approx(0.6509, abs=1e-4)


def test_any_tool_of_a_group_serves_it_and_a_second_one_adds_nothing():
    assert recall_at(["a", "b"], _GROUPS) == 0.5
    assert ndcg(["a", "b", "c"], _GROUPS) == pytest.approx((1 + 0.5) / (1 + 1 / np.log2(3)))


def test_a_perfect_ranking_earns_one_and_an_empty_one_nothing():
    assert marks(["a"], (frozenset({"a"}),)) == (1.0,) * len(MEASURES)
    assert marks([], _GROUPS) == (0.0,) * len(MEASURES)


def test_what_stands_behind_the_tenth_place_counts_for_the_reciprocal_rank_alone():
    ranked = [*map(str, range(19)), "a"]
    assert ndcg(ranked[:10], _GROUPS) == 0
    assert reciprocal_rank(ranked, _GROUPS) == 1 / 20


def test_more_needs_than_ten_places_can_still_be_answered_perfectly():
    groups = [frozenset({str(number)}) for number in range(12)]
    assert ndcg([str(number) for number in range(10)], groups) == pytest.approx(1)


def test_an_interval_is_the_same_in_every_run():
    of_questions = np.random.default_rng(1).random((40, 3))
    assert estimates(of_questions) == estimates(of_questions)


def test_an_interval_is_as_wide_as_the_questions_differ():
    coins = np.array([[0.0], [1.0]] * 50)
    (found,) = estimates(coins)
    # Two standard errors of a fair coin thrown a hundred times: 2 × 0.05.
    assert (found.value, found.low, found.high) == (
        0.5,
        pytest.approx(0.4, abs=0.02),
        pytest.approx(0.6, abs=0.02),
    )
    (certain,) = estimates(np.ones((100, 1)))
    assert (certain.value, certain.low, certain.high) == pytest.approx((1, 1, 1))


def test_every_set_counts_the_same_in_a_mean_however_many_questions_it_has():
    (found,) = mean_estimates([np.ones((90, 1)), np.zeros((10, 1))])
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
