"""Stdio servers for one test each: a few lines of script in the test itself, or a broken server
that is recorded_server."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from portico.upstream.backend import Connection, Era
from portico.upstream.transports.stdio import StdioBackend
from tests.fixtures import broken_command
from tests.upstream.loopback_server import RecordingListener

TEST_TIMEOUT_S = 240.0
"""Every wait ends; on a busy machine it may take its time."""

_PRELUDE = """
import json, os, signal, sys, threading, time

def line(text):
    sys.stdout.buffer.write((text if isinstance(text, bytes) else text.encode()) + b"\\n")
    sys.stdout.buffer.flush()

def send(**message):
    line(json.dumps({"jsonrpc": "2.0", **message}))

def read():
    text = sys.stdin.buffer.readline()
    if not text:
        sys.exit(0)
    return json.loads(text)

def shake(**capabilities):
    while (message := read()).get("method") != "notifications/initialized":
        if message["method"] == "initialize":
            info = {"name": "scripted", "version": "1"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, **capabilities}, "serverInfo": info}
            send(id=message["id"], result=hello)
        elif "id" in message:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})

def requests():
    while True:
        message = read()
        if "id" in message and "method" in message:
            yield message["id"], message["method"], message.get("params") or {}
"""  # noqa: E501

_OVERHEARD = """
sys.path.insert(0, sys.argv[1])
from tests.fixtures.broken_servers.names import SERVERS

class Recorded(SERVERS[sys.argv[3]]):
    def on_message(self, message):
        with open(sys.argv[2], "a") as heard:
            heard.write(f"{os.getpid()} {message.get('method')}\\n")
        super().on_message(message)

Recorded().run()
"""


def script(body: str) -> tuple[str, ...]:
    """The command of a server: `line`, `send`, `read`, `shake` and `requests` are there for it to
    use."""
    return (sys.executable, "-S", "-c", _PRELUDE + body)


def scripted(body: str, **options: Any) -> StdioBackend:
    """A backend of such a server."""
    command, *args = script(body)
    return StdioBackend("scripted", command, tuple(args), **options)


def faulty_server(name: str, number: float | None = None, **options: Any) -> StdioBackend:
    """A backend of a broken server."""
    command, *args = broken_command(name, number)
    return StdioBackend(name, command, tuple(args), **options)


def recorded_server(name: str, heard: Path, **options: Any) -> StdioBackend:
    """A backend of a broken server that writes down what it is sent; read it with `methods`."""
    root = str(Path(__file__).parents[2])
    command, *args = (*script(_OVERHEARD), root, str(heard), name)
    return StdioBackend(name, command, tuple(args), **options)


def methods(heard: Path) -> list[list[str]]:
    """What each process of an recorded_server server was sent, process by process."""
    found: dict[str, list[str]] = {}
    for entry in heard.read_text().splitlines() if heard.exists() else ():
        pid, method = entry.split()
        found.setdefault(pid, []).append(method)
    return list(found.values())


@asynccontextmanager
async def conversation(
    backend: StdioBackend, era: Era | None = None
) -> AsyncGenerator[tuple[Connection, RecordingListener]]:
    """A live conversation with a backend, and what is heard of it."""
    listener = RecordingListener()
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            connection = await backend.connect(listener, era)
        try:
            yield connection, listener
        finally:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.close()
    finally:
        backend.guard.close()


async def call(connection: Connection, name: str, **arguments: Any) -> str:
    """The text a tool answers."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        result = await connection.request("tools/call", {"name": name, "arguments": arguments})
    return result["content"][0]["text"]
