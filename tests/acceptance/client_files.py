"""The files of the new user's nine clients: eleven files, each as its client writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.fleet import Raw, Started

DENIED = (
    "filesystem.write_file",
    "memory.delete_entities",
    "git.git_commit",
    "everything.get-tiny-image",
)
"""Tools that a rule of Claude Code, of Codex or of Gemini CLI refuses."""
CLAUDE_RULES: Raw = {
    "permissions": {
        "allow": ["Bash(ls:*)", "mcp__filesystem__read_text_file"],
        "deny": ["mcp__filesystem__write_file", "mcp__memory__delete_entities"],
        "ask": ["mcp__filesystem__move_file"],
    },
    "disabledMcpjsonServers": ["switched-off"],
}


@dataclass(frozen=True)
class ClientFiles:
    """Paths of all files, and what each held before Portico."""

    home: Path
    project: Path
    before: Mapping[Path, bytes]

    def find_changed(self) -> list[str]:
        """Files that are not byte for byte as they were."""
        return [
            str(path.relative_to(self.home))
            for path, content in self.before.items()
            if not path.is_file() or path.read_bytes() != content
        ]


def write_client_files(
    home: Path, project: Path, servers: Sequence[Started], model_url: str
) -> ClientFiles:
    """Write every file; `model_url` is the endpoint that Codex and Gemini CLI are to use."""
    entries = _Entries(servers)
    claude: Raw = {
        "numStartups": 3,
        "hasCompletedOnboarding": True,
        "mcpServers": entries.to_json("claude-user", typed=True),
        "projects": {
            str(project): {
                "mcpServers": entries.to_json("claude-local", typed=True),
                "hasTrustDialogAccepted": True,
                "enabledMcpjsonServers": sorted(entries.name_for("claude-project")),
            }
        },
    }
    off = {"command": "/nonexistent/switched-off"}
    shared: Raw = {"mcpServers": {**entries.to_json("claude-project"), "switched-off": off}}
    gemini: Raw = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "mcpServers": entries.to_json("gemini", url="httpUrl"),
    }
    gemini["mcpServers"]["everything"]["excludeTools"] = ["get-tiny-image"]
    code = {"inputs": [], "servers": entries.to_json("vscode", typed=True)}
    zed: Raw = {"theme": "One Dark", "context_servers": entries.to_json("zed")}
    texts = {
        home / ".claude.json": json.dumps(claude, indent=2),
        home / ".claude/settings.json": json.dumps(CLAUDE_RULES, indent=2) + "\n",
        project / ".mcp.json": json.dumps(shared, indent=2) + "\n",
        home / ".config/Claude/claude_desktop_config.json": _dump(entries, "claude-desktop"),
        home / ".cursor/mcp.json": _dump(entries, "cursor"),
        home / ".config/Code/User/mcp.json": _comment(json.dumps(code, indent="\t")),
        home / ".codex/config.toml": _write_codex(entries.select("codex"), model_url),
        home / ".gemini/settings.json": json.dumps(gemini, indent=2),
        home / ".codeium/windsurf/mcp_config.json": _dump(entries, "windsurf"),
        home / ".config/zed/settings.json": _comment(json.dumps(zed, indent=2)) + "\n",
        home / ".cline/data/settings/cline_mcp_settings.json": _dump(entries, "cline"),
    }
    before = {path: text.encode() for path, text in texts.items()}
    for path, content in before.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return ClientFiles(home, project, before)


class _Entries:
    """Entries of client files, by client."""

    def __init__(self, servers: Sequence[Started]) -> None:
        self._servers = servers

    def select(self, client: str) -> list[Started]:
        return [started for started in self._servers if client in started.server.clients]

    def name_for(self, client: str) -> list[str]:
        return [started.server.name for started in self.select(client)]

    def to_json(self, client: str, *, typed: bool = False, url: str = "url") -> Raw:
        """`mcpServers` as this client writes them."""
        entries: Raw = {}
        for started in self.select(client):
            entry: Raw = {}
            if typed:
                entry["type"] = "stdio" if started.url is None else "http"
            if started.url is not None:
                entry[url] = started.url
            else:
                entry |= {"command": started.command[0], "args": list(started.command[1:])}
            if started.env:
                entry["env"] = dict(started.env)
            entries[started.server.name] = entry
        return entries


def _dump(entries: _Entries, client: str) -> str:
    return json.dumps({"mcpServers": entries.to_json(client)}, indent=2) + "\n"


def _comment(text: str) -> str:
    return text.replace("{", "{\n  // mine, do not touch", 1)


def _write_codex(servers: Sequence[Started], model_url: str) -> str:
    """Codex' TOML; it passes on only the variables that are named to it."""
    lines = [
        "# my settings",
        'model = "scripted"',
        'model_provider = "loopback"   # no account',
        "[model_providers.loopback]",
        'name = "loopback"',
        f'base_url = "{model_url}/v1"',
        'wire_api = "responses"',
        'env_key = "SCRIPTED_KEY"',
        "",
    ]
    for started in servers:
        lines += [
            f"[mcp_servers.{started.server.name}]",
            f"command = {json.dumps(started.command[0])}",
            f"args = {json.dumps(list(started.command[1:]))}",
        ]
        if started.server.needs:
            lines.append(f"env_vars = {json.dumps(list(started.server.needs))}")
        if started.server.name == "git":
            lines.append('disabled_tools = ["git_commit"]')
        if started.env:
            pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in started.env.items())
            lines.append(f"env = {{ {pairs} }}")
        lines.append("")
    return "\n".join(lines)
