"""Constructor arguments → a configuration and in-process backends; a dict is read like a file."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from portico.config import BackendConfig, Config, Exposure, Profile
from portico.config_file import load
from portico.config_file.draft import ConfigDraft, SourceContext
from portico.config_file.draft_builder import add_tree
from portico.config_file.loader import add_environment, build_config
from portico.config_file.placeholders import PlaceholderFolders
from portico.config_file.tree_reader import ConfigNode
from portico.errors import ConfigError
from portico.upstream.backend import Backend
from portico.upstream.backends.functions import FunctionsBackend, FunctionTool, make_function_tool

Servers = Mapping[str, Any]
"""Server name → its functions, a backend, or its configuration."""

_SOURCE_NAME = "the configuration"
_NO_CONFIG_ADVICE = (
    "Write a portico.yaml, name a file with Gateway(path), or pass servers: "
    'Gateway(servers={"mine": [a_function]}). `portico adopt` writes one from what your '
    "clients have."
)


@dataclass(frozen=True)
class GatewaySettings:
    """The configuration and backends of an embedded gateway."""

    config: Config
    backends: Mapping[str, Backend] = field(default_factory=dict[str, Backend])
    exposure: Exposure = "meta"
    """The default exposure for models."""
    code_profile: str = ""
    """The profile for models with exposure `code`, whose texts mention no other tools."""
    warnings: tuple[str, ...] = ()
    """Problems of the configuration: servers that cannot be used, keys without effect."""


def resolve_settings(
    source: "str | os.PathLike[str] | Mapping[str, Any] | Config | None",
    servers: Servers | None,
    *,
    profile: str | None,
    exposure: Exposure | None,
    data_dir: "str | os.PathLike[str] | None",
) -> GatewaySettings:
    """Build the settings; raises ConfigError, and UnknownName for an unknown profile."""
    backends = {
        name: backend
        for name, server in (servers or {}).items()
        if (backend := to_backend(name, server)) is not None
    }
    configured = {name: server for name, server in (servers or {}).items() if name not in backends}
    config, warnings = _load_config(source, configured, has_servers=servers is not None)
    for name in backends:
        _check_server_name(name, config)
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": Path(data_dir).expanduser()})
    view = config.resolve_profile(profile)
    shown_exposure = exposure or view.exposure
    if shown_exposure == "semantic" and not view.intent:
        raise ConfigError(
            "exposure semantic needs an intent",
            advice="Configure one, or leave the exposure and pass intent to `tools`.",
        )
    # The gateway itself exposes everything; `tools` decides what a model is shown.
    profiles = {
        name: server.model_copy(update={"exposure": "meta"})
        for name, server in config.profiles.items()
    }
    code_profile = f"{(profile or 'front')[:48]}-in-code"
    while code_profile in profiles:
        code_profile += "_"
    own = profiles[profile] if profile is not None else Profile()
    profiles[code_profile] = own.model_copy(update={"exposure": "code"})
    inner_config = config.model_copy(update={"exposure": "meta", "profiles": profiles})
    return GatewaySettings(inner_config, backends, shown_exposure, code_profile, warnings)


def to_backend(name: str, server: Any) -> Backend | None:
    """Return functions or a backend as a backend, None for configuration."""
    if isinstance(server, str | bytes | Mapping | BackendConfig):
        return None
    if isinstance(server, FunctionTool) or (callable(server) and not hasattr(server, "connect")):
        server = [server]
    if isinstance(server, Iterable):
        functions = cast("Iterable[Callable[..., Any] | FunctionTool]", server)
        tools = tuple(
            function if isinstance(function, FunctionTool) else _make_function_tool(name, function)
            for function in functions
        )
        return FunctionsBackend(name, tools)
    if hasattr(server, "connect"):
        return cast(Backend, server)
    raise ConfigError(
        f"servers.{name}: {type(server).__name__} is no server",
        advice="A server is a list of functions, a backend, or a dict as in portico.yaml.",
        key=f"servers.{name}",
    )


def _make_function_tool(server: str, function: Any) -> FunctionTool:
    try:
        return make_function_tool(function)
    except Exception as error:  # user code: inspecting its signature may raise anything
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"servers.{server}: {name} cannot be made a tool: {type(error).__name__}: {error}",
            advice=(
                "A tool is a function with a name, whose parameters have types that JSON can say."
            ),
            key=f"servers.{server}",
        ) from error


def _check_server_name(name: str, config: Config) -> None:
    if name in config.servers:
        raise ConfigError(
            f"servers.{name}: the configuration has a server of this name too", advice="Rename one."
        )
    try:
        Config.model_validate({"servers": {name: {"functions": "given"}}})
    except ValidationError as error:
        raise ConfigError(
            f"servers: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
        ) from None


def _load_config(
    source: Any, servers: Servers, *, has_servers: bool
) -> tuple[Config, tuple[str, ...]]:
    """Load the configuration and its warnings; `has_servers` allows no source."""
    if isinstance(source, Mapping):
        values = cast("Mapping[str, Any]", source)
        if servers:
            values = {**values, "servers": {**values.get("servers", {}), **servers}}
        return load_mapping(values)
    if isinstance(source, Config):
        config = source
        warnings = ()
    elif source is None and has_servers:
        return load_mapping({"servers": dict(servers)})
    else:
        loaded = load(cast("str | Path | None", source))
        if loaded.path is None and not loaded.config.servers:
            raise ConfigError("no configuration was found", advice=_NO_CONFIG_ADVICE)
        config = loaded.config
        warnings = tuple(map(str, loaded.warnings))
    if not servers:
        return config, warnings
    added, more_warnings = load_mapping({"servers": dict(servers)})
    merged = config.model_copy(update={"servers": {**config.servers, **added.servers}})
    return merged, (*warnings, *more_warnings)


def load_mapping(mapping: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """Read a configuration from plain values, like a file in the current folder.

    Client formats, `${VAR}` and environment variables are supported.
    """
    draft = ConfigDraft()
    cwd = Path.cwd()
    folders = PlaceholderFolders(cwd, cwd, Path.home())
    add_tree(draft, _to_node(mapping), SourceContext(_SOURCE_NAME, os.environ, folders, cwd), {})
    add_environment(draft, os.environ)
    return build_config(draft), tuple(map(str, draft.warnings))


def _to_node(value: Any) -> ConfigNode:
    """Convert a plain value to a configuration node without a line number."""
    if isinstance(value, BackendConfig):
        value = value.model_dump(exclude_unset=True, mode="json")
    if isinstance(value, Mapping):
        return ConfigNode(
            {str(key): _to_node(item) for key, item in cast("Mapping[Any, Any]", value).items()}, 0
        )
    if isinstance(value, list | tuple):
        return ConfigNode([_to_node(item) for item in cast("Iterable[Any]", value)], 0)
    if isinstance(value, os.PathLike):
        value = os.fspath(cast("os.PathLike[str]", value))
    if value is None:
        return ConfigNode(None, 0)
    text = str(value)
    if isinstance(value, bool):
        text = text.lower()
    return ConfigNode(value, 0, text)
