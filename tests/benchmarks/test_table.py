"""Goals in both directions, and results kept where a peer is not installed."""

import argparse
import json
from pathlib import Path

import pytest
from benchmarks.table import Goal, Report, Table, conclude, get_installed_version


@pytest.mark.parametrize(
    ("goal", "met", "tolerable"),
    [
        (Goal("ms", 5.0, 5), True, True),
        (Goal("ms", 5.4, 5), False, True),
        (Goal("ms", 5.6, 5), False, False),
        (Goal("%", 82.0, 82, at_least=True), True, True),
        (Goal("%", 75.0, 82, at_least=True), False, True),
        (Goal("%", 73.0, 82, at_least=True), False, False),
        (Goal("%", 81.9, 82, tolerance=0, at_least=True), False, False),
    ],
)
def test_a_goal_is_at_most_or_at_least_and_bears_what_it_tolerates(
    goal: Goal, met: bool, tolerable: bool
):
    assert (goal.met, goal.tolerable) == (met, tolerable)


def test_a_goal_says_its_direction():
    assert str(Goal("load, ms", 9.0, 300)) == "load, ms: 9.00 (goal ≤ 300): met"
    assert str(Goal("R@5, %", 81.6, 82, 0, at_least=True)) == "R@5, %: 81.6 (goal ≥ 82): MISSED"


def options(folder: Path, *, check: bool) -> argparse.Namespace:
    return argparse.Namespace(json=folder / "kept.json", check=check, results=False)


def test_a_check_fails_only_when_a_goal_is_missed_by_too_much(tmp_path: Path):
    table = Table("t", ("a",), ((1,),))
    borne, missed = Goal("x", 80.0, 82, at_least=True), Goal("x", 10.0, 82, at_least=True)
    assert conclude(Report("b", (table,), (borne,)), options(tmp_path, check=True)) == 0
    assert conclude(Report("b", (table,), (missed,)), options(tmp_path, check=False)) == 0
    assert conclude(Report("b", (table,), (missed,)), options(tmp_path, check=True)) == 1


def test_a_distribution_that_is_not_installed_has_no_version():
    assert get_installed_version("portico-mcp-never-published") == ""


def test_what_is_kept_says_which_goals_were_met_and_null_for_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "benchmarks.table.COMPARED_VERSIONS", ("portico-mcp", "portico-mcp-never-published")
    )
    goal = Goal("R@5, %", 90.0, 82, at_least=True)
    assert (
        conclude(
            Report("b", (Table("t", ("a",), ((1,),)),), (goal,)), options(tmp_path, check=True)
        )
        == 0
    )
    kept = json.loads((tmp_path / "kept.json").read_text("utf-8"))
    assert kept["versions"]["portico-mcp-never-published"] is None
    assert kept["versions"]["portico-mcp"]
    assert (kept["goals"][0]["at_least"], kept["goals"][0]["met"]) == (True, True)
