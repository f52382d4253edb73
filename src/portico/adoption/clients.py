"""The clients, as data: how each writes a server down, what suits it, and which files it reads.

Read off the documentation and source of each, November 2026. Nothing here opens a file.
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
    """A program that has MCP servers."""

    name: str
    title: str
    exposure_reason: str
    """Why the exposure suits it."""
    reload_advice: str
    """What makes it read its file again."""
    exposure: Exposure = "meta"
    stdio_type: str | None = None
    """What `type` says of a server that is started, where the client wants it said."""
    http_type: str | None = None
    url_key: str | None = "url"
    """What it calls an address; None where its file takes none."""
    bearer_template: str | None = None
    """How it writes a bearer token from the environment; None where it has no way."""
    url_advice: str = ""
    """What to do instead where its file takes no address."""
    is_shell_program: bool = False
    """Whether a person starts it in a terminal, so that it has the PATH of one."""


_CLIENTS = (
    Client(
        "claude-desktop",
        "Claude Desktop",
        "it puts every tool it is given into every chat",
        "Quit Claude Desktop, also from the menu bar or tray, and start it again.",
        url_key=None,
        url_advice="Leave --url out: it then starts `portico stdio` itself. Addresses go to its Settings, Connectors.",
    ),
    Client(
        "claude-code",
        "Claude Code",
        "it defers tools itself, but keeps these at hand: they are marked anthropic/alwaysLoad, so nothing is searched "
        "twice",
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
        "it may defer tools, but reads the list only once, and sends all of it with models that cannot search",
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
    """Every client that is known here."""
    return _CLIENTS


def find_client(name: str) -> Client:
    """The client of this name, however it is cased or spaced."""
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    for known in _CLIENTS:
        if wanted in (known.name, known.title.lower().replace(" ", "-")):
            return known
    names = [known.name for known in _CLIENTS]
    near = find_nearest(wanted, names)
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
    """The files that a client reads, in the order in which they are preferred within a scope."""
    return list_client_locations(client.name, UserEnvironment(home, cwd, platform, environ))
