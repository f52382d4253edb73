"""Shell completion: names of servers, tools, profiles, clients and languages, found in moments.

`portico complete KIND` prints them. It reads the configuration's keys and the manifest, and imports
nothing of the gateway. The shells expand what they get, so only harmless names are printed.
"""

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

_HARMLESS_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]*")
_FILES = ("portico.yaml", "portico.yml", ".mcp.json")
_SERVER_MAPS = ("servers", "mcpServers", "mcp_servers", "context_servers")
_MAX_CONFIG_BYTES = 1 << 20
_CLIENTS = (
    *("claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "codex", "gemini"),
    *("zed", "cline"),
)
_LANGUAGES = ("python", "javascript", "typescript", "lua")

BASH_NAMES = """
_portico_names() {
  local cur="${COMP_WORDS[COMP_CWORD]}" kind=""
  case "${COMP_WORDS[COMP_CWORD-1]}" in
    --server|-s|restart|remove|rename|logs) kind=servers ;;
    --profile|-p) kind=profiles ;;
    --tool|call|describe) kind=tools ;;
    enable|disable) kind=all ;;
    install|uninstall) kind=clients ;;
  esac
  if [[ -n $kind && $cur != -* ]]; then
    COMPREPLY=($(compgen -W "$(portico complete "$kind" 2>/dev/null)" -- "$cur"))
  else
    _portico "$@"
  fi
}
complete -F _portico_names portico
"""
ZSH_NAMES = """
_portico_names() {
  local kind=""
  case "${words[CURRENT-1]}" in
    --server|-s|restart|remove|rename|logs) kind=servers ;;
    --profile|-p) kind=profiles ;;
    --tool|call|describe) kind=tools ;;
    enable|disable) kind=all ;;
    install|uninstall) kind=clients ;;
  esac
  if [[ -n $kind && "${words[CURRENT]}" != -* ]]; then
    local -a names
    names=("${(@f)$(portico complete $kind 2>/dev/null)}")
    compadd -a names
  else
    _cyclopts_portico "$@"
  fi
}
if [[ "${funcstack[1]}" == _portico ]]; then
  _portico_names "$@"
elif (( $+functions[compdef] )); then
  compdef _portico_names portico
fi
"""
FISH_NAMES = """
set -l portico_seen '__fish_seen_subcommand_from'
complete -c portico -f -n "$portico_seen restart remove rename logs" -a '(portico complete servers)'
complete -c portico -f -n "$portico_seen call describe" -a '(portico complete tools)'
complete -c portico -f -n "$portico_seen enable disable" -a '(portico complete all)'
complete -c portico -f -n "$portico_seen install uninstall" -a '(portico complete clients)'
complete -c portico -x -s s -l server -a '(portico complete servers)'
complete -c portico -x -s p -l profile -a '(portico complete profiles)'
"""
NAMES_BY_SHELL = {"bash": BASH_NAMES, "zsh": ZSH_NAMES, "fish": FISH_NAMES}


def print_names(kind: str) -> None:
    """Print the names of a kind, one a line; nothing for an unknown one."""
    listed = NAME_LISTS.get(kind)
    if listed is None:
        return
    config = _read_config()
    names = dict.fromkeys(map(str, listed(config)))
    harmless = [name for name in names if _HARMLESS_NAME.fullmatch(name)]
    sys.stdout.write("".join(f"{name}\n" for name in harmless))


def _read_config() -> Mapping[str, Any]:
    """Return what the first configuration file says, unchecked; empty if there is none."""
    named = os.environ.get("PORTICO_CONFIG", "").split(os.pathsep)[0]
    paths = [Path(named).expanduser()] if named else [Path(name) for name in _FILES]
    if not any(path.is_file() for path in paths):
        import platformdirs

        paths = [platformdirs.user_config_path("portico", appauthor=False) / "portico.yaml"]
    try:
        path = next(path for path in paths if path.is_file())
        with path.open("rb") as file:
            text = file.read(_MAX_CONFIG_BYTES)
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (StopIteration, OSError, yaml.YAMLError, RecursionError):
        return {}
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    return {}


def _list_servers(config: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key in _SERVER_MAPS:
        servers = config.get(key)
        if isinstance(servers, dict):
            found += cast("dict[str, Any]", servers)
    return found


def _list_profiles(config: Mapping[str, Any]) -> Iterable[str]:
    profiles = config.get("profiles")
    if isinstance(profiles, dict):
        return cast("dict[str, Any]", profiles)
    return ()


def _list_tools(config: Mapping[str, Any]) -> list[str]:
    """Return the addresses of the tools that were listed last time."""
    folder = os.environ.get("PORTICO_DATA_DIR") or config.get("data_dir")
    if not isinstance(folder, str):
        import platformdirs

        folder = platformdirs.user_data_dir("portico", appauthor=False)
    path = Path(folder).expanduser().absolute() / "manifest.sqlite3"
    servers = set(_list_servers(config))
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as db:
            rows = db.execute("select server, name from tools order by server, position").fetchall()
    except sqlite3.Error:
        return []
    names = _read_new_names(config)
    return [
        f"{server}.{names.get((server, name), name)}"
        for server, name in rows
        if not servers or server in servers
    ]


def _read_new_names(config: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the names that the configuration gives to tools of servers."""
    found: dict[tuple[str, str], str] = {}
    for key in _SERVER_MAPS:
        for server, settings in _get_object(config, key).items():
            renamed = _get_object(_get_object({"": settings}, ""), "tools")
            for old, new in _get_object(renamed, "rename").items():
                found[server, old] = str(new)
    return found


def _get_object(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


NAME_LISTS: Mapping[str, Callable[[Mapping[str, Any]], Iterable[str]]] = {
    "servers": _list_servers,
    "profiles": _list_profiles,
    "tools": _list_tools,
    "all": lambda config: [*_list_servers(config), *_list_tools(config)],
    "clients": lambda config: _CLIENTS,
    "languages": lambda config: _LANGUAGES,
}
