"""What everybody's use says for a tool in search: little, bounded, and the larger of two reasons."""

import pytest

from portico.disclosure.popular import MOST_TOOLS, popular, with_popular
from portico.disclosure.tiers import Standing
from portico.search import Lift

EVERYBODYS = popular(
    {
        "mail.send": Standing(1.0, "hot"),
        "mail.find": Standing(0.5, "standard"),
        "mail.failing": Standing(0.0, "cold"),
        "mail.old": Standing(0.5, "standard"),
    },
    {"mail.send": 100, "mail.find": 5_000, "mail.failing": 100},
)


def test_a_tool_is_lifted_by_its_score_and_no_more_than_a_little():
    assert {tool: lift.amount for tool, lift in EVERYBODYS.items()} == {
        "mail.send": pytest.approx(0.03),
        "mail.find": pytest.approx(0.015),
    }
    assert EVERYBODYS["mail.send"].reasons == ("used often here (+0.030)",)


def test_what_the_caller_and_everybody_call_often_counts_once_the_larger():
    own = {
        "mail.send": Lift(0.11, ("called after searches like this (+0.100)", "called often (+0.010)"), 0.01),
        "mail.find": Lift(0.02, ("called often (+0.020)",), 0.02),
        "mail.mine": Lift(0.1, ("called after searches like this (+0.100)",)),
    }
    both = with_popular(own, EVERYBODYS)
    assert both["mail.send"].amount == pytest.approx(0.13)
    assert both["mail.send"].reasons == ("called after searches like this (+0.100)", "used often here (+0.030)")
    assert both["mail.find"] == own["mail.find"]
    assert both["mail.mine"] == own["mail.mine"]
    assert with_popular({}, EVERYBODYS) == EVERYBODYS
    assert with_popular(own, {}) == own


def test_a_tool_that_was_called_more_often_is_lifted_more():
    warm = {tool: Standing(0.6, "warm") for tool in ("mail.once", "mail.often", "mail.never")}
    lifts = popular(warm, {"mail.once": 1, "mail.often": 20})
    assert list(lifts) == ["mail.often", "mail.once"]
    assert 0.01 < lifts["mail.once"].amount < lifts["mail.often"].amount < 0.018


def test_only_the_best_are_lifted_however_many_were_used():
    names = [f"mail.t{number}" for number in range(5_000)]
    many = popular(
        {name: Standing(number / 5_000, "cold") for number, name in enumerate(names)}, dict.fromkeys(names, 1)
    )
    assert len(many) == MOST_TOOLS
    assert "mail.t4999" in many
    assert "mail.t4499" not in many
