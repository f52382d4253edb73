"""The retrieval benchmark: what it makes of a ranking, what it writes, and that every part it
switches off exists."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from benchmarks.chosen_sets import PUBLIC
from benchmarks.contestants import PAGE, ranked_ids
from benchmarks.metrics import MEASURES
from benchmarks.one_thread import THREADS
from benchmarks.processes import REPOSITORY
from benchmarks.ranks import place_for, write_ranks
from benchmarks.tool_sets import Question

from benchmarks import ablation, retrieval
from portico.search import Hit, Ranking
from portico.search import ranking as ranking_weights
from tests.benchmarks.tiny_set import QUESTIONS, TOOLS, write_lines, write_set


def ranking(*hits: Hit) -> Ranking:
    return Ranking(hits, len(hits), 1.0)


def test_twins_stand_behind_the_first_page_and_behind_their_hit_after_it():
    page = [Hit(f"h{number}", 1.0) for number in range(PAGE)]
    page[2] = Hit("h2", 1.0, duplicates=("t2", "t2b"))
    page[0] = Hit("h0", 1.0, duplicates=("t0",))
    later = [Hit("h10", 0.5, duplicates=("t10",)), Hit("h11", 0.4)]
    ids = ranked_ids(ranking(*page, *later))
    assert ids[:PAGE] == [f"h{number}" for number in range(PAGE)]
    assert ids[PAGE:] == ["t0", "t2", "t2b", "h10", "t10", "h11"]


def test_no_id_is_ranked_twice():
    assert ranked_ids(
        ranking(Hit("a", 1.0, duplicates=("b", "c")), Hit("b", 0.9, duplicates=("c",)))
    ) == [
        "a",
        "b",
        "c",
    ]


def test_ranks_of_one_set_are_the_file_itself_and_of_several_a_file_each(tmp_path: Path):
    out = tmp_path / "out"
    assert place_for(out, "tiny", several=False) == out
    assert place_for(out, "tiny", several=True) == out / "tiny.jsonl"
    out.mkdir()
    assert place_for(out, "tiny", several=False) == out / "tiny.jsonl"


def test_ranks_are_one_line_of_json_per_question(tmp_path: Path):
    path = tmp_path / "new" / "ranks.jsonl"
    write_ranks(path, [("q1", ["a", "ü"]), (2, [])])
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"id": "q1", "ranked": ["a", "ü"]},
        {"id": 2, "ranked": []},
    ]


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: object) -> int:
    cache = tmp_path / "cache"
    monkeypatch.setattr(
        sys, "argv", ["retrieval", *map(str, arguments), "--no-peer", "--cache", str(cache)]
    )
    return retrieval.main()


def test_a_folder_of_sets_is_measured_by_set_style_and_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("one", "two"):
        write_set(tmp_path / "sets" / name)
    assert (
        run(monkeypatch, tmp_path, "--data", tmp_path / "sets", "--ranks", tmp_path / "ranks") == 0
    )
    printed = capsys.readouterr().out
    for words in ("R@1", "R@3", "MRR", "p99 ms", "mean of sets (2)", "keyword", "said so %"):
        assert words in printed
    ranks = [
        json.loads(line)
        for line in (tmp_path / "ranks" / "two.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["id"] for line in ranks] == [question["id"] for question in QUESTIONS]
    assert ranks[0]["ranked"][0] == "post/send"


def test_tools_and_queries_of_one_s_own_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    tools = write_lines(tmp_path / "mine.jsonl", TOOLS)
    queries = write_lines(tmp_path / "asked.jsonl.gz", QUESTIONS)
    assert (
        run(
            monkeypatch,
            tmp_path,
            "--tools",
            tools,
            "--queries",
            queries,
            "--ranks",
            tmp_path / "ranks.jsonl",
        )
        == 0
    )
    assert "asked" in capsys.readouterr().out
    assert len((tmp_path / "ranks.jsonl").read_text("utf-8").splitlines()) == len(QUESTIONS)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--tools", "t.jsonl"], "go together"),
        (["--data", "nowhere"], "Say where sets are with --data"),
        (["--data", ".", "--set", "unknown"], "There are: one"),
        (["--data", ".", "--ablation", "--ranks", "out"], "Choose one"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], advice: str
):
    write_set(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=advice):
        run(monkeypatch, tmp_path, *arguments)


def test_the_ablation_has_a_row_for_every_variant_and_for_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_set(tmp_path / "sets" / "one")
    assert run(monkeypatch, tmp_path, "--data", tmp_path / "sets", "--ablation") == 0
    printed = capsys.readouterr().out
    for label in (*(variant.label for variant in ablation.VARIANTS), ablation.COLD, ablation.WARM):
        assert label in printed


def test_a_set_that_stands_apart_has_a_column_and_counts_in_no_mean():
    good, bad = np.ones((2, len(MEASURES))), np.zeros((2, len(MEASURES)))
    label = ablation.SHIPPED.label
    (row,) = ablation.table({"given": {label: good}, "fleet_own": {label: bad}}, ["fleet_own"]).rows
    assert row == (label, 100.0, 0.0, 100.0, 100.0, 100.0, 100.0)


@pytest.mark.parametrize("variant", ablation.VARIANTS, ids=lambda variant: variant.label)
def test_every_constant_that_a_variant_exchanges_exists_and_is_put_back(variant: ablation.Variant):
    before = ranking_weights.DENSE_SHARE
    during = variant.constants.get("ranking.DENSE_SHARE", before)
    with ablation.with_constants(variant.constants):
        assert during == ranking_weights.DENSE_SHARE
    assert before == ranking_weights.DENSE_SHARE


def test_a_constant_that_is_gone_is_named():
    with (
        pytest.raises(AttributeError, match=r"portico\.search\.ranking has no GONE"),
        ablation.with_constants({"ranking.GONE": 1}),
    ):
        pass


def make_run(
    name: str, earned: Sequence[bool], style: str = "task", refused: Sequence[bool] = ()
) -> retrieval.Run:
    """A run in which each answerable question found its tool or did not; `refused` is for questions
    without any."""
    asked = [
        Question(f"a{at}", "asked", (frozenset({"right"}),), style) for at in range(len(earned))
    ]
    asked += [Question(f"n{at}", "asked in vain", (), "negative") for at in range(len(refused))]
    ranked = [["right" if good else "wrong"] for good in earned] + [["wrong"] for _ in refused]
    said = np.array([False] * len(earned) + list(refused))
    return retrieval.Run(name, 2, "portico", asked, ranked, said, np.zeros(len(asked)))


def test_the_goal_of_the_public_sets_is_stated_when_all_six_were_asked_and_ours_are_no_part_of_it():
    six = [make_run(name, [True] * 4 + [False]) for name in PUBLIC]
    own = make_run("fleet_own", [False])
    (goal, *_) = retrieval.goals([*six, own])
    assert (goal.measured, goal.limit, goal.at_least, goal.met) == (
        pytest.approx(80),
        82,
        True,
        False,
    )
    assert all("public" not in goal.name for goal in retrieval.goals([*six[:5], own]))


def test_every_goal_of_the_fleet_is_stated_for_each_set_of_questions_to_it():
    good, poor = (
        make_run("fleet_dev", [True] * 3, refused=[True, False]),
        make_run("fleet_own", [False], style=""),
    )
    of = {goal.name: goal for goal in retrieval.goals([good, poor, make_run("elsewhere", [True])])}
    assert {name for name, goal in of.items() if goal.met} == {
        "fleet_dev: R@1, %",
        "fleet_dev: R@5, %",
        "fleet_dev: R@10, %",
        "fleet_dev: R@5 of its weakest style (task), %",
        "fleet_dev: questions without an answer told so, %",
        "fleet_dev: answerable questions refused, %",
        "fleet_own: answerable questions refused, %",
    }
    assert {name for name, goal in of.items() if not goal.met} == {
        f"fleet_own: R@{k}, %" for k in (1, 5, 10)
    }


def test_a_smoke_run_promises_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_set(tmp_path / "sets" / "fleet")
    assert run(monkeypatch, tmp_path, "--data", tmp_path / "sets", "--smoke") == 0
    assert "goal" not in capsys.readouterr().out
    assert run(monkeypatch, tmp_path, "--data", tmp_path / "sets") == 0
    assert "fleet: R@1, %: " in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="processes are replaced on POSIX only")
def test_the_clock_runs_where_libraries_start_no_threads():
    program = (
        "import os; from benchmarks.one_thread import *; begin_again(); "
        "print([os.environ[n] for n in THREADS])"
    )
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.stdout.split() == str(["1"] * len(THREADS)).split(), ended.stderr
