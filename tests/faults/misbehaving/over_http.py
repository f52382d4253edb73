"""Carries scripts out over Streamable HTTP and HTTP+SSE: many servers in one process, each on a
port of its own.

A server that dies cuts its connections and listens no more, until the fault is over; its port stays
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys

from tests.faults.misbehaving.healthy import GREETINGS, PLACES, answer, fault_in, make_fault_request
from tests.faults.misbehaving.scripts import script_for
from tests.faults.misbehaving.steps import Message, encode, notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tests.faults.misbehaving.steps import Script, Step

_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_POLL_S = 0.05


class Gone(Exception):
    """The connection is over."""


class Server:
    """One server with its port."""

    def __init__(self, path: str, era: str) -> None:
        self.path, self.era = path, era
        self.wire = "sse" if era == "sse" else "http"
        self.sessions: set[str] = set()
        self.streams: set[Connection] = set()
        self.connections: set[Connection] = set()
        self._named = 0
        self._held = _bind(0)  # keeps the port while nobody listens on it
        self.port: int = self._held.getsockname()[1]
        self._listening: asyncio.Server | None = None

    @property
    def fault(self) -> str:
        return fault_in(self.path)

    async def listen(self) -> None:
        # So that a hundred megabytes are not written to nobody: what is not read is not sent.
        self._listening = await asyncio.start_server(
            self._accept, sock=_bind(self.port), limit=2**20
        )

    async def die(self) -> None:
        """Cut everything; come back when the fault is over."""
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        fault = self.fault
        listening.close()
        self.sessions.clear()
        for connection in list(self.connections):
            connection.reset()

        async def come_back() -> None:
            while self.fault == fault:  # noqa: ASYNC110 - another process says when
                await asyncio.sleep(_POLL_S)
            await self.listen()

        _keep(come_back())

    def named(self) -> str:
        self._named += 1
        session = f"session-{self._named}"
        self.sessions.add(session)
        return session

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        self.connections.add(connection)
        try:
            while True:
                await connection.exchange()
        except (Gone, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections.discard(connection)
            self.streams.discard(connection)
            writer.close()


class Connection:
    """One connection: exchange after exchange."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.began = self.greets = False

    async def exchange(self) -> None:
        """One request and what is done to it."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target = head[0].split(" ")[:2]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (one.partition(":") for one in head[1:] if one)
        }
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        self.began = False
        if method == "GET":
            await self._stream(self.server.wire == "sse")
        elif method == "DELETE":
            self.server.sessions.discard(headers.get("mcp-session-id", ""))
            await self.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        elif self.server.wire == "sse" and not target.startswith("/post"):
            await self.send(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
        else:
            await self._posted(json.loads(body), headers)

    async def _posted(self, request: Message, headers: dict[str, str]) -> None:
        server, method = self.server, request.get("method", "")
        if "id" not in request or not method:
            await self._accepted()
        elif method == "subscriptions/listen":
            await self._stream(False, request["id"])
        elif method == "tools/call" and request["params"].get("name") == "quit":
            await self._healthy(request)
            await self._quit()
        elif (
            server.era == "legacy"
            and method not in GREETINGS
            and headers.get("mcp-session-id") not in server.sessions
        ):
            await self.send(b"HTTP/1.1 404 Gone\r\ncontent-length: 0\r\n\r\n")
        elif (script := script_for(server.fault, PLACES.get(method, ""))) is not None:
            await self._perform(script, request)
        else:
            await self._healthy(request)

    async def _quit(self) -> None:
        """Return what the end of a process is on this wire: anyone who comes next is a stranger."""
        self.server.sessions.clear()
        for stream in list(self.server.streams):
            stream.reset()

    async def _accepted(self) -> None:
        await self.send(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")

    async def _healthy(self, request: Message) -> None:
        data = encode(answer(request, self.server.era))
        if self.server.wire == "sse":
            await self._accepted()
            await self.event(data)
            return
        session = ""
        if request["method"] == "initialize" and self.server.era == "legacy":
            session = f"mcp-session-id: {self.server.named()}\r\n"
        head = (
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{session}content-length: "
            f"{len(data)}\r\n\r\n"
        )
        await self.send(head.encode() + data)

    async def _stream(self, names_endpoint: bool, listening: Any = None) -> None:
        """A stream beside the requests, for as long as it is wanted."""
        await self.send(_STREAM)
        self.server.streams.add(self)
        if names_endpoint:
            await self.chunk(b"event: endpoint\ndata: /post\n\n")
        if listening is not None:
            await self.event(encode(notice("subscriptions/acknowledged", {})), here=True)
        self.began = True
        if (script := script_for(self.server.fault, "stream")) is not None:
            await self._steps(script, {"method": "stream"})
        await self.reader.read()
        raise Gone

    async def _perform(self, script: Script, request: Message) -> None:
        if self.server.wire == "sse":
            await self._accepted()
        await self._steps(script, request)
        if self.began and self.server.wire != "sse":
            await self.send(b"0\r\n\r\n")

    async def _steps(self, script: Script, request: Message) -> None:
        self.greets = request["method"] == "initialize" and self.server.era == "legacy"
        for step in script(make_fault_request(request, self.server.era, self.server.wire)):
            await self._take(step)

    async def _take(self, step: Step) -> None:
        kind, *rest = step
        if kind == "line":
            await self.event(rest[0])
        elif kind == "raw":
            await self.event(rest[0], whole=False)
        elif kind == "wait":
            await asyncio.sleep(rest[0])
        elif kind in ("hang", "freeze"):
            await self.reader.read()
            raise Gone
        elif kind in ("die", "kill"):
            await self.server.die()
            raise Gone
        elif kind == "bytes":
            await self.send(rest[0])
        elif kind == "close":
            raise Gone
        elif kind == "reset":
            self.reset()
            raise Gone
        elif kind == "forget":
            self.server.sessions.clear()
        elif kind != "stderr":
            raise ValueError(f"{kind} cannot be done over HTTP")

    async def _begin(self) -> None:
        if not self.began:
            self.began = True
            session = f"mcp-session-id: {self.server.named()}\r\n" if self.greets else ""
            await self.send(_STREAM[:-2] + session.encode() + b"\r\n")

    async def event(self, data: bytes, *, whole: bool = True, here: bool = False) -> None:
        """The data of an event, on this exchange's stream, or on the one beside it in HTTP+SSE."""
        # The end of a line would be the end of the data.
        said = b"data: " + data.replace(b"\n", b"\ndata: ") + (b"\n\n" if whole else b"")
        if self.server.wire == "sse" and not here:
            for stream in list(self.server.streams):
                await stream.chunk(said)
            return
        if not here:
            await self._begin()
        await self.chunk(said)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise Gone
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """RST, whatever was not sent yet."""
        connected = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport: Any = self.writer.transport
        transport.abort()


_kept: set[asyncio.Task[None]] = set()


def _keep(work: Any) -> None:
    task: asyncio.Task[None] = asyncio.ensure_future(work)
    _kept.add(task)
    task.add_done_callback(_kept.discard)


def _bind(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


def serve_all(folder: str) -> None:
    """Every server of a folder, until stdin closes."""
    with open(os.path.join(folder, "servers")) as file:
        wanted = dict(line.split() for line in file)

    async def run() -> None:
        servers = {name: Server(os.path.join(folder, name), era) for name, era in wanted.items()}
        for server in servers.values():
            await server.listen()
        print(json.dumps({name: server.port for name, server in servers.items()}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        os._exit(0)

    asyncio.run(run())
