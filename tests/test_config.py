"""The models: what a configuration can say, whoever builds it."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from portico.config import (
    MAX_SERVER_NAME_LENGTH,
    META_TOOLS,
    BackendConfig,
    Budgets,
    Config,
    GatewayConfig,
    LearningConfig,
    LimitsConfig,
    Profile,
    ProfileBudgets,
    ToolRules,
    compute_fingerprint,
)
from portico.config_file import iter_keys, to_server_key
from portico.errors import UnknownName


def backend(**fields: Any) -> BackendConfig:
    return BackendConfig.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"command": "npx"}, "stdio"),
        ({"url": "https://example.com/mcp"}, "http"),
        ({"url": "https://example.com/sse"}, "sse"),
        ({"url": "https://example.com/sse/"}, "sse"),
        ({"url": "https://example.com/mcp", "type": "sse"}, "sse"),
        ({"url": "https://example.com/sse", "type": "http"}, "http"),
        ({"url": "https://example.com/mcp", "type": "streamable-http"}, "http"),
        ({"url": "https://example.com/mcp", "type": "streamableHttp"}, "http"),
        ({"url": "https://example.com/mcp", "type": "streamable_http"}, "http"),
        ({"command": "x", "type": "local"}, "stdio"),
        ({"functions": "package.module:TOOLS"}, "functions"),
        ({"recorded": "fleet.jsonl.gz"}, "recorded"),
    ],
)
def test_the_kind_of_a_server_follows_from_what_is_given(fields: dict[str, Any], kind: str):
    assert backend(**fields).kind == kind


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "say how to reach it: one of command, url, openapi, commands, functions, recorded"),
        ({"command": "x", "url": "https://example.com"}, "command and url are both given"),
        ({"command": "x", "type": "http"}, "type http needs `url`, not `command`"),
        ({"url": "https://example.com", "type": "stdio"}, "type stdio needs `command`"),
        ({"url": "example.com/mcp"}, "starts with http:// or https://"),
        ({"url": "https://"}, "names a host"),
        (
            {"command": "x", "tools": {"rename": {"a": "same", "b": "same"}}},
            "'a' and 'b' would both be named 'same'",
        ),
        ({"command": "x", "tools": {"rename": {"a": "no blanks"}}}, "is no tool name"),
        ({"command": "x", "timeouts": {"call_s": 0}}, "greater than 0"),
        ({"command": "x", "timeouts": {"call_s": float("inf")}}, "finite"),
        ({"command": "x", "comand": "y"}, "comand"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_with_the_reason(
    fields: dict[str, Any], words: str
):
    with pytest.raises(ValidationError) as caught:
        backend(**fields)
    assert words in str(caught.value)


def test_a_server_with_a_problem_may_lack_what_it_needs():
    broken = backend(problem="its transport is not supported")
    assert not broken.is_usable


def test_a_recording_can_name_its_line_in_the_path():
    recording = backend(recorded="fleet.jsonl.gz#airbnb")
    assert (recording.recorded, recording.recorded_slug) == (Path("fleet.jsonl.gz"), "airbnb")


def test_the_models_are_frozen_all_the_way():
    config = Config(servers={"a": backend(command="x")})
    for target, name in (
        (config, "exposure"),
        (config.gateway, "port"),
        (config.servers["a"], "command"),
    ):
        with pytest.raises(ValidationError):
            setattr(target, name, getattr(target, name))


def test_a_refused_value_is_not_repeated_in_the_error():
    with pytest.raises(ValidationError) as caught:
        backend(command="x", env="my-secret-value")
    assert "my-secret-value" not in str(caught.value)


def test_the_text_form_of_a_server_shows_no_secret():
    server = backend(
        command="x", args=["--token", "s3cret"], env={"K": "s3cret"}, written={"env.K": "s3cret"}
    )
    web = backend(url="https://u:s3cret@example.com", headers={"A": "s3cret"})
    config = Config(
        servers={"a": server, "b": web}, gateway=GatewayConfig.model_validate({"token": "s3cret"})
    )
    assert "s3cret" not in repr(config)


def test_rules_keep_what_is_allowed_and_not_denied():
    rules = ToolRules(allow=("read_*", "list_*"), deny=("*_secret",))
    assert [
        name
        for name in ("read_file", "read_secret", "write_file", "list_all")
        if rules.permits(name)
    ] == [
        "read_file",
        "list_all",
    ]


def test_rules_match_the_old_name_and_the_new_one():
    rules = ToolRules(
        deny=("create_*", "danger"), rename={"create_issue": "new_issue", "rm": "danger"}
    )
    assert rules.get_exposed_name("create_issue") == "new_issue"
    assert not rules.permits("create_issue")
    assert not rules.permits("rm")


def test_sizes_may_be_written_with_a_unit():
    limits = LimitsConfig.model_validate({"max_request_bytes": "8MiB"})
    assert limits.max_request_bytes == 8 * 1024**2


def test_without_a_profile_the_view_is_the_gateways_own():
    view = Config(metatools={"browse_tools": False}).resolve_profile()
    assert (view.exposure, view.discovery_budget) == ("meta", 2000)
    assert view.metatools == set(META_TOOLS) - {"browse_tools"}
    assert (view.servers, view.tools) == (("*",), ("*",))


def test_a_profile_inherits_what_it_does_not_say():
    config = Config(
        exposure="full",
        budgets=Budgets(discovery=1000),
        metatools={"browse_tools": False, "call_tool": False},
        profiles={
            "work": Profile(
                servers=("git*",),
                tools=("*.read_*",),
                budgets=ProfileBudgets(discovery=900),
                metatools={"call_tool": True},
            )
        },
    )
    view = config.resolve_profile("work")
    assert (view.exposure, view.discovery_budget) == ("full", 900)
    assert view.metatools == set(META_TOOLS) - {"browse_tools"}


def test_an_unknown_profile_gets_the_known_ones_back():
    with pytest.raises(UnknownName, match="no profile 'wrok'") as caught:
        Config(profiles={"work": Profile()}).resolve_profile("wrok")
    assert "work" in caught.value.nearest


@pytest.mark.parametrize(
    "name", ["portico", "my.server", "", "a b", "x" * (MAX_SERVER_NAME_LENGTH + 1)]
)
def test_a_server_name_that_could_not_be_addressed_is_refused(name: str):
    with pytest.raises(ValidationError):
        Config(servers={name: backend(command="x")})


def test_every_key_has_help_that_ends_like_a_sentence():
    for key in iter_keys():
        assert key.help, key.dotted_name
        assert key.help.endswith("."), key.dotted_name


def test_every_scalar_outside_servers_and_profiles_has_its_variable():
    variables = {key.dotted_name: key.environment_variable for key in iter_keys()}
    assert variables["gateway.port"] == "PORTICO_PORT"
    assert variables["gateway.token"] == "PORTICO_TOKEN"
    assert variables["exposure"] == "PORTICO_EXPOSURE"
    assert variables["data_dir"] == "PORTICO_DATA_DIR"
    assert variables["limits.start_concurrency"] == "PORTICO_LIMITS__START_CONCURRENCY"
    assert variables["servers.*.command"] is None
    assert variables["servers.*.timeouts.call_s"] is None
    assert variables["metatools"] is None
    given_variables = [variable for variable in variables.values() if variable]
    assert len(given_variables) == len(set(given_variables))


def test_what_portico_finds_out_itself_is_no_key():
    assert not {"servers.*.problem", "servers.*.written", "written"} & {
        key.dotted_name for key in iter_keys()
    }


# --- the fingerprint: the same for the same tools, another for others ---

BASE = {"command": "npx", "args": ["-y", "server"], "env": {"KEY": "one"}, "cwd": "/srv"}


@pytest.mark.parametrize(
    "change",
    [
        {"command": "uvx"},
        {"args": ["-y", "other"]},
        {"args": ["-y server"]},
        {"env": {"KEY": "two"}},
        {"env": {"OTHER": "one"}},
        {"cwd": "/tmp"},
        {"inherit_env": ["HTTPS_PROXY"]},
    ],
)
def test_what_decides_the_tools_changes_the_fingerprint(change: dict[str, Any]):
    assert compute_fingerprint(backend(**{**BASE, **change})) != compute_fingerprint(
        backend(**BASE)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"description": "other words"},
        {"tags": ["a"]},
        {"timeouts": {"call_s": 5}},
        {"tools": {"deny": ["x"]}},
        {"start": "boot"},
        {"disabled": True},
        {"written": {"env.KEY": "${KEY}"}},
    ],
)
def test_what_does_not_decide_the_tools_leaves_the_fingerprint(change: dict[str, Any]):
    assert compute_fingerprint(backend(**{**BASE, **change})) == compute_fingerprint(
        backend(**BASE)
    )


def test_a_renewed_token_is_the_same_server_and_another_header_is_not():
    def web(**headers: str) -> str:
        return compute_fingerprint(backend(url="https://example.com/mcp", headers=headers))

    assert web(Authorization="Bearer one") == web(authorization="Bearer two")
    assert web(Authorization="Bearer one") != web(Authorization="Bearer one", Tenant="x")


def test_a_recording_that_changed_is_another_server(tmp_path: Path):
    listing = tmp_path / "listing.json"
    server = backend(recorded=str(listing))
    missing = compute_fingerprint(server)
    listing.write_text("{}")
    first = compute_fingerprint(server)
    os.utime(listing, ns=(1, 1))
    assert len({missing, first, compute_fingerprint(server)}) == 3
    assert compute_fingerprint(server) == compute_fingerprint(server)


def test_the_fingerprint_contains_no_value():
    digest = compute_fingerprint(backend(command="x", env={"KEY": "abc"}))
    assert len(digest) == 32
    assert set(digest) <= set("0123456789abcdef")


# --- server keys ---


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("github", "github"),
        ("GitHub-MCP_2", "GitHub-MCP_2"),
        ("_private", "_private"),
        ("GitHub MCP", "GitHub_MCP"),
        ("my.server", "my_server"),
        ("io.github.owner/server", "io_github_owner_server"),
        ("@scope/package", "scope_package"),
        ("Café (beta)", "Cafe_beta"),
    ],
)
def test_any_name_becomes_a_legal_key(name: str, key: str):
    assert to_server_key(name) == key


def test_names_that_ascii_cannot_write_stay_apart():
    names = [to_server_key(name) for name in ("文件", "天气", "文件 fs", "天气 fs", "🚀", "…")]
    assert len(set(names)) == len(names)


def test_long_names_that_begin_alike_stay_apart():
    first, second = (to_server_key("a" * 60 + end) for end in "xy")
    assert first != second
    assert len(first) == MAX_SERVER_NAME_LENGTH


@settings(deadline=None)
@given(st.text())
def test_every_text_has_a_key_that_a_config_takes_and_that_is_its_own_key(name: str):
    key = to_server_key(name)
    assert to_server_key(key) == key
    if key != "portico":
        Config(servers={key: backend(command="x")})


@pytest.mark.parametrize(
    ("written", "scope"),
    [
        ("off", "off"),
        (False, "off"),
        (True, "caller"),
        ("shared", "shared"),
        ({"scope": False}, "off"),
        ({}, "caller"),
    ],
)
def test_learning_is_a_word_or_a_section(written: Any, scope: str):
    assert Config.model_validate({"learning": written}).learning == LearningConfig.model_validate(
        {"scope": scope}
    )


@pytest.mark.parametrize(
    "written", ["everybody", {"half_life_days": 0}, {"max_followed": 0}, {"max_together": -1}]
)
def test_learning_has_bounds(written: Any):
    with pytest.raises(ValidationError):
        Config.model_validate({"learning": written})
