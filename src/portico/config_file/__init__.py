"""Config files: everything that turns a file, the environment and flags into a `Config`, and a
`Config` into safe text.

`load` is the way in. file_permissions (who could have written a file) · reading, toml_reading (bytes → nodes with
lines) → clients (their keys → ours) → gathering (placeholders filled in from the environment and
env_file, plain values in a draft) → loading (precedence, sources) → wording (errors in our words).
`masked` shows the result.
"""

from typing import Any

from portico.config import Config
from portico.config_file.draft import ConfigSource
from portico.config_file.findings import ConfigFinding
from portico.config_file.keys import ConfigKey, iter_keys, to_environment_name
from portico.config_file.loader import LoadedConfig, find_files, load
from portico.config_file.names import to_server_key

__all__ = [
    "ConfigFinding",
    "ConfigKey",
    "ConfigSource",
    "LoadedConfig",
    "find_files",
    "iter_keys",
    "load",
    "mask_config",
    "to_environment_name",
    "to_server_key",
]


def mask_config(config: Config) -> dict[str, Any]:
    """The effective configuration as plain JSON values, every key, with nothing secret in it."""
    from portico.config_file.mask import (
        mask_config as mask,  # its patterns cost start-up, and only `config` shows them
    )

    return mask(config)
