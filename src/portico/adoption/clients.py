"""The supported clients, as data: the format of their entries, and the exposure that suits them.

Taken from the documentation and source of each, November 2026. Opens no file.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from portico.adoption.config_locations import (
    ClientConfigLocation,
    UserEnvironment,
    list_client_locations,
)
from portico.config import Exposure
from portico.config_file.names import find_nearest
from portico.errors import UnknownName

__all__ = ["Client", "ClientConfigLocation", "find_client", "list_clients", "list_locations"]


@dataclass(frozen=True)
class Client:
    """A program that uses MCP servers."""

    name: str
    title: str
    exposure_reason: str
    """Why the exposure suits it."""
    reload_advice: str
    """How to make it read its file again."""
    exposure: Exposure = "meta"
    stdio_type: str | None = None
    """The `type` of a stdio entry, if the client needs one."""
    http_type: str | None = None
    url_key: str | None = "url"
    """Its key for a URL; None if its file cannot hold one."""
    bearer_template: str | None = None
    """The header value with a token from the environment; None if unsupported."""
    url_advice: str = ""
    """The alternative if its file cannot hold a URL."""
    is_shell_program: bool = False
    """Whether it is started in a terminal, and so has the PATH of a shell."""


_CLIENTS = (
    Client(
        "claude-desktop",
        "Claude Desktop",
        "it puts every tool it is given into every chat",
        "Quit Claude Desktop, also from the menu bar or tray, and start it again.",
        url_key=None,
        url_advice=(
            "Leave --url out: it then starts `portico stdio` itself. Addresses go to its "
            "Settings, Connectors."
        ),
    ),
    Client(
        "claude-code",
        "Claude Code",
        "it defers tools itself, but keeps these at hand: they are marked anthropic/alwaysLoad, "
        "so nothing is searched twice",
        "Start a new session, or type /mcp in one.",
        stdio_type="stdio",
        http_type="http",
        bearer_template="Bearer ${PORTICO_TOKEN}",
        is_shell_program=True,
    ),
    Client(
        "cursor",
        "Cursor",
        "it has a limit of about 40 tools over all servers",
        "Cursor sees the change by itself; switch portico on in its MCP settings if it asks.",
        bearer_template="Bearer ${env:PORTICO_TOKEN}",
    ),
    Client(
        "vscode",
        "VS Code",
        "it sends at most 128 tools with a request, and groups them from 64",
        "Open the file in VS Code and press Start above the entry, or run MCP: List Servers.",
        stdio_type="stdio",
        http_type="http",
        bearer_template="Bearer ${env:PORTICO_TOKEN}",
    ),
    Client(
        "windsurf",
        "Windsurf",
        "it has a limit of 100 tools over all servers",
        "Press Refresh in Cascade's MCP panel.",
        url_key="serverUrl",
        bearer_template="Bearer ${env:PORTICO_TOKEN}",
    ),
    Client(
        "codex",
        "Codex",
        "it may defer tools, but reads the list only once, and sends all of it with models "
        "that cannot search",
        "Start a new session.",
        bearer_template="PORTICO_TOKEN",
        is_shell_program=True,
    ),
    Client(
        "gemini",
        "Gemini CLI",
        "it sends every tool with every request",
        "Start a new session, or type /mcp refresh in one.",
        url_key="httpUrl",
        bearer_template="Bearer $PORTICO_TOKEN",
        is_shell_program=True,
    ),
    Client(
        "zed",
        "Zed",
        "it sends every tool with every request",
        "Zed sees the change by itself.",
    ),
    Client(
        "cline",
        "Cline",
        "it writes every tool into its system prompt",
        "Cline sees the change by itself.",
        http_type="streamableHttp",
    ),
)


def list_clients() -> tuple[Client, ...]:
    """Return every supported client."""
    return _CLIENTS


def find_client(name: str) -> Client:
    """Return the client of this name, ignoring case and separators; raises UnknownName."""
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    for known in _CLIENTS:
        if key in (known.name, known.title.lower().replace(" ", "-")):
            return known
    names = [known.name for known in _CLIENTS]
    near = find_nearest(key, names)
    if near:
        advice = f"Did you mean {' or '.join(near)}?"
    else:
        advice = f"There are {', '.join(names)}."
    raise UnknownName(f"no client is named {name!r} here", nearest=near, advice=advice)


def list_locations(
    client: Client,
    home: Path,
    cwd: Path,
    platform: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
) -> tuple[ClientConfigLocation, ...]:
    """Return the files that a client reads, in order of preference within a scope."""
    return list_client_locations(client.name, UserEnvironment(home, cwd, platform, environ))
