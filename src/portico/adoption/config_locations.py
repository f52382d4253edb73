"""Locations of clients' configuration files on macOS, Linux and Windows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ConfigScope = Literal["user", "project", "local"]
"""Everywhere; in this folder for everybody; in this folder for this user only (Claude Code)."""


@dataclass(frozen=True)
class ClientConfigLocation:
    """One file that a client may read."""

    scope: ConfigScope
    path: Path
    format: Literal["json", "toml"]
    """`json` is JSON as editors write it, with comments."""
    keys: tuple[str, ...]
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

    def resolve_folder(self, variable: str, default: Path) -> Path:
        """Return the folder a variable names; relative ones are ignored, as the XDG specification
        says.
        """
        text = self.environ.get(variable, "").strip()
        if text:
            path = Path(text)
        else:
            path = default
        if text.startswith("~"):
            path = self.home / text[1:].lstrip("/\\")
        if path.is_absolute():
            return path
        return default

    @property
    def settings_folder(self) -> Path:
        """The folder for settings of programs: Application Support, roaming AppData or
        ~/.config.
        """
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


_MCP_SERVERS = ("mcpServers",)
_VSCODE_VARIANTS = ("Code", "Code - Insiders", "VSCodium")


def list_client_locations(
    name: str, environment: UserEnvironment
) -> tuple[ClientConfigLocation, ...]:
    """Return the locations of the client of this name."""
    return tuple(_LOCATORS[name](environment))


def _locate_claude_desktop(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    file = Path("Claude", "claude_desktop_config.json")
    plain = environment.settings_folder / file
    if environment.platform == "win32":
        # The packaged app (the download since 2026) sees its own copy of the roaming folder.
        for package in sorted((environment.local_folder / "Packages").glob("Claude_*")):
            yield ClientConfigLocation(
                "user", package / "LocalCache" / "Roaming" / file, "json", _MCP_SERVERS
            )
    yield ClientConfigLocation("user", plain, "json", _MCP_SERVERS)


def _locate_claude_code(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    file = environment.resolve_folder("CLAUDE_CONFIG_DIR", environment.home) / ".claude.json"
    yield ClientConfigLocation("user", file, "json", _MCP_SERVERS)
    yield ClientConfigLocation(
        "local", file, "json", ("projects", _get_project_key(environment), "mcpServers")
    )
    yield ClientConfigLocation("project", environment.cwd / ".mcp.json", "json", _MCP_SERVERS)


def _get_project_key(environment: UserEnvironment) -> str:
    folder = str(environment.cwd)
    if environment.platform == "win32":
        return folder.replace("\\", "/")
    return folder


def _locate_cursor(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    yield ClientConfigLocation(
        "user", environment.home / ".cursor" / "mcp.json", "json", _MCP_SERVERS
    )
    yield ClientConfigLocation(
        "project", environment.cwd / ".cursor" / "mcp.json", "json", _MCP_SERVERS
    )


def _locate_vscode(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    for code in _VSCODE_VARIANTS:
        yield ClientConfigLocation(
            "user", environment.settings_folder / code / "User" / "mcp.json", "json", ("servers",)
        )
    for code in _VSCODE_VARIANTS:
        yield ClientConfigLocation(
            "user",
            environment.settings_folder / code / "User" / "settings.json",
            "json",
            ("mcp", "servers"),
            legacy=True,
        )
    yield ClientConfigLocation(
        "project", environment.cwd / ".vscode" / "mcp.json", "json", ("servers",)
    )
    yield ClientConfigLocation(
        "project",
        environment.cwd / ".vscode" / "settings.json",
        "json",
        ("mcp", "servers"),
        legacy=True,
    )


def _locate_windsurf(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    codeium = environment.home / ".codeium"
    yield ClientConfigLocation(
        "user", codeium / "windsurf" / "mcp_config.json", "json", _MCP_SERVERS
    )
    yield ClientConfigLocation(
        "user", codeium / "windsurf-next" / "mcp_config.json", "json", _MCP_SERVERS
    )
    # The plugin for other editors.
    yield ClientConfigLocation("user", codeium / "mcp_config.json", "json", _MCP_SERVERS)


def _locate_codex(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    home = environment.resolve_folder("CODEX_HOME", environment.home / ".codex")
    yield ClientConfigLocation("user", home / "config.toml", "toml", ("mcp_servers",))
    yield ClientConfigLocation(
        "project", environment.cwd / ".codex" / "config.toml", "toml", ("mcp_servers",)
    )


def _locate_gemini(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    home = environment.resolve_folder("GEMINI_CLI_HOME", environment.home)
    yield ClientConfigLocation("user", home / ".gemini" / "settings.json", "json", _MCP_SERVERS)
    yield ClientConfigLocation(
        "project", environment.cwd / ".gemini" / "settings.json", "json", _MCP_SERVERS
    )


def _locate_zed(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    if environment.platform == "win32":
        folder = environment.roaming_folder / "Zed"
    elif environment.platform == "darwin":
        folder = environment.home / ".config" / "zed"
    else:
        folder = (
            environment.resolve_folder("FLATPAK_XDG_CONFIG_HOME", environment.xdg_folder) / "zed"
        )
    yield ClientConfigLocation("user", folder / "settings.json", "json", ("context_servers",))
    yield ClientConfigLocation(
        "project", environment.cwd / ".zed" / "settings.json", "json", ("context_servers",)
    )


def _locate_cline(environment: UserEnvironment) -> Iterator[ClientConfigLocation]:
    file = Path("settings", "cline_mcp_settings.json")
    named = environment.environ.get("CLINE_MCP_SETTINGS_PATH", "").strip()
    if named and Path(named).is_absolute():
        yield ClientConfigLocation("user", Path(named), "json", _MCP_SERVERS)
    data = environment.resolve_folder(
        "CLINE_DATA_DIR",
        environment.resolve_folder("CLINE_DIR", environment.home / ".cline") / "data",
    )
    yield ClientConfigLocation("user", data / file, "json", _MCP_SERVERS)
    # Extensions before 2026 stored it in the editor's folder.
    for code in (*_VSCODE_VARIANTS, "Cursor", "Windsurf"):
        yield ClientConfigLocation(
            "user",
            environment.settings_folder
            / code
            / "User"
            / "globalStorage"
            / "saoudrizwan.claude-dev"
            / file,
            "json",
            _MCP_SERVERS,
        )


_LOCATORS: Mapping[str, Callable[[UserEnvironment], Iterator[ClientConfigLocation]]] = {
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
