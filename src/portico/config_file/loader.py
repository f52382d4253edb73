"""Loads files, environment and flags into one `Config`, with the source of every key.

Precedence: flag, environment, file, default. All errors are reported together with their position.
A server that lacks a variable is kept with its `problem` and does not affect the others.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from portico.config import Config
from portico.config_file.dangling_references import find_dangling_references
from portico.config_file.draft import ConfigDraft, ConfigSource, find_source, join_key_path
from portico.config_file.draft_builder import add_file
from portico.config_file.env_file import UnwrittenFiles, merge_env_file_from_environ
from portico.config_file.file_permissions import SKIP_CHECK_VARIABLE
from portico.config_file.findings import ConfigFinding, to_single_error
from portico.config_file.keys import ConfigKey, iter_keys, suggest_key
from portico.config_file.names import find_intended_name
from portico.config_file.validation_messages import describe_validation_error

OTHER_VARIABLES = frozenset({"PORTICO_CONFIG", SKIP_CHECK_VARIABLE})
"""Variables of Portico that are not settings."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The effective configuration and where it came from."""

    config: Config
    sources: Mapping[str, ConfigSource]
    """Source by dotted key: every key outside servers; of a server, the written ones."""
    warnings: tuple[ConfigFinding, ...]
    path: Path | None
    """The first file; None if there is none and the caller shows its demo servers."""
    files: tuple[Path, ...]
    """All files that were read; a change in any of them requires a reload."""
    env_file_variables: frozenset[str] = frozenset()
    """Variables defined by an env_file, which the process environment need not have."""


def load(
    paths: str | Path | Sequence[str | Path] | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    unwritten: UnwrittenFiles | None = None,
) -> LoadedConfig:
    """Load the configuration from these sources; raises ConfigError with all problems.

    `flags` maps dotted keys (`gateway.port`) to values, None meaning not given. Of several files a
    later one wins. `unwritten` is the future content of files, to validate it before it is written.
    """
    if environ is None:
        environ = os.environ
    cwd = cwd or Path.cwd()
    if isinstance(paths, (str, Path)):
        chosen = [paths]
    else:
        chosen = list(paths or find_files(environ, cwd))
    draft = ConfigDraft()
    full_environ = merge_env_file_from_environ(draft, environ, cwd, unwritten or {})
    for path in chosen:
        add_file(draft, cwd / Path(path).expanduser(), full_environ, cwd, unwritten)
    add_environment(draft, environ)
    add_flags(draft, flags or {})
    config: Config | None = None
    try:
        config = Config.model_validate(draft.values)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            origin = find_source(draft.origins, problem["loc"])
            words = describe_validation_error(problem, secret=problem["loc"] in draft.expanded)
            draft.errors.append(ConfigFinding(origin.name or origin.kind, origin.line, *words))
    if config is None or draft.errors:
        raise to_single_error(draft.errors)
    draft.warnings += find_dangling_references(config, draft.origins)
    default = ConfigSource("default")
    sources = {key.dotted_name: default for key in iter_keys() if "*" not in key.path}
    sources |= {join_key_path(where): source for where, source in draft.origins.items()}
    first = cwd / Path(chosen[0]).expanduser() if chosen else None
    return LoadedConfig(
        config,
        sources,
        tuple(draft.warnings),
        first,
        tuple(draft.files),
        frozenset(draft.env_file_variables),
    )


def find_files(environ: Mapping[str, str], cwd: Path) -> list[Path]:
    """Return the default files: $PORTICO_CONFIG, else the first standard one that exists."""
    named = environ.get("PORTICO_CONFIG")
    if named:
        return [Path(part) for part in named.split(os.pathsep) if part]
    for name in ("portico.yaml", "portico.yml", ".mcp.json"):
        if (cwd / name).is_file():
            return [cwd / name]
    import platformdirs  # takes milliseconds, and is not needed for a project with its own file

    user = platformdirs.user_config_path("portico", appauthor=False) / "portico.yaml"
    if user.is_file():
        return [user]
    return []


def add_environment(draft: ConfigDraft, environ: Mapping[str, str]) -> None:
    known = {name: key for key in iter_keys() for name in list_environment_names(key)}
    for name in sorted(name for name in environ if name.startswith("PORTICO_")):
        text = environ[name].strip()
        if name not in known:
            near = find_intended_name(name, known) if name not in OTHER_VARIABLES else None
            if near:
                draft.warnings.append(
                    ConfigFinding(name, 0, "", "no such setting", f"Did you mean {near}?")
                )
        elif name == "PORTICO_PORT" and text.startswith("tcp://"):
            # Kubernetes sets this for every pod beside a service named portico.
            draft.warnings.append(
                ConfigFinding(name, 0, "", f"left out: {text} is a service link, no port")
            )
        elif text:
            draft.set_value(
                known[name].path, parse_value(known[name], text), ConfigSource("env", name)
            )


def list_environment_names(key: ConfigKey) -> list[str]:
    """Return the variables of a key; keys of `gateway` also have a long form."""
    names = [key.environment_variable] if key.environment_variable else []
    if names and key.path[0] == "gateway":
        return [*names, "PORTICO_" + "__".join(key.path).upper()]
    return names


def add_flags(draft: ConfigDraft, flags: Mapping[str, Any]) -> None:
    known = {key.dotted_name: key for key in iter_keys() if "*" not in key.path}
    for name, value in flags.items():
        if value is not None and name in known:
            draft.set_value(known[name].path, parse_value(known[name], value), ConfigSource("flag"))
        elif value is not None:
            draft.errors.append(
                ConfigFinding("flag", 0, name, "no such setting", suggest_key(name.split(".")))
            )


def parse_value(key: ConfigKey, value: Any) -> Any:
    """Parse text from outside a file: commas separate items, ~ is home."""
    if key.is_list and isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if key.path == ("env_file",):
        return os.path.expanduser(value)
    if key.path == ("data_dir",):
        return Path(value).expanduser()
    return value
