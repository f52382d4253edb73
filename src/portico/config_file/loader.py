"""Files, environment and flags → one `Config`, with the source of every key. flag > environment >
file > default.

Everything that is wrong is reported together, each with its place. A server that lacks a variable
is kept with its
`problem`, and costs no other server anything.
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
"""Variables of ours that are no settings."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The effective configuration and where it came from."""

    config: Config
    sources: Mapping[str, ConfigSource]
    """Dotted key → source. Outside servers every key is here; of a server, what was written."""
    warnings: tuple[ConfigFinding, ...]
    path: Path | None
    """The first file; None when there is none and the caller shows its demo servers."""
    files: tuple[Path, ...]
    """Everything that was read: a change in any of them is a reason to load again."""
    env_file_variables: frozenset[str] = frozenset()
    """Variables that an env_file gives, so that whoever starts Portico need not have them."""


def load(
    paths: str | Path | Sequence[str | Path] | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    unwritten: UnwrittenFiles | None = None,
) -> LoadedConfig:
    """The configuration these sources make; ConfigError lists everything that is wrong with them.

    `flags` maps dotted keys (`gateway.port`) to values, None meaning not given. Of several files a later one wins.
    `unwritten` is what files will hold, to try it before it is written.
    """
    if environ is None:
        environ = os.environ
    else:
        environ = environ
    cwd = cwd or Path.cwd()
    if isinstance(paths, (str, Path)):
        chosen = [paths]
    else:
        chosen = list(paths or find_files(environ, cwd))
    draft = ConfigDraft()
    filled = merge_env_file_from_environ(draft, environ, cwd, unwritten or {})
    for path in chosen:
        add_file(draft, cwd / Path(path).expanduser(), filled, cwd, unwritten)
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
    if chosen:
        first = cwd / Path(chosen[0]).expanduser()
    else:
        first = None
    return LoadedConfig(
        config,
        sources,
        tuple(draft.warnings),
        first,
        tuple(draft.files),
        frozenset(draft.env_file_variables),
    )


def find_files(environ: Mapping[str, str], cwd: Path) -> list[Path]:
    """The files to read where none was named: $PORTICO_CONFIG, else the first that exists of the
    usual places."""
    named = environ.get("PORTICO_CONFIG")
    if named:
        return [Path(part) for part in named.split(os.pathsep) if part]
    for name in ("portico.yaml", "portico.yml", ".mcp.json"):
        if (cwd / name).is_file():
            return [cwd / name]
    import platformdirs  # costs milliseconds that a project with its own file need not pay

    user = platformdirs.user_config_path("portico", appauthor=False) / "portico.yaml"
    if user.is_file():
        return [user]
    return []


def add_environment(draft: ConfigDraft, environ: Mapping[str, str]) -> None:
    known = {name: key for key in iter_keys() for name in list_environment_names(key)}
    for name in sorted(name for name in environ if name.startswith("PORTICO_")):
        text = environ[name].strip()
        if name not in known:
            if name not in OTHER_VARIABLES:
                near = find_intended_name(name, known)
            else:
                near = None
            if near:
                draft.warnings.append(
                    ConfigFinding(name, 0, "", "no such setting", f"Did you mean {near}?")
                )
        elif name == "PORTICO_PORT" and text.startswith("tcp://"):
            # Kubernetes sets this for every pod beside a service that is named portico.
            draft.warnings.append(
                ConfigFinding(name, 0, "", f"left out: {text} is a service link, no port")
            )
        elif text:
            draft.set_value(
                known[name].path, parse_value(known[name], text), ConfigSource("env", name)
            )


def list_environment_names(key: ConfigKey) -> list[str]:
    """The variable of a key, and for the door's keys the long form too."""
    if key.environment_variable:
        names = [key.environment_variable]
    else:
        names = []
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
    """What a text outside a file means: commas separate, ~ is home."""
    if key.is_list and isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if key.path == ("env_file",):
        return os.path.expanduser(value)
    if key.path == ("data_dir",):
        return Path(value).expanduser()
    return value
