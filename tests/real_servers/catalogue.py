"""The table of servers as frozen facts: what to install, how to start it, what to ask it. Pure but
for reading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

TABLE = Path(__file__).with_name("servers.yaml")

Era = Literal["legacy", "modern"]
Transport = Literal["stdio", "http", "sse"]
Raw = dict[str, Any]

_METHODS = {
    "call": "tools/call",
    "read": "resources/read",
    "prompt": "prompts/get",
    "complete": "completion/complete",
}


@dataclass(frozen=True)
class Question:
    """One request a server is asked over every way in."""

    method: str
    params: Raw
    volatile: tuple[str, ...] = ()
    handshake_only: bool = False

    @property
    def tool(self) -> str | None:
        return self.params["name"] if self.method == "tools/call" else None

    def filled(self, places: Mapping[str, str]) -> Question:
        """With the run's own folder and addresses in place of {sandbox} and the like."""
        return Question(self.method, fill(self.params, places), self.volatile, self.handshake_only)


@dataclass(frozen=True)
class Server:
    """One third-party server."""

    name: str
    era: Era
    protocol: str
    tools: int
    questions: tuple[Question, ...]
    npm: str | None = None
    pypi: str | None = None
    group: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    transport: Transport = "stdio"
    noisy: bool = False
    needs: str | None = None
    """A program that must be on the PATH."""

    @property
    def package(self) -> str:
        """Its name at its registry."""
        return self.pypi.partition("==")[0] if self.pypi else (self.npm or "").rpartition("@")[0]

    @property
    def version(self) -> str:
        return (
            (self.pypi or "").partition("==")[2]
            if self.pypi
            else (self.npm or "").rpartition("@")[2]
        )


@dataclass(frozen=True)
class Catalogue:
    """All of them, and the virtual environments those from PyPI share."""

    servers: Mapping[str, Server]
    groups: Mapping[str, tuple[str, ...]]

    def npm(self) -> list[str]:
        """npm packages to install."""
        return sorted({server.npm for server in self.servers.values() if server.npm})

    def requirements(self, group: str) -> list[str]:
        """Return what one virtual environment holds."""
        own = {
            server.pypi for server in self.servers.values() if server.pypi and server.group == group
        }
        return [*self.groups[group], *sorted(own)]


def load(table: Path = TABLE) -> Catalogue:
    """The catalogue in the table."""
    data = yaml.safe_load(table.read_text("utf-8"))
    servers = {name: _server(name, dict(entry)) for name, entry in data["servers"].items()}
    return Catalogue(servers, {name: tuple(pins) for name, pins in data["groups"].items()})


def fill(value: Any, places: Mapping[str, str]) -> Any:
    """`value` with every {place} in its strings replaced; braces that name no place stay."""
    if isinstance(value, str):
        for place, text in places.items():
            value = value.replace(f"{{{place}}}", text)
        return value
    if isinstance(value, dict):
        return {key: fill(item, places) for key, item in value.items()}
    return [fill(item, places) for item in value] if isinstance(value, list) else value


def _server(name: str, entry: Raw) -> Server:
    questions = tuple(_question(dict(question)) for question in entry.pop("questions"))
    return Server(name, questions=questions, args=tuple(entry.pop("args", ())), **entry)


def _question(entry: Raw) -> Question:
    kind = next(kind for kind in _METHODS if kind in entry)
    target, arguments = entry.pop(kind), entry.pop("arguments", {})
    params: Raw
    if kind == "read":
        params = {"uri": target}
    elif kind == "complete":
        params = {"ref": target, "argument": entry.pop("argument")}
    else:
        params = {"name": target, "arguments": arguments}
    return Question(_METHODS[kind], params, tuple(entry.pop("volatile", ())), **entry)
