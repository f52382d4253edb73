"""References to secrets: `${keyring:…}`, `${file:…}`, `${cmd:…}`."""

import json
from pathlib import Path

import pytest

from portico.config import BackendConfig
from portico.config_file import load, mask_config
from portico.config_file.secret_references import (
    SecretReference,
    fill_in,
    find_references,
)
from portico.errors import ConfigError

CONFIG = """
servers:
  shop:
    command: shop-mcp
    args: ["--secret=${file:shop.key}", "$${file:not-this}"]
    env: {SHOP_KEY: "${cmd:op read 'op://work/shop key'}"}
  web:
    url: https://example.com/mcp
    headers: {Authorization: "Bearer ${keyring:portico/web/ana}"}
"""


def load_servers(folder: Path, text: str, **environ: str) -> dict[str, BackendConfig]:
    (folder / "portico.yaml").write_text(text)
    return dict(load("portico.yaml", {}, environ, cwd=folder).config.servers)


def test_a_reference_names_a_place_and_is_filled_in_later(tmp_path: Path) -> None:
    servers = load_servers(tmp_path, CONFIG)
    shop, web = servers["shop"], servers["web"]
    file = SecretReference("file", str(tmp_path / "shop.key"))
    program = SecretReference("cmd", "op read 'op://work/shop key'")
    keychain = SecretReference("keyring", "portico/web/ana")
    assert find_references([shop.args, shop.env]) == {file, program}
    assert program.words == ["op", "read", "op://work/shop key"]
    assert find_references(web.headers) == {keychain}
    assert fill_in(shop.args, {file: "s3cr3t"}) == ("--secret=s3cr3t", "${file:not-this}")
    assert fill_in(web.headers, {keychain: "t0ken"}) == {"Authorization": "Bearer t0ken"}


def test_what_a_variable_says_is_never_a_reference(tmp_path: Path) -> None:
    (tmp_path / "own.env").write_bytes(b"OWN=\0cmd:id\0\n")
    env = '{KEY: "${VALUE}", RAW: "\\0cmd:id\\0"}'
    text = f"servers: {{a: {{command: x, env_file: own.env, env: {env}}}}}"
    servers = load_servers(tmp_path, text, VALUE="${cmd:id}")
    assert not find_references(servers["a"].env)
    assert servers["a"].env == {"KEY": "${cmd:id}", "RAW": "cmd:id", "OWN": "cmd:id"}


def test_a_file_of_another_client_has_no_references(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"KEY": "${cmd:id}", "RAW": "\0cmd:id\0"}}
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": entry}}))
    server = load(path, {}, {}, cwd=tmp_path).config.servers["a"]
    assert not find_references(server.env)


def test_the_configuration_is_shown_with_the_reference_as_written(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text(CONFIG)
    shown = mask_config(load("portico.yaml", {}, {}, cwd=tmp_path).config)["servers"]
    assert shown["shop"]["env"] == {"SHOP_KEY": "${cmd:op read 'op://work/shop key'}"}
    assert shown["web"]["headers"] == {"Authorization": "Bearer ${keyring:portico/web/ana}"}
    assert "\0" not in json.dumps(shown)


def test_a_secret_among_the_words_of_a_command_is_masked(tmp_path: Path) -> None:
    text = 'servers: {a: {command: x, env: {K: "${cmd:vault --token=hidden1 get k}"}}}'
    (tmp_path / "portico.yaml").write_text(text)
    shown = json.dumps(mask_config(load("portico.yaml", {}, {}, cwd=tmp_path).config))
    assert "hidden1" not in shown
    assert "${cmd:vault" in shown
    assert "hidden1" not in str(SecretReference("cmd", "vault --token=hidden1 get k"))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${keyring:portico}", "${keyring:service/name}"),
        ("${keyring:/name}", "${keyring:service/name}"),
        ("${file:}", "${file:path}"),
        ("${cmd:}", "${cmd:program arguments}"),
        ("${cmd:op 'read}", "split into words"),
    ],
)
def test_a_reference_that_names_nothing_disables_its_server(
    tmp_path: Path, value: str, problem: str
) -> None:
    server = load_servers(tmp_path, f'servers: {{a: {{command: x, env: {{K: "{value}"}}}}}}')["a"]
    assert problem in (server.problem or "")


def test_a_reference_stands_where_a_secret_is_sent(tmp_path: Path) -> None:
    server = load_servers(tmp_path, 'servers: {a: {command: x, cwd: "${file:folder}"}}')["a"]
    assert "a secret may stand in args, auth, base_url, env, headers, query, url" in (
        server.problem or ""
    )


def test_the_gateway_itself_takes_a_file_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("correct horse\n")
    config = tmp_path / "portico.yaml"
    config.write_text('gateway: {token: "${file:token}"}')
    loaded = load(config, {}, {}, cwd=tmp_path)
    assert loaded.config.gateway.token is not None
    assert loaded.config.gateway.token.get_secret_value() == "correct horse"
    assert tmp_path / "token" in loaded.files
    config.write_text('gateway: {token: "${cmd:touch ran}"}')
    with pytest.raises(ConfigError, match="is for servers"):
        load(config, {}, {}, cwd=tmp_path)
    config.write_text('gateway: {token: "${file:missing}"}')
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(config, {}, {}, cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
