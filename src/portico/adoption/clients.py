"""The supported clients, as data: formats and locations of their files, and the exposure that suits
them.

Taken from the documentation and source of each, November 2026. Opens no file.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from portico.config import Exposure
from portico.config_file.names import find_nearest
from portico.errors import UnknownName

ConfigScope = Literal["user", "project", "local"]
"""Everywhere; in this folder for everybody; in this folder for this user only (Claude Code)."""
__all__ = ["Client", "ClientConfigLocation", "find_client", "list_clients", "list_locations"]


@dataclass(frozen=True)
class ClientConfigLocation:
    """One file that a client may read."""

    scope: ConfigScope
    path: Path
    format: Literal["json", "toml"] = "json"
    """`json` is JSON as editors write it, with comments."""
    keys: tuple[str, ...] = ("mcpServers",)
    """The path to its server map."""
    legacy: bool = False
    """Read by older versions only, or no longer written: it is read but never written."""


@dataclass(frozen=True)
class UserEnvironment:
    """The user, folder and platform that locations depend on."""

    home: Path
    cwd: Path
    platform: str
    environ: Mapping[str, str]
    system: Path = Path("/")
    """The folder above those of the system, whose settings are an administrator's."""

    def resolve_folder(self, variable: str, default: Path) -> Path:
        """Return the folder a variable names. Relative ones are ignored, as XDG says."""
        text = self.environ.get(variable, "").strip()
        path = Path(text)
        if text.startswith("~"):
            path = self.home / text[1:].lstrip("/\\")
        if path.is_absolute():
            return path
        return default

    @property
    def project_key(self) -> str:
        """The current folder as Claude Code writes it."""
        if self.platform == "win32":
            return str(self.cwd).replace("\\", "/")
        return str(self.cwd)

    @property
    def settings_folder(self) -> Path:
        """The folder for settings: Application Support, roaming AppData or ~/.config."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.roaming_folder
        return self.xdg_folder

    @property
    def roaming_folder(self) -> Path:
        return self.resolve_folder("APPDATA", self.home / "AppData" / "Roaming")

    @property
    def local_folder(self) -> Path:
        return self.resolve_folder("LOCALAPPDATA", self.home / "AppData" / "Local")

    @property
    def xdg_folder(self) -> Path:
        return self.resolve_folder("XDG_CONFIG_HOME", self.home / ".config")


_VSCODE_VARIANTS = ("Code", "Code - Insiders", "VSCodium")
Locations = Iterator[ClientConfigLocation]


def list_client_locations(
    name: str, environment: UserEnvironment, other_projects: Iterable[str] = ()
) -> tuple[ClientConfigLocation, ...]:
    """Return the locations of the client of this name, for Claude Code also of other folders."""
    found = list(_LOCATORS[name](environment))
    if name == "claude-code":
        file = get_claude_state_file(environment)
        found += [_local(file, project) for project in other_projects]
    return tuple(found)


def list_other_projects(environment: UserEnvironment) -> dict[str, list[str]]:
    """Return the other folders in which Claude Code has servers of this user alone, and which."""
    try:
        document: Any = json.loads(get_claude_state_file(environment).read_bytes())
        projects = document["projects"].items()
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}  # discovery reports a file that cannot be read
    found = {
        str(project): [str(name) for name in value["mcpServers"]]
        for project, value in projects
        if isinstance(value, dict) and isinstance(value.get("mcpServers"), dict)
    }
    return {
        project: names
        for project, names in found.items()
        if names and project != environment.project_key
    }


def _user(path: Path, *keys: str) -> ClientConfigLocation:
    return ClientConfigLocation("user", path, keys=keys or ("mcpServers",))


def _project(path: Path, *keys: str) -> ClientConfigLocation:
    return ClientConfigLocation("project", path, keys=keys or ("mcpServers",))


def _locate_claude_desktop(env: UserEnvironment) -> Locations:
    file = Path("Claude", "claude_desktop_config.json")
    if env.platform == "win32":
        # The packaged app (the download since 2026) sees its own copy of the roaming folder.
        for package in sorted((env.local_folder / "Packages").glob("Claude_*")):
            yield _user(package / "LocalCache" / "Roaming" / file)
    yield _user(env.settings_folder / file)


def get_claude_state_file(env: UserEnvironment) -> Path:
    """Return the file that Claude Code keeps servers and the state of folders in."""
    return env.resolve_folder("CLAUDE_CONFIG_DIR", env.home) / ".claude.json"


def _local(path: Path, project: str) -> ClientConfigLocation:
    return ClientConfigLocation("local", path, keys=("projects", project, "mcpServers"))


def _locate_claude_code(env: UserEnvironment) -> Locations:
    file = get_claude_state_file(env)
    yield _user(file)
    yield _local(file, env.project_key)
    yield _project(env.cwd / ".mcp.json")


def _locate_cursor(env: UserEnvironment) -> Locations:
    yield _user(env.home / ".cursor" / "mcp.json")
    yield _project(env.cwd / ".cursor" / "mcp.json")


def _locate_vscode(env: UserEnvironment) -> Locations:
    folders = [env.settings_folder / variant / "User" for variant in _VSCODE_VARIANTS]
    legacy_keys = ("mcp", "servers")
    for folder in folders:
        yield _user(folder / "mcp.json", "servers")
    for folder in folders:
        yield replace(_user(folder / "settings.json", *legacy_keys), legacy=True)
    project = env.cwd / ".vscode"
    yield _project(project / "mcp.json", "servers")
    yield replace(_project(project / "settings.json", *legacy_keys), legacy=True)


def _locate_windsurf(env: UserEnvironment) -> Locations:
    # The last one is that of the plugin for other editors.
    for folder in ("windsurf", "windsurf-next", "."):
        yield _user(env.home / ".codeium" / folder / "mcp_config.json")


def _locate_codex(env: UserEnvironment) -> Locations:
    home = env.resolve_folder("CODEX_HOME", env.home / ".codex")
    for location in (_user(home / "config.toml"), _project(env.cwd / ".codex" / "config.toml")):
        yield replace(location, format="toml", keys=("mcp_servers",))


def _locate_gemini(env: UserEnvironment) -> Locations:
    home = env.resolve_folder("GEMINI_CLI_HOME", env.home)
    yield _user(home / ".gemini" / "settings.json")
    yield _project(env.cwd / ".gemini" / "settings.json")


def _locate_zed(env: UserEnvironment) -> Locations:
    folder = env.resolve_folder("FLATPAK_XDG_CONFIG_HOME", env.xdg_folder) / "zed"
    if env.platform == "win32":
        folder = env.roaming_folder / "Zed"
    elif env.platform == "darwin":
        folder = env.home / ".config" / "zed"
    yield _user(folder / "settings.json", "context_servers")
    yield _project(env.cwd / ".zed" / "settings.json", "context_servers")


def _locate_cline(env: UserEnvironment) -> Locations:
    file = Path("settings", "cline_mcp_settings.json")
    named = Path(env.environ.get("CLINE_MCP_SETTINGS_PATH", "").strip())
    if named.is_absolute():
        yield _user(named)
    default = env.resolve_folder("CLINE_DIR", env.home / ".cline") / "data"
    yield _user(env.resolve_folder("CLINE_DATA_DIR", default) / file)
    # Extensions before 2026 stored it in the editor's folder.
    extension = Path("User", "globalStorage", "saoudrizwan.claude-dev")
    for editor in (*_VSCODE_VARIANTS, "Cursor", "Windsurf"):
        yield _user(env.settings_folder / editor / extension / file)


_LOCATORS: Mapping[str, Callable[[UserEnvironment], Locations]] = {
    "claude-desktop": _locate_claude_desktop,
    "claude-code": _locate_claude_code,
    "cursor": _locate_cursor,
    "vscode": _locate_vscode,
    "windsurf": _locate_windsurf,
    "codex": _locate_codex,
    "gemini": _locate_gemini,
    "zed": _locate_zed,
    "cline": _locate_cline,
}


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
    """Whether it is started in a terminal, and so has the variables of a shell."""
    names_variables: Literal["", "env_vars", "env"] = ""
    """Where its entry names variables that it would otherwise keep from a server: Codex passes on a
    short list, Gemini CLI leaves out what looks secret, certificates among it. Claude Code passes
    on everything; programs of a desktop do not have a shell's variables."""


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
        names_variables="env_vars",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        "it sends every tool with every request",
        "Start a new session, or type /mcp refresh in one.",
        url_key="httpUrl",
        bearer_template="Bearer $PORTICO_TOKEN",
        is_shell_program=True,
        names_variables="env",
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
    return _CLIENTS


def find_client(name: str) -> Client:
    """Return the client of this name, ignoring case and separators; raises UnknownName for
    another, and for none."""
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    for known in _CLIENTS:
        if key in (known.name, known.title.lower().replace(" ", "-")):
            return known
    names = [known.name for known in _CLIENTS]
    if not key:
        raise UnknownName("name the client", advice=f"It is one of {', '.join(names)}.")
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
