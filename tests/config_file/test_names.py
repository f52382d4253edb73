"""Server keys derived from names."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from portico.config import (
    MAX_SERVER_NAME_LENGTH,
    RESERVED_NAMES,
    BackendConfig,
    Config,
)
from portico.config_file import to_server_key


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
@example("PORTICO")
def test_every_text_has_a_key_that_a_config_takes_and_that_is_its_own_key(name: str):
    key = to_server_key(name)
    assert to_server_key(key) == key
    if key.lower() not in RESERVED_NAMES:
        Config(servers={key: BackendConfig(command="x")})
