"""Clients' files load as they are: one sample of each, written the way its client writes it."""

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from portico.config import BackendConfig
from portico.config_file import LoadedConfig, load
from portico.errors import ConfigError


def load_text(
    folder: Path, text: str, name: str = ".mcp.json", environ: Mapping[str, str] | None = None
) -> LoadedConfig:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return load(path, {}, environ or {}, cwd=folder)


def load_entry(folder: Path, entry: dict[str, Any], **environ: str) -> tuple[BackendConfig, str]:
    """One server of a client's file, and the warnings."""
    loaded = load_text(folder, json.dumps({"mcpServers": {"it": entry}}), environ=environ)
    return loaded.config.servers["it"], "\n".join(map(str, loaded.warnings))


def test_claude_desktop(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        {
          "globalShortcut": "Ctrl+Space",
          "preferences": {"menuBarEnabled": false},
          "mcpServers": {
            "filesystem": {
              "command": "npx",
              "args": ["-y", "@modelcontextprotocol/server-filesystem", "C:\\\\Users\\\\me"]
            }
          }
        }
        """,
        "claude_desktop_config.json",
    )
    server = loaded.config.servers["filesystem"]
    assert (server.kind, server.args[-1]) == ("stdio", "C:\\Users\\me")
    assert "left out, a client's own settings: globalShortcut, preferences" in str(
        loaded.warnings[0]
    )


def test_claude_code_project_file(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        {"mcpServers": {
          "api": {
            "type": "http",
            "url": "${API_BASE_URL:-https://api.example.com}/mcp",
            "headers": {"Authorization": "Bearer ${API_KEY}"},
            "timeout": 600000,
            "alwaysLoad": true,
            "oauth": {"clientId": "x", "callbackPort": 8080}
          },
          "helper": {"type": "sse", "url": "https://example.com/events", "headersHelper": "/bin/make-headers"},
          "socket": {"type": "ws", "url": "wss://example.com"}
        }}
        """,  # noqa: E501
        environ={"API_KEY": "k"},
    )
    api, helper, socket = loaded.config.servers.values()
    assert (api.kind, api.url, api.headers) == (
        "http",
        "https://api.example.com/mcp",
        {"Authorization": "Bearer k"},
    )
    assert api.timeouts.call_s == 600
    assert helper.kind == "sse"
    assert not socket.is_usable
    assert socket.problem == "its transport 'ws' is not supported: stdio, http and sse are"
    warnings = "\n".join(map(str, loaded.warnings))
    assert ".mcp.json:8: servers.api.oauth: not taken over: `portico login NAME`" in warnings
    assert "servers.helper.headersHelper: commands that make headers are not run" in warnings
    assert "only its client uses: alwaysLoad" in warnings


def test_claude_code_user_file_with_dozens_of_other_keys(tmp_path: Path):
    text = {
        "numStartups": 42,
        "projects": {
            "/srv/x": {"mcpServers": {"other": {"command": "y"}}, "history": [{"display": "a"}]}
        },
        **{f"flag{n}": n for n in range(30)},
        "mcpServers": {"a": {"type": "stdio", "command": "x", "args": [], "env": {}}},
    }
    loaded = load_text(tmp_path, json.dumps(text), ".claude.json")
    assert list(loaded.config.servers) == ["a"]
    assert len(loaded.warnings) == 1
    assert "and 24 more" in str(loaded.warnings[0])


def test_a_claude_code_plugin_has_its_servers_at_the_root(tmp_path: Path):
    loaded = load_text(tmp_path, '{"db": {"command": "x"}, "web": {"url": "https://example.com"}}')
    assert list(loaded.config.servers) == ["db", "web"]


VS_CODE = """
{
\t// servers of this workspace
\t"inputs": [
\t\t{"type": "promptString", "id": "github-token", "description": "Token", "password": true},
\t],
\t"servers": {
\t\t"GitHub": {
\t\t\t"type": "http",
\t\t\t"url": "https://api.example.com/mcp/", /* trailing comma below */
\t\t\t"headers": {"Authorization": "Bearer ${input:github-token}"},
\t\t\t"gallery": "https://api.example.com/gallery",
\t\t\t"version": "0.13.0",
\t\t},
\t\t"local": {
\t\t\t"type": "stdio",
\t\t\t"command": "${workspaceFolder}/bin/server",
\t\t\t"args": ["--home", "${userHome}", "--key=${env:KEY}"],
\t\t\t"envFile": "${workspaceFolder}/.env",
\t\t\t"cwd": "${workspaceFolder}",
\t\t\t"dev": {"watch": "src/**", "debug": {"type": "node"}},
\t\t\t"sandboxEnabled": true,
\t\t},
\t},
}
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_vs_code_with_comments_tabs_trailing_commas_and_inputs(tmp_path: Path, line_end: str):
    (tmp_path / ".env").write_text("FROM_FILE=1\n")
    path = tmp_path / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbf" + VS_CODE.replace("\n", line_end).encode())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    loaded = load(path, {}, {"KEY": "k"}, cwd=elsewhere)
    github, local = loaded.config.servers["GitHub"], loaded.config.servers["local"]
    assert github.problem is not None
    assert "asks for the input 'github-token'" in github.problem
    assert "write ${GITHUB_TOKEN}" in github.problem
    assert local.is_usable
    assert (local.command, local.cwd) == (f"{tmp_path}/bin/server", str(tmp_path))
    assert local.args == ("--home", str(Path.home()), "--key=k")
    assert local.env == {"FROM_FILE": "1"}
    warnings = [(warning.line, warning.message) for warning in loaded.warnings]
    assert (8, "left out, only its client uses: gallery, version") in warnings
    assert (15, "left out, only its client uses: dev") in warnings


def test_vs_code_user_settings(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        '{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"a": {"command": "x"}}}}',
        "settings.json",
    )
    assert list(loaded.config.servers) == ["a"]


def test_copilot_lists_its_tools(tmp_path: Path):
    server, _ = load_entry(tmp_path, {"type": "local", "command": "x", "tools": ["read", "list"]})
    assert (server.kind, server.tools.allow) == ("stdio", ("read", "list"))
    nothing, _ = load_entry(tmp_path, {"type": "local", "command": "x", "tools": []})
    assert not nothing.tools.permits("read")


def test_cursor(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        {"mcpServers": {
          "remote": {
            "url": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer ${env:TOKEN}"},
            "auth": {"CLIENT_ID": "${env:CLIENT}", "CLIENT_SECRET": "${env:UNSET}", "scopes": ["read"]}
          },
          "local": {"command": "python", "args": ["${workspaceFolder}/tools/${workspaceFolderBasename}.py"]}
        }}
        """,  # noqa: E501
        "project/.cursor/mcp.json",
        {"TOKEN": "t"},
    )
    remote, local = loaded.config.servers.values()
    assert remote.is_usable, "what is left out needs no variables"
    assert remote.headers == {"Authorization": "Bearer t"}
    assert local.args == (f"{tmp_path}/project/tools/project.py",)


def test_windsurf(tmp_path: Path):
    server, _ = load_entry(
        tmp_path,
        {"serverUrl": "https://example.com/sse", "disabled": True, "disabledTools": ["delete_*"]},
    )
    assert (server.kind, server.disabled, server.tools.deny) == ("sse", True, ("delete_*",))


def test_cline(tmp_path: Path):
    server, warnings = load_entry(
        tmp_path,
        {
            "autoApprove": ["a"],
            "disabled": False,
            "timeout": 60,
            "type": "streamableHttp",
            "url": "https://example.com/mcp",
        },
    )
    assert (server.kind, server.timeouts.call_s, server.is_usable) == ("http", 60, True)
    assert "autoApprove" in warnings


def test_roo(tmp_path: Path):
    server, warnings = load_entry(
        tmp_path,
        {
            "command": "x",
            "alwaysAllow": ["a"],
            "timeout": 999,
            "watchPaths": ["a.js"],
            "disabledTools": ["b"],
        },
    )
    assert (server.timeouts.call_s, server.tools.deny) == (999, ("b",))
    assert "alwaysAllow, watchPaths" in warnings


def test_gemini(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        {
          "theme": "Dracula",
          "mcp": {"allowed": ["a"]},
          "mcpServers": {
            "a": {
              "command": "python",
              "env": {"KEY": "$MY_KEY", "LITERAL": "$NOT_SET", "PASSWORD": "pa$MY_KEY"},
              "cwd": "./server",
              "timeout": 15000,
              "trust": true,
              "includeTools": ["read"],
              "excludeTools": ["write"]
            },
            "b": {"httpUrl": "https://example.com/sse", "url": "https://example.com/old",
                  "headers": {"Authorization": "Bearer $MY_KEY"}, "authProviderType": "google_credentials"}
          }
        }
        """,  # noqa: E501
        "project/.gemini/settings.json",
        {"MY_KEY": "k"},
    )
    a, b = loaded.config.servers.values()
    assert a.env == {"KEY": "k", "LITERAL": "$NOT_SET", "PASSWORD": "pa$MY_KEY"}
    assert a.cwd == str(tmp_path / "project" / "server")
    assert (a.timeouts.call_s, a.tools.allow, a.tools.deny) == (15, ("read",), ("write",))
    assert b.headers == {"Authorization": "Bearer k"}


def test_geminis_http_address_wins_over_its_sse_address(tmp_path: Path):
    for entry in (
        {"httpUrl": "https://example.com/new", "url": "https://example.com/sse"},
        {"url": "https://example.com/sse", "httpUrl": "https://example.com/new"},
    ):
        server, _ = load_entry(tmp_path, entry)
        assert (server.kind, server.url) == ("http", "https://example.com/new")


def test_codex_keys(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        mcp_servers:
          web:
            url: https://example.com/mcp
            bearer_token_env_var: TOKEN
            http_headers: {X-Region: eu}
            env_http_headers: {X-Org: ORG}
            startup_timeout_sec: 5
            tool_timeout_sec: 90
            enabled_tools: [a]
            disabled_tools: [b]
            required: true
          local: {command: x, env_vars: [HTTPS_PROXY], enabled: false, startup_timeout_ms: 20000}
        """,
        "codex.yaml",
        {"TOKEN": "t", "ORG": "o"},
    )
    web, local = loaded.config.servers.values()
    assert web.headers == {"Authorization": "Bearer t", "X-Region": "eu", "X-Org": "o"}
    assert (web.timeouts.start_s, web.timeouts.call_s) == (5, 90)
    assert (web.tools.allow, web.tools.deny) == (("a",), ("b",))
    assert (local.inherit_env, local.disabled, local.timeouts.start_s) == (
        ("HTTPS_PROXY",),
        True,
        20,
    )


def test_zed(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        {
          // Zed settings
          "theme": "One Dark",
          "profiles": {"Presenting": {"theme": "Light"}},
          "context_servers": {
            "new": {"source": "custom", "enabled": true, "command": "x", "args": ["a"], "env": {"K": "v"}},
            "old": {"command": {"path": "y", "args": ["b"], "env": null}, "settings": {}},
            "extension": {"source": "extension", "settings": {"token": "t"}}
          }
        }
        """,  # noqa: E501
        "settings.json",
    )
    new, old, extension = loaded.config.servers.values()
    assert (new.command, new.args, new.env) == ("x", ("a",), {"K": "v"})
    assert (old.command, old.args) == ("y", ("b",))
    assert extension.problem == "its entry has neither command nor url"


def test_opencode(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        {"$schema": "https://example.com/config.json", "model": "x", "mcp": {
          "local": {"type": "local", "command": ["npx", "-y", "server"], "environment": {"A": "1"}, "enabled": false},
          "remote": {"type": "remote", "url": "https://example.com/mcp", "oauth": {}, "timeout": 5000}
        }}
        """,  # noqa: E501
        "opencode.jsonc",
    )
    local, remote = loaded.config.servers.values()
    assert (local.command, local.args, local.env, local.disabled) == (
        "npx",
        ("-y", "server"),
        {"A": "1"},
        True,
    )
    assert (remote.kind, remote.timeouts.call_s) == ("http", 5)


def test_continue_writes_a_list(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        name: My assistant
        version: 1.0.0
        schema: v1
        mcpServers:
          - name: SQLite DB
            command: uvx
            args: [mcp-server-sqlite]
            connectionTimeout: 8000
          - name: Remote
            type: streamable-http
            url: https://example.com/mcp
            requestOptions: {headers: {Authorization: Bearer x}, timeout: 5}
        """,
        "config.yaml",
    )
    sqlite, remote = loaded.config.servers["SQLite_DB"], loaded.config.servers["Remote"]
    assert (sqlite.title, sqlite.timeouts.start_s) == ("SQLite DB", 8)
    assert remote.headers == {"Authorization": "Bearer x"}


def test_librechat(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        """
        version: 1.2.8
        endpoints: {}
        mcpServers:
          things:
            type: streamable-http
            url: https://example.com/mcp
            title: Things
            description: Does things.
            initTimeout: 10000
            serverInstructions: true
            chatMenu: false
            iconPath: /a.svg
        """,
        "librechat.yaml",
    )
    server = loaded.config.servers["things"]
    assert (server.title, server.description, server.timeouts.start_s) == (
        "Things",
        "Does things.",
        10,
    )


def test_an_unknown_key_is_left_out_with_a_warning(tmp_path: Path):
    server, warnings = load_entry(tmp_path, {"command": "x", "quantumMode": True})
    assert server.is_usable
    assert "only its client uses: quantumMode" in warnings


def test_a_misspelling_is_a_mistake_in_a_clients_file_too(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, '{\n "mcpServers": {\n  "a": {\n   "comand": "x"\n  }\n }\n}')
    assert str(caught.value).startswith(
        ".mcp.json:4: servers.a.comand: there is no such key\nDid you mean command?"
    )


def test_in_our_own_file_clients_keys_work_and_unknown_ones_are_mistakes(tmp_path: Path):
    loaded = load_text(
        tmp_path,
        "mcpServers: {a: {command: x, autoApprove: [b], timeout: 5000, enabled: false}}",
        "portico.yaml",
    )
    assert (loaded.config.servers["a"].timeouts.call_s, loaded.config.servers["a"].disabled) == (
        5,
        True,
    )
    with pytest.raises(ConfigError, match="quantumMode: there is no such key"):
        load_text(tmp_path, "mcpServers: {a: {command: x, quantumMode: true}}", "portico.yaml")
    with pytest.raises(ConfigError, match="theme: there is no such key"):
        load_text(tmp_path, "theme: dark\nmcpServers: {a: {command: x}}", "portico.yaml")


def test_a_key_of_ours_beside_the_servers_makes_the_file_ours(tmp_path: Path):
    with pytest.raises(ConfigError, match="exposre: there is no such key"):
        load_text(tmp_path, '{"mcpServers": {}, "exposre": "full", "pins": []}', "gateway.json")


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "portico", "args": ["stdio"]},
        {"command": "/usr/local/bin/portico", "args": ["stdio"]},
        {"command": "C:\\tools\\portico.exe"},
        {"command": "uvx", "args": ["portico-mcp", "stdio"]},
        {"command": "uvx", "args": ["--from", "portico-mcp[tokens]", "portico", "stdio"]},
        {"command": "python3", "args": ["-m", "portico", "stdio"]},
    ],
)
def test_portico_never_starts_itself_inside_itself(tmp_path: Path, entry: dict[str, Any]):
    text = json.dumps(
        {"mcpServers": {"gateway": entry, "portico": {"url": "http://127.0.0.1:8420/mcp"}}}
    )
    loaded = load_text(tmp_path, text)
    assert loaded.config.servers == {}
    assert [warning.message for warning in loaded.warnings] == [
        "left out: it is Portico itself"
    ] * 2


def test_remarks_are_no_servers_and_no_keys(tmp_path: Path):
    text = """{"//": "mine", "_comment": "x", "mcpServers": {
      "_comment": "servers follow", "_private": {"command": "x", "//": "why", "x-note": 1}}}"""
    for name in (".mcp.json", "portico.json"):
        assert list(load_text(tmp_path, text, name).config.servers) == ["_private"]


def test_nulls_count_as_absent(tmp_path: Path):
    server, _ = load_entry(
        tmp_path,
        {
            "command": "x",
            "args": None,
            "env": None,
            "headers": None,
            "url": None,
            "cwd": None,
            "timeout": None,
        },
    )
    assert server == BackendConfig(command="x")


@pytest.mark.parametrize(
    ("given", "seconds"), [(30, 30), (999, 999), (1000, 1), (60_000, 60), ("45", 45)]
)
def test_a_timeout_from_one_thousand_on_is_in_milliseconds(
    tmp_path: Path, given: Any, seconds: float
):
    assert load_entry(tmp_path, {"command": "x", "timeout": given})[0].timeouts.call_s == seconds


def test_our_own_timeouts_win_over_a_clients(tmp_path: Path):
    server, _ = load_entry(tmp_path, {"command": "x", "timeouts": {"call_s": 7}, "timeout": 5000})
    assert server.timeouts.call_s == 7


def test_an_entry_with_a_command_and_an_address_follows_its_type(tmp_path: Path):
    server, warnings = load_entry(
        tmp_path, {"type": "stdio", "command": "x", "url": "https://example.com"}
    )
    assert (server.command, server.url) == ("x", None)
    assert "url: left out, command is used" in warnings
    assert load_entry(tmp_path, {"command": "x", "url": "https://example.com"})[0].kind == "http"
