"""`search`, `browse` and `describe` show people and programs what agents see."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from portico.catalog.tool import make_tool
from portico.cli.commands.browse import render_tool
from portico.cli.screen import Screen
from portico.demo import make_demo_servers
from tests.cli.conftest import Home, command


def test_a_search_on_the_demo_servers_finds_its_tool_and_says_what_it_searched(home: Home) -> None:
    ran = home.run("search", "convert", "miles", "to", "km", "--limit", "2")
    assert ran.code == 0
    head, first, _, more = ran.out.splitlines()
    assert head == "Best matches for 'convert miles to km':"
    assert first.startswith("units.convert_units(value: number, from_unit, to_unit")
    assert more == "More: --limit 8"
    assert "embedded demo servers" in ran.err


def test_a_search_as_json_is_one_document(home: Home) -> None:
    ran = home.run(
        "search",
        "delete a note",
        "--server",
        "notes",
        "--limit",
        "1",
        "--detail",
        "schema",
        "--json",
    )
    assert ran.code == 0
    assert ran.data.keys() == {
        "query", "server", "category", "filters", "total", "weak", "meaning", "near", "tools",
            "nearest", "unlisted"
    }  # fmt: skip
    (tool,) = ran.data["tools"]
    assert tool["name"] == "notes.delete_note"
    assert "id: integer" in tool["schema"]
    assert 0 < tool["score"] <= 1


def test_a_search_that_finds_nothing_fails(home: Home) -> None:
    home.write({"servers": {"silent": {"command": "no-such-command-anywhere"}}})
    ran = home.run("search", "slugify", "--json")
    assert (ran.code, ran.data["tools"]) == (1, [])
    home.write({"servers": {"text": {"functions": "portico.demo.text:TOOLS"}}})
    ran = home.run("search", "...", "--json")
    assert (ran.code, ran.data["tools"]) == (1, [])
    assert home.run("search", "...").out.startswith("No tool here matches '...'.")


def test_a_misspelt_name_gets_the_name_back_whatever_else_is_found(home: Home) -> None:
    assert "text.slugify" in home.run("search", "slugifyx").out


def test_offline_nothing_is_started_and_nothing_is_known_yet(home: Home) -> None:
    ran = home.run("search", "convert miles", "--offline", "--json")
    assert ran.code == 1
    assert {server["name"] for server in ran.data["unlisted"]} == set(make_demo_servers())


def test_what_was_listed_once_is_known_offline(home: Home) -> None:
    assert home.run("browse").code == 0
    assert home.run("search", "convert miles", "--offline").code == 0


def test_browsing_lists_servers_and_then_tools(home: Home) -> None:
    ran = home.run("browse", "--json")
    assert {server["name"] for server in ran.data["servers"]} == set(make_demo_servers())
    assert ran.data["tools"] == sum(server["tools"] for server in ran.data["servers"])
    text = home.run("browse", "NOTES")
    assert text.code == 0
    assert (
        "notes.create_note(title, body?, tags?: string[]) — Write a new note and return its number."
        in text.out
    )
    one = home.run("browse", "notes", "--json").data
    assert one["server"]["tools"] == len(one["tools"]) == 6


def test_the_overview_begins_with_the_hot_list_and_the_categories(home: Home) -> None:
    lines = home.run("browse").out.splitlines()
    assert lines[0].startswith("21 tools on 4 servers in ")
    assert lines[1] == "Some tools to start with (no use is known yet: some of each server):"
    assert lines[2].startswith("clock.")
    categories, places = lines.index("Categories:"), lines.index("Servers:")
    assert categories == 2 + 10
    data = home.run("browse", "--json").data
    assert data["hot"]["grounds"] == "some of each server"
    assert {tool["server"] for tool in data["hot"]["tools"]} == set(make_demo_servers())
    assert places - categories - 1 == len(data["categories"]) > 1
    assert sum(one["tools"] for one in data["categories"]) == data["tools"]
    assert {"category", "title", "tools", "servers", "popular_tools"} <= data["categories"][
        0
    ].keys()
    named = {one["category"] for one in data["categories"]}
    assert all(server["category"] in named for server in data["servers"])


def test_what_is_used_heads_its_server_and_the_hot_list(home: Home) -> None:
    assert home.run("call", "text.wrap_text", "text=some words").code == 0
    home.run("tiers", "--recompute")
    lines = home.run("browse").out.splitlines()
    assert lines[1] == "Most used tools, then some of each server:"
    assert lines[2].startswith("text.wrap_text(")
    assert home.run("browse", "text", "--json").data["tools"][0]["name"] == "text.wrap_text"


def test_a_category_lists_its_tools_of_every_server(home: Home) -> None:
    largest = home.run("browse", "--json").data["categories"][0]
    data = home.run("browse", "--category", largest["title"].upper(), "--json").data
    assert data["category"] == largest
    assert len(data["tools"]) == largest["tools"]
    assert len({tool["server"] for tool in data["tools"]}) == largest["servers"]
    out = home.run("browse", "--category", largest["category"]).out
    assert out.startswith(f"{largest['category']}: {largest['tools']} tools on ")
    server = data["tools"][0]["server"]
    narrowed = home.run("browse", server, "--category", largest["category"], "--json").data["tools"]
    assert narrowed == [tool for tool in data["tools"] if tool["server"] == server]


def test_a_wrong_category_gets_the_nearest_back(home: Home) -> None:
    known = home.run("browse", "--json").data["categories"][0]["category"]
    for words in (["browse"], ["search", "convert"]):
        ran = home.run(*words, "--category", f"{known}x", "--json")
        assert ran.code == 1
        assert ran.data["error"]["nearest"][0] == known
    assert "Categories here: " in home.run("browse", "--category", "qqzzxx").err


def test_a_server_without_tools_in_a_category_says_whose_it_is(home: Home) -> None:
    home.write(
        {
            "servers": {
                "text": {"functions": "portico.demo.text:TOOLS", "category": "words"},
                "units": {"functions": "portico.demo.units:TOOLS", "category": "measures"},
            }
        }
    )
    ran = home.run("browse", "units", "--category", "words")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "It has tools of text.")
    assert (
        home.run("search", "make a slug", "--category", "measures", "--json").data["category"]
        == "measures"
    )
    found = home.run("search", "make a slug", "--category", "measures", "--json").data["tools"]
    assert {tool["server"] for tool in found} <= {"units"}


def test_a_wrong_server_gets_the_nearest_name_back(home: Home) -> None:
    ran = home.run("browse", "notez", "--json")
    assert ran.code == 1
    assert ran.data["error"]["nearest"][0] == "notes"
    assert "there is no server 'notez' here" in ran.err
    assert "Did you mean notes" in ran.err


def test_a_person_is_advised_of_commands(home: Home) -> None:
    assert "`portico browse` lists them." in home.run("browse", "qqzzxx").err
    assert "`portico search` finds one." in home.run("describe", "qqzzxx").err


def test_tools_are_described_at_three_levels(home: Home) -> None:
    home.run("browse")
    brief = home.run("describe", "units.convert_units", "text/slugify", "--detail", "brief")
    assert [line.partition("(")[0] for line in brief.out.splitlines()] == [
        "units.convert_units",
        "text.slugify",
    ]
    schema = home.run("describe", "units.convert_units").out
    assert (
        " digits?: integer(1..15) = 10 — Significant digits in the answer." in schema.splitlines()
    )
    full = home.run("describe", "convert_units", "--detail", "full", "--json").data["tools"][0]
    assert full["definition"]["inputSchema"]["properties"]["digits"]["maximum"] == 15
    assert "inputSchema: " in home.run("describe", "convert_units", "--detail", "full").out


def test_the_full_form_shows_how_a_tool_is_used(home: Home) -> None:
    unused = home.run("describe", "text.slugify", "--detail", "full", "--json").data["tools"][0]
    assert unused["usage"] == {"calls": 0}
    assert home.run("call", "text.slugify", "text=A B").code == 0
    used = home.run("describe", "text.slugify", "--detail", "full", "--json").data["tools"][0]
    assert (used["usage"]["calls"], used["usage"]["success_rate"]) == (1, 1.0)
    assert used["usage"]["p50_ms"] > 0
    assert used["category"]
    out = home.run("describe", "text.slugify", "--detail", "full").out
    assert '\nusage: {"calls":1,"success_rate":1.0,' in out
    assert "usage" not in home.run("describe", "text.slugify").out


def test_a_wrong_name_costs_only_itself(home: Home) -> None:
    ran = home.run("describe", "text.slugify", "text.slugifi", "--json")
    assert ran.code == 1
    assert [tool["name"] for tool in ran.data["tools"]] == ["text.slugify"]
    assert ran.data["unknown"][0]["nearest"][0] == "text.slugify"
    assert "there is no tool 'text.slugifi' here" in ran.err


def test_a_profile_sees_only_its_own(home: Home) -> None:
    home.write(
        {
            "servers": {
                name: {"functions": f"portico.demo.{name}:TOOLS"} for name in ("text", "units")
            },
            "profiles": {"words": {"servers": ["text"]}},
        }
    )
    assert [
        server["name"] for server in home.run("browse", "-p", "words", "--json").data["servers"]
    ] == ["text"]
    assert home.run("describe", "units.convert_units", "-p", "words").code == 1
    assert "There is no profile 'nobody'" in home.run("browse", "-p", "nobody").err


def test_a_server_that_never_answers_holds_up_nobody_and_is_named(home: Home) -> None:
    silent = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
        "timeouts": {"start_s": 600},
    }
    home.write({"servers": {"silent": silent, "text": {"functions": "portico.demo.text:TOOLS"}}})
    called = home.run("call", "text.slugify", "text=A B")
    assert (called.code, called.out, called.err) == (0, "a-b\n", "")
    ran = home.run("search", "slugify", "--json")
    assert ran.data["tools"][0]["name"] == "text.slugify"
    assert [(one["name"], one["state"]) for one in ran.data["unlisted"]] == [("silent", "starting")]
    assert "Still starting: silent; `portico status` waits for it." in ran.err
    described = home.run("describe", "silent.anything")
    assert described.code == 1
    assert "silent is starting: its tools are not listed yet" in described.err


def test_one_is_one(home: Home) -> None:
    (home.folder / "lonely.py").write_text(
        "def hello() -> str:\n    'Greet.'\n    return 'hello'\n", encoding="utf-8"
    )
    home.write({"servers": {"one": {"functions": "lonely"}}})
    first, *rest = home.run("browse").out.splitlines()
    assert first == "1 tool on 1 server in 1 category."
    assert rest[-2:] == ["Servers:", "one: 1 tool"]
    assert "one: ready, functions, 1 tool," in home.run("status").out


def test_a_tools_name_cannot_steer_the_terminal() -> None:
    screen = Screen()
    screen.out = Console(file=io.StringIO(), force_terminal=True)
    lines = render_tool(
        screen, make_tool("evil", {"name": "x\x1b]0;owned\x07y\x1b[2J", "inputSchema": {}}), "brief"
    )
    with screen.out.capture() as captured:
        screen.out.print(lines)
    said = captured.get()
    assert "evil.xy" in said
    assert "owned" not in said
    assert "\x1b[2J" not in said


def test_a_pipe_that_closes_early_is_no_failure_to_talk_about(home: Home) -> None:
    process = subprocess.Popen(
        [*command(), "browse", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home.folder,
        env=home.environment,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    assert process.wait(60) == 141
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "words",
    [["browse"], ["search", "units"], ["status"], ["describe", "units.list_units"], ["demo"]],
)
def test_on_a_narrow_terminal_answers_are_laid_out(home: Home, words: list[str]) -> None:
    code, shown = home.run_in_terminal(*words, env={"COLUMNS": "32"})
    assert code == 0
    assert "\x1b[" in shown
    assert "units" in shown


def test_nothing_is_written_outside_the_data_folder(home: Home) -> None:
    home.run("browse")
    assert [path.name for path in home.folder.iterdir()] == ["data"]
    assert all(
        Path(path).parent == home.folder / "data" for path in (home.folder / "data").rglob("*")
    )
