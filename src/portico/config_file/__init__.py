"""Loads configuration files, the environment and flags into a `Config`, and masks a `Config`.

loader: entry point, precedence, sources · file_permissions: who could have written a file
tree_reader, toml_reader: bytes to nodes with lines · client_translation: clients' keys
draft_builder, draft, env_file, placeholders: values with `${VAR}` filled in
names: known keys and suggestions · mask, secret_values: hide secrets in output
"""

from typing import Any

from portico.config import Config
from portico.config_file.draft import ConfigFinding, ConfigSource
from portico.config_file.loader import LoadedConfig, find_files, load
from portico.config_file.names import ConfigKey, iter_keys, to_environment_name, to_server_key

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
    """Return the effective configuration as plain JSON values without secrets."""
    # Imported late: its patterns cost start-up time, and only `config` needs them.
    from portico.config_file.mask import mask_config as mask

    return mask(config)
