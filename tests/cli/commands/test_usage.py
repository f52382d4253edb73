"""`portico usage`: how calls went, tool by tool or one by one, and that they can be forgotten."""

import asyncio
import sys
import time

import pytest

from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallRow, DailyRow
from portico.usage.statistics import DAY_S, to_bucket, to_day
from tests.cli.conftest import Home

TEXT = {"functions": "portico.demo.text:TOOLS"}
CLUMSY = """
def stumble(often: int = 1) -> str:
    "Fail."
    raise ValueError("stumbled")
"""


@pytest.fixture
def used(home: Home) -> Home:
    (home.folder / "clumsy.py").write_text(CLUMSY, encoding="utf-8")
    home.write(
        {
            "servers": {"text": TEXT, "clumsy": {"functions": "clumsy"}},
            "profiles": {"words": {"servers": ["text"]}},
        }
    )
    for words in ("A B", "C D"):
        assert home.run("call", "text.slugify", f"text={words}").code == 0
    assert home.run("call", "clumsy.stumble").code == 1
    return home


def test_before_any_call_there_is_nothing_to_tell(home: Home) -> None:
    ran = home.run("usage")
    assert (ran.code, ran.out) == (0, "No call is known yet.\n")
    assert home.run("usage", "--json").data == {"tools": [], "total": 0}
    assert home.run("usage", "--calls", "--json").data == {"calls": []}
    assert home.run("usage", "--calls").out == "No call is known yet.\n"


def test_every_tool_that_was_called_has_its_figures(used: Home) -> None:
    data = used.run("usage", "--json").data
    assert [one["tool"] for one in data["tools"]] == ["text.slugify", "clumsy.stumble"]
    good, bad = data["tools"]
    assert (good["calls"], good["successes"], good["success_rate"], good["here"]) == (
        2,
        2,
        1.0,
        True,
    )
    assert (good["calls_7d"], good["calls_30d"]) == (2, 2)
    assert 0 < good["p50_ms"] <= good["p95_ms"]
    assert good["mean_ms"] >= 0
    assert good["last_used"].endswith("Z")
    assert (bad["calls"], bad["successes"], bad["success_rate"]) == (1, 0, 0.0)
    assert not {"p50_ms", "p95_ms", "mean_ms"} & bad.keys()
    header, first, second = used.run("usage").out.splitlines()
    assert header.split() == [
        "tool",
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
    assert first.startswith("text.slugify ")
    assert " 0% " in second
    assert " ms " not in second


def test_one_tool_is_told_in_words_and_one_server_in_rows(used: Home) -> None:
    out = used.run("usage", "slugify").out
    assert out.startswith(
        "text.slugify\ncalls: 2 (2 in 7 days, 2 in 30), last under a minute ago\n"
    )
    assert "\nsuccess: 100% (2 of 2)\nlatency: p50 " in out
    assert "\ntier: " in out
    assert "latency" not in used.run("usage", "clumsy.stumble").out
    assert [one["tool"] for one in used.run("usage", "TEXT", "--json").data["tools"]] == [
        "text.slugify"
    ]
    assert (
        used.run("usage", "--server", "text", "--json").data
        == used.run("usage", "text", "--json").data
    )
    assert used.run("usage", "text.count_text").out == "No call of text.count_text is known.\n"


def test_a_wrong_name_gets_the_nearest_back(used: Home) -> None:
    ran = used.run("usage", "text.slugifi", "--json")
    assert ran.code == 1
    assert ran.data["error"]["nearest"][0] == "text.slugify"
    assert "there is no tool or server 'text.slugifi' here" in ran.err
    assert "Did you mean text" in used.run("usage", "texd").err


def test_the_latest_calls_are_listed_newest_first(used: Home) -> None:
    data = used.run("usage", "--calls", "--json").data
    assert [(one["tool"], one["ok"]) for one in data["calls"]] == [
        ("clumsy.stumble", False), ("text.slugify", True), ("text.slugify", True),
    ]  # fmt: skip
    assert data["calls"][0].keys() == {"at", "tool", "ms", "ok", "cancelled", "client", "profile"}
    assert len(used.run("usage", "--calls", "-n", "1", "--json").data["calls"]) == 1
    assert len(used.run("usage", "slugify", "--calls", "--json").data["calls"]) == 2
    assert len(used.run("usage", "clumsy", "--calls", "--json").data["calls"]) == 1
    header, first, *_ = used.run("usage", "--calls").out.splitlines()
    assert header.split()[:3] == ["when", "tool", "ms"]
    assert " failed" in first


def test_no_argument_and_no_result_is_on_record(used: Home) -> None:
    used.run("call", "text.slugify", "text=A Very Secret Text")
    for path in (used.folder / "data").iterdir():
        if path.is_file() and not path.name.startswith(("manifest", "search", "vectors")):
            said = path.read_bytes().lower()
            assert b"a very secret text" not in said, path.name
            assert b"a-very-secret-text" not in said, path.name


def test_days_reach_back_so_far(home: Home) -> None:
    place = f"sqlite:///{(home.folder / 'use.db').as_posix()}"
    home.write({"servers": {"text": TEXT}, "database_url": place})
    asyncio.run(_call_long_ago(place, "text", "count_text", days=10))
    assert home.run("call", "text.slugify", "text=A B").code == 0
    assert [one["tool"] for one in home.run("usage", "--days", "3", "--json").data["tools"]] == [
        "text.slugify"
    ]
    assert [
        one["tool"] for one in home.run("usage", "--calls", "--days", "3", "--json").data["calls"]
    ] == ["text.slugify"]
    assert home.run("usage", "--calls", "--json").data["calls"][1]["tool"] == "text.count_text"
    old = home.run("usage", "count_text", "--json").data["tools"][0]
    assert (old["calls"], old["calls_30d"], old.get("calls_7d", 0)) == (1, 1, 0)
    assert (
        home.run("usage", "count_text", "--days", "3").out
        == "No call of count_text of the last 3 days is known.\n"
    )
    assert home.run("usage", "--days", "0").code == 2


async def _call_long_ago(place: str, server: str, tool: str, days: int) -> None:
    at = time.time() - days * DAY_S
    record = GatewayStore(place, None)
    call = CallRow(at, server, tool, "", 12.0, True)
    await record.add_usage(
        [call], [DailyRow(to_day(at), server, tool, to_bucket(12.0), 1, 1, at)], []
    )
    await record.close()


def test_a_tool_that_is_gone_is_still_told_of(used: Home) -> None:
    used.write({"servers": {"text": TEXT}})
    found = {one["tool"]: one["here"] for one in used.run("usage", "--json").data["tools"]}
    assert found == {"text.slugify": True, "clumsy.stumble": False}
    assert "clumsy.stumble (gone)" in used.run("usage").out
    assert used.run("usage", "clumsy.stumble", "--json").data["total"] == 1
    assert used.run("usage", "clumsy", "--json").data["total"] == 1


def test_a_profile_is_told_of_its_own_tools(used: Home) -> None:
    assert [one["tool"] for one in used.run("usage", "-p", "words", "--json").data["tools"]] == [
        "text.slugify"
    ]


def test_everything_can_be_forgotten(used: Home) -> None:
    used.run("tiers", "--recompute")
    ran = used.run("usage", "--forget")
    assert (ran.code, ran.out) == (0, "Forgot 3 calls of 2 tools.\n")
    assert used.run("usage", "--json").data["total"] == 0
    assert used.run("usage", "--calls", "--json").data["calls"] == []
    assert used.run("tiers", "--json").data["tools"] == []
    again = used.run("usage", "--forget", "--json")
    assert again.data == {"forgotten": {"tools": 0, "calls": 0}, "server": None}
    assert used.run("usage", "--forget").out == "No call is known that could be forgotten.\n"


def test_one_servers_calls_can_be_forgotten_even_if_it_is_gone(used: Home) -> None:
    used.write({"servers": {"text": TEXT}})
    ran = used.run("usage", "--forget", "--server", "Clumsy", "--json")
    assert ran.data == {"forgotten": {"tools": 1, "calls": 1}, "server": "clumsy"}
    assert [one["tool"] for one in used.run("usage", "--json").data["tools"]] == ["text.slugify"]


def test_a_wrong_server_is_not_forgotten_but_named(used: Home) -> None:
    ran = used.run("usage", "--forget", "--server", "texd", "--json")
    assert ran.code == 1
    assert ran.data["error"]["nearest"] == ["text"]
    assert used.run("usage", "--json").data["total"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["slugify", "--forget"],
        ["--forget", "--calls"],
        ["--forget", "--days", "3"],
        ["text", "--server", "text"],
    ],
)
def test_what_contradicts_itself_is_refused(home: Home, words: list[str]) -> None:
    ran = home.run("usage", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("words", [[], ["--calls"], ["slugify"]])
def test_on_a_narrow_terminal_use_is_laid_out(used: Home, words: list[str]) -> None:
    code, shown = used.run_in_terminal("usage", *words, env={"COLUMNS": "40"})
    assert code == 0
    assert "slugify" in shown
