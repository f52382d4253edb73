"""Masking: no secret of a configuration is shown."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.config import BackendConfig, Config
from portico.config_file import load, mask_config
from portico.config_file.mask import mask_args, mask_text


def shown(
    folder: Path, text: str, environ: Mapping[str, str] | None = None, **flags: Any
) -> tuple[dict[str, Any], str]:
    (folder / "portico.yaml").write_text(text)
    loaded = load("portico.yaml", flags, environ or {}, cwd=folder)
    value = mask_config(loaded.config)
    return value, json.dumps([value, {key: str(source) for key, source in loaded.sources.items()}])


def test_no_secret_is_anywhere_in_the_output(tmp_path: Path):
    (tmp_path / "s.env").write_text("FILE_VALUE=hidden-envfile\n")
    value, text = shown(
        tmp_path,
        """
gateway: {token: hidden-token, allowed_hosts: ["${HOST_VAR}"]}
database_url: postgresql://me:hidden-d1@db/portico?sslpassword=hidden-d2
servers:
  stdio:
    command: npx
    args:
      - --api-key
      - hidden-a1
      - --token=hidden-a2
      - sk-hidden0123456789
      - ghp_hiddenhiddenhidden12
      - postgres://me:hidden-a3@db/x
      - -e
      - HARMLESS=hidden-a4
      - -H
      - "X-Anything: hidden-a5"
      - --header=Authorization:Bearer hidden-a6
      - '{"password": "hidden-a7"}'
      - ${EXPANDED}
      - prefix-${EXPANDED}
    env: {PLAIN: hidden-e1, TOKEN: "${EXPANDED}", MIXED: "hidden-e2-${EXPANDED}", DEF: "${NOT_SET:-hidden-e3}"}
    env_file: s.env
    description: uses ${EXPANDED}
    cwd: /srv/${EXPANDED}
  web:
    url: https://user:hidden-u1@example.com/mcp?api_key=hidden-u2&page=2&sig=hidden-u3&access_token=${EXPANDED}
    headers: {Authorization: Bearer hidden-h1, X-Key: "${EXPANDED}", Cookie: hidden-h2}
  path:
    url: https://hooks.example.com/s/MDU1ZjY0hiddenhidden4Nzc2/mcp
""",  # noqa: E501
        {"EXPANDED": "hidden-x1", "HOST_VAR": "hidden-x2"},
    )
    assert "hidden" not in text
    stdio = value["servers"]["stdio"]
    assert stdio["args"][:3] == ["--api-key", "***", "--token=***"]
    assert stdio["args"][-2:] == ["${EXPANDED}", "prefix-${EXPANDED}"]
    assert stdio["env"] == {
        "FILE_VALUE": "***",
        "PLAIN": "***",
        "TOKEN": "${EXPANDED}",
        "MIXED": "***",
        "DEF": "***",
    }
    assert stdio["description"] == "uses ${EXPANDED}"
    assert stdio["cwd"] == "/srv/${EXPANDED}"
    assert value["servers"]["web"]["url"] == (
        "https://***@example.com/mcp?api_key=***&page=2&sig=***&access_token=${EXPANDED}"
    )
    assert value["servers"]["web"]["headers"] == {
        "Authorization": "***",
        "X-Key": "${EXPANDED}",
        "Cookie": "***",
    }
    assert value["servers"]["path"]["url"] == "https://hooks.example.com/s/***/mcp"
    assert value["gateway"]["token"] == "***"
    assert value["gateway"]["allowed_hosts"] == ["${HOST_VAR}"]


def test_the_effective_values_are_complete(tmp_path: Path):
    value, _ = shown(
        tmp_path, "gateway: {port: 1}\nservers: {a: {command: x, cwd: sub}}", exposure="full"
    )
    assert (value["gateway"]["port"], value["exposure"], value["gateway"]["token"]) == (
        1,
        "full",
        None,
    )
    assert value["servers"]["a"]["cwd"] == str(tmp_path / "sub")
    assert value["servers"]["a"]["timeouts"] == {"start_s": 30, "call_s": 120, "list_s": 30}
    assert set(value) == set(Config.model_fields) - {"written"}
    assert set(value["servers"]["a"]) == set(BackendConfig.model_fields) - {"written"}


def test_a_flag_over_an_expanded_value_is_shown_as_itself(tmp_path: Path):
    value, _ = shown(tmp_path, "exposure: ${E}\nservers: {}", {"E": "full"}, exposure="code")
    assert value["exposure"] == "code"


def test_a_problem_is_shown_in_its_own_words(tmp_path: Path):
    value, _ = shown(tmp_path, "servers: {a: {command: x, env: {TOKEN: '${TOKEN}'}}}")
    assert value["servers"]["a"]["problem"].startswith(
        "env.TOKEN: the environment variable TOKEN is not set"
    )


@pytest.mark.parametrize(
    "text",
    [
        "@modelcontextprotocol/server-filesystem",
        "mcp-server-elasticsearch-readonly-v8@latest",
        "/home/someone/projects/portico/documents",
        "C:\\Users\\someone\\AppData\\Roaming",
        "https://example.com/mcp?page=2&region=eu-central-1",
        "--allow-write",
        "2026-07-28",
        "127.0.0.1:8420",
        "--author=someone",
        "keyboard",
        "${workspaceFolder}/x",
    ],
)
def test_harmless_text_is_left_alone(text: str):
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefgh12345678",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghijkl",
        "glpat-abcdefghij1234567890",
        "xoxb-123456789012-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA1234567890abcdefghijklmnopqrstu",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "hf_abcdefghijklmnop",
        "0123456789abcdef0123456789abcdef",
        "550e8400-e29b-41d4-a716-446655440000",
        "b7Rt_9fKq2-LmX4vZ8pWc1Ys6dTg3nHj",
    ],
)
def test_text_with_the_shape_of_a_key_is_masked_everywhere(secret: str):
    for text in (secret, f"--flag={secret}", f"https://example.com/{secret}/mcp", f"a {secret}, b"):
        assert secret not in mask_text(text)


@settings(deadline=None)
@given(
    secret=st.from_regex(r"q[A-Za-z0-9!%^*+_-]{5,30}", fullmatch=True),
    flag=st.sampled_from(
        [
            "--token",
            "--api-key",
            "-apikey",
            "--password",
            "--client-secret",
            "--auth",
            "--ACCESS_TOKEN",
        ]
    ),
)
def test_what_follows_a_secret_flag_never_shows(secret: str, flag: str):
    for args in ([flag, secret], [f"{flag}={secret}"], ["run", flag, secret, "x"]):
        assert secret not in " ".join(mask_args(args, {}))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(value=st.from_regex(r"Z[A-Za-z0-9]{7,20}Z", fullmatch=True))
def test_a_value_from_a_variable_is_never_shown(tmp_path: Path, value: str):
    template = "pre ${V} post"
    _, text = shown(
        tmp_path,
        f"""
pins: ["{template}"]
profiles: {{p: {{servers: ["{template}"]}}}}
servers:
  a: {{command: "{template}", args: ["{template}"], env: {{K: "{template}"}}, description: "{template}",
       title: "{template}", tags: ["{template}"], inherit_env: ["{template}"],
       roots: ["{template}"], cwd: "/{template}",
       tools: {{allow: ["{template}"]}}}}
  b: {{url: "https://example.com/{template}", headers: {{K: "{template}"}}}}
  c: {{recorded: "{template}", recorded_slug: "{template}"}}
  d: {{functions: "{template}", env_file: "/{template}"}}
""",  # noqa: E501
        {"V": value},
    )
    assert value not in text


@pytest.mark.parametrize(
    "text",
    [
        "argv: ['/srv/server.py', '--password', 'hidden']",
        'spawn ["npx", "--api-key", "hidden"]',
        "usage: server --db-password hidden-1 --port 80",
        "server -token hidden-1",
    ],
)
def test_a_command_line_that_a_server_repeats_shows_no_secret(text: str):
    assert "hidden" not in mask_text(text)
    assert "***" in mask_text(text)


@pytest.mark.parametrize(
    "text", ["use --key-file x.pem", "--author bob1", "the option --port 8080", "-" * 100]
)
def test_words_that_are_no_secret_are_left_alone(text: str):
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "piece", ["-", "--token ", "-token-", "key", "a1B2_", "'--token', ", "://", "token ", "Bearer "]
)
def test_a_long_line_is_masked_quickly(piece: str):
    # A server may write whatever it likes, and what it writes is masked where everybody waits for
    # it.
    mask_text(piece * (50_000 // len(piece)))


def test_neither_structure_nor_our_own_words_are_taken_for_a_secret() -> None:
    assert mask_text('"oauthAccount": {"emailAddress": 1}') == '"oauthAccount": {"emailAddress": 1}'
    said = "env.API_TOKEN: the environment variable THINK_TOKEN is not set"
    assert mask_text(said) == said
    hint = "set it, or write ${MY_API_KEY:-default}"
    assert mask_text(hint) == hint
    assert mask_text("write ${MY_API_KEY:-default1}") == "write ${MY_API_KEY:-***}"
    assert mask_text("api_token: hunter2") == "api_token: ***"
    assert mask_text('"password": "hunter2"}') == '"password": "***"}'


def test_a_secret_that_begins_like_a_word_of_a_sentence_is_masked() -> None:
    shown = mask_text("API_KEY=auth0xY7secretvalue token: yourS3cretValue Bearer notAword99")
    assert "auth0xY7secretvalue" not in shown
    assert "yourS3cretValue" not in shown
    assert "notAword99" not in shown
