"""Loads files, environment and flags into one `Config`, with the source of every key.

Precedence: flag, environment, file, default. All errors are reported together with their position.
A server that lacks a variable is kept with its `problem` and does not affect the others.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from portico.config import Config
from portico.config.server_auth import SECRET_FIELDS
from portico.config_file.draft import (
    ConfigDraft,
    ConfigFinding,
    ConfigSource,
    KeyPath,
    find_source,
    join_key_path,
    to_single_error,
)
from portico.config_file.draft_builder import add_file
from portico.config_file.env_file import UnwrittenFiles, merge_env_file_from_environ
from portico.config_file.file_permissions import SKIP_CHECK_VARIABLE
from portico.config_file.names import (
    ConfigKey,
    find_intended_name,
    find_nearest,
    iter_keys,
    suggest_key,
)
from portico.standard_paths import find_config_files

SECRET_KEYS = frozenset(
    {
        *("env", "headers", "token", "args", "url"),
        *(*SECRET_FIELDS, "credentials_key"),
    }
)
MAX_SHOWN_LENGTH = 40
BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""Our words for a kind of error, and the key of its limit."""
OTHER_VARIABLES = frozenset({"PORTICO_CONFIG", SKIP_CHECK_VARIABLE})
"""Variables of Portico that are not settings."""


def build_config(draft: ConfigDraft) -> Config:
    """Validate a draft and add warnings about it; raises ConfigError with all problems."""
    config: Config | None = None
    try:
        config = Config.model_validate(draft.values)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            origin = find_source(draft.origins, problem["loc"])
            words = describe_validation_error(problem, secret=problem["loc"] in draft.expanded)
            draft.fail(origin.name or origin.kind, origin.line, *words)
    if config is None or draft.errors:
        raise to_single_error(draft.errors)
    warn_of_dangling_references(draft, config)
    return config


def describe_validation_error(problem: ErrorDetails, *, secret: bool) -> tuple[str, str, str]:
    """Return key, message and advice of one error."""
    where = tuple(part for part in problem["loc"] if part != "[key]")
    key = ".".join(map(str, where))
    context: dict[str, Any] = problem.get("ctx") or {}
    kind = problem["type"]
    if kind == "extra_forbidden":
        return key, "there is no such key", suggest_key(where)
    if kind == "value_error":
        return key, str(context["error"]), ""
    given = problem["input"]
    if kind == "literal_error":
        allowed = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        near = find_nearest(given, allowed) if isinstance(given, str) else ()
        message = f"expected one of {', '.join(allowed)}{describe_value(given, where, secret)}"
        return key, message, f"Did you mean {near[0]}?" if near else ""
    message = problem["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
    advice = ""
    if kind in ("tuple_type", "list_type"):
        message = "expected a list"
        advice = "Write one item per line, each after a dash, or [a, b]."
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        message = "expected keys and values"
    elif kind == "string_type":
        message = "expected text"
    elif kind.startswith("bool"):
        message = "expected true or false"
    elif kind.startswith("int_"):
        message = "expected a whole number"
    elif kind.startswith("float_"):
        message = "expected a number"
    elif kind in BOUNDS:
        word, limit = BOUNDS[kind]
        message = f"expected {word} {context[limit]}"
    return key, message + describe_value(given, where, secret), advice


def describe_value(value: Any, where: tuple[Any, ...], secret: bool) -> str:
    """Return `, found 'x'` if the value is short and harmless, else its type."""
    if value is None:
        return ", found nothing"
    if isinstance(value, dict):
        return ", found keys and values"
    if isinstance(value, (list, tuple)):
        return ", found a list"
    if secret or SECRET_KEYS & {str(part) for part in where} or len(str(value)) > MAX_SHOWN_LENGTH:
        return f", found a {type(value).__name__}"
    return f", found {value!r}"


def warn_of_dangling_references(draft: ConfigDraft, config: Config) -> None:
    """Add a warning for each pattern in profiles and pins that matches no server."""
    if not config.servers:
        return
    for where, name in _iter_server_references(config):
        if not any(fnmatchcase(server, name) for server in config.servers):
            source = find_source(draft.origins, where)
            advice = f"Servers: {', '.join(list(config.servers)[:8])}."
            if near := find_nearest(name, config.servers):
                advice = f"Did you mean {near[0]}?"
            file = source.name or source.kind
            message = f"{name!r} matches no server"
            draft.warn(file, source.line, join_key_path(where), message, advice)


def _iter_server_references(config: Config) -> Iterator[tuple[KeyPath, str]]:
    for profile, section in config.profiles.items():
        for position, glob in enumerate(section.servers):
            yield ("profiles", profile, "servers", position), glob
    for position, pin in enumerate(config.pins):
        server, dot, _ = pin.partition(".")
        if dot:
            yield ("pins", position), server


@dataclass(frozen=True, slots=True)
class LoadedConfig:
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
        paths = [paths]
    chosen = list(paths or find_files(environ, cwd))
    draft = ConfigDraft()
    full_environ = merge_env_file_from_environ(draft, environ, cwd, unwritten or {})
    for path in chosen:
        add_file(draft, cwd / Path(path).expanduser(), full_environ, cwd, unwritten)
    add_environment(draft, environ)
    add_flags(draft, flags or {})
    config = build_config(draft)
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
    return [Path(file) for file in find_config_files(environ, str(cwd))]


def add_environment(draft: ConfigDraft, environ: Mapping[str, str]) -> None:
    known = {name: key for key in iter_keys() for name in list_environment_names(key)}
    for name in sorted(name for name in environ if name.startswith("PORTICO_")):
        text = environ[name].strip()
        if name not in known:
            near = find_intended_name(name, known) if name not in OTHER_VARIABLES else None
            if near:
                draft.warn(name, 0, "", "no such setting", f"Did you mean {near}?")
        elif name == "PORTICO_PORT" and text.startswith("tcp://"):
            # Kubernetes sets this for every pod beside a service named portico.
            draft.warn(name, 0, "", f"left out: {text} is a service link, no port")
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
            draft.fail("flag", 0, name, "no such setting", suggest_key(name.split(".")))


def parse_value(key: ConfigKey, value: Any) -> Any:
    """Parse text from outside a file: commas separate items, ~ is home."""
    if key.is_list and isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if key.path == ("env_file",):
        return os.path.expanduser(value)
    if key.path == ("data_dir",):
        return Path(value).expanduser()
    return value
