"""`portico add`, `remove`, `enable`, `disable`, `rename` and `undo`: the file, and a gateway."""

import contextlib
import json
import time
from pathlib import Path

import httpx2
import pytest
import yaml

from portico.config_file import load
from tests.cli.commands.test_serve import _announced as announced  # pyright: ignore[reportPrivateUsage]
from tests.cli.conftest import Home, Start
from tests.fixtures.counter import counter

CONFIG = """\
# Servers of the team.
gateway: {port: 0}
pins: [text.count_text]

servers:
  # words and letters
  text: {functions: "portico.demo.text:TOOLS"}   # ours
  units:
    functions: portico.demo.units:TOOLS
profiles:
  writing:
    servers: [text]
    tools: [text.*]
"""
NO_TABLE = {"TIKTOKEN_CACHE_DIR": ""}


@pytest.fixture
def config(home: Home) -> Path:
    path = home.folder / "portico.yaml"
    path.write_text(CONFIG)
    return path


def test_a_server_is_tried_added_with_its_secrets_apart_and_undone(
    home: Home, config: Path
) -> None:
    ran = home.run(
        *("add", "count", "--env", "API_TOKEN=not a real one", "--env", "HOME", "--"),
        *counter(),
        env=NO_TABLE,
    )
    assert ran.code == 0, ran.err
    assert "count works: 3 tools" in ran.out
    assert "+  count:" in ran.out
    assert "not a real one" not in ran.out + config.read_text()
    rest = [line for line in config.read_text().splitlines() if line in CONFIG.splitlines()]
    assert rest == CONFIG.splitlines()
    loaded = load([config], environ={}, cwd=home.folder).config
    assert loaded.servers["count"].env == {"API_TOKEN": "not a real one"}
    assert loaded.servers["count"].inherit_env == ("HOME",)
    assert home.run("call", "count.count").code == 0
    undone = home.run("undo", "--json")
    assert (undone.code, undone.data["undone"]) == (0, "add")
    assert config.read_text() == CONFIG
    assert not config.with_name("portico.env").exists()


def test_a_server_that_does_not_work_is_not_added_unless_unchecked(
    home: Home, config: Path
) -> None:
    ran = home.run("add", "bad", "--", "no-such-program-anywhere", "--flag")
    assert ran.code == 1
    assert "bad was tried and does not work" in ran.err
    assert config.read_text() == CONFIG
    ran = home.run("add", "bad", "--no-check", "--", "no-such-program-anywhere", "--flag")
    assert ran.code == 0, ran.err
    assert load([config], cwd=home.folder).config.servers["bad"].args == ("--flag",)


def test_a_new_file_claims_no_origin(home: Home) -> None:
    ran = home.run("add", "x", "--no-check", "--url", "https://x.example/mcp", "--json")
    assert ran.code == 0, ran.err
    text = Path(ran.data["file"]).read_text()
    assert "  x:\n    url: https://x.example/mcp\n" in text
    assert "# from" not in text
    assert "found them" not in text


def test_urls_headers_and_descriptions_become_an_entry(home: Home, config: Path) -> None:
    (home.folder / "api.yaml").write_text("openapi: 3.1.0\n")
    ran = home.run(
        *("add", "remote", "--no-check", "--url", "https://x.example/mcp"),
        *("--header", "Authorization: Bearer abcdefghijklmnop1234567890"),
    )
    assert ran.code == 0, ran.err
    assert "abcdefghijklmnop" not in ran.out + config.read_text()
    assert home.run("add", "api", "--no-check", "--openapi", "api.yaml").code == 0
    servers = load([config], environ={}, cwd=home.folder).config.servers
    assert servers["remote"].headers == {"Authorization": "Bearer abcdefghijklmnop1234567890"}
    assert servers["api"].openapi == str(home.folder / "api.yaml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "text", "--no-check", "--", "x"), "has a server text already"),
        (("add", "my.api", "--no-check", "--", "x"), "is no server name"),
        (("add", "new", "--no-check"), "in one way"),
        (("add", "new", "--no-check", "--url", "https://x", "--", "x"), "in one way"),
        (("add", "new", "--no-check", "--url", "https://x", "-H", "nonsense"), "a header"),
        (("add", "new", "--no-check", "--url", "https://x", "-e", "A=${NOT_SET}"), "NOT_SET"),
        (("remove", "txet"), "Did you mean text"),
        (("disable", "units.convert_unit"), "Did you mean convert_units"),
        (("rename", "text", "units"), "already"),
        (("rename", "text", "portico"), "is no server name"),
        (("undo",), "no command has changed"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    home: Home, config: Path, arguments: tuple[str, ...], said: str
) -> None:
    home.run("status")
    ran = home.run(*arguments)
    assert ran.code != 0
    assert said in ran.err + ran.out
    assert config.read_text() == CONFIG


def test_switching_off_and_on_again_leaves_the_file_as_it_was(home: Home, config: Path) -> None:
    for name in ("text", "units", "units.convert_units", "text.count_text"):
        assert home.run("disable", name).code == 0
        assert config.read_text() != CONFIG
        again = home.run("disable", name, "--json").data
        assert (again["changed"], again["written"]) == (False, False)
        assert home.run("enable", name).code == 0
        assert config.read_text() == CONFIG
    data = home.run("disable", "text", "--dry-run", "--json").data
    assert (data["changed"], data["written"]) == (True, False)
    assert config.read_text() == CONFIG


def test_a_tool_that_a_pattern_switches_off_is_left_to_a_person(home: Home) -> None:
    tools = {"deny": ["count_*"], "allow": ["count_*", "wrap*"]}
    home.write({"servers": {"text": {"functions": "portico.demo.text:TOOLS", "tools": tools}}})
    assert "'count_*' in tools.deny" in home.run("enable", "text.count_text").err
    assert home.run("enable", "text.slugify").code == 0
    allow = load([home.folder / "portico.yaml"]).config.servers["text"].tools.allow
    assert allow == ("count_*", "wrap*", "slugify")


def test_a_new_name_reaches_pins_and_profiles(home: Home, config: Path) -> None:
    ran = home.run("rename", "text", "words")
    assert ran.code == 0, ran.err
    changed = load([config], cwd=home.folder).config
    assert list(changed.servers) == ["words", "units"]
    assert changed.pins == ("words.count_text",)
    assert changed.profiles["writing"].servers == ("words",)
    assert changed.profiles["writing"].tools == ("words.*",)
    assert "  # words and letters\n  words: " in config.read_text()
    assert home.run("undo").code == 0
    assert config.read_text() == CONFIG


RULES = """\
rules:
  # nobody counts
  - {tools: ["text.count_*", units.list_units], may: deny}   # not even once
  - servers: text
    may: ask
  - tools:
      - Text.slugify
    may: deny
"""


@pytest.mark.parametrize("name", ["portico.yaml", "portico.json"])
def test_rules_go_on_holding_for_a_server_with_a_new_name(home: Home, name: str) -> None:
    path = home.folder / name
    if name.endswith(".json"):
        path.write_text(json.dumps(yaml.safe_load(CONFIG + RULES)))
    else:
        path.write_text(CONFIG + RULES)
    ran = home.run("rename", "text", "words", "--config", name)
    assert ran.code == 0, ran.err
    first, second, third = load([path], cwd=home.folder).config.rules
    assert first.tools == ("words.count_*", "units.list_units")
    assert second.servers == ("words",)
    assert third.tools == ("words.slugify",)
    if name.endswith(".yaml"):
        expected = RULES.replace("Text.", "words.").replace("text", "words")
        assert path.read_text().endswith(expected.replace('"words.count_*"', "words.count_*"))


@pytest.mark.parametrize("pattern", ["te*.count_text", "t[e]xt.*"])
def test_a_new_name_is_refused_that_would_take_a_server_out_of_a_rule(
    home: Home, config: Path, pattern: str
) -> None:
    before = f"{CONFIG}rules:\n  - {{tools: ['{pattern}'], may: deny}}\n"
    config.write_text(before)
    ran = home.run("rename", "text", "words")
    assert ran.code != 0
    assert "rules[0] is about text" in ran.err
    assert config.read_text() == before


def test_a_new_name_keeps_the_calls_on_record(home: Home, config: Path) -> None:
    assert home.run("call", "text.slugify", "text=A b").code == 0
    assert home.run("tiers", "--recompute").code == 0

    def list_used() -> tuple[list[str], list[str]]:
        used = [(one["tool"], one["calls"]) for one in home.run("usage", "--json").data["tools"]]
        hot = [one["tool"] for one in home.run("tiers", "--json").data["tools"]]
        assert [calls for _, calls in used] == [1]
        return [tool for tool, _ in used], hot

    before = list_used()
    assert before[0] == ["text.slugify"]
    assert home.run("rename", "text", "words").code == 0
    assert list_used() == tuple(
        [name.replace("text.", "words.") for name in names] for names in before
    )
    assert home.run("undo").code == 0
    assert list_used() == before


def test_a_client_s_own_file_is_changed_in_its_words(home: Home) -> None:
    entry = {"command": "x", "enabled": False, "disabledTools": ["a", "b"]}
    path = home.write({"mcpServers": {"one": entry}}, ".mcp.json")
    for command in (
        ("enable", "one"),
        ("enable", "one.a"),
        ("add", "two", "--no-check", "--", "y"),
    ):
        ran = home.run(*command)
        assert ran.code == 0, ran.err
    servers = json.loads(path.read_text())["mcpServers"]
    assert servers == {"one": {"command": "x", "disabledTools": ["b"]}, "two": {"command": "y"}}
    assert home.run("remove", "one").code == 0
    assert set(json.loads(path.read_text())["mcpServers"]) == {"two"}


def test_a_running_gateway_takes_changes_over(home: Home, config: Path, start: Start) -> None:
    url, _ = announced(start("serve", "--port", "0"))
    _wait_for_servers(url, {"text", "units"})
    assert home.run("remove", "units").code == 0
    _wait_for_servers(url, {"text"})
    assert home.run("rename", "text", "words").code == 0
    _wait_for_servers(url, {"words"})
    assert home.run("undo").code == 0
    assert home.run("undo").code == 0
    assert config.read_text() == CONFIG
    _wait_for_servers(url, {"text", "units"})


def _wait_for_servers(url: str, expected: set[str]) -> None:
    limit = time.monotonic() + 60
    found: set[str] = set()
    while found != expected:
        assert time.monotonic() < limit, found
        with contextlib.suppress(httpx2.HTTPError):
            reply = httpx2.get(url.replace("/mcp", "/api/v1/servers"), timeout=30)
            found = {one["server"] for one in reply.json()["servers"]}
