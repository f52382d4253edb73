"""Where configuration and data are unless somebody says otherwise. Standard library only.

Commands that only ask a running gateway import this and little else, so it uses neither `pathlib`
nor `typing`, and `platformdirs` only where its answer is not one line.
"""

import os
import sys

# Type checkers know this name; importing `typing` would cost more than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_NAMES = ("portico.yaml", "portico.yml", ".mcp.json")
"""Configuration files of a project, in the order in which they are looked for."""


def find_config_files(environ: "Mapping[str, str]", folder: str) -> list[str]:
    """Return the default files: $PORTICO_CONFIG, else the first standard one that exists."""
    named = environ.get("PORTICO_CONFIG")
    if named:
        return [part for part in named.split(os.pathsep) if part]
    for name in CONFIG_NAMES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return [path]
    path = get_user_config(environ)
    return [path] if os.path.isfile(path) else []


def get_user_config(environ: "Mapping[str, str]") -> str:
    """Return the path of this user's configuration, whether or not it exists."""
    return os.path.join(get_user_folder("config", environ), "portico.yaml")


def get_data_folder(environ: "Mapping[str, str]") -> str:
    """Return the folder of this user's data: $PORTICO_DATA_DIR, else that of the platform."""
    named = environ.get("PORTICO_DATA_DIR", "").strip()
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return get_user_folder("data", environ)


def get_user_folder(kind: str, environ: "Mapping[str, str]") -> str:
    """Return the folder of this user's `config` or `data` on this platform."""
    if sys.platform == "linux":
        default = {"config": "~/.config", "data": "~/.local/share"}[kind]
        base = environ.get(f"XDG_{kind.upper()}_HOME", "").strip()
        return os.path.join(base or os.path.expanduser(default), "portico")
    import platformdirs

    if kind == "config":
        return platformdirs.user_config_dir("portico", appauthor=False)
    return platformdirs.user_data_dir("portico", appauthor=False)
