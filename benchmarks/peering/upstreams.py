"""Measures what stands behind a gateway: recorded servers, an echo server among them, all in one
process."""

import contextlib
import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import processes, programs
from benchmarks.peering import replay

ECHO = "echo"
"""The server that every fleet has, and its only tool."""
Recording = Mapping[str, Any]


@dataclass(frozen=True)
class Upstream:
    """One server: for gateways that reach it over HTTP, and for one that starts it."""

    name: str
    url: str
    command: tuple[str, ...]


def echo() -> Recording:
    """A server with one tool, as `programs.py upstream` has it."""
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to say back."}},
        "required": ["text"],
    }
    tool = {"name": ECHO, "description": "Says it back.", "inputSchema": schema}
    hello = {"capabilities": {"tools": {}}, "serverInfo": {"name": ECHO, "version": "1"}}
    return {"initialize": hello, "tools": [tool]}


def tools_as_recordings(tools: Sequence[Mapping[str, Any]]) -> dict[str, Recording]:
    """The tools of a set as servers; a server is named as a gateway can name it."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        name = server_name(tool.get("server") or "server")
        info = {"name": name, "version": "1", **_drop_empty(title=tool.get("server_title"))}
        greeting = {"capabilities": {"tools": {}}, "serverInfo": info}
        recording = found.setdefault(name, {"initialize": greeting, "tools": []})
        recording["initialize"] |= _drop_empty(instructions=tool.get("server_description"))
        schema = {"type": "object", **(tool.get("input_schema") or {})}
        said = _drop_empty(title=tool.get("title"), description=tool.get("description"))
        recording["tools"].append({"name": tool["name"], **said, "inputSchema": schema})
    return dict(found)


def _drop_empty(**said: str | None) -> dict[str, str]:
    return {key: text for key, text in said.items() if text}


def server_name(server: str) -> str:
    """Letters, digits and hyphens, because that is what all gateways take."""
    return re.sub(r"[^a-z0-9]+", "-", server.lower()).strip("-") or "server"


@contextlib.contextmanager
def serving(recordings: Mapping[str, Recording], folder: Path) -> Generator[list[Upstream]]:
    """These servers, answering over HTTP until the end."""
    port = processes.free_port()
    upstreams = write_servers(recordings, folder, port)
    with processes.listening(port, replay.command("--port", str(port), str(folder)), folder):
        yield upstreams


def write_servers(recordings: Mapping[str, Recording], folder: Path, port: int) -> list[Upstream]:
    """These servers written down, to be served on `port`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, recording in recordings.items():
        (folder / f"{name}.json").write_text(json.dumps(recording), "utf-8")
    return [
        Upstream(
            name,
            f"http://127.0.0.1:{port}/{name}/mcp",
            tuple(replay.command("--stdio", str(folder / f"{name}.json"))),
        )
        for name in recordings
    ]


@contextlib.contextmanager
def one_echo(folder: Path) -> Generator[Upstream]:
    """The echo server on the SDK, as benchmarks of a call use it."""
    port = processes.free_port()
    with processes.listening(port, programs.command("upstream", port=port), folder):
        yield Upstream(ECHO, f"http://127.0.0.1:{port}/mcp", tuple(programs.command("upstream")))
