"""Plans an adoption: found and configured servers → the servers to add, and the resulting files.

Reads the existing configuration and writes nothing. Planned files have been loaded successfully.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from portico.adoption.config_document import add_rules, insert_servers
from portico.adoption.discovery import DiscoveredServers, FoundServer
from portico.adoption.environment_search import list_likely_variables
from portico.adoption.merge import (
    claim_free_name,
    is_identical,
    is_same_without_secrets,
    merge_servers,
)
from portico.adoption.rule_transfer import (
    can_ask,
    find_lost_rules,
    is_asked,
    keep_other_offers,
    list_asked_tools,
    make_ask_rules,
)
from portico.adoption.secret_extraction import VariableNames, add_env_values, extract_secrets
from portico.adoption.yaml_editor import dump_yaml, render_new_file, render_servers
from portico.config import BackendConfig, Config
from portico.config_file import ConfigFinding, load, to_server_key
from portico.config_file import env_file as env_files
from portico.config_file.placeholders import find_variables, parse_env_file
from portico.config_file.tree_reader import ConfigSyntaxError, decode_text
from portico.errors import ConfigError

ENV_FILE_NAME = "portico.env"
_KEY_ORDER = (
    *("title", "description", "command", "args", "env", "env_file", "inherit_env"),
    *("cwd", "url", "headers"),
)
CandidateStatus = Literal["new", "present", "differs", "unusable"]
"""To be added; already configured; configured with other secrets, which stay; not usable."""


@dataclass(frozen=True)
class AdoptionCandidate:
    found_server: FoundServer
    name: str
    entry: Mapping[str, Any]
    """As it would be written."""
    secrets: Mapping[str, str]
    status: CandidateStatus
    problem: str = ""
    backend: BackendConfig | None = None
    lost_rules: tuple[str, ...] = ()
    """Rules of its clients that do not hold for it behind Portico."""
    asked_tools: tuple[str, ...] = ()
    """Globs of its tools that a rule will have a person asked about, as its clients do."""

    @property
    def key(self) -> str:
        """Its name in a loaded configuration."""
        return to_server_key(self.name)

    @property
    def is_from_project(self) -> bool:
        """Whether only files of the project folder name it: nobody has approved starting it."""
        return all(origin.is_project_file for origin in self.found_server.origins)


@dataclass(frozen=True)
class ExistingConfig:
    """The existing configuration, if there is one."""

    path: Path
    data: bytes | None = None
    config: Config = field(default_factory=Config)
    names: frozenset[str] = frozenset()
    env_path: Path | None = None
    """The env file it names."""
    env_data: bytes | None = None
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """The values in that file, or in the file that would be named."""


@dataclass(frozen=True)
class PlannedFiles:
    """The configuration and env file as they would be written."""

    config: bytes | None
    """None if the existing file cannot be extended safely."""
    env: bytes | None
    """None if it stays unchanged."""
    env_path: Path
    env_before: bytes | None
    manual_addition: str
    """The text to add by hand if `config` is None."""
    loaded_config: Config
    """The resulting configuration; only the new servers if `config` is None."""
    warnings: tuple[ConfigFinding, ...] = ()


def load_existing(path: Path, environ: Mapping[str, str]) -> ExistingConfig:
    """Load the configuration at a path; raises ConfigError if it is broken."""
    default_env_path = path.with_name(ENV_FILE_NAME)
    data = _read_bytes(path)
    if data is None or not data.strip():
        return ExistingConfig(path, data, values=_read_env_values(default_env_path)[0])
    environ = _drop_portico_variables(environ)
    config = load([path], environ=environ, cwd=path.parent).config
    names = frozenset(name.lower() for name in config.servers)
    if not config.env_file:
        values = _read_env_values(default_env_path)[0]
        return ExistingConfig(path, data, config, names, values=values)
    env_path = Path(config.env_file)
    values, env_data = _read_env_values(env_path)
    # The file's own values, not the environment's: they are the ones that were adopted.
    config = load([path], environ={**environ, **values}, cwd=path.parent).config
    return ExistingConfig(path, data, config, names, env_path, env_data, values)


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "Name another place with --output."
        raise ConfigError(
            f"cannot be read: {error.strerror}", advice=advice, file=str(path)
        ) from None


def _read_env_values(path: Path) -> tuple[dict[str, str], bytes | None]:
    try:
        data = _read_bytes(path)
        return (parse_env_file(decode_text(data))[0] if data is not None else {}), data
    except ConfigSyntaxError as error:
        raise ConfigError(
            error.message, advice=error.advice, file=str(path), line=error.line
        ) from None


def list_candidates(
    discovered: DiscoveredServers, existing_config: ExistingConfig, environ: Mapping[str, str]
) -> list[AdoptionCandidate]:
    """Return every found server once, with its status relative to the configuration."""
    variables = VariableNames(environ, existing_config.values)
    taken = set(existing_config.names)
    groups = merge_servers(discovered.servers)
    for group in groups:
        variables.reserve(group.required_variables)
    return [_make_candidate(group, existing_config, variables, taken, environ) for group in groups]


def _make_candidate(
    found: FoundServer,
    existing_config: ExistingConfig,
    variables: VariableNames,
    taken: set[str],
    environ: Mapping[str, str],
) -> AdoptionCandidate:
    entry = keep_other_offers(found.entry)
    if found.folder is not None:
        entry["cwd"] = found.folder
    if to_server_key(found.original_name) != found.original_name:
        entry.setdefault("title", found.original_name)
    backend, problem = _load_entry(entry, existing_config, {**environ, **existing_config.values})
    problem = found.problem or problem
    if backend is not None and _is_own_endpoint(backend, existing_config.config):
        backend = None
        problem = "this is Portico's own address"
    if backend is None or found.problem:
        return AdoptionCandidate(found, found.name, entry, {}, "unusable", problem)
    entry = _tidy_entry(entry, backend)
    for name, known in existing_config.config.servers.items():
        if is_identical(known, backend):
            return _make_known_candidate(
                found, name, entry, "present", existing_config.config, backend
            )
    key = to_server_key(found.name)
    known = existing_config.config.servers.get(key)
    if known is not None and is_same_without_secrets(known, backend):
        return _make_known_candidate(found, key, entry, "differs", existing_config.config, backend)
    name = claim_free_name(found, taken)
    started = backend.add_inherited(existing_config.config.inherit_env)
    if likely := list_likely_variables(name, started, environ):
        entry["inherit_env"] = [*backend.inherit_env, *likely]
    entry, secrets = extract_secrets(name, entry, variables)
    config = existing_config.config
    asked = list_asked_tools(found.rules) if can_ask(config) else ()
    lost = _list_lost_rules(
        found, backend, backend, lambda glob: glob in asked or is_asked(config, name, glob)
    )
    return AdoptionCandidate(found, name, entry, secrets, "new", problem, backend, lost, asked)


def _make_known_candidate(
    found: FoundServer,
    name: str,
    entry: Mapping[str, Any],
    status: CandidateStatus,
    config: Config,
    backend: BackendConfig,
) -> AdoptionCandidate:
    known = config.servers[name]
    lost = _list_lost_rules(found, backend, known, lambda glob: is_asked(config, name, glob))
    problem = backend.problem or ""
    return AdoptionCandidate(found, name, entry, {}, status, problem, backend, lost)


def _list_lost_rules(
    found: FoundServer,
    backend: BackendConfig,
    known: BackendConfig,
    is_asked: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the rules of its clients that do not hold for a server as it is configured."""
    rules = [rule for rule in found.rules if rule.effect != "off"]
    of_rules = {rule.tool for rule in rules}
    of_entry = {"disabledTools": [name for name in backend.tools.deny if name not in of_rules]}
    return tuple(dict.fromkeys(find_lost_rules(rules, of_entry, known, is_asked)))


def _load_entry(
    entry: Mapping[str, Any], existing_config: ExistingConfig, environ: Mapping[str, str]
) -> tuple[BackendConfig | None, str]:
    """Load the server that an entry describes; return it with what is wrong or missing."""
    try:
        data = dump_yaml({"servers": {"server": dict(entry)}}).encode()
    except UnicodeEncodeError:
        return None, "its entry holds text that is not Unicode"
    try:
        loaded = load(
            [existing_config.path],
            environ=_drop_portico_variables(environ),
            cwd=existing_config.path.parent,
            unwritten={existing_config.path: data},
        )
    except ConfigError as error:
        message = error.message.split("\n")[0]
        return None, message.removeprefix("servers.server.").removeprefix("servers.server: ")
    backend = loaded.config.servers["server"]
    return backend, backend.problem or ""


def _is_own_endpoint(backend: BackendConfig, config: Config) -> bool:
    """Return whether the address is the gateway's own."""
    try:
        parts = urlsplit(backend.url or "")
        port = parts.port
    except ValueError:
        return False
    own_hosts = (config.gateway.host, "localhost", "127.0.0.1", "::1")
    return (
        parts.hostname in own_hosts
        and port == config.gateway.port
        and parts.path.startswith("/mcp")
    )


def list_environment_variables(candidate: AdoptionCandidate) -> tuple[str, ...]:
    """Return the environment variables that a server's entry refers to."""
    if candidate.backend is None:
        return ()
    names = find_variables(candidate.backend.written.values())
    return tuple(sorted(names - set(candidate.found_server.required_variables)))


def _tidy_entry(entry: Mapping[str, Any], backend: BackendConfig) -> dict[str, Any]:
    """Put keys into reading order and drop a `type` that can be inferred."""
    order = [*dict.fromkeys((*_KEY_ORDER, *entry))]
    tidy = {
        key: entry[key]
        for key in order
        if key in entry and entry[key] not in ({}, []) and key != "type"
    }
    target = {key: tidy[key] for key in ("command", "url") if key in tidy}
    inferred = BackendConfig.model_validate({**target, "problem": "only its type is wanted"}).type
    if inferred == backend.type:
        return tidy
    return {"type": backend.type, **tidy}


def plan_files(
    existing_config: ExistingConfig, chosen: Iterable[AdoptionCandidate], environ: Mapping[str, str]
) -> PlannedFiles:
    """Return the files with these servers added, after loading them as a check."""
    added = [candidate for candidate in chosen if candidate.status == "new"]
    servers = {candidate.name: candidate.entry for candidate in added}
    remarks = {
        candidate.name: f"from {describe_origins(candidate.found_server)}"
        for candidate in added
        if candidate.found_server.origins
    }
    required_variables = {
        name: f"asked for as {text}"
        for one in added
        for name, text in one.found_server.required_variables.items()
        if name not in environ
    }
    new_values = {
        name: value
        for one in added
        for name, value in one.secrets.items()
        if existing_config.values.get(name) != value
    }
    env_path = existing_config.env_path or existing_config.path.with_name(ENV_FILE_NAME)
    env_name: str | None = None
    env: bytes | None = None
    env_before = existing_config.env_data
    if new_values or required_variables:
        if existing_config.env_path is None:
            env_name = ENV_FILE_NAME
            env_before = _read_bytes(env_path)
        text = decode_text(env_before) if env_before is not None else None
        env_after = add_env_values(text, new_values, required_variables).encode()
        if env_after != env_before:
            env = env_after
    addition = f"servers:\n{render_servers(servers, remarks, 2)}"
    if env_name:
        addition = dump_yaml({"env_file": env_name}) + addition
    new_file = render_new_file(servers, remarks, env_name).encode()
    if not added:
        config = existing_config.data or b"servers: {}\n"
    elif existing_config.data is None or not existing_config.data.strip():
        config = new_file
    else:
        config = insert_servers(
            existing_config.path, existing_config.data, servers, remarks, env_name
        )
    rules = [rule for one in added for rule in make_ask_rules(one.key, one.asked_tools)]
    if rules:
        addition += dump_yaml({"rules": rules})
        new_file = add_rules(existing_config.path, new_file, rules) or new_file
        config = add_rules(existing_config.path, config, rules) if config is not None else None
    path = existing_config.path
    unwritten = {path: new_file if config is None else config}
    if env is not None:
        unwritten[env_path] = env
    loaded = load([path], environ=environ, cwd=path.parent, unwritten=unwritten)
    return PlannedFiles(config, env, env_path, env_before, addition, loaded.config, loaded.warnings)


def describe_origins(found: FoundServer) -> str:
    """List the clients and files that have a server."""
    return ", ".join(dict.fromkeys(origin.title for origin in found.origins))


def filter_candidates(
    known: Iterable[AdoptionCandidate], only: Collection[str] = (), without: Collection[str] = ()
) -> tuple[list[AdoptionCandidate], list[str]]:
    """Select candidates by name; return them and the names that match none."""
    listed = list(known)
    names = {
        to_server_key(text).lower()
        for candidate in listed
        for text in (candidate.name, candidate.found_server.name)
    }

    def is_named(candidate: AdoptionCandidate, wanted: Collection[str]) -> bool:
        return candidate.key.lower() in {to_server_key(text).lower() for text in wanted}

    unknown = [text for text in (*only, *without) if to_server_key(text).lower() not in names]
    selected = [
        one for one in listed if (not only or is_named(one, only)) and not is_named(one, without)
    ]
    return selected, unknown


def _drop_portico_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that override the configuration itself."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("PORTICO_") or name == env_files.ENV_FILE_VARIABLE
    }


def get_default_path(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the path that every client's Portico finds: `PORTICO_CONFIG`, else the user's file."""
    named = [part for part in environ.get("PORTICO_CONFIG", "").split(os.pathsep) if part]
    if len(named) == 1 and named[0].endswith((".yaml", ".yml")):
        return cwd / Path(named[0]).expanduser()
    import platformdirs

    return platformdirs.user_config_path("portico", appauthor=False) / "portico.yaml"


def is_renamed(candidate: AdoptionCandidate) -> bool:
    """Return whether it has another name than in its client."""
    return candidate.status == "new" and candidate.name != candidate.found_server.original_name
