"""What an agent's author passes → a configuration, and servers that are objects. A dict is read as a file would be."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from portico.config import BackendConfig, Config, Exposure, Profile
from portico.config_file import load
from portico.config_file.clients import translate
from portico.config_file.draft import Draft, source_of
from portico.config_file.finding import Finding, as_one_error
from portico.config_file.gathering import Values, add_setting, free_name
from portico.config_file.loading import add_environment
from portico.config_file.placeholders import Places
from portico.config_file.reach import leading_nowhere
from portico.config_file.reading import Node
from portico.config_file.wording import worded
from portico.errors import ConfigError
from portico.upstream.backend import Backend
from portico.upstream.functions import FunctionsBackend, FunctionTool, function_tool

Servers = Mapping[str, Any]
"""Server name → its functions, a backend, or what a configuration says of it."""

_SHOWN = "the configuration"
_NOTHING_FOUND = (
    "Write a portico.yaml, name a file with Gateway(path), or pass servers: "
    'Gateway(servers={"mine": [a_function]}). `portico adopt` writes one from what your clients have.'
)


@dataclass(frozen=True)
class Settings:
    """Everything that a gateway is made of."""

    config: Config
    backends: Mapping[str, Backend] = field(default_factory=dict[str, Backend])
    exposure: Exposure = "meta"
    """What models are shown, unless they are to be shown something else."""
    in_code: str = ""
    """The profile of models that are shown search, describe and scripts only: they read of no other tools."""
    warnings: tuple[str, ...] = ()
    """What is odd about it: servers that cannot be used, keys that lead nowhere."""


def settle(
    given: "str | os.PathLike[str] | Mapping[str, Any] | Config | None",
    servers: Servers | None,
    *,
    profile: str | None,
    exposure: Exposure | None,
    data_dir: "str | os.PathLike[str] | None",
) -> Settings:
    """The settings that these make; raises ConfigError, and UnknownName for a profile that is not there."""
    backends = {
        name: backend for name, one in (servers or {}).items() if (backend := as_backend(name, one)) is not None
    }
    configured = {name: one for name, one in (servers or {}).items() if name not in backends}
    config, warnings = _config(given, configured, alone=servers is not None)
    for name in backends:
        _named(name, config)
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": Path(data_dir).expanduser()})
    view = config.view(profile)
    shown = exposure or view.exposure
    if shown == "semantic" and not view.intent:
        raise ConfigError(
            "exposure semantic needs an intent",
            advice="Configure one, or leave the exposure and pass intent to `tools`.",
        )
    # Inside, everything can be found and called: what a model is shown of it is decided when it is told of tools.
    profiles = {name: one.model_copy(update={"exposure": "meta"}) for name, one in config.profiles.items()}
    in_code = f"{(profile or 'front')[:48]}-in-code"
    while in_code in profiles:
        in_code += "_"
    own = profiles[profile] if profile is not None else Profile()
    profiles[in_code] = own.model_copy(update={"exposure": "code"})
    inside = config.model_copy(update={"exposure": "meta", "profiles": profiles})
    return Settings(inside, backends, shown, in_code, warnings)


def as_backend(name: str, given: Any) -> Backend | None:
    """Functions, or a backend as it is; None for what is configuration."""
    if isinstance(given, str | bytes | Mapping | BackendConfig):
        return None
    if isinstance(given, FunctionTool) or (callable(given) and not hasattr(given, "connect")):
        given = [given]
    if isinstance(given, Iterable):
        functions = cast("Iterable[Callable[..., Any] | FunctionTool]", given)
        tools = tuple(one if isinstance(one, FunctionTool) else _tool(name, one) for one in functions)
        return FunctionsBackend(name, tools)
    if hasattr(given, "connect"):
        return cast(Backend, given)
    raise ConfigError(
        f"servers.{name}: {type(given).__name__} is no server",
        advice="A server is a list of functions, a backend, or a dict as in portico.yaml.",
        key=f"servers.{name}",
    )


def _tool(server: str, function: Any) -> FunctionTool:
    try:
        return function_tool(function)
    except Exception as error:  # the function is the user's: whatever its signature raises is the reason
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"servers.{server}: {name} cannot be made a tool: {type(error).__name__}: {error}",
            advice="A tool is a function with a name, whose parameters have types that JSON can say.",
            key=f"servers.{server}",
        ) from error


def _named(name: str, config: Config) -> None:
    if name in config.servers:
        raise ConfigError(f"servers.{name}: the configuration has a server of this name too", advice="Rename one.")
    try:
        Config.model_validate({"servers": {name: {"functions": "given"}}})
    except ValidationError as error:
        raise ConfigError(f"servers: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def _config(given: Any, servers: Servers, *, alone: bool) -> tuple[Config, tuple[str, ...]]:
    """The configuration and what is odd about it; where nothing is given, `alone` says that servers are."""
    if isinstance(given, Mapping):
        named = cast("Mapping[str, Any]", given)
        return from_mapping({**named, "servers": {**named.get("servers", {}), **servers}} if servers else named)
    if isinstance(given, Config):
        config, warnings = given, ()
    elif given is None and alone:
        return from_mapping({"servers": dict(servers)})
    else:
        loaded = load(cast("str | Path | None", given))
        if loaded.path is None and not loaded.config.servers:
            raise ConfigError("no configuration was found", advice=_NOTHING_FOUND)
        config, warnings = loaded.config, tuple(map(str, loaded.warnings))
    if not servers:
        return config, warnings
    more, odd = from_mapping({"servers": dict(servers)})
    return config.model_copy(update={"servers": {**config.servers, **more.servers}}), (*warnings, *odd)


def from_mapping(given: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """A configuration from plain values, read as a file in this folder: a client's own keys, `${VAR}`, variables."""
    draft, cwd = Draft(), Path.cwd()
    told = translate(_node(given), _SHOWN)
    draft.errors += told.errors
    draft.warnings += told.warnings
    places = Places(cwd, cwd, Path.home())
    for key, node in told.settings.items():
        if node.value is not None:
            add_setting(Values(draft, _SHOWN, (), os.environ, places, cwd, own=True), key, node)
    servers = draft.values.setdefault("servers", {})
    for position, (written, entry) in enumerate(told.servers):
        if (name := free_name(draft, written, 0, _SHOWN, {})) is not None:
            values = Values(draft, _SHOWN, ("servers", name), os.environ, places, cwd, own=told.own)
            servers[name] = values.server(entry, told.problems.get(position, ""))
    add_environment(draft, os.environ)
    config: Config | None = None
    try:
        config = Config.model_validate(draft.values)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            origin = source_of(draft.origins, problem["loc"])
            words = worded(problem, secret=problem["loc"] in draft.expanded)
            draft.errors.append(Finding(origin.name or origin.kind, 0, *words))
    if config is None or draft.errors:
        raise as_one_error(draft.errors)
    draft.warnings += leading_nowhere(config, draft.origins)
    return config, tuple(map(str, draft.warnings))


def _node(value: Any) -> Node:
    """A plain value as a file has it: with its text, and on no line."""
    if isinstance(value, BackendConfig):
        value = value.model_dump(exclude_unset=True, mode="json")
    if isinstance(value, Mapping):
        return Node({str(key): _node(one) for key, one in cast("Mapping[Any, Any]", value).items()}, 0)
    if isinstance(value, list | tuple):
        return Node([_node(one) for one in cast("Iterable[Any]", value)], 0)
    if isinstance(value, os.PathLike):
        value = os.fspath(cast("os.PathLike[str]", value))
    text = (
        {None: "", True: "true", False: "false"}.get(value) if value is None or isinstance(value, bool) else str(value)
    )
    return Node(value, 0, text or "")
