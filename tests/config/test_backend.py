"""The configuration of one server: kinds, rules and fingerprint."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from portico.config import (
    BackendConfig,
    Config,
    GatewayConfig,
    LimitsConfig,
    ToolRules,
    compute_fingerprint,
)


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
def test_the_kind_of_a_server_is_inferred(fields: dict[str, Any], kind: str):
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
