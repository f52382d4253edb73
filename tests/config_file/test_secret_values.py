"""Secrets of a configuration, masked by their values."""

from pathlib import Path

import pytest

from portico.config_file import load
from portico.config_file.secret_values import SecretMask, collect_secret_values

CONFIG = """
gateway: {token: hidden-token}
database_url: postgresql://me:hidden%2Fpassword@db/portico
servers:
  stdio:
    command: npx
    args: [--api-key, hidden-flagged, "--token=hidden-assigned", "--verbose", "${EXPANDED}",
           "postgres://me:hidden-in-url@db/x"]
    env: {ANYTHING: hidden words, API_TOKEN: /hidden/token, FOLDER: /srv/data, PORT: "842000", DSN_URL: "http://a:hidden-dsn@b"}
    inherit_env: [INHERITED]
  web:
    url: https://user:hidden-user@example.com/mcp?api_key=hidden-query&page=1234567
    headers: {Authorization: Bearer hidden-bearer, X-Team: hidden-team}
"""  # noqa: E501


@pytest.fixture
def secrets(tmp_path: Path) -> frozenset[str]:
    (tmp_path / "portico.yaml").write_text(CONFIG)
    environ = {"EXPANDED": "hidden-expanded", "INHERITED": "hidden-inherited"}
    return collect_secret_values(load("portico.yaml", {}, environ, cwd=tmp_path).config, environ)


@pytest.mark.parametrize(
    "text",
    [
        "hidden-token",
        "hidden/password",
        "hidden%2Fpassword",
        "hidden-flagged",
        "hidden-assigned",
        "hidden-expanded",
        "hidden-in-url",
        "hidden words",
        "/hidden/token",
        "hidden-dsn",
        "hidden-inherited",
        "hidden-user",
        "hidden-query",
        "Bearer hidden-bearer",
        "only hidden-bearer",
        "hidden-team",
    ],
)
def test_every_secret_is_found_everywhere(secrets: frozenset[str], text: str) -> None:
    assert "hidden" not in SecretMask(secrets).apply(f"before {text} after")


@pytest.mark.parametrize(
    "text", ["/srv/data", "842000", "--verbose", "example.com", "1234567", "npx", "portico"]
)
def test_what_is_no_secret_is_left_in_the_text(secrets: frozenset[str], text: str) -> None:
    assert SecretMask(secrets).apply(text) == text


def test_a_secret_that_is_a_part_of_another_leaves_nothing_of_it() -> None:
    assert (
        SecretMask(["hidden", "hidden-longer"]).apply("a hidden-longer b hidden") == "a *** b ***"
    )


def test_each_line_of_a_key_is_a_secret_of_its_own() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nend\n"
    shown = SecretMask([key]).apply("line 2: MIIEvQIBADANBgkqhkiG9w0, the end")
    assert shown == "line 2: ***, the end"


def test_without_secrets_a_text_stays_as_it_is() -> None:
    assert SecretMask(()).apply("anything at all") == "anything at all"
