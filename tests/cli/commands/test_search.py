"""`portico search` beyond finding: filters, that nothing fits, why it ranks so, and where a missed
tool stood."""

import os
import re
import sys
from typing import Any

import pytest

from portico.cli.commands import search as searching
from portico.gateway import INDEX_FILE
from portico.meta_tools import tool_definitions
from tests.cli.conftest import REPOSITORY, Home

UNSERVED = (
    "book a flight to Paris for two",
    "amputate the left leg of a patient",
    "order a pizza with extra cheese",
    "tow my broken car to the garage",
)
LETTERS = """
def send(letter: str = "") -> str:
    "Send a letter by post."
    return "sent"
"""


def _copies() -> dict[str, Any]:
    return {f"post{name}": {"functions": "letters", "tags": [name]} for name in "abc"}


def _weak(home: Home) -> str:
    """A query that this encoder says nothing fits."""
    return next(query for query in UNSERVED if home.run("search", query, "--json").data["weak"])


def _forget_vectors(home: Home) -> None:
    for path in (home.folder / "data").iterdir():
        if path.name.startswith((INDEX_FILE, "vectors-")):
            path.unlink()


@pytest.fixture
def copies(home: Home) -> Home:
    (home.folder / "letters.py").write_text(LETTERS, encoding="utf-8")
    home.write({"servers": _copies(), "profiles": {"one": {"servers": ["posta"]}}})
    return home


@pytest.fixture
def no_model(home: Home) -> dict[str, str]:
    """The environment of a machine on which the encoder's network cannot be opened."""
    broken = home.folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "from portico.search.dense import encoder\n"
        "def fail():\n"
        "    raise ImportError('no such library on this machine')\n"
        "encoder._open_network = fail\n",
        encoding="utf-8",
    )
    return {"PYTHONPATH": os.pathsep.join([str(broken), home.environment["PYTHONPATH"]])}


# Filters


def test_a_search_can_be_kept_to_tags(home: Home) -> None:
    data = home.run(
        "search", "convert a number", "--tag", "math", "-t", "TIME", "-n", "50", "--json"
    ).data
    assert {tool["server"] for tool in data["tools"]} <= {"units", "clock"}
    assert data["filters"] == {
        "servers": None, "tags": ["math", "time"], "max_latency_ms": None, "min_success_rate": None
    }  # fmt: skip
    assert "tagged math" in home.run("search", "convert a number", "--tag", "math").out


def test_a_search_can_be_kept_to_a_category(home: Home) -> None:
    kind = home.run("browse", "--json").data["categories"][0]
    data = home.run(
        "search", "convert a text", "--category", kind["title"], "-n", "50", "--json"
    ).data
    assert data["category"] == kind["category"]
    there = home.run("browse", "--category", kind["category"], "--json").data["tools"]
    assert data["tools"]
    assert {tool["name"] for tool in data["tools"]} <= {tool["name"] for tool in there}
    assert home.run("search", "convert a text", "--json").data["category"] is None
    assert (
        f"in {kind['category']}"
        in home.run("search", "convert a text", "--category", kind["category"]).out
    )


def test_a_wrong_tag_gets_the_known_ones_back(home: Home) -> None:
    ran = home.run("search", "convert", "--tag", "maths", "--json")
    assert ran.code == 1
    assert ran.data["error"]["nearest"] == ["math"]
    assert "Tags here: math, " in ran.err


def test_tools_can_be_left_out_for_how_their_calls_went(home: Home) -> None:
    untried = home.run("search", "make a slug of a text", "--max-latency-ms", "0")
    assert "text.slugify(" not in untried.out
    assert home.run("call", "text.slugify", "text=A B").code == 0
    tried = home.run("search", "make a slug of a text", "--max-latency-ms", "0", "--json").data
    assert "text.slugify" not in [tool["name"] for tool in tried["tools"]]
    fine = home.run("search", "make a slug of a text", "--min-success-rate", "0.9", "--json").data
    assert "text.slugify" in [tool["name"] for tool in fine["tools"]]


@pytest.mark.parametrize(
    "words", [["--min-success-rate", "95"], ["--max-latency-ms", "-1"], ["--limit", "0"]]
)
def test_a_filter_that_cannot_be_meant_is_refused(home: Home, words: list[str]) -> None:
    assert home.run("search", "convert", *words).code == 2


# Nothing fits


def test_that_nothing_fits_is_said_with_the_nearest_servers_and_a_few_tools(home: Home) -> None:
    query = _weak(home)
    ran = home.run("search", query)
    assert ran.code == 0
    first, heading, *rest = ran.out.splitlines()
    assert first == f"No tool here seems to do {query!r}."
    assert heading == "Nearest servers:"
    assert " tools — " in rest[0]
    assert "(tags: " in rest[0]
    assert "Unlikely, but the nearest tools:" in rest
    assert rest[-1].startswith(
        "Try other words for the same thing, or look around: portico browse "
    )


def test_that_nothing_fits_is_data_too_and_a_limit_is_kept(home: Home) -> None:
    query = _weak(home)
    data = home.run("search", query, "--json").data
    assert data["weak"] is True
    assert 1 <= len(data["tools"]) <= 3
    assert data["near"][0].keys() == {"name", "description", "tags"}
    more = home.run("search", query, "--limit", "5", "--json").data
    assert [tool["name"] for tool in more["tools"]][:3] == [tool["name"] for tool in data["tools"]]
    assert len(more["tools"]) == min(5, data["total"])


def test_what_a_tool_does_is_not_denied(home: Home) -> None:
    data = home.run("search", "convert miles to km", "--json").data
    assert (data["weak"], data["near"]) == (False, [])


# Twins


def test_copies_of_a_tool_are_one_entry(copies: Home) -> None:
    (tool,) = copies.run("search", "send a letter", "--json").data["tools"]
    assert sorted([tool["name"], *tool["twins"]]) == ["posta.send", "postb.send", "postc.send"]
    out = copies.run("search", "send a letter").out
    assert out.splitlines()[1].endswith(f"(also: {', '.join(tool['twins'])})")
    assert " more: " not in out
    schema = copies.run("search", "send a letter", "--detail", "schema").out
    assert f"\nalso: {', '.join(tool['twins'])}\n" in schema


# Explained


def test_an_explanation_shows_every_signal_of_every_hit(home: Home) -> None:
    out = home.run("search", "convert miles to km", "--explain", "-n", "2").out
    assert "compared words and meaning." in out
    assert "\n1. units.convert_units: score " in out
    assert "\n   words 0." in out
    assert "convert (name" in out
    assert "\n   meaning 0." in out
    assert "\n2. " in out


def test_an_explanation_shows_where_a_named_tool_stood(home: Home) -> None:
    out = home.run(
        "search", "convert miles to km", "-n", "1", "--explain", "--tool", "convert_time"
    ).out
    assert "\nclock.convert_time: " in out
    assert "it lacks: miles, km" in out
    assert "the page's last, units.convert_units: score " in out


def test_a_named_tool_that_is_on_the_page_is_explained_once(home: Home) -> None:
    out = home.run("search", "convert miles to km", "-n", "2", "--tool", "convert_units").out
    assert out.count("units.convert_units: score ") == out.count("units.convert_units") == 1
    (line,) = (line for line in out.splitlines() if line.endswith(" ← the tool you asked about"))
    assert line.startswith("1. units.convert_units: score ")


def test_a_named_tool_that_nothing_is_spelt_like_gets_those_with_its_words(home: Home) -> None:
    ran = home.run("search", "convert miles", "--tool", "text.into_a_slug", "--json")
    assert ran.code == 1
    assert "text.slugify" in ran.data["explain"]["unknown"][0]["nearest"]
    assert "Did you mean text." in ran.err
    hopeless = home.run("search", "convert miles", "--tool", "qqzzxx")
    assert "`portico search` finds one." in hopeless.err


def test_an_explanation_as_json_is_complete(home: Home) -> None:
    words = ["search", "convert miles to km", "-n", "1", "--explain", "--json"]
    data = home.run(*words, "--tool", "convert_units", "--tool", "notes.delete_note").data
    (tool,) = data["tools"]
    assert tool["why"].keys() == {"place", "score", "named", "words", "meaning", "learnt", "twins"}
    assert data["explain"].keys() == {"confidence", "weak_below", "meaning", "named", "unknown"}
    first, other = data["explain"]["named"]
    assert first.keys() == other.keys()
    assert (first["name"], first["place"], first["rank"]) == ("units.convert_units", 1, 1)
    assert (other["place"], other["hidden_by"]) == (None, None)
    assert other["page_end"]["name"] == "units.convert_units"
    assert "miles" in other["why"]["words"]["lacking"]
    assert "explain" not in home.run("search", "convert", "--json").data


def test_a_named_tool_that_is_unknown_costs_only_itself(home: Home) -> None:
    words = [
        "search",
        "convert miles",
        "--tool",
        "text.slugifi",
        "--tool",
        "text.slugify",
        "--json",
    ]
    ran = home.run(*words)
    assert ran.code == 1
    assert [one["name"] for one in ran.data["explain"]["named"]] == ["text.slugify"]
    assert ran.data["explain"]["unknown"][0]["nearest"][0] == "text.slugify"
    assert "there is no tool 'text.slugifi' here" in ran.err
    assert ran.data["tools"]


def test_a_tool_that_a_filter_or_a_profile_hides_is_told_so(copies: Home) -> None:
    words = ["search", "send a letter", "--tool", "postb.send"]
    assert (
        "postb.send: hidden by the filters; it would stand at "
        in copies.run(*words, "--tag", "a").out
    )
    assert (
        "postb.send: outside the profile; it would stand at " in copies.run(*words, "-p", "one").out
    )
    data = copies.run(*words, "-p", "one", "--json").data
    assert [one["hidden_by"] for one in data["explain"]["named"]] == ["scope"]
    assert all(tool["server"] == "posta" for tool in data["tools"])
    assert data["tools"][0]["twins"] == []


def test_a_copy_is_told_whose_place_it_shares(copies: Home) -> None:
    (tool,) = copies.run("search", "send a letter", "--json").data["tools"]
    out = copies.run("search", "send a letter", "--tool", tool["twins"][0]).out
    assert f"sharing place 1 with {tool['name']}" in out


# Meaning


def test_the_first_search_waits_until_its_tools_are_encoded(home: Home) -> None:
    data = home.run("search", "how far is it in kilometres", "--json").data
    assert data["meaning"] == {"searched": True, "problem": "", "unencoded": 0}


def test_encoding_that_takes_long_is_told_on_stderr(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_SPINNER_DELAY_S", 0)
    ran = home.run("search", "how far is it in kilometres", "--json")
    assert re.search(
        r"^Encoding \d+ tools, so that they are found by meaning …$", ran.err, re.MULTILINE
    )
    assert ran.data["meaning"]["unencoded"] == 0
    assert "Encoding" not in home.run("search", "how far is it in kilometres").err


def test_a_search_does_not_wait_for_ever_and_says_what_it_did_not_wait_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.run("browse")
    _forget_vectors(home)
    monkeypatch.setattr(searching, "_MAX_TOOLS_TO_ENCODE", 0)
    ran = home.run("search", "convert miles", "--offline")
    assert "units.convert_units(" in ran.out
    assert re.search(
        r"Of \d+ tools only words were compared: not encoded yet\. A running gateway encodes",
        ran.out,
    )


def test_without_the_model_words_are_searched_and_the_reason_is_said(
    home: Home, no_model: dict[str, str]
) -> None:
    ran = home.spawn("search", "convert units of measure", env=no_model)
    assert ran.code == 0
    assert ran.out.splitlines()[1].startswith("units.convert_units(")
    assert (
        "Only words were compared, because search by meaning is off: ImportError: no such library"
        in ran.out
    )
    data = home.spawn("search", "convert units of measure", "--json", env=no_model).data
    assert data["meaning"]["searched"] is False
    assert "no such library on this machine" in data["meaning"]["problem"]


def test_status_tells_how_tools_are_found(home: Home, no_model: dict[str, str]) -> None:
    home.run("search", "convert")
    assert home.run("status").out.splitlines()[-1].startswith("search: words and meaning")
    assert home.run("status", "--json").data["search"] == {
        "meaning": True,
        "problem": "",
        "unencoded": 0,
    }
    off = home.spawn("status", env=no_model)
    assert off.code == 0
    assert off.out.splitlines()[-1].startswith(
        "search: words only — ImportError: no such library on this machine"
    )
    assert home.spawn("status", "--json", env=no_model).data["search"]["meaning"] is False


def test_status_counts_what_is_not_encoded_yet(home: Home) -> None:
    home.run("browse")
    _forget_vectors(home)
    ran = home.run("status", "--offline")
    tools = home.run("browse", "--json", "--offline").data["tools"]
    assert ran.out.splitlines()[-1] == f"search: words and meaning, {tools} tools not encoded yet"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "words", [["book a flight to Paris"], ["dice", "--explain", "--tool", "slugify"]]
)
def test_on_a_narrow_terminal_answers_are_laid_out(home: Home, words: list[str]) -> None:
    code, shown = home.run_in_terminal("search", *words, env={"COLUMNS": "32"})
    assert code == 0
    assert "\x1b[" in shown


# Documented


def test_every_filter_of_the_documentation_is_there(home: Home) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "searching.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in page.splitlines() if row.startswith("| `")][1:]
    parameters = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    (search, *_) = tool_definitions.build_definitions(tool_definitions.META_TOOL_NAMES, {})
    # Tags are listed where a server has some.
    assert parameters == search["inputSchema"]["properties"].keys() - {"query"} | {"tags"}
    offered = home.run("search", "--help").out
    options = set(re.findall(r"`(--[\w-]+)`", page))
    assert options >= {"--tag", "--explain", "--tool", "--min-success-rate"}
    assert all(option in offered for option in options)
