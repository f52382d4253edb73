"""`portico tiers`: where each tool stands by its use, when that was computed, and what a new
computation moves."""

import sys

import pytest

from portico.cli.commands.tiers import find_tier_changes
from portico.usage.tool_tiers import Standing
from tests.cli.conftest import Home


def _used(home: Home) -> None:
    assert home.run("call", "text.slugify", "text=A B").code == 0
    assert home.run("call", "text.slugify", "text=C D").code == 0
    assert home.run("call", "units.list_units").code == 0


def test_where_no_use_is_known_the_cold_start_is_shown(home: Home) -> None:
    ran = home.run("tiers")
    assert ran.code == 0
    assert "0 hot, 0 warm, 0 standard, " in ran.out
    assert "(not computed yet)" in ran.out
    assert "No use is known yet: tools get their tiers when they are called." in ran.out
    assert (
        "Hot list (some of each server, because no use is known yet and nothing is pinned): clock."
        in ran.out
    )
    data = home.run("tiers", "--json").data
    assert data["tools"] == data["uncounted"] == []
    assert (data["computed_at"], data["hot_list"]["grounds"]) == (None, "some of each server")
    assert sum(data["counts"].values()) == data["counts"]["cold"] > 0


def test_a_computation_shows_what_moved_and_is_kept(home: Home) -> None:
    _used(home)
    ran = home.run("tiers", "--recompute", "--json")
    assert ran.code == 0
    found = {one["tool"]: one for one in ran.data["tools"]}
    assert found["text.slugify"]["calls"] == 2
    assert found["text.slugify"]["tier"] in ("standard", "warm")
    assert found["text.slugify"].keys() == {
        "tool", "pinned", "calls", "success_rate", "p50_ms", "p95_ms", "last_used", "calls_7d",
            "calls_30d", "tier",
        "tier_score",
    }  # fmt: skip
    # By use; the tools above are by score, in which the time a call took has its part.
    assert ran.data["hot_list"]["grounds"] == "use"
    assert ran.data["hot_list"]["tools"][:2] == ["text.slugify", "units.list_units"]
    kept = home.run("tiers", "--json").data
    assert kept["computed_at"] == ran.data["computed_at"] is not None
    assert kept["tools"] == ran.data["tools"]
    assert "moved" not in kept
    assert "Recomputed: nothing moved." in home.run("tiers", "--recompute").out


def test_what_moved_is_told_from_where_to_where() -> None:
    before = {
        "a.x": Standing(0.9, "hot"),
        "a.y": Standing(0.4, "standard"),
        "a.z": Standing(0.3, "standard"),
    }
    after = {
        "a.y": Standing(0.85, "hot"),
        "a.z": Standing(0.35, "standard"),
        "b.new": Standing(0.65, "warm"),
    }
    assert [(one.tool, one.before, one.after) for one in find_tier_changes(before, after)] == [
        ("a.y", "standard", "hot"), ("b.new", "cold", "warm"), ("a.x", "hot", "cold"),
    ]  # fmt: skip


def test_use_since_the_computation_is_said_to_wait(home: Home) -> None:
    _used(home)
    home.run("tiers", "--recompute")
    home.run("call", "text.count_text", "text=A B")
    data = home.run("tiers", "--json").data
    assert data["uncounted"] == ["text.count_text"]
    assert "text.count_text" in [one["tool"] for one in data["tools"]]
    assert (
        "1 tool used since then: portico tiers --recompute counts that, too."
        in home.run("tiers").out
    )


def test_pins_are_marked_and_head_the_hot_list(home: Home) -> None:
    home.write(
        {
            "servers": {"text": {"functions": "portico.demo.text:TOOLS"}},
            "pins": ["text.slugify", "text.count_text"],
        }
    )
    ran = home.run("tiers")
    assert "text.slugify (pinned)" in ran.out
    assert "Hot list (the pins of the configuration: no use is known yet): text.slugify" in ran.out
    data = home.run("tiers", "--json").data
    assert data["tools"][0]["pinned"] is True
    assert data["hot_list"]["grounds"] == "pins"


def test_the_table_has_what_the_score_is_made_of(home: Home) -> None:
    _used(home)
    out = home.run("tiers", "--recompute").out
    (header,) = (line for line in out.splitlines() if line.startswith("tool "))
    assert header.split() == [
        "tool",
        "tier",
        "score",
        "calls",
        "success",
        "p50",
        "p95",
        "7",
        "d",
        "30",
        "d",
        "last",
        "used",
    ]
    (row,) = (line for line in out.splitlines() if line.startswith("text.slugify "))
    assert " 100% " in row
    assert row.endswith("under a minute ago")


def test_a_limit_is_kept_and_the_rest_is_counted(home: Home) -> None:
    _used(home)
    home.run("tiers", "--recompute")
    ran = home.run("tiers", "--limit", "1")
    assert "1 more: --limit 2" in ran.out
    data = home.run("tiers", "-n", "1", "--json").data
    assert (len(data["tools"]), data["total"]) == (1, 2)
    assert home.run("tiers", "--limit", "0").code == 2


def test_a_profile_sees_its_own_tools(home: Home) -> None:
    home.write(
        {
            "servers": {
                "text": {"functions": "portico.demo.text:TOOLS"},
                "units": {"functions": "portico.demo.units:TOOLS"},
            },
            "profiles": {"words": {"servers": ["text"]}},
        }
    )
    _used(home)
    data = home.run("tiers", "--recompute", "-p", "words", "--json").data
    assert [one["tool"] for one in data["tools"]] == ["text.slugify"]
    assert all(one["tool"].startswith("text.") for one in data["moved"])


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_narrow_terminal_tiers_are_laid_out(home: Home) -> None:
    _used(home)
    code, shown = home.run_in_terminal("tiers", "--recompute", env={"COLUMNS": "40"})
    assert code == 0
    assert "\x1b[" in shown
