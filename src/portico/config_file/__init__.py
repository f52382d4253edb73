"""Config files: everything that turns a file, the environment and flags into a `Config`, and a `Config` into safe text.

`load` is the way in. file_permissions (who could have written a file) · reading, toml_reading (bytes → nodes with
lines) → clients (their keys → ours) → gathering (placeholders filled in from the environment and env_file, plain values
in a draft) → loading (precedence, sources) → wording (errors in our words). `masked` shows the result.
"""

from typing import Any

from portico.config import Config
from portico.config_file.draft import Source
from portico.config_file.finding import Finding
from portico.config_file.keys import Key, environment_name, keys
from portico.config_file.loading import LoadedConfig, find_files, load
from portico.config_file.names import server_key

__all__ = [
    "Finding",
    "Key",
    "LoadedConfig",
    "Source",
    "environment_name",
    "find_files",
    "keys",
    "load",
    "masked",
    "server_key",
]


def masked(config: Config) -> dict[str, Any]:
    """The effective configuration as plain JSON values, every key, with nothing secret in it."""
    from portico.config_file.masking import masked as mask  # its patterns cost start-up, and only `config` shows them

    return mask(config)
