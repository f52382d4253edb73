"""The entry for Portico in a client's file, and detection of existing ones."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from portico.adoption.clients import Client
from portico.config import BackendConfig, Config
from portico.config_file.names import to_server_key
from portico.config_file.placeholders import PLACEHOLDER, VARIABLE
from portico.errors import ConfigError

_URL_KEYS = ("url", "serverUrl", "httpUrl")


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


def make_stdio_entry(
    client: Client,
    command: Sequence[str],
    arguments: Sequence[str],
    env_vars: Sequence[str],
    path: str = "",
) -> dict[str, Any]:
    """Make an entry that starts Portico.

    Codex passes on only the variables in `env_vars`; `path` becomes the PATH of the process.
    """
    if client.stdio_type:
        entry: dict[str, Any] = {"type": client.stdio_type}
    else:
        entry = {}
    entry |= {"command": command[0], "args": [*command[1:], *arguments]}
    if client.name == "codex" and env_vars:
        entry["env_vars"] = [*env_vars]
    if path:
        entry["env"] = {"PATH": path}
    return entry


def make_http_entry(client: Client, url: str, *, send_token: bool) -> dict[str, Any]:
    """Make an entry for a running Portico; with `send_token`, the token comes from the
    environment.
    """
    if client.url_key is None:
        raise ConfigError(f"{client.title} takes no address in its file", advice=client.url_advice)
    if client.http_type:
        entry: dict[str, Any] = {"type": client.http_type}
    else:
        entry = {}
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
    texts = [text for mapping in written for text in mapping.values()]
    bodies = [match.group(1) or "" for text in texts for match in PLACEHOLDER.finditer(text)]
    return tuple(sorted({found.group(1) for body in bodies if (found := VARIABLE.fullmatch(body))}))


def is_portico(entry: Any) -> bool:
    """Return whether an entry starts Portico."""
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
    if isinstance(arguments, list):
        listed = cast("list[Any]", arguments)
    else:
        listed = []
    return str(command or ""), [str(word) for word in listed]


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
    return next(
        (
            server_name
            for server_name, server in ours.items()
            if _is_same_target(server, command, arguments, url)
        ),
        None,
    )


def _is_same_target(
    server: BackendConfig, command: str, arguments: Iterable[str], url: str
) -> bool:
    if url:
        return server.url is not None and server.url.rstrip("/") == url.rstrip("/")
    return bool(command) and server.command == command and [*server.args] == [*arguments]


def _get_stem(command: str) -> str:
    return Path(command.replace("\\", "/")).stem
