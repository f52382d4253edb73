"""Popularity boosts: small, bounded, and the larger of two counts."""

import pytest

from portico.search import Boost
from portico.usage.tool_tiers import (
    MAX_TOOLS,
    Standing,
    compute_popularity_boosts,
    merge_popularity_boosts,
)

EVERYBODYS = compute_popularity_boosts(
    {
        "mail.send": Standing(1.0, "hot"),
        "mail.find": Standing(0.5, "standard"),
        "mail.failing": Standing(0.0, "cold"),
        "mail.old": Standing(0.5, "standard"),
    },
    {"mail.send": 100, "mail.find": 5_000, "mail.failing": 100},
)


def test_a_tool_is_boosted_by_its_score_and_no_more_than_a_little():
    assert {tool: boost.amount for tool, boost in EVERYBODYS.items()} == {
        "mail.send": pytest.approx(0.03),
        "mail.find": pytest.approx(0.015),
    }
    assert EVERYBODYS["mail.send"].reasons == ("used often here (+0.030)",)


def test_what_the_caller_and_everybody_call_often_counts_once_the_larger():
    own = {
        "mail.send": Boost(
            0.11, ("called after searches like this (+0.100)", "called often (+0.010)"), 0.01
        ),
        "mail.find": Boost(0.02, ("called often (+0.020)",), 0.02),
        "mail.mine": Boost(0.1, ("called after searches like this (+0.100)",)),
    }
    both = merge_popularity_boosts(own, EVERYBODYS)
    assert both["mail.send"].amount == pytest.approx(0.13)
    assert both["mail.send"].reasons == (
        "called after searches like this (+0.100)",
        "used often here (+0.030)",
    )
    assert both["mail.find"] == own["mail.find"]
    assert both["mail.mine"] == own["mail.mine"]
    assert merge_popularity_boosts({}, EVERYBODYS) == EVERYBODYS
    assert merge_popularity_boosts(own, {}) == own


def test_a_tool_that_was_called_more_often_is_boosted_more():
    warm = {tool: Standing(0.6, "warm") for tool in ("mail.once", "mail.often", "mail.never")}
    boosts = compute_popularity_boosts(warm, {"mail.once": 1, "mail.often": 20})
    assert list(boosts) == ["mail.often", "mail.once"]
    assert 0.01 < boosts["mail.once"].amount < boosts["mail.often"].amount < 0.018


def test_only_the_best_are_boosted_however_many_were_used():
    names = [f"mail.t{number}" for number in range(5_000)]
    many = compute_popularity_boosts(
        {name: Standing(number / 5_000, "cold") for number, name in enumerate(names)},
        dict.fromkeys(names, 1),
    )
    assert len(many) == MAX_TOOLS
    assert "mail.t4999" in many
    assert "mail.t4499" not in many
