"""The entry that `portico install` writes into a client's file, and what the person should know."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from portico.adoption import client_entries
from portico.adoption.client_documents import parse_document
from portico.adoption.client_rules import ClientRules, RuleTarget
from portico.adoption.clients import Client, ClientConfigLocation, UserEnvironment
from portico.adoption.file_replacement import read_file
from portico.adoption.rule_transfer import find_lost_rules, is_asked
from portico.cli.exit import print_warning
from portico.config_file import LoadedConfig, find_files
from portico.errors import ConfigError


@dataclass(frozen=True)
class ClientEntry:
    """The entry to write, and remarks for the person."""

    entry: dict[str, Any]
    exposure: str
    remarks: tuple[str, ...]


def find_config_files(config_options: Sequence[str], cwd: Path) -> list[Path]:
    """Return the files that the started Portico reads: the named ones, or those found now."""
    found: Sequence[str | Path] = config_options or find_files(os.environ, cwd)
    if not config_options and found == [cwd / ".mcp.json"]:
        # A folder's own servers must not replace the configuration adopted for this user.
        found = find_files(os.environ, Path(os.devnull)) or found
    return [(cwd / Path(name).expanduser()).absolute() for name in found]


def refuse_self_reference(location: ClientConfigLocation, files: Sequence[Path], cwd: Path) -> None:
    """Refuse a Portico whose configuration is the file that starts it."""
    target = os.path.realpath(location.path)
    found_later = not files and location.path == cwd / ".mcp.json"
    if found_later or any(os.path.realpath(file) == target for file in files):
        raise ConfigError(
            "is the file that Portico itself would read its servers from",
            advice="Run `portico adopt` first: it writes a portico.yaml with these servers, and "
            "Portico reads that.",
            file=str(location.path),
        )


def find_unkept_rules(
    client: Client, location: ClientConfigLocation, loaded: LoadedConfig
) -> dict[str, tuple[str, ...]]:
    """Return the servers of a client's file whose rules there Portico does not keep."""
    data = read_file(location.path)
    servers = parse_document(location, data).servers if data else {}
    environment = UserEnvironment(Path.home(), Path.cwd(), sys.platform, os.environ)
    rules = ClientRules(environment)
    for finding in rules.findings:
        print_warning(str(finding))
    found: dict[str, tuple[str, ...]] = {}
    for name, twin in client_entries.find_duplicates(servers, loaded.config).items():
        entry: Mapping[str, Any] = servers[name]
        folder = location.keys[1] if location.scope == "local" else environment.project_key
        target = RuleTarget(client.name, name, entry, folder, location.scope == "project")
        applied = rules.find(target, entry)
        config = loaded.config
        asks = partial(is_asked, config, twin)
        lost = tuple(dict.fromkeys(find_lost_rules(applied, entry, config.servers[twin], asks)))
        if lost:
            found[name] = lost
    return found


def make_stdio_entry(
    client: Client, location: ClientConfigLocation, files: Sequence[Path], loaded: LoadedConfig
) -> ClientEntry:
    """Make an entry that starts Portico with this configuration."""
    config = loaded.config
    source = loaded.sources["exposure"].kind
    exposure = client.exposure if source == "default" else config.exposure
    arguments = ["stdio", *(word for file in files for word in ("--config", str(file)))]
    if source != "file" and (source != "default" or exposure != config.exposure):
        arguments += ["--exposure", exposure]
    reason = {
        "default": f"{client.exposure_reason}. --exposure chooses another",
        "file": "the configuration says so",
    }.get(source, "you say so")
    remarks = [f"Exposure {exposure}: {reason}."]
    if not files:
        remarks.append(
            "No configuration is found here, so Portico would serve its demo servers. `portico "
            "adopt` takes over the servers you have; run this again after it."
        )
    named = client_entries.list_config_variables(config)
    variables = [name for name in named if name not in loaded.env_file_variables]
    if variables and client.name not in ("codex", "claude-code"):
        remarks.append(
            f"The configuration takes {', '.join(variables)} from the environment, "
            f"which {client.title} may not pass on: an `env_file` is surer."
        )
    passed = client_entries.plan_variables(
        client, config, os.environ, is_user_file=location.scope == "user"
    )
    remarks += _describe_variables(client, passed)
    if client.names_variables == "env_vars":
        passed = replace(passed, names=tuple(sorted({*passed.names, *variables})))
    if location.scope == "user" and not client.is_shell_program and os.name == "posix":
        shell_path = os.environ.get("PATH", "")
        if shell_only := client_entries.list_shell_only_commands(config, shell_path):
            passed = replace(passed, values={"PATH": shell_path, **passed.values})
            remarks.append(
                f"This shell's PATH goes with it: {client.title} is not started in one, and would "
                f"not find {', '.join(shell_only)}."
            )
    if location.scope == "project":
        remarks.append(
            "This file is the project's: others who share it get paths that are of this machine."
        )
    command = client_entries.find_program()
    if client_entries.is_temporary(command):
        remarks.append(
            f"This Portico runs from a cache ({command[0]}): install it first, so that it is "
            "still there tomorrow."
        )
    entry = client_entries.make_stdio_entry(client, command, arguments, passed)
    return ClientEntry(entry, exposure, tuple(remarks))


def _describe_variables(client: Client, passed: client_entries.EntryVariables) -> Iterator[str]:
    if passed.names or passed.values:
        names = ", ".join(passed.names or passed.values)
        kept = "keeps from its servers" if client.is_shell_program else "may not have"
        yield f"Variables of this shell that {client.title} {kept} go with it: {names}."
    if passed.missing:
        yield (
            f"{client.title} may not have {', '.join(passed.missing)}, which servers get from this "
            "shell; their values are not written here. `env` of the servers, with an `env_file`, "
            "is surer."
        )


def make_http_entry(
    client: Client, url: str, loaded: LoadedConfig, exposure: str | None
) -> ClientEntry:
    """Make an entry that points at a running Portico."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{url!r} is no address", advice="Write it as http://127.0.0.1:8420/mcp.")
    if exposure is not None:
        raise ConfigError(
            "--exposure is for a Portico that the client starts; one that is served decides itself",
            advice="Give `portico serve` the exposure, or lead the client to a profile: "
            "…/mcp/p/NAME.",
        )
    if not parts.path.strip("/"):
        url = f"{url.rstrip('/')}/mcp"
    needs_token = loaded.config.gateway.token is not None
    remarks = [f"It leads to {url}: keep `portico serve` running there."]
    if needs_token and client.bearer_template:
        remarks.append(
            "The token comes from the variable PORTICO_TOKEN, which the client must have."
        )
    elif needs_token:
        remarks.append(
            f"{client.title} needs the token by hand: headers, Authorization, Bearer and the token."
        )
    entry = client_entries.make_http_entry(client, url, send_token=needs_token)
    return ClientEntry(entry, loaded.config.exposure, tuple(remarks))
