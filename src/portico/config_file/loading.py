"""Files, environment and flags → one `Config`, with the source of every key. flag > environment > file > default.

Everything that is wrong is reported together, each with its place. A server that lacks a variable is kept with its
`problem`, and costs no other server anything.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from portico.config import Config
from portico.config_file.draft import Draft, Source, dotted, source_of
from portico.config_file.env_file import Contents, with_named_file
from portico.config_file.file_permissions import ALLOWED
from portico.config_file.finding import Finding, as_one_error
from portico.config_file.gathering import add_file
from portico.config_file.keys import Key, keys, meant
from portico.config_file.names import misspelled
from portico.config_file.reach import leading_nowhere
from portico.config_file.wording import worded

OTHER_VARIABLES = frozenset({"PORTICO_CONFIG", ALLOWED})
"""Variables of ours that are no settings."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The effective configuration and where it came from."""

    config: Config
    sources: Mapping[str, Source]
    """Dotted key → source. Outside servers every key is here; of a server, what was written."""
    warnings: tuple[Finding, ...]
    path: Path | None
    """The first file; None when there is none and the caller shows its demo servers."""
    files: tuple[Path, ...]
    """Everything that was read: a change in any of them is a reason to load again."""
    filed: frozenset[str] = frozenset()
    """Variables that an env_file gives, so that whoever starts Portico need not have them."""


def load(
    paths: str | Path | Sequence[str | Path] | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    unwritten: Contents | None = None,
) -> LoadedConfig:
    """The configuration these sources make; ConfigError lists everything that is wrong with them.

    `flags` maps dotted keys (`gateway.port`) to values, None meaning not given. Of several files a later one wins.
    `unwritten` is what files will hold, to try it before it is written.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    chosen = [paths] if isinstance(paths, (str, Path)) else list(paths or find_files(environ, cwd))
    draft = Draft()
    filled = with_named_file(draft, environ, cwd, unwritten or {})
    for path in chosen:
        add_file(draft, cwd / Path(path).expanduser(), filled, cwd, unwritten)
    add_environment(draft, environ)
    add_flags(draft, flags or {})
    config: Config | None = None
    try:
        config = Config.model_validate(draft.values)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            origin = source_of(draft.origins, problem["loc"])
            words = worded(problem, secret=problem["loc"] in draft.expanded)
            draft.errors.append(Finding(origin.name or origin.kind, origin.line, *words))
    if config is None or draft.errors:
        raise as_one_error(draft.errors)
    draft.warnings += leading_nowhere(config, draft.origins)
    default = Source("default")
    sources = {key.dotted: default for key in keys() if "*" not in key.path}
    sources |= {dotted(where): source for where, source in draft.origins.items()}
    first = cwd / Path(chosen[0]).expanduser() if chosen else None
    return LoadedConfig(config, sources, tuple(draft.warnings), first, tuple(draft.files), frozenset(draft.filed))


def find_files(environ: Mapping[str, str], cwd: Path) -> list[Path]:
    """The files to read where none was named: $PORTICO_CONFIG, else the first that exists of the usual places."""
    named = environ.get("PORTICO_CONFIG")
    if named:
        return [Path(part) for part in named.split(os.pathsep) if part]
    for name in ("portico.yaml", "portico.yml", ".mcp.json"):
        if (cwd / name).is_file():
            return [cwd / name]
    import platformdirs  # costs milliseconds that a project with its own file need not pay

    user = platformdirs.user_config_path("portico", appauthor=False) / "portico.yaml"
    return [user] if user.is_file() else []


def add_environment(draft: Draft, environ: Mapping[str, str]) -> None:
    known = {name: key for key in keys() for name in environment_names(key)}
    for name in sorted(name for name in environ if name.startswith("PORTICO_")):
        text = environ[name].strip()
        if name not in known:
            near = misspelled(name, known) if name not in OTHER_VARIABLES else None
            if near:
                draft.warnings.append(Finding(name, 0, "", "no such setting", f"Did you mean {near}?"))
        elif name == "PORTICO_PORT" and text.startswith("tcp://"):
            # Kubernetes sets this for every pod beside a service that is named portico.
            draft.warnings.append(Finding(name, 0, "", f"left out: {text} is a service link, no port"))
        elif text:
            draft.set(known[name].path, as_value(known[name], text), Source("env", name))


def environment_names(key: Key) -> list[str]:
    """The variable of a key, and for the door's keys the long form too."""
    names = [key.environment] if key.environment else []
    return [*names, "PORTICO_" + "__".join(key.path).upper()] if names and key.path[0] == "gateway" else names


def add_flags(draft: Draft, flags: Mapping[str, Any]) -> None:
    known = {key.dotted: key for key in keys() if "*" not in key.path}
    for name, value in flags.items():
        if value is not None and name in known:
            draft.set(known[name].path, as_value(known[name], value), Source("flag"))
        elif value is not None:
            draft.errors.append(Finding("flag", 0, name, "no such setting", meant(name.split("."))))


def as_value(key: Key, value: Any) -> Any:
    """What a text outside a file means: commas separate, ~ is home."""
    if key.many and isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if key.path == ("env_file",):
        return os.path.expanduser(value)
    return Path(value).expanduser() if key.path == ("data_dir",) else value
