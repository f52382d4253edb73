"""What was found and what is configured already → what would be added, and the files as they would be then.

Reads the configuration that is there; writes nothing. Whatever would be written has been loaded before.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from portico.adoption.finding import Found, Look
from portico.adoption.merging import alike, free_name, identical, merged
from portico.adoption.secrets import Variables, take
from portico.adoption.writing import with_values
from portico.adoption.yaml_text import dumped, new_file, servers_text, with_servers
from portico.config import BackendConfig, Config
from portico.config_file import Finding, load, server_key
from portico.config_file import env_file as env_files
from portico.config_file.placeholders import PLACEHOLDER, VARIABLE, read_env_file
from portico.config_file.reading import Unreadable, decode
from portico.errors import ConfigError

ENV_FILE = "portico.env"
_FIRST = ("title", "description", "command", "args", "env", "env_file", "inherit_env", "cwd", "url", "headers")
Standing = Literal["new", "present", "differs", "unusable"]
"""To be added; in the configuration already; there with other secrets, which stay; not to be had."""


@dataclass(frozen=True)
class Candidate:
    """A server that may be adopted."""

    found: Found
    name: str
    entry: Mapping[str, Any]
    """As it would be written."""
    secrets: Mapping[str, str]
    standing: Standing
    problem: str = ""
    backend: BackendConfig | None = None

    @property
    def key(self) -> str:
        """Its name in a configuration that was loaded."""
        return server_key(self.name)

    @property
    def from_project(self) -> bool:
        """Whether nobody but the folder says that it may be started."""
        return all(origin.project for origin in self.found.origins)


@dataclass(frozen=True)
class Existing:
    """The configuration that is there, as far as there is one."""

    path: Path
    data: bytes | None = None
    config: Config = field(default_factory=Config)
    names: frozenset[str] = frozenset()
    env_path: Path | None = None
    """The env file it names."""
    env_data: bytes | None = None
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is in it, or in the file that would be named so."""


@dataclass(frozen=True)
class Files:
    """The two files as they would be."""

    config: bytes | None
    """None where what is there cannot be added to safely."""
    env: bytes | None
    """None where it stays as it is."""
    env_path: Path
    env_before: bytes | None
    addition: str
    """What to write by hand where `config` is None."""
    loaded: Config
    """What they would make; only what is new where `config` is None."""
    warnings: tuple[Finding, ...] = ()


def existing(path: Path, environ: Mapping[str, str]) -> Existing:
    """What is at a place; raises ConfigError where that is broken, because then nothing may be added to it."""
    beside = path.with_name(ENV_FILE)
    data = _data(path)
    if data is None or not data.strip():
        return Existing(path, data, values=_values(beside)[0])
    config = load([path], environ=_without_settings(environ), cwd=path.parent).config
    env_path = Path(config.env_file) if config.env_file else None
    values, env_data = _values(env_path or beside)
    if env_path is not None:
        # The file's own values, whatever the environment says today: they are what was adopted.
        config = load([path], environ={**_without_settings(environ), **values}, cwd=path.parent).config
    names = frozenset(name.lower() for name in config.servers)
    return Existing(path, data, config, names, env_path, env_data if env_path else None, values)


def _data(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "Name another place with --output."
        raise ConfigError(f"cannot be read: {error.strerror}", advice=advice, file=str(path)) from None


def _values(path: Path) -> tuple[dict[str, str], bytes | None]:
    try:
        data = _data(path)
        return (read_env_file(decode(data))[0] if data is not None else {}), data
    except Unreadable as error:
        raise ConfigError(error.message, advice=error.advice, file=str(path), line=error.line) from None


def candidates(look: Look, there: Existing, environ: Mapping[str, str]) -> list[Candidate]:
    """Every server that was found, each once, with what stands between it and the configuration."""
    variables = Variables(environ, there.values)
    taken = set(there.names)
    groups = merged(look.servers)
    for group in groups:
        variables.reserve(group.asked)
    return [_candidate(group, there, variables, taken, environ) for group in groups]


def _candidate(
    found: Found, there: Existing, variables: Variables, taken: set[str], environ: Mapping[str, str]
) -> Candidate:
    entry = dict(found.entry)
    if found.folder is not None:
        entry["cwd"] = found.folder
    backend, problem = _tried(entry, there, {**environ, **there.values})
    problem = found.problem or problem
    if backend is not None and _is_the_door(backend, there.config):
        backend, problem = None, "this is Portico's own address"
    if backend is None or found.problem:
        return Candidate(found, found.name, entry, {}, "unusable", problem)
    entry = _tidied(entry, backend)
    for name, known in there.config.servers.items():
        if identical(known, backend):
            return Candidate(found, name, entry, {}, "present", problem, backend)
    known = there.config.servers.get(server_key(found.name))
    if known is not None and alike(known, backend):
        return Candidate(found, server_key(found.name), entry, {}, "differs", problem, backend)
    name = free_name(found, taken)
    done = take(name, entry, variables)
    return Candidate(found, name, done.entry, done.values, "new", problem, backend)


def _tried(entry: Mapping[str, Any], there: Existing, environ: Mapping[str, str]) -> tuple[BackendConfig | None, str]:
    """The server that an entry makes, and what is wrong with it or it lacks."""
    try:
        text = dumped({"servers": {"server": dict(entry)}})
        data = text.encode()
    except UnicodeEncodeError:
        return None, "its entry holds text that is not Unicode"
    try:
        loaded = load(
            [there.path], environ=_without_settings(environ), cwd=there.path.parent, unwritten={there.path: data}
        )
    except ConfigError as error:
        return None, error.message.split("\n")[0].removeprefix("servers.server.").removeprefix("servers.server: ")
    backend = loaded.config.servers["server"]
    return backend, backend.problem or ""


def _is_the_door(backend: BackendConfig, config: Config) -> bool:
    """Whether an address is the gateway's, which cannot stand behind itself."""
    try:
        parts = urlsplit(backend.url or "")
        port = parts.port
    except ValueError:
        return False
    ours = (config.gateway.host, "localhost", "127.0.0.1", "::1")
    return parts.hostname in ours and port == config.gateway.port and parts.path.startswith("/mcp")


def reads(candidate: Candidate) -> tuple[str, ...]:
    """The variables of the environment that a server has always been filled in from."""
    texts = candidate.backend.written.values() if candidate.backend is not None else ()
    bodies = [match.group(1) or "" for text in texts for match in PLACEHOLDER.finditer(text)]
    names = {found.group(1) for body in bodies if (found := VARIABLE.fullmatch(body))}
    return tuple(sorted(names - set(candidate.found.asked)))


def _tidied(entry: Mapping[str, Any], backend: BackendConfig) -> dict[str, Any]:
    """In the order in which people read it, and without a type that follows from the rest."""
    order = [*dict.fromkeys((*_FIRST, *entry))]
    tidy = {key: entry[key] for key in order if key in entry and entry[key] not in ({}, []) and key != "type"}
    target = {key: tidy[key] for key in ("command", "url") if key in tidy}
    inferred = BackendConfig.model_validate({**target, "problem": "only its type is wanted"}).type
    kind = {} if inferred == backend.type else {"type": backend.type}
    return {**kind, **tidy}


def files(there: Existing, chosen: Iterable[Candidate], environ: Mapping[str, str]) -> Files:
    """The files with these servers added, loaded to be sure of them."""
    added = [candidate for candidate in chosen if candidate.standing == "new"]
    servers = {candidate.name: candidate.entry for candidate in added}
    remarks = {candidate.name: f"from {came_from(candidate.found)}" for candidate in added}
    values = {name: value for one in added for name, value in one.secrets.items()}
    wanted = {name: f"asked for as {text}" for one in added for name, text in one.found.asked.items()}
    wanted = {name: text for name, text in wanted.items() if name not in environ}
    new_values = {name: value for name, value in values.items() if there.values.get(name) != value}
    env_path = there.env_path or there.path.with_name(ENV_FILE)
    named: str | None = None
    env: bytes | None = None
    env_before = there.env_data
    if new_values or wanted:
        if there.env_path is None:
            named = ENV_FILE
            env_before = _data(env_path)
        text = decode(env_before) if env_before is not None else None
        after = with_values(text, new_values, wanted).encode()
        env = after if after != env_before else None
    addition = (dumped({"env_file": named}) if named else "") + "servers:\n" + servers_text(servers, remarks, 2)
    if not added:
        config = there.data or b"servers: {}\n"
    elif there.data is None or not there.data.strip():
        config = new_file(servers, remarks, named).encode()
    else:
        config = with_servers(there.data, servers, remarks, named)
    whole = config if config is not None else new_file(servers, remarks, named).encode()
    unwritten = {there.path: whole, **({env_path: env} if env is not None else {})}
    loaded = load([there.path], environ=environ, cwd=there.path.parent, unwritten=unwritten)
    return Files(config, env, env_path, env_before, addition, loaded.config, loaded.warnings)


def came_from(found: Found) -> str:
    """Everybody who has a server, in words."""
    return ", ".join(dict.fromkeys(origin.title for origin in found.origins))


def narrowed(
    known: Iterable[Candidate], only: Collection[str] = (), without: Collection[str] = ()
) -> tuple[list[Candidate], list[str]]:
    """Those that are wanted, and the names that nobody has."""
    listed = list(known)
    names = {text.lower() for candidate in listed for text in (candidate.name, candidate.key, candidate.found.name)}

    def called(candidate: Candidate, among: Collection[str]) -> bool:
        own = {candidate.name.lower(), candidate.key.lower()}
        return bool(own & {text.lower() for text in among})

    unknown = [text for text in (*only, *without) if text.lower() not in names]
    kept = [one for one in listed if (not only or called(one, only)) and not called(one, without)]
    return kept, unknown


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would change the configuration itself."""
    return {
        name: value for name, value in environ.items() if not name.startswith("PORTICO_") or name == env_files.VARIABLE
    }


def default_path(environ: Mapping[str, str], cwd: Path) -> Path:
    """Where a configuration is found wherever a client starts Portico: what the environment names, else this user's."""
    named = [part for part in environ.get("PORTICO_CONFIG", "").split(os.pathsep) if part]
    if len(named) == 1 and named[0].endswith((".yaml", ".yml")):
        return cwd / Path(named[0]).expanduser()
    import platformdirs

    return platformdirs.user_config_path("portico", appauthor=False) / "portico.yaml"


def renamed(candidate: Candidate) -> bool:
    """Whether it has another name than in its client."""
    return candidate.standing == "new" and candidate.name != candidate.found.called
