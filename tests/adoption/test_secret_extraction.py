"""Secrets leave the configuration for a file of their own, and every server still gets exactly what
it got before."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.adoption.secret_extraction import (
    VariableNames,
    add_env_values,
    extract_secrets,
    render_env_line,
)
from portico.adoption.yaml_editor import render_new_file
from portico.config_file import load
from portico.config_file.placeholders import parse_env_file
from tests.adoption.client_files import ClientHome


@pytest.fixture
def home(tmp_path: Path) -> ClientHome:
    return ClientHome(tmp_path)


def extract(
    entry: dict[str, Any], server: str = "srv", environ: dict[str, str] | None = None
) -> tuple[Any, Any]:
    return extract_secrets(server, entry, VariableNames(environ or {}, {}))


@pytest.mark.parametrize(
    ("name", "value", "variable"),
    [
        ("GITHUB_TOKEN", "three plain words", "GITHUB_TOKEN"),
        ("MYSQL_PASS", "hunter2", "MYSQL_PASS"),
        ("apiKey", "x", "APIKEY"),
        ("WHATEVER", "sk-0123456789abcdef", "WHATEVER"),
    ],
)
def test_a_variable_that_is_secret_by_name_or_look_is_taken(
    name: str, value: str, variable: str
) -> None:
    assert extract({"env": {name: value}}) == (
        {"env": {name: f"${{{variable}}}"}},
        {variable: value},
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "debug"),
        ("AUTH_ENABLED", "true"),
        ("API_KEY", ""),
        ("TOKEN", "${TOKEN}"),
        ("TOKEN", "${env:MY_TOKEN}"),
        ("HOME_DIR", "/home/ada"),
        ("PORT", "8080"),
    ],
)
def test_what_is_no_secret_or_a_variable_already_stays(name: str, value: str) -> None:
    assert extract({"env": {name: value}}) == ({"env": {name: value}}, {})


@pytest.mark.parametrize(
    ("args", "written", "values"),
    [
        (["--token", "hunter2"], ["--token", "${SRV_TOKEN}"], {"SRV_TOKEN": "hunter2"}),
        (["--api-key=abc", "-v"], ["--api-key=${SRV_API_KEY}", "-v"], {"SRV_API_KEY": "abc"}),
        (["-e", "DB_PASSWORD=p w"], ["-e", "DB_PASSWORD=${SRV_DB_PASSWORD}"], {
            "SRV_DB_PASSWORD": "p w"}),
        (["-e", "MODE=fast", "-e", "API_KEY"], ["-e", "MODE=fast", "-e", "API_KEY"], {}),
        (
            ["--header", "Authorization: Bearer abc"],
            ["--header", "Authorization: Bearer ${SRV_TOKEN}"],
            {"SRV_TOKEN": "abc"},
        ),
        (["postgresql://ada:s3%21@db/x"], ["postgresql://ada:${SRV_PASSWORD}@db/x"], {
            "SRV_PASSWORD": "s3%21"}),
        (["https://tok@host/x"], ["https://${SRV_TOKEN}@host/x"], {"SRV_TOKEN": "tok"}),
        (["https://h/x?api_key=a1&b=2"], ["https://h/x?api_key=${SRV_API_KEY}&b=2"], {
            "SRV_API_KEY": "a1"}),
        (["/home/ada/4f9a8b7c6d5e4f3a2b1c0d9e/x"], ["/home/ada/4f9a8b7c6d5e4f3a2b1c0d9e/x"], {}),
        (["-y", "@scope/server-github@1.2.3", "/srv/data"], ["-y", "@scope/server-github@1.2.3",
            "/srv/data"], {}),
        (["--token", "--verbose"], ["--token", "--verbose"], {}),
        (["--token", "${MINE}"], ["--token", "${MINE}"], {}),
    ],
)  # fmt: skip
def test_of_an_argument_only_the_secret_is_taken(
    args: list[str], written: list[str], values: dict[str, str]
) -> None:
    assert extract({"args": args}) == ({"args": written}, values)


def test_of_an_address_and_a_header_too() -> None:
    entry = {
        "url": "https://u:pw@h.example/mcp?api_key=k1&team=7",
        "headers": {"Authorization": "Basic Zm9v", "X-Api-Key": "k2", "Accept": "text/plain"},
    }
    written, values = extract(entry)
    assert written["url"] == "https://u:${SRV_PASSWORD}@h.example/mcp?api_key=${SRV_API_KEY}&team=7"
    assert written["headers"] == {
        "Authorization": "Basic ${SRV_TOKEN}",
        "X-Api-Key": "${SRV_X_API_KEY}",
        "Accept": "text/plain",
    }
    assert values == {
        "SRV_PASSWORD": "pw",
        "SRV_API_KEY": "k1",
        "SRV_TOKEN": "Zm9v",
        "SRV_X_API_KEY": "k2",
    }


def test_one_name_never_means_two_values() -> None:
    variables = VariableNames({"C_TOKEN": "of the shell"}, {"B_TOKEN": "kept"})
    names = [
        next(iter(extract_secrets(server, {"env": {"TOKEN": value}}, variables)[1]))
        for server, value in (("a", "one"), ("b", "one"), ("b", "two"), ("c", "three"))
    ]
    assert names == ["TOKEN", "TOKEN", "B_TOKEN_2", "C_TOKEN_2"]


def test_a_variable_of_the_environment_that_holds_something_else_is_not_used() -> None:
    """It would win over the file, and the server would get another token than before."""
    _, values = extract(
        {"env": {"GITHUB_TOKEN": "mine"}}, "hub", {"GITHUB_TOKEN": "somebody else's"}
    )
    assert values == {"HUB_GITHUB_TOKEN": "mine"}


def test_no_secret_is_left_in_the_configuration_and_all_servers_get_what_they_got(
    home: ClientHome,
) -> None:
    home.environ = {
        "SENTRY_TOKEN": "st",
        "AZURE_TENANT": "t",
        "MY_TOKEN": "mt",
        "SEARCH_KEY": "sk",
        "PERPLEXITY_KEY": "pk",
    }
    home.put_all()
    (home.cwd / ".env").write_text("A=1\n")
    files = home.write()
    loaded = home.load()
    assert loaded.warnings == ()
    text = home.config.read_text()
    env, odd = parse_env_file(files.env_path.read_text())
    assert odd == []
    assert not [value for value in env.values() if value in text]
    servers = loaded.config.servers
    assert servers["github"].env == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_notARealToken00000000000000000000"
    }
    assert (
        servers["postgres"].args[-1]
        == "postgresql://ada:s3cret%21@db.example:5432/shop?sslmode=require"
    )
    assert servers["linear"].args[-1] == "Authorization:${AUTH_HEADER}", (
        "mcp-remote fills that in itself"
    )
    assert servers["linear"].env == {"AUTH_HEADER": "Bearer lin-not-a-real-token"}
    assert servers["context7"].args[-1] == "ctx7-not-real"
    assert servers["context7"].timeouts.call_s == 90.5
    assert servers["my_server"].headers == {"Authorization": "Bearer mt", "X-Region": "eu"}
    assert servers["my_server"].title == "my.server"
    assert servers["search"].headers == {"X-Api-Key": "sk"}
    assert servers["search"].tools.allow == ("find",)
    assert servers["figma"].url == "https://figma.example/mcp?api_key=figd-not-real-000&team=7"
    assert servers["cloud"].headers == {"Authorization": "Basic bm90OnJlYWw="}
    assert servers["perplexity"].env == {"PERPLEXITY_API_KEY": "pk"}
    assert "TRACE_TOKEN=trace-not-real-1" in servers["perplexity"].args
    assert servers["weather"].env == {"OPENWEATHER_API_KEY": "0123456789abcdef not real"}
    assert servers["old-shape"].env == {"DEBUG": "1"}
    assert servers["off"].disabled
    assert servers["docs"].env == {"A": "1"}


def test_every_adopted_server_is_the_one_that_its_client_starts(home: ClientHome) -> None:
    """The file of a client, loaded as it is, says what its servers get; adopted, they get the
    same."""
    home.environ = {
        "SENTRY_TOKEN": "st",
        "AZURE_TENANT": "t",
        "MY_TOKEN": "mt",
        "SEARCH_KEY": "sk",
    }
    home.put_all()
    home.write()
    adopted = home.load().config.servers
    for client in ("claude-desktop", "windsurf", "codex", "gemini", "cline"):
        for name, direct in load(
            [home.path(client)], environ=home.environ, cwd=home.cwd
        ).config.servers.items():
            for key in (
                "type",
                "command",
                "args",
                "env",
                "cwd",
                "url",
                "headers",
                "tools",
                "timeouts",
                "disabled",
            ):
                assert getattr(adopted[name], key) == getattr(direct, key), (client, name, key)


def test_an_editor_input_becomes_a_required_variable(home: ClientHome) -> None:
    home.put_all()
    files = home.write()
    assert home.candidates()["perplexity"].found_server.required_variables == {
        "PERPLEXITY_KEY": "${input:perplexity-key}"
    }
    assert re.search(r"(?m)^# PERPLEXITY_KEY= .*input:perplexity-key", files.env_path.read_text())
    with files.env_path.open("a") as file:
        file.write("PERPLEXITY_KEY=given\n")
    assert home.load().config.servers["perplexity"].env == {"PERPLEXITY_API_KEY": "given"}


def test_a_bare_variable_stays_a_variable_even_if_unset(home: ClientHome) -> None:
    env = {"A_TOKEN": "$NOBODY_HAS_THIS", "B": "Bearer $NOR_THIS"}
    home.put("gemini", json.dumps({"mcpServers": {"a": {"command": "x", "env": env}}}))
    files = home.write()
    assert home.candidates()["a"].found_server.required_variables == {
        "NOBODY_HAS_THIS": "$NOBODY_HAS_THIS",
        "NOR_THIS": "Bearer $NOR_THIS",
    }
    with files.env_path.open("a") as file:
        file.write("NOBODY_HAS_THIS=one\nNOR_THIS=two\n")
    assert home.load().config.servers["a"].env == {"A_TOKEN": "one", "B": "Bearer two"}


def test_text_that_is_no_placeholder_stays_text(home: ClientHome) -> None:
    odd = ["${", "${not a name}", "$${X}", "$HOME", "a${}b", "100%"]
    home.put("claude-desktop", json.dumps({"mcpServers": {"a": {"command": "x", "args": odd}}}))
    home.write()
    loaded = home.load()
    assert loaded.warnings == ()
    assert loaded.config.servers["a"].args == (
        "${",
        "${not a name}",
        "${X}",
        "$HOME",
        "a${}b",
        "100%",
    )


TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30)
NAMES = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=20)


@settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), TEXTS, max_size=4))
def test_any_value_survives_the_env_file(values: dict[str, str]) -> None:
    text = "".join(render_env_line(name, value) for name, value in values.items())
    assert parse_env_file(text) == (values, [])
    assert parse_env_file(add_env_values(None, values, {})) == (values, [])


@settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    NAMES,
    st.lists(TEXTS, max_size=3),
    st.dictionaries(st.sampled_from(["TOKEN", "B", "c d"]), TEXTS, max_size=3),
)
def test_any_name_and_value_survives_being_adopted(
    tmp_path: Path, name: str, args: list[str], env: dict[str, str]
) -> None:
    literal = [arg.replace("${", "$${") for arg in args]
    held = {key: value.replace("${", "$${") for key, value in env.items()}
    extracted, values = extract_secrets(
        "srv", {"command": "x", "args": literal, "env": held}, VariableNames({}, {})
    )
    path, secrets = tmp_path / "portico.yaml", tmp_path / "portico.env"
    unwritten = {
        path: render_new_file(
            {"s": extracted, f"n{name}": {"command": "y"}}, {}, "portico.env"
        ).encode(),
        secrets: add_env_values(None, values, {}).encode(),
    }
    loaded = load([path], environ={}, cwd=tmp_path, unwritten=unwritten)
    server = loaded.config.servers["s"]
    assert (server.args, server.env) == (tuple(args), env)
    assert len(loaded.config.servers) == 2
