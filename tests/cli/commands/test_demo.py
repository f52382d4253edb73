"""`demo` walks through a task by itself, offline, and leaves nothing behind."""

import pytest

from tests.cli.conftest import Home


def test_the_walk_shows_every_step_and_its_cost(home: Home) -> None:
    ran = home.run("demo")
    assert (ran.code, ran.err) == (0, "")
    for step in (
        "search_tools(",
        "describe_tools(",
        "call_tool(",
        "42.16",
        "run_code(",
        "[10.54,21.08,31.62]",
        "Shape: {result: [",
        '"+0545"',
        "needs approval",
        "full listing",
        "fewer tokens",
    ):
        assert step in ran.out
    assert "estimated" in ran.out or "o200k_base" in ran.out
    assert list(home.folder.iterdir()) == []


def test_the_figures_add_up(home: Home) -> None:
    facts = home.run("demo", "--json").data
    spent = sum(step["sent"] + step["received"] for step in facts["steps"])
    assert facts["total"] == facts["meta_listing"]["tokens"] + spent
    assert facts["direct"] == facts["full_listing"]["tokens"] + facts["large_result"]
    assert facts["total"] < facts["direct"] / 3
    assert [step["tool"] for step in facts["steps"]] == [
        "search_tools",
        "describe_tools",
        "call_tool",
        "run_code",
        "call_tool",
        "run_code",
        "run_workflow",
    ]


def test_its_figures_are_those_of_tokens(home: Home) -> None:
    demo = home.run("demo", "--json").data
    tokens = home.run("tokens", "--json").data
    assert demo["full_listing"] == {"tools": tokens["tools"], "tokens": tokens["direct"]["tokens"]}
    meta = next(one for one in tokens["exposures"] if one["exposure"] == "meta")
    assert demo["meta_listing"] == {"tools": meta["tools"], "tokens": meta["tokens"]}


@pytest.mark.parametrize("columns", ["20", "300"])
def test_any_width_will_do(home: Home, columns: str) -> None:
    assert home.run("demo", env={"COLUMNS": columns}).code == 0


def test_the_users_configuration_plays_no_part(home: Home) -> None:
    (home.folder / "portico.yaml").write_text("servers: [", encoding="utf-8")
    assert home.run("demo").code == 0
