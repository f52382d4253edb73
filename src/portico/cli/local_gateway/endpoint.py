"""The gateway's side of the local endpoint: connections of this user's commands and bridges.

A Unix socket in the folder of the registrations, where there are Unix sockets, else loopback TCP. A
connection that does not prove within `HANDSHAKE_S` that it knows the key is closed, and has been
told nothing but a digest of random numbers.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message

from portico import __version__
from portico.cli.local_gateway.command_runner import (
    CommandNotRun,
    ParsedCommand,
    RemoteStreams,
    make_exit_frame,
    parse_command,
)
from portico.cli.local_gateway.connection import LOOPBACK, MAX_LINE_BYTES
from portico.cli.local_gateway.registration import (
    Registration,
    ServedConfiguration,
    compute_digest,
    ensure_private_folder,
    read_process_start,
    write_registration,
)
from portico.config.limits import LimitsConfig
from portico.server.profile_endpoint import ProfileEndpoint
from portico.server.stdio import LineLimits, open_line_streams, serve_streams

logger = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
MAX_CONNECTIONS = 256
MAX_SOCKET_PATH_BYTES = 100
"""Longer paths of Unix sockets are not possible everywhere (104 bytes on macOS)."""


@dataclass(frozen=True)
class ServedGateway:
    """What the local endpoint serves."""

    select_endpoints: Callable[[], Mapping[str, ProfileEndpoint]]
    get_limits: Callable[[], LimitsConfig]
    run_command: Callable[[ParsedCommand, RemoteStreams], Coroutine[Any, Any, int]]
    inspect: Callable[[Mapping[str, Any]], Coroutine[Any, Any, dict[str, Any]]]
    api: ASGIApp
    stop: Callable[[], None]
    describe_waiting: Callable[[], str]
    """Say what a stop would wait for; empty if for nothing."""


class LocalEndpoint:
    """Answers the connections of one gateway."""

    def __init__(self, served: ServedGateway, key: bytes) -> None:
        self._served = served
        self._key = key
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection in a task of its own."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="local connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all connections."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                request = await self._authenticate(reader, writer)
            if request is not None:
                await self._answer(request, reader, writer)
                await writer.drain()
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # the client has gone, or is none
        except Exception:  # one connection must not affect the others
            logger.exception("a local connection failed")
        finally:
            writer.close()

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any] | None:
        hello = await _read_object(reader)
        theirs = str(hello["nonce"]) if hello.get("portico") == 1 else ""
        if not theirs:
            return None
        nonce = secrets.token_hex(16)
        proof = compute_digest(self._key, "gateway", theirs, nonce)
        _send_object(writer, {"nonce": nonce, "proof": proof})
        request = await _read_object(reader)
        expected = compute_digest(self._key, "client", theirs, nonce)
        if hmac.compare_digest(str(request.get("proof")).encode(), expected.encode()):
            return request
        return None

    async def _answer(
        self,
        request: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        kind = request.get("open")
        if kind == "ping":
            _send_object(writer, {"ok": True})
        elif kind == "stop":
            _send_object(writer, {"ok": True, "waits_for": self._served.describe_waiting()})
            self._served.stop()
        elif kind == "rest":
            content = await self._read_content(request, reader)
            _send_object(writer, {"ok": True})
            _send_object(writer, await call_rest(self._served.api, request, content))
        elif kind == "inspect":
            _send_object(writer, {"ok": True})
            _send_object(writer, await self._served.inspect(request))
        elif kind == "stdio":
            await self._serve_client(str(request.get("profile") or ""), reader, writer)
        elif kind == "command":
            await self._run_command(request, reader, writer)
        else:
            _send_object(writer, {"refused": "this gateway knows no such request"})

    async def _read_content(
        self, request: Mapping[str, Any], reader: asyncio.StreamReader
    ) -> bytes:
        size = int(request.get("content_bytes") or 0)
        if not 0 <= size <= int(self._served.get_limits().max_request_bytes):
            raise ValueError("more content than limits.max_request_bytes")
        return await reader.readexactly(size)

    async def _serve_client(
        self, profile: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        endpoint = self._served.select_endpoints().get(profile)
        if endpoint is None:
            _send_object(writer, {"refused": "this gateway does not serve that profile"})
            return
        _send_object(writer, {"ok": True})
        limits = LineLimits.from_config(self._served.get_limits())
        streams = open_line_streams(reader, writer, limits, lambda: None, reject_invalid_lines=True)
        # Over a connection as over a pipe: a session of its own, which ends with it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await serve_streams(endpoint, streams)

    async def _run_command(
        self,
        request: Mapping[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        content = await self._read_content(request, reader)
        try:
            arguments = [str(argument) for argument in request["arguments"]]
            files = [str(file) for file in request["files"]]
            command = await asyncio.to_thread(parse_command, arguments, files)
        except CommandNotRun as error:
            _send_object(writer, {"refused": str(error)})
            return
        _send_object(writer, {"ok": True})
        send = _make_thread_safe_sender(writer)
        streams = RemoteStreams(send, request["terminal"], content)
        running = asyncio.create_task(self._served.run_command(command, streams))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                send(make_exit_frame(running.result()))
                await asyncio.sleep(0)
        finally:
            for task in (running, gone):
                task.cancel()
            await asyncio.wait({running, gone})


@contextlib.asynccontextmanager
async def open_local_endpoint(
    served: ServedGateway, configuration: ServedConfiguration, url: str, *, background: bool
) -> AsyncGenerator[Registration | None]:
    """Serve this user's commands and bridges, registered, until the block ends.

    Yields None, with a warning in the log, if that is not possible; everything else still works.
    """
    key = secrets.token_bytes(32)
    endpoint = LocalEndpoint(served, key)
    try:
        ensure_private_folder(configuration.folder)
        listener, address, folder = _listen(configuration)
    except OSError as error:
        logger.warning("commands cannot find this gateway: %s", error)
        yield None
        return
    limit = max(MAX_LINE_BYTES, int(served.get_limits().max_request_bytes))
    start = asyncio.start_unix_server if address.startswith("unix:") else asyncio.start_server
    server = await start(endpoint.accept, sock=listener, limit=limit)
    name = f"{configuration.id}-{os.getpid()}-{secrets.token_hex(4)}.json"
    registration = Registration(
        os.path.join(configuration.folder, name),
        {
            "configuration": configuration.id,
            "files": configuration.files,
            "pid": os.getpid(),
            "process_start": read_process_start(os.getpid()),
            "registered_at": time.time(),
            "address": address,
            "url": url,
            "version": __version__,
            "background": background,
            "key": key.hex(),
        },
    )
    try:
        write_registration(registration)
        yield registration
    finally:
        registration.remove()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        server.close()
        await endpoint.close()


def _listen(configuration: ServedConfiguration) -> tuple[socket.socket, str, str]:
    """Return a listening socket, its address, and a folder to remove at the end."""
    if sys.platform == "win32" or not hasattr(socket, "AF_UNIX"):
        listener = socket.create_server((LOOPBACK, 0))
        return listener, f"tcp:{LOOPBACK}:{listener.getsockname()[1]}", ""
    folder = ""
    path = os.path.join(configuration.folder, f"{os.getpid()}-{secrets.token_hex(4)}.sock")
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        folder = tempfile.mkdtemp(prefix="portico-")  # mode 0700
        path = os.path.join(folder, "gateway.sock")
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(MAX_CONNECTIONS)
    except OSError:
        listener.close()
        raise
    return listener, f"unix:{path}", folder


async def _read_object(reader: asyncio.StreamReader) -> dict[str, Any]:
    line = await reader.readuntil(b"\n")
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _send_object(writer: asyncio.StreamWriter, value: Mapping[str, Any]) -> None:
    writer.write(json.dumps(value).encode() + b"\n")


def _make_thread_safe_sender(writer: asyncio.StreamWriter) -> Callable[[bytes], None]:
    loop = asyncio.get_running_loop()

    def send(data: bytes) -> None:
        if not writer.is_closing():
            loop.call_soon_threadsafe(writer.write, data)

    return send


async def call_rest(api: ASGIApp, request: Mapping[str, Any], content: bytes) -> dict[str, Any]:
    """Return `{"status", "body"}` of a request with `method`, `path` (with its query) and content.

    The caller has authenticated the client; the application behind `/api` does not.
    """
    parts = urlsplit(str(request.get("path", "")))
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": str(request.get("method", "GET")),
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": None,
        "server": None,
        "state": {},
    }
    status = 500
    body = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    await api(scope, receive, send)
    try:
        found = json.loads(bytes(body) or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {"detail": "not a JSON object"}
    return {"status": status, "body": found}
