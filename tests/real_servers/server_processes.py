"""Puts a server on its feet for one run: a command in a fresh sandbox, and for those over HTTP a
running process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_servers import sandbox
from tests.real_servers.catalogue import Question, Server, fill
from tests.real_servers.http_wire import HttpConversation, SseConversation
from tests.real_servers.installation import Installation
from tests.real_servers.jsonrpc_client import Conversation
from tests.real_servers.stdio_wire import StdioConversation, end, start

START_S = 60.0
MARK = "PORTICO_REAL_SERVERS_RUN"
"""An environment variable every server of a run carries, and every process such a server starts."""


@dataclass(frozen=True)
class Hosted:
    """A server ready to be talked to, once."""

    server: Server
    command: tuple[str, ...]
    env: Mapping[str, str]
    root: Path
    places: Mapping[str, str]

    @property
    def url(self) -> str | None:
        return fill(self.server.url, self.places)

    def questions(self) -> list[Question]:
        """Return what it is asked in this run."""
        return [question.filled(self.places) for question in self.server.questions]

    def directly(self) -> Conversation:
        """A conversation with nothing in between, in the environment any client would give it."""
        era, url = self.server.era, self.url
        if url is None:
            return StdioConversation(era, self.command, {**os.environ, **self.env}, str(self.root))
        return (
            HttpConversation(era, url)
            if self.server.transport == "http"
            else SseConversation(era, url)
        )

    def config(self) -> dict[str, Any]:
        """Its entry in Portico's configuration."""
        timeouts = {"start_s": START_S}
        if self.url is not None:
            return {"type": self.server.transport, "url": self.url, "timeouts": timeouts}
        command, *args = self.command
        return {
            "command": command,
            "args": args,
            "env": dict(self.env),
            "cwd": str(self.root),
            "timeouts": timeouts,
        }


@asynccontextmanager
async def host_server(
    server: Server, installation: Installation, folder: Path, page: str, mark: str = ""
) -> AsyncGenerator[Hosted]:
    """A server over a new sandbox in `folder`; one over HTTP is running."""
    root = await asyncio.to_thread(sandbox.make, folder)
    places = {"sandbox": str(root), "port": str(_free_port()), "page": page}
    env = {
        "HOME": str(root / "home"),
        "TMPDIR": str(root / "tmp"),
        "PATH": f"{installation.node.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        MARK: mark or "yes",
        **fill(dict(server.env), places),
    }
    ready = Hosted(
        server, (*installation.command(server), *fill(list(server.args), places)), env, root, places
    )
    if server.url is None:
        yield ready
        return
    # Not marked: it is ours, and outlives the gateway that talks to it.
    unmarked = {**os.environ, **{name: value for name, value in env.items() if name != MARK}}
    quiet = subprocess.DEVNULL
    process = await start(ready.command, unmarked, str(root), stdin=quiet, stdout=quiet)
    try:
        await _listening(process, int(places["port"]), server.name)
        yield ready
    finally:
        await end(process)


async def _listening(process: asyncio.subprocess.Process, port: int, name: str) -> None:
    deadline = time.monotonic() + START_S
    while process.returncode is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} does not listen on its port (exit code {process.returncode})")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
