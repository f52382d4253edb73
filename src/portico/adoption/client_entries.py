"""Entries in clients' files: a server's, as plain values for our file, and Portico's own.

Placeholders are preserved: variables stay variables, project folders become absolute paths, and
editor inputs become required variables.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from portico.adoption.clients import Client
from portico.config import BackendConfig, Config
from portico.config.inherited_environment import EVERYTHING, NETWORK_VARIABLES, select_inherited
from portico.config_file.draft_builder import PATH_KEYS, TEXT_KEYS, resolve_path
from portico.config_file.names import to_server_key
from portico.config_file.placeholders import (
    BARE_VARIABLE,
    PLACEHOLDER,
    VARIABLE,
    PlaceholderFolders,
    find_variables,
    to_variable_name,
)
from portico.config_file.tree_reader import ConfigNode
from portico.errors import ConfigError

_URL_KEYS = ("url", "serverUrl", "httpUrl")


_PROJECT_PLACEHOLDERS = ("workspaceFolder", "workspaceFolderBasename", "workspaceRoot")
_EDITOR_INPUT = re.compile(r"(?:input|command|config|extension):(.*)", re.DOTALL)
_RELATIVE_PATH = re.compile(r"\.{1,2}[/\\]")


def find_program(argv0: str | None = None, python: str | None = None) -> list[str]:
    """Return the command that starts this installation from anywhere: its script, else its
    interpreter.
    """
    started = Path(argv0 if argv0 is not None else sys.argv[0])
    python = python or sys.executable
    scripts_folder = Path(python).parent
    found = shutil.which("portico", path=str(scripts_folder))
    if started.stem == "portico" and started.suffix in ("", ".exe"):
        named = shutil.which(started.name, path=str(started.parent.absolute()))
        found = named or found
    if found:
        return [found]
    return [python, "-m", "portico"]


def is_temporary(command: Sequence[str]) -> bool:
    """Return whether the program is in a cache that `uvx` or `pipx run` made."""
    parts = set(Path(command[0]).parts)
    return "archive-v0" in parts or ("pipx" in parts and ".cache" in parts)


def list_shell_only_commands(config: Config, path: str) -> tuple[str, ...]:
    """Return servers' commands that are found on this PATH, but not without a shell's PATH."""
    bare_commands = {
        server.command
        for server in config.servers.values()
        if server.is_usable and server.command and not Path(server.command).parent.name
    }
    return tuple(
        sorted(
            command
            for command in bare_commands
            if shutil.which(command, path=path) and not shutil.which(command, path=os.defpath)
        )
    )


@dataclass(frozen=True)
class EntryVariables:
    """Variables that an entry passes on to Portico."""

    names: tuple[str, ...] = ()
    """By name alone, in `env_vars`."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """In `env`: a reference in the client's own spelling, or a value that is no secret."""
    missing: tuple[str, ...] = ()
    """Needed, but the client does not have them and their values may be secret."""


def plan_variables(
    client: Client, config: Config, environ: Mapping[str, str], *, is_user_file: bool
) -> EntryVariables:
    """Decide how the variables that servers get reach a Portico that the client starts.

    Values are written for certificates and proxies without a password only, into a user's own file.
    """
    inherited = [name for server in config.servers.values() for name in server.inherit_env]
    wanted = set(select_inherited(environ, (one for one in inherited if one != EVERYTHING)))
    network = [name for name in NETWORK_VARIABLES if environ.get(name)]
    names = tuple(sorted({*wanted, *network}))
    if client.names_variables == "env_vars":
        return EntryVariables(names)
    if client.names_variables == "env":
        return EntryVariables(values={name: f"${name}" for name in names})
    if client.is_shell_program:
        return EntryVariables()
    values: dict[str, str] = {}
    if is_user_file:
        values = {name: environ[name] for name in network if not has_password(environ[name])}
    return EntryVariables(values=values, missing=tuple(sorted({*names} - set(values))))


def has_password(url: str) -> bool:
    """Return whether an address, such as a proxy's, has a user or a password in it."""
    return "@" in url


def make_stdio_entry(
    client: Client,
    command: Sequence[str],
    arguments: Sequence[str],
    variables: EntryVariables,
) -> dict[str, Any]:
    """Make an entry that starts Portico."""
    entry: dict[str, Any] = {}
    if client.stdio_type:
        entry["type"] = client.stdio_type
    entry |= {"command": command[0], "args": [*command[1:], *arguments]}
    if variables.names:
        entry["env_vars"] = [*variables.names]
    if variables.values:
        entry["env"] = dict(variables.values)
    return entry


def make_http_entry(client: Client, url: str, *, send_token: bool) -> dict[str, Any]:
    """Make an entry for a running Portico; with `send_token`, the token comes from the
    environment.
    """
    if client.url_key is None:
        raise ConfigError(f"{client.title} takes no address in its file", advice=client.url_advice)
    entry: dict[str, Any] = {}
    if client.http_type:
        entry["type"] = client.http_type
    entry[client.url_key] = url
    if send_token and client.bearer_template:
        if client.name == "codex":
            entry["bearer_token_env_var"] = client.bearer_template
        else:
            entry["headers"] = {"Authorization": client.bearer_template}
    return entry


def list_config_variables(config: Config) -> tuple[str, ...]:
    """Return the environment variables that a configuration refers to."""
    written = [config.written, *(server.written for server in config.servers.values())]
    return tuple(sorted(find_variables(text for mapping in written for text in mapping.values())))


def is_portico(entry: Any) -> bool:
    command, arguments = split_command(entry)
    names = {Path(command.replace("\\", "/")).stem, *arguments}
    return "stdio" in arguments and bool(names & {"portico", "portico-mcp"})


def split_command(entry: Any) -> tuple[str, list[str]]:
    """Return the command and arguments of an entry; empty if it has none."""
    if not isinstance(entry, Mapping):
        return "", []
    known = cast("Mapping[str, Any]", entry)
    command: Any = known.get("command")
    arguments: Any = known.get("args")
    if isinstance(command, Mapping):
        return split_command({"command": command.get("path"), "args": command.get("args")})
    if isinstance(command, list) and command:
        command, arguments = cast("list[Any]", command)[0], cast("list[Any]", command)[1:]
    if not isinstance(arguments, list):
        arguments = []
    return str(command or ""), [str(word) for word in cast("list[Any]", arguments)]


def find_duplicates(servers: Mapping[str, Any], config: Config) -> dict[str, str]:
    """Map a client's servers that Portico also has to its name for them.

    They have the same URL or command line, or the same name and program.
    """
    found = {name: _find_duplicate(name, entry, config.servers) for name, entry in servers.items()}
    return {name: server_name for name, server_name in found.items() if server_name is not None}


def _find_duplicate(name: str, entry: Any, ours: Mapping[str, BackendConfig]) -> str | None:
    if not isinstance(entry, Mapping) or is_portico(entry):
        return None
    known = cast("Mapping[str, Any]", entry)
    command, arguments = split_command(known)
    url = next((str(known[key]) for key in _URL_KEYS if key in known), "")
    key = to_server_key(name)
    namesake = ours.get(key)
    if (
        command
        and namesake is not None
        and namesake.command
        and _get_stem(command) == _get_stem(namesake.command)
    ):
        return key
    for server_name, server in ours.items():
        if _is_same_target(server, command, arguments, url):
            return server_name
    return None


def _is_same_target(
    server: BackendConfig, command: str, arguments: Iterable[str], url: str
) -> bool:
    if url:
        return server.url is not None and server.url.rstrip("/") == url.rstrip("/")
    return bool(command) and server.command == command and [*server.args] == [*arguments]


def _get_stem(command: str) -> str:
    return Path(command.replace("\\", "/")).stem


@dataclass(frozen=True)
class EntryContext:
    """What an entry's placeholders and paths refer to."""

    folders: PlaceholderFolders
    base_folder: Path
    """The base of its relative paths."""
    is_project: bool
    """Whether its file belongs to a project, where its servers are then started."""
    environ: Mapping[str, str]


def convert_entry(node: ConfigNode, context: EntryContext) -> tuple[dict[str, Any], dict[str, str]]:
    """Convert a translated entry for a file of ours.

    Returns it with its required variables, each with the editor input it replaces.
    """
    converter = _EntryConverter(node, context)
    return converter.entry, converter.required_variables


class _EntryConverter:
    def __init__(self, node: ConfigNode, context: EntryContext) -> None:
        self.context = context
        self.required_variables: dict[str, str] = {}
        entries = node.entries or {}
        env = entries.get("env", ConfigNode({}, 0)).entries or {}
        self.own_env = {name: value.text for name, value in env.items()}
        self.entry: dict[str, Any] = {}
        entry = self.entry
        for key, child in entries.items():
            entry[key] = self.convert_node(child, key, as_text=key in TEXT_KEYS)
        for key in PATH_KEYS:
            if isinstance(entry.get(key), str):
                entry[key] = resolve_path(entry[key], context.base_folder)
        command = entry.get("command")
        if context.is_project and isinstance(command, str) and _RELATIVE_PATH.match(command):
            entry["command"] = str(context.base_folder / command)
        if entry.get("disabled") is False:
            del entry["disabled"]

    def convert_node(self, node: ConfigNode, key: str, *, as_text: bool) -> Any:
        if node.entries is not None:
            return {
                name: self.convert_node(child, key, as_text=as_text or name in TEXT_KEYS)
                for name, child in node.entries.items()
            }
        if node.items is not None:
            return [self.convert_node(child, key, as_text=as_text) for child in node.items]
        if node.value is None or not (as_text or isinstance(node.value, str)):
            return node.value
        return self.convert_text(node.text, key)

    def convert_text(self, text: str, key: str) -> str:
        bare = BARE_VARIABLE.fullmatch(text)
        if bare is not None and key in ("env", "headers"):
            # `$NAME` is meant as a variable, even if this shell does not have it.
            if bare.group(2) not in self.context.environ:
                self.required_variables[bare.group(2)] = text
            return f"{bare.group(1) or ''}${{{bare.group(2)}}}"
        return PLACEHOLDER.sub(lambda match: self.convert_placeholder(match, key), text)

    def convert_placeholder(self, match: re.Match[str], key: str) -> str:
        body = match.group(1)
        placeholder = match.group()
        if body is None:
            return placeholder
        folder = self.context.folders.resolve(body)
        if folder is not None:
            if self.context.is_project and body in _PROJECT_PLACEHOLDERS:
                return folder
            return placeholder
        editor_input = _EDITOR_INPUT.fullmatch(body)
        if editor_input is not None:
            variable = re.sub(r"[^A-Z0-9_]", "_", to_variable_name(editor_input[1]))
            if variable[0].isdigit():
                variable = f"_{variable}"
            self.required_variables[variable] = placeholder
            return f"${{{variable}}}"
        variable = VARIABLE.fullmatch(body)
        if variable is None or (key != "env" and self.is_filled_by_server(variable.group(1))):
            return f"${placeholder}"
        return placeholder

    def is_filled_by_server(self, name: str) -> bool:
        """Return whether the server itself expands this from its env (as mcp-remote does)."""
        own = self.own_env.get(name)
        return own is not None and "${" not in own and name not in self.context.environ
