"""Finds the servers that clients already have. Reads their files, and never writes one.

A file that cannot be read is reported with its line; the others are still read.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from portico.adoption.client_entries import EntryContext, convert_entry
from portico.adoption.client_rules import AppliedRule, ClientRules, RuleTarget
from portico.adoption.clients import (
    ClientConfigLocation,
    UserEnvironment,
    list_client_locations,
    list_clients,
    list_other_projects,
)
from portico.adoption.rule_transfer import restrict_entry
from portico.config_file.client_translation import translate
from portico.config_file.draft import ConfigFinding
from portico.config_file.draft_builder import advise_unreadable, find_workspace
from portico.config_file.placeholders import PlaceholderFolders
from portico.config_file.tree_reader import ConfigNode, read_tree
from portico.errors import UnknownName

MAX_FILE_BYTES = 64 * 1024 * 1024
"""In bytes. Claude Code stores its history in the file, but less than this."""
FAST_PARSE_BYTES = 1024 * 1024
"""Size in bytes from which a file is read by the faster parser, which gives no line numbers."""
_HIDDEN_WARNINGS = (
    "left out, only its client uses",
    "left out, a client's own settings",
    "left out: it is Portico itself",
)
"""Warnings that do not matter when servers are moved."""


@dataclass(frozen=True)
class ServerOrigin:
    """The file and line where a server was found."""

    client: str
    """The client's name; empty for a file that was named."""
    title: str
    file: str
    line: int
    is_project_file: bool
    """Whether the file came with the folder, and the user has not approved the server there."""


@dataclass(frozen=True)
class FoundServer:
    name: str
    entry: Mapping[str, Any]
    """In our keys, with our placeholders; secrets are still in it."""
    origins: tuple[ServerOrigin, ...]
    folder: str | None = None
    """The implied working directory, its project."""
    required_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str = ""
    """Why it cannot be used."""
    original_name: str = ""
    """Its name in the client, if it was renamed."""
    rules: tuple[AppliedRule, ...] = ()
    """What its clients' rules say about it; denials and switches are in the entry."""


@dataclass(frozen=True)
class DiscoveredServers:
    servers: tuple[FoundServer, ...]
    findings: tuple[ConfigFinding, ...]
    """Problems in the files."""
    files: tuple[str, ...]
    """Files that have servers."""
    other_projects: Mapping[str, int] = field(default_factory=dict[str, int])
    """Folders with servers of their own that were left out, and how many each has."""


@dataclass(frozen=True)
class _ClientSource:
    client: str
    title: str
    location: ClientConfigLocation | None
    path: Path

    @property
    def is_project(self) -> bool:
        """Whether its servers are started in a project folder."""
        return self.location is not None and self.location.scope != "user"


def discover_servers(
    context: UserEnvironment, clients_or_files: Sequence[str] = (), *, all_projects: bool = False
) -> DiscoveredServers:
    """Find the servers of every client, or of the named clients and files.

    Servers that a user has only in other folders are counted; with `all_projects`, found.
    """
    servers: list[FoundServer] = []
    rules = ClientRules(context)
    findings = rules.findings
    files: list[str] = []
    trees: dict[Path, ConfigNode | None] = {}
    projects = list_other_projects(context)
    defaults = list(_iter_default_sources(context, projects if all_projects else {}))
    wanted: Iterable[_ClientSource] = defaults
    if clients_or_files:
        wanted = _iter_named_sources(context, clients_or_files, defaults)
    sources = _deduplicate_sources(wanted)
    for source in sources:
        shown = _shorten_path(source.path, context)
        if source.path not in trees:
            server_map_keys = [
                other.location.keys
                for other in sources
                if other.path == source.path and other.location is not None
            ]
            trees[source.path] = _read_file_tree(source, shown, server_map_keys, findings)
        root = trees[source.path]
        if root is None:
            continue
        found = list(_iter_servers(source, root, shown, context, findings, rules))
        servers += found
        if found and shown not in files:
            files.append(shown)
    left_out: Mapping[str, int] = {}
    if not all_projects and any(source.client == "claude-code" for source in sources):
        left_out = {folder: len(names) for folder, names in projects.items()}
    unique_findings = tuple(dict.fromkeys(findings))
    return DiscoveredServers(tuple(servers), unique_findings, tuple(files), left_out)


def _deduplicate_sources(sources: Iterable[_ClientSource]) -> list[_ClientSource]:
    """Drop repeated sources: in the home folder the project's file is also the user's."""
    unique: dict[tuple[Path, tuple[str, ...]], _ClientSource] = {}
    for source in sources:
        unique.setdefault((source.path, source.location.keys if source.location else ()), source)
    return list(unique.values())


def _iter_default_sources(
    context: UserEnvironment, other_projects: Iterable[str]
) -> Iterator[_ClientSource]:
    for client in list_clients():
        for location in list_client_locations(client.name, context, other_projects):
            yield _ClientSource(client.name, client.title, location, location.path)


def _iter_named_sources(
    context: UserEnvironment,
    clients_or_files: Iterable[str],
    defaults: Sequence[_ClientSource],
) -> Iterator[_ClientSource]:
    for text in clients_or_files:
        path = Path(os.path.abspath(context.cwd / Path(text).expanduser()))
        client_sources = [source for source in defaults if source.client == text]
        if client_sources and not path.exists():
            yield from client_sources
        elif path.exists() or path.suffix or len(path.parts) > len(context.cwd.parts) + 1:
            # Read as that client's file, so that the working directory of its servers is known.
            known = [source for source in defaults if source.path == path]
            yield from known or [_make_file_source(path)]
        else:
            names = tuple(dict.fromkeys(source.client for source in defaults))
            raise UnknownName(
                f"{text!r} is neither a file nor a client.",
                nearest=names,
                advice=f"Clients: {', '.join(names)}.",
            )


def _make_file_source(path: Path) -> _ClientSource:
    keys: tuple[str, ...] = ()
    folder = path.parent
    if path.name == ".mcp.json" or (folder.name == ".cursor" and folder.parent != Path.home()):
        keys = ("mcpServers",)
    elif folder.name == ".vscode" and path.name == "settings.json":
        keys = ("mcp", "servers")
    elif folder.name == ".vscode":
        keys = ("servers",)
    location = ClientConfigLocation("project", path, keys=keys) if keys else None
    return _ClientSource("", path.name, location, path)


def _read_file_tree(
    source: _ClientSource,
    display_path: str,
    server_map_keys: Sequence[Sequence[str]],
    findings: list[ConfigFinding],
) -> ConfigNode | None:
    named = source.location is None

    def report(problem: str, advice: str = "") -> None:
        findings.append(ConfigFinding(display_path, 0, "", problem, advice))

    try:
        file_stat = source.path.stat()
        if not stat.S_ISREG(file_stat.st_mode):
            # A project may contain a link to a device, which never ends.
            return report("cannot be read: it is no ordinary file")
        if file_stat.st_size > MAX_FILE_BYTES:
            return report("left out, too large to be a configuration")
        data = source.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if named:
            report("there is no such file", advise_unreadable(source.path))
        return None
    except OSError as error:
        return report(f"cannot be read: {error.strerror}")
    if (
        len(data) > FAST_PARSE_BYTES
        and server_map_keys
        and (part := _read_server_maps(data, server_map_keys)) is not None
    ):
        return part
    root, problems = read_tree(data, display_path)
    findings += problems
    if root is None and not problems and named:
        report("the file is empty")
    return root


def _read_server_maps(data: bytes, server_map_keys: Sequence[Sequence[str]]) -> ConfigNode | None:
    """Extract the server maps of a large file, without lines; None if it is not plain JSON."""
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    part: dict[str, Any] = {}
    for keys in server_map_keys:
        inner: Any = document
        for key in keys:
            if isinstance(inner, dict):
                inner = cast("dict[str, Any]", inner).get(key)
            else:
                inner = None
        if inner is not None:
            level = part
            for key in keys[:-1]:
                level = level.setdefault(key, {})
            level[keys[-1]] = inner
    root, _ = read_tree(json.dumps(part).encode(), "part.json")
    if root is not None:
        return _clear_lines(root)
    return None


def _clear_lines(node: ConfigNode) -> ConfigNode:
    node.line = 0
    for child in [*(node.entries or {}).values(), *(node.items or [])]:
        _clear_lines(child)
    return node


def _iter_servers(
    source: _ClientSource,
    root: ConfigNode,
    display_path: str,
    context: UserEnvironment,
    findings: list[ConfigFinding],
    rules: ClientRules,
) -> Iterator[FoundServer]:
    if source.location is not None:
        if root.entries is None:
            findings.append(ConfigFinding(display_path, root.line, "", "expected keys and values"))
            return
        inner = _find_node(root, source.location.keys)
        if inner is None:
            return
        root = ConfigNode({"mcpServers": inner}, inner.line)
    translated = translate(root, display_path)
    findings += translated.errors
    findings += [
        warning
        for warning in translated.warnings
        if not warning.message.startswith(_HIDDEN_WARNINGS)
    ]
    entry_context = _make_entry_context(source, context)
    for position, (name, entry) in enumerate(translated.servers):
        converted, required_variables = convert_entry(entry, entry_context)
        folder = None
        if entry_context.is_project and "command" in converted and "cwd" not in converted:
            folder = str(entry_context.folders.workspace)
        target = _make_rule_target(source, name, converted, context)
        raw_entry = (root.entries or {}).get("mcpServers", root)
        applied = rules.find(target, _to_plain(raw_entry, name))
        is_approved = any(rule.effect == "approve" for rule in applied)
        project = target.is_project_file and not is_approved
        origin = ServerOrigin(source.client, source.title, display_path, entry.line, project)
        yield FoundServer(
            _make_printable(name),
            restrict_entry(converted, applied),
            (origin,),
            folder,
            required_variables,
            translated.problems.get(position, ""),
            rules=applied,
        )


def _make_rule_target(
    source: _ClientSource, name: str, entry: Mapping[str, Any], context: UserEnvironment
) -> RuleTarget:
    location = source.location
    folder = context.project_key
    if location is not None and location.scope == "local":
        folder = location.keys[1]
    is_project_file = location is not None and location.scope == "project"
    return RuleTarget(source.client, name, entry, folder, is_project_file)


def _to_plain(servers: ConfigNode, name: str) -> Mapping[str, Any]:
    node = (servers.entries or {}).get(name)
    plain = node.to_plain() if node is not None else None
    return cast("Mapping[str, Any]", plain) if isinstance(plain, Mapping) else {}


def _make_printable(name: str) -> str:
    """Replace line breaks and the like, with which a name could forge terminal output."""
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def _find_node(node: ConfigNode, keys: Sequence[str]) -> ConfigNode | None:
    for key in keys:
        inner = (node.entries or {}).get(key)
        if inner is None:
            return None
        node = inner
    return node


def _make_entry_context(source: _ClientSource, context: UserEnvironment) -> EntryContext:
    folder = source.path.parent
    is_hidden = folder.name.startswith(".")
    if source.location is None or source.location.scope == "user":
        workspace = find_workspace(source.path, context.cwd)
    elif source.location.scope == "local":
        workspace = Path(source.location.keys[1])
    elif folder == context.cwd:
        workspace = context.cwd
    elif is_hidden:
        workspace = folder.parent
    else:
        workspace = folder
    base = workspace if source.is_project or is_hidden else folder
    return EntryContext(
        PlaceholderFolders(workspace, context.cwd, context.home),
        base,
        source.is_project,
        context.environ,
    )


def _shorten_path(path: Path, context: UserEnvironment) -> str:
    if path.is_relative_to(context.cwd) and context.cwd != context.home:
        return str(path.relative_to(context.cwd))
    if path.is_relative_to(context.home):
        return str(Path("~") / path.relative_to(context.home))
    return str(path)
