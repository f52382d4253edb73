"""MCP over stdin and stdout of this process.

Both descriptors are replaced first (stdin reads nothing, stdout goes to stderr), so that no stray
print can reach the wire. Pipes are read by the event loop itself: no thread blocks in `read`, so a
signal ends the gateway at once. Where the loop cannot poll stdin (a regular file, Windows) the
SDK's threaded transport is used.

A line that is not a message is answered with a JSON-RPC error, with its id if that can be read, so
that no client waits. While a client does not read, nothing more is read from it; one that reads
nothing for `SEND_TIMEOUT_S` is disconnected.
"""

import asyncio
import contextlib
import json
import logging
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

import anyio
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

from portico.config.limits import LimitsConfig
from portico.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from portico.json_text.json_codec import has_more_values
from portico.server.line_reader import OversizedMessage, ReadStallTimer, find_id, read_line
from portico.server.profile_endpoint import ProfileEndpoint

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 2**20
MAX_UNSENT = 256
"""Maximum number of unsent messages; while there are more, nothing else is read from the client."""
SEND_TIMEOUT_S = 60.0
Streams = tuple["_StdioReceiver", "_StdioSender"]


@dataclass(frozen=True, kw_only=True)
class LineLimits:
    """Limits of a client that sends and receives lines."""

    max_line_bytes: int = MAX_LINE_BYTES
    max_values: int | None = None
    """Maximum number of JSON values in a received message; None means no limit."""
    send_timeout_s: float = SEND_TIMEOUT_S

    @classmethod
    def from_config(cls, limits: LimitsConfig) -> Self:
        return cls(
            max_line_bytes=int(limits.max_request_bytes),
            max_values=limits.max_request_values,
            send_timeout_s=limits.send_s,
        )


DEFAULT_LIMITS = LineLimits()


async def serve(endpoint: ProfileEndpoint, limits: LineLimits = DEFAULT_LIMITS) -> None:
    """Serve one client until it closes our stdin, or reads nothing for `send_timeout_s`."""
    if _can_poll_stdio():
        streams = open_pipe_streams(*_claim_stdio(), limits, reject_invalid_lines=True)
    else:
        streams = stdio_server()
    await serve_streams(endpoint, streams)


async def serve_streams(
    endpoint: ProfileEndpoint, streams: contextlib.AbstractAsyncContextManager[Any]
) -> None:
    """Serve one client, with a session of its own, until its stream ends."""
    async with streams as (received, sending):
        await endpoint.server.run(
            received, sending, endpoint.server.create_initialization_options()
        )


@contextlib.asynccontextmanager
async def open_pipe_streams(
    wire_in: BinaryIO,
    wire_out: BinaryIO,
    limits: LineLimits = DEFAULT_LIMITS,
    *,
    reject_invalid_lines: bool = False,
) -> AsyncGenerator[Streams]:
    """Open message streams over a pair of pipes, one JSON-RPC message a line; the same at either
    end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limits.max_line_bytes)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), wire_in
    )
    outgoing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), wire_out
    )
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)
    async with open_line_streams(
        reader, writer, limits, incoming.close, reject_invalid_lines=reject_invalid_lines
    ) as streams:
        yield streams


@contextlib.asynccontextmanager
async def open_line_streams(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    limits: LineLimits,
    stop_reading: Callable[[], object],
    *,
    reject_invalid_lines: bool,
) -> AsyncGenerator[Streams]:
    """Open message streams over byte streams, which are closed at the end."""
    sending = _StdioSender(writer, stop_reading, limits.send_timeout_s)
    received = _StdioReceiver(reader, sending, limits, reject_invalid_lines=reject_invalid_lines)
    try:
        yield received, sending
    finally:
        await received.aclose()
        # The last answers are written before the pipe closes.
        with anyio.move_on_after(1, shield=True):
            await sending.finish()
        stop_reading()
        writer.close()
        await asyncio.sleep(0)  # the event loop closes them in its next iteration


class _StdioStream:
    """Context manager and `aclose`, which the SDK requires of both streams."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _StdioSender(_StdioStream):
    """Writes messages one after the other; `send` blocks while the client does not read.

    Writes directly to the pipe: a queue and a task in between would cost each message several
    iterations of the event loop.
    """

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        hang_up: Callable[[], object],
        send_timeout_s: float,
    ) -> None:
        self._writer = writer
        self._outgoing = writer.transport
        self._hang_up = hang_up
        self._send_timeout_s = send_timeout_s
        self._write_lock = asyncio.Lock()
        self.unsent_count = 0
        """Messages that are not written yet, or not read by the client."""

    async def send(self, item: SessionMessage, /) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        line = _encode_or_error(item.message)
        if line is None:
            return
        self.unsent_count += 1
        try:
            async with self._write_lock:
                self._writer.write(line)
                await self.wait_until_read()
        except OSError:
            self.closed = True  # the client is gone; reading ends by itself
            raise anyio.BrokenResourceError from None
        finally:
            self.unsent_count -= 1

    async def refuse(self, line: "bytes | OversizedMessage") -> None:
        """Answer a line that is not a message with an error."""
        self._writer.write(_encode(_make_refusal(line)))
        await self.wait_until_read()

    async def finish(self) -> None:
        """Wait until everything sent is written, to its last byte."""
        async with self._write_lock:
            self.closed = True
            self._outgoing.set_write_buffer_limits(0)
            with contextlib.suppress(OSError):
                await self._writer.drain()

    async def wait_until_read(self) -> None:
        """Wait until the client has read enough; disconnect it after `send_timeout_s` without
        progress."""
        outgoing = self._outgoing
        loop = asyncio.get_running_loop()
        if not outgoing.get_write_buffer_size():
            return await self._writer.drain()
        stall = ReadStallTimer(outgoing.get_write_buffer_size(), loop.time())
        while not outgoing.is_closing():
            try:
                async with asyncio.timeout(self._send_timeout_s / 4):
                    return await self._writer.drain()
            except TimeoutError:
                waiting = outgoing.get_write_buffer_size()
                if (
                    stall.measure(waiting, loop.time()) >= self._send_timeout_s
                    and not outgoing.is_closing()
                ):
                    logger.warning(
                        "the client left %d bytes unread for %g s and was disconnected",
                        waiting,
                        self._send_timeout_s,
                    )
                    outgoing.abort()
                    self._hang_up()
        raise BrokenPipeError


class _StdioReceiver(_StdioStream):
    """Reads one message for each `receive`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        sender: _StdioSender,
        limits: LineLimits,
        *,
        reject_invalid_lines: bool,
    ) -> None:
        self._reader = reader
        self._sender = sender
        self._reject_invalid_lines = reject_invalid_lines
        self._max_line_bytes = limits.max_line_bytes
        self._max_values = limits.max_values

    async def receive(self) -> SessionMessage | Exception:
        if self.closed:
            raise anyio.ClosedResourceError
        try:
            while self._sender.unsent_count > MAX_UNSENT:
                await self._sender.wait_until_read()
                await asyncio.sleep(0)
            line = await read_line(self._reader, self._max_line_bytes)
            if line == b"":
                raise anyio.EndOfStream
            if (
                isinstance(line, bytes)
                and self._max_values
                and has_more_values(line, self._max_values)
            ):
                reason = (
                    f"has more than the {self._max_values} JSON values that are taken "
                    "(limits.max_request_values)"
                )
                line = OversizedMessage(reason, find_id(line))
            try:
                return SessionMessage(_decode(line if isinstance(line, bytes) else b""))
            except ValueError as error:
                if self._reject_invalid_lines and (
                    isinstance(line, OversizedMessage) or line.strip()
                ):
                    await self._sender.refuse(line)
                return error
        except OSError:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _decode(line: bytes) -> JSONRPCMessage:
    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    # The SDK treats a request with an unusable id as a notification; its client would wait forever.
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        raise ValueError("a request without a usable id")
    return message


def _encode_or_error(message: JSONRPCMessage) -> bytes | None:
    """Encode a message as a line.

    An answer that cannot be encoded becomes an error; any other such message is dropped (None).
    """
    try:
        return _encode(message)
    except (ValueError, TypeError, RecursionError) as error:
        logger.warning("a message cannot be written: %s", error)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return None
        reason = ErrorData(
            code=INTERNAL_ERROR, message=f"the server's answer cannot be passed on: {error}"
        )
        return _encode(JSONRPCError(jsonrpc="2.0", id=message.id, error=reason))


def _encode(message: JSONRPCMessage) -> bytes:
    try:
        body = message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:
        # A lone surrogate: legal in JSON if escaped, which `model_dump_json` does not do.
        body = json.dumps(message.model_dump(mode="json", by_alias=True, exclude_unset=True))
    return body.encode() + b"\n"


def _make_refusal(line: bytes | OversizedMessage) -> JSONRPCError:
    code = PARSE_ERROR
    reason = "this line is not JSON"
    request_id = None
    if isinstance(line, OversizedMessage):
        code = INVALID_REQUEST
        request_id = line.id
        reason = f"this message {line.reason}"
    else:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            pass
        else:
            code = INVALID_REQUEST
            reason = "this line is not a JSON-RPC message"
            # Only the id of a request: that of a malformed answer is an id of ours.
            if isinstance(message, dict) and "method" in message:
                found = message.get("id")
                if isinstance(found, str | int) and not isinstance(found, bool):
                    request_id = found
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=reason))


def _can_poll_stdio() -> bool:
    if sys.platform == "win32":
        return False
    kinds = (stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR)
    return all(any(kind(os.fstat(fd).st_mode) for kind in kinds) for fd in (0, 1))


def _claim_stdio() -> tuple[BinaryIO, BinaryIO]:
    wire_in = os.fdopen(os.dup(0), "rb", 0)
    wire_out = os.fdopen(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return wire_in, wire_out  # pyright: ignore[reportReturnType]
