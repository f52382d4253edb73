"""Finds the servers that clients already have. Reads their files, and never writes to one.

A file that cannot be read is told with its line, and costs no other file anything.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from portico.adoption.clients import clients, places
from portico.adoption.entries import Around, written
from portico.adoption.places import Place
from portico.config_file.clients import translate
from portico.config_file.finding import Finding
from portico.config_file.gathering import unreadable_advice, workspace_of
from portico.config_file.placeholders import Places
from portico.config_file.reading import Node, read_tree
from portico.errors import UnknownName

LARGEST = 64 * 1024 * 1024
"""Bytes: Claude Code keeps its history in the file, but not that much."""
LARGE = 1024 * 1024
"""Bytes from which a file is read by the quicker reader, which tells no lines."""
_QUIET = ("left out, only its client uses", "left out, a client's own settings", "left out: it is Portico itself")
"""Remarks that a person who moves servers need not read."""


@dataclass(frozen=True)
class Origin:
    """Where a server was found."""

    client: str
    """The client's name; empty for a file that was named."""
    title: str
    file: str
    line: int
    project: bool
    """Whether its file came with the folder: then nobody has trusted it by opening it."""


@dataclass(frozen=True)
class Found:
    """A server as one or more clients have it."""

    name: str
    entry: Mapping[str, Any]
    """In our keys, with our placeholders; secrets are still in it."""
    origins: tuple[Origin, ...]
    folder: str | None = None
    """Where it is started although its entry does not say so: its project."""
    asked: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str = ""
    """Why it cannot be used."""
    called: str = ""
    """Its name in the client, where it has another one here."""


@dataclass(frozen=True)
class Look:
    """Everything that was found."""

    servers: tuple[Found, ...]
    findings: tuple[Finding, ...]
    """What is wrong or odd in the files."""
    files: tuple[str, ...]
    """Those that have servers."""


@dataclass(frozen=True)
class Here:
    """Where is looked."""

    home: Path
    cwd: Path
    platform: str
    environ: Mapping[str, str]


@dataclass(frozen=True)
class _Source:
    client: str
    title: str
    place: Place | None
    path: Path

    @property
    def project(self) -> bool:
        """Whether its servers are started in a folder of their own."""
        return self.place is not None and self.place.scope != "user"


def look(here: Here, wanted: Sequence[str] = ()) -> Look:
    """The servers of every client, or of the clients and files that are named."""
    servers: list[Found] = []
    findings: list[Finding] = []
    files: list[str] = []
    trees: dict[Path, Node | None] = {}
    sources = _once(_named(here, wanted) if wanted else _usual(here))
    for source in sources:
        shown = _shown(source.path, here)
        if source.path not in trees:
            ways = [one.place.keys for one in sources if one.path == source.path and one.place is not None]
            trees[source.path] = _tree(source, shown, ways, findings)
        root = trees[source.path]
        if root is None:
            continue
        found = list(_servers(source, root, shown, here, findings))
        servers += found
        if found and shown not in files:
            files.append(shown)
    return Look(tuple(servers), tuple(dict.fromkeys(findings)), tuple(files))


def _once(sources: Iterable[_Source]) -> list[_Source]:
    """In a home folder the file of the project is the user's own."""
    kept: dict[tuple[Path, tuple[str, ...]], _Source] = {}
    for source in sources:
        kept.setdefault((source.path, source.place.keys if source.place else ()), source)
    return list(kept.values())


def _usual(here: Here) -> Iterator[_Source]:
    for client in clients():
        for place in places(client, here.home, here.cwd, here.platform, here.environ):
            yield _Source(client.name, client.title, place, place.path)


def _named(here: Here, wanted: Iterable[str]) -> Iterator[_Source]:
    usual = list(_usual(here))
    for text in wanted:
        path = Path(os.path.abspath(here.cwd / Path(text).expanduser()))
        of_client = [source for source in usual if source.client == text]
        if of_client and not path.exists():
            yield from of_client
        elif path.exists() or path.suffix or len(path.parts) > len(here.cwd.parts) + 1:
            # A file of a client is read as that client's, so that it is known where its servers are started.
            known = [source for source in usual if source.path == path]
            yield from known or [_project_file(path)]
        else:
            names = tuple(dict.fromkeys(source.client for source in usual))
            raise UnknownName(
                f"{text!r} is neither a file nor a client.", nearest=names, advice=f"Clients: {', '.join(names)}."
            )


def _project_file(path: Path) -> _Source:
    plain = _Source("", path.name, None, path)
    if path.name == ".mcp.json":
        return replace(plain, place=Place("project", path, "json", ("mcpServers",)))
    if path.parent.name == ".vscode":
        keys = ("mcp", "servers") if path.name == "settings.json" else ("servers",)
        return replace(plain, place=Place("project", path, "json", keys))
    if path.parent.name == ".cursor" and path.parent.parent != Path.home():
        return replace(plain, place=Place("project", path, "json", ("mcpServers",)))
    return plain


def _tree(source: _Source, shown: str, ways: Sequence[Sequence[str]], findings: list[Finding]) -> Node | None:
    named = source.place is None
    try:
        there = source.path.stat()
        if not stat.S_ISREG(there.st_mode):
            # A project may bring a link to a device, which never ends.
            findings.append(Finding(shown, 0, "", "cannot be read: it is no ordinary file"))
            return None
        if there.st_size > LARGEST:
            findings.append(Finding(shown, 0, "", "left out, too large to be a configuration"))
            return None
        data = source.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if named:
            findings.append(Finding(shown, 0, "", "there is no such file", unreadable_advice(source.path)))
        return None
    except OSError as error:
        findings.append(Finding(shown, 0, "", f"cannot be read: {error.strerror}"))
        return None
    if len(data) > LARGE and ways and (part := _part(data, ways)) is not None:
        return part
    root, wrong = read_tree(data, shown)
    findings += wrong
    if root is None and not wrong and named:
        findings.append(Finding(shown, 0, "", "the file is empty"))
    return root


def _part(data: bytes, ways: Sequence[Sequence[str]]) -> Node | None:
    """Of a large file that is plain JSON, the servers alone, without their lines; None where it is not so plain."""
    try:
        whole: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict):
        return None
    part: dict[str, Any] = {}
    for keys in ways:
        inner: Any = whole
        for key in keys:
            inner = cast("dict[str, Any]", inner).get(key) if isinstance(inner, dict) else None
        if inner is not None:
            level = part
            for key in keys[:-1]:
                level = level.setdefault(key, {})
            level[keys[-1]] = inner
    root, _ = read_tree(json.dumps(part).encode(), "part.json")
    return _without_lines(root) if root is not None else None


def _without_lines(node: Node) -> Node:
    node.line = 0
    for child in [*(node.entries or {}).values(), *(node.items or [])]:
        _without_lines(child)
    return node


def _servers(source: _Source, root: Node, shown: str, here: Here, findings: list[Finding]) -> Iterator[Found]:
    if source.place is not None:
        if root.entries is None:
            findings.append(Finding(shown, root.line, "", "expected keys and values"))
            return
        inner = _at(root, source.place.keys)
        if inner is None:
            return
        root = Node({"mcpServers": inner}, inner.line)
    told = translate(root, shown)
    findings += told.errors
    findings += [warning for warning in told.warnings if not warning.message.startswith(_QUIET)]
    around = _around(source, here)
    for position, (name, entry) in enumerate(told.servers):
        done = written(entry, around)
        folder = str(around.places.workspace) if around.project and "cwd" not in done.entry else None
        project = source.project and (source.place is None or source.place.scope == "project")
        origin = Origin(source.client, source.title, shown, entry.line, project)
        if "command" not in done.entry:
            folder = None
        yield Found(_printable(name), done.entry, (origin,), folder, done.asked, told.problems.get(position, ""))


def _printable(name: str) -> str:
    """A name without line breaks and the like, with which a project could write lines of its own on the screen."""
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def _at(node: Node, keys: Sequence[str]) -> Node | None:
    for key in keys:
        inner = (node.entries or {}).get(key)
        if inner is None:
            return None
        node = inner
    return node


def _around(source: _Source, here: Here) -> Around:
    path = source.path
    if source.place is not None and source.place.scope != "user" and path.parent != here.cwd:
        inside = path.parent.name.startswith(".")
        workspace = here.cwd if source.place.scope == "local" else (path.parent.parent if inside else path.parent)
    elif source.project:
        workspace = here.cwd
    else:
        workspace = workspace_of(path, here.cwd)
    base = workspace if source.project or path.parent.name.startswith(".") else path.parent
    return Around(Places(workspace, here.cwd, here.home), base, source.project, here.environ)


def _shown(path: Path, here: Here) -> str:
    if path.is_relative_to(here.cwd) and here.cwd != here.home:
        return str(path.relative_to(here.cwd))
    return str(Path("~") / path.relative_to(here.home)) if path.is_relative_to(here.home) else str(path)
