"""Where clients keep their servers, on macOS, Linux and Windows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Scope = Literal["user", "project", "local"]
"""Everywhere; in this folder, for everybody who has it; in this folder, for this person only (Claude Code)."""


@dataclass(frozen=True)
class Place:
    """One file a client may read."""

    scope: Scope
    path: Path
    format: Literal["json", "toml"]
    """`json` is JSON as editors write it, comments and all."""
    keys: tuple[str, ...]
    """Where its server map is."""
    legacy: bool = False
    """Read by older versions only, or no longer written: worth reading, not worth writing."""


@dataclass(frozen=True)
class Surroundings:
    """What decides where a file is."""

    home: Path
    cwd: Path
    platform: str
    environ: Mapping[str, str]

    def named(self, variable: str, otherwise: Path) -> Path:
        """The folder a variable names. A relative one means nothing, as the XDG specification has it."""
        text = self.environ.get(variable, "").strip()
        path = Path(text) if text else otherwise
        if text.startswith("~"):
            path = self.home / text[1:].lstrip("/\\")
        return path if path.is_absolute() else otherwise

    @property
    def settings(self) -> Path:
        """Where programs keep their settings: Application Support, roaming AppData or ~/.config."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.roaming if self.platform == "win32" else self.xdg

    @property
    def roaming(self) -> Path:
        return self.named("APPDATA", self.home / "AppData" / "Roaming")

    @property
    def local(self) -> Path:
        return self.named("LOCALAPPDATA", self.home / "AppData" / "Local")

    @property
    def xdg(self) -> Path:
        return self.named("XDG_CONFIG_HOME", self.home / ".config")


_SERVERS = ("mcpServers",)
_CODES = ("Code", "Code - Insiders", "VSCodium")


def places_of(name: str, around: Surroundings) -> tuple[Place, ...]:
    """The places of the client of this name."""
    return tuple(_PLACES[name](around))


def _claude_desktop(around: Surroundings) -> Iterator[Place]:
    file = Path("Claude", "claude_desktop_config.json")
    plain = around.settings / file
    if around.platform == "win32":
        # The packaged app, which is what the download has been since 2026, sees its own copy of the roaming folder.
        for package in sorted((around.local / "Packages").glob("Claude_*")):
            yield Place("user", package / "LocalCache" / "Roaming" / file, "json", _SERVERS)
    yield Place("user", plain, "json", _SERVERS)


def _claude_code(around: Surroundings) -> Iterator[Place]:
    file = around.named("CLAUDE_CONFIG_DIR", around.home) / ".claude.json"
    yield Place("user", file, "json", _SERVERS)
    yield Place("local", file, "json", ("projects", _project_key(around), "mcpServers"))
    yield Place("project", around.cwd / ".mcp.json", "json", _SERVERS)


def _project_key(around: Surroundings) -> str:
    folder = str(around.cwd)
    return folder.replace("\\", "/") if around.platform == "win32" else folder


def _cursor(around: Surroundings) -> Iterator[Place]:
    yield Place("user", around.home / ".cursor" / "mcp.json", "json", _SERVERS)
    yield Place("project", around.cwd / ".cursor" / "mcp.json", "json", _SERVERS)


def _vscode(around: Surroundings) -> Iterator[Place]:
    for code in _CODES:
        yield Place("user", around.settings / code / "User" / "mcp.json", "json", ("servers",))
    for code in _CODES:
        yield Place("user", around.settings / code / "User" / "settings.json", "json", ("mcp", "servers"), legacy=True)
    yield Place("project", around.cwd / ".vscode" / "mcp.json", "json", ("servers",))
    yield Place("project", around.cwd / ".vscode" / "settings.json", "json", ("mcp", "servers"), legacy=True)


def _windsurf(around: Surroundings) -> Iterator[Place]:
    codeium = around.home / ".codeium"
    yield Place("user", codeium / "windsurf" / "mcp_config.json", "json", _SERVERS)
    yield Place("user", codeium / "windsurf-next" / "mcp_config.json", "json", _SERVERS)
    # The plugin for other editors.
    yield Place("user", codeium / "mcp_config.json", "json", _SERVERS)


def _codex(around: Surroundings) -> Iterator[Place]:
    home = around.named("CODEX_HOME", around.home / ".codex")
    yield Place("user", home / "config.toml", "toml", ("mcp_servers",))
    yield Place("project", around.cwd / ".codex" / "config.toml", "toml", ("mcp_servers",))


def _gemini(around: Surroundings) -> Iterator[Place]:
    home = around.named("GEMINI_CLI_HOME", around.home)
    yield Place("user", home / ".gemini" / "settings.json", "json", _SERVERS)
    yield Place("project", around.cwd / ".gemini" / "settings.json", "json", _SERVERS)


def _zed(around: Surroundings) -> Iterator[Place]:
    if around.platform == "win32":
        folder = around.roaming / "Zed"
    elif around.platform == "darwin":
        folder = around.home / ".config" / "zed"
    else:
        folder = around.named("FLATPAK_XDG_CONFIG_HOME", around.xdg) / "zed"
    yield Place("user", folder / "settings.json", "json", ("context_servers",))
    yield Place("project", around.cwd / ".zed" / "settings.json", "json", ("context_servers",))


def _cline(around: Surroundings) -> Iterator[Place]:
    file = Path("settings", "cline_mcp_settings.json")
    named = around.environ.get("CLINE_MCP_SETTINGS_PATH", "").strip()
    if named and Path(named).is_absolute():
        yield Place("user", Path(named), "json", _SERVERS)
    data = around.named("CLINE_DATA_DIR", around.named("CLINE_DIR", around.home / ".cline") / "data")
    yield Place("user", data / file, "json", _SERVERS)
    # Extensions of before 2026 kept it with the editor.
    for code in (*_CODES, "Cursor", "Windsurf"):
        yield Place(
            "user",
            around.settings / code / "User" / "globalStorage" / "saoudrizwan.claude-dev" / file,
            "json",
            _SERVERS,
        )


_PLACES: Mapping[str, Callable[[Surroundings], Iterator[Place]]] = {
    "claude-desktop": _claude_desktop,
    "claude-code": _claude_code,
    "cursor": _cursor,
    "vscode": _vscode,
    "windsurf": _windsurf,
    "codex": _codex,
    "gemini": _gemini,
    "zed": _zed,
    "cline": _cline,
}
