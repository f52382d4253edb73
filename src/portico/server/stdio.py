"""MCP over this process's own stdin and stdout.

The two descriptors are taken away first (stdin reads nothing, stdout goes to stderr), so that no stray print can reach
the wire. Pipes are read by the event loop itself: no thread sits in `read`, so a signal ends the gateway at once. Where
the loop cannot watch stdin (a regular file, Windows) the SDK's threaded transport serves.

A line that is no message is answered as JSON-RPC says, with the id it had if that can be read, so that no client waits.
"""

import asyncio
import json
import logging
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from portico.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from portico.server.door import Door

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 2**20

Streams = tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]


async def serve(door: Door) -> None:
    """Serve one client until it closes our stdin."""
    streams = over_pipes(*_claim(), answer_noise=True) if _watchable() else stdio_server()
    async with streams as (received, sending):
        await door.server.run(received, sending, door.server.create_initialization_options())


@asynccontextmanager
async def over_pipes(wire_in: BinaryIO, wire_out: BinaryIO, *, answer_noise: bool = False) -> AsyncGenerator[Streams]:
    """Message streams over a pair of pipes, one JSON-RPC message a line; the same at either end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), wire_in)
    outgoing, protocol = await loop.connect_write_pipe(lambda: asyncio.streams.FlowControlMixin(loop=loop), wire_out)
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)
    arrived, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sending, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    written = anyio.Event()

    async def read() -> None:
        async with arrived:
            while (line := await _line(reader)) != b"":
                try:
                    message: Any = SessionMessage(_decoded(line or b""))
                except ValueError as error:
                    message = error
                    if answer_noise and (line is None or line.strip()):
                        writer.write(_encoded(_refused(line)))
                try:
                    await arrived.send(message)
                except anyio.BrokenResourceError:
                    return

    async def write() -> None:
        try:
            async with leaving:
                async for message in leaving:
                    if (line := _sendable(message.message)) is not None:
                        writer.write(line)
                        await writer.drain()
        except OSError:
            return  # the other side is gone; reading ends by itself
        finally:
            written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield received, sending
        finally:
            sending.close()
            with anyio.move_on_after(1, shield=True):  # the last answers leave before the pipe closes
                await written.wait()
            tasks.cancel_scope.cancel()
            incoming.close()
            outgoing.close()


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """The next line; empty at the end, None for one that is too long."""
    try:
        return await reader.readline()
    except ValueError:
        return None


def _decoded(line: bytes) -> JSONRPCMessage:
    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    # The SDK takes a request whose id it cannot read for a notification, and its client would wait for ever.
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        raise ValueError("a request without a usable id")
    return message


def _sendable(message: JSONRPCMessage) -> bytes | None:
    """A message's line; an error in place of an answer that cannot be written, nothing in place of anything else."""
    try:
        return _encoded(message)
    except (ValueError, TypeError, RecursionError) as error:
        logger.warning("a message cannot be written: %s", error)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return None
        reason = ErrorData(code=INTERNAL_ERROR, message=f"the server's answer cannot be passed on: {error}")
        return _encoded(JSONRPCError(jsonrpc="2.0", id=message.id, error=reason))


def _encoded(message: JSONRPCMessage) -> bytes:
    try:
        body = message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:
        # Half of a surrogate pair: legal in JSON if it is escaped, which the quick way does not do.
        body = json.dumps(message.model_dump(mode="json", by_alias=True, exclude_unset=True))
    return body.encode() + b"\n"


def _refused(line: bytes | None) -> JSONRPCError:
    code, reason, request_id = PARSE_ERROR, "this line is not JSON", None
    if line is None:
        reason = f"this line is longer than {MAX_LINE_BYTES} bytes"
    else:
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            pass
        else:
            code, reason = INVALID_REQUEST, "this line is not a JSON-RPC message"
            # Only a request's own id: a malformed answer to us has one too, and it means something else to the client.
            found = given.get("id") if isinstance(given, dict) and "method" in given else None
            request_id = found if isinstance(found, str | int) and not isinstance(found, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=reason))


def _watchable() -> bool:
    if sys.platform == "win32":
        return False
    kinds = (stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR)
    return all(any(kind(os.fstat(fd).st_mode) for kind in kinds) for fd in (0, 1))


def _claim() -> tuple[BinaryIO, BinaryIO]:
    wire_in, wire_out = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire_in, wire_out  # pyright: ignore[reportReturnType]
