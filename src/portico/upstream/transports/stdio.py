"""MCP over a child process's stdin and stdout.

The child runs in its own process group with a scrubbed environment. Output that is not JSON-RPC is
counted, not fatal; the last lines of stderr are kept. A child that does not survive the modern
probe is started again without it.
"""

import asyncio
import codecs
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.errors import BackendUnavailable, RemoteError
from portico.json_text import chunked_decoder, chunked_encoder
from portico.upstream.backend import (
    NO_OPTIONS,
    Connection,
    Era,
    InitializeInfo,
    Listener,
    Raw,
    RequestOptions,
)
from portico.upstream.protocol.envelope import (
    strip_subscription_id,
    to_legacy_params,
    to_modern_params,
)
from portico.upstream.protocol.handshake import (
    AmbiguousEra,
    ProbeFailed,
    ProtocolSetting,
    perform_handshake,
)
from portico.upstream.protocol.session import JsonRpcSession
from portico.upstream.protocol.subscription import SUBSCRIPTION_METHODS, Subscription
from portico.upstream.transports import output_lines, process
from portico.upstream.transports.stdio_subscription import StdioSubscriptionOpener
from portico.upstream.transports.yield_budget import YieldBudget

STDERR_LINES = 100
STDERR_LINE_CHARS = 1_000
NOISE_SAMPLES = 5
EXIT_GRACE_S = 0.3
"""Seconds after a server's end in which exit code, last responses and stderr may arrive."""
INITIALIZE_TIMEOUT_S = 5.0
"""Seconds without an answer to `initialize` after a refused probe before a restart without it."""


@dataclass(frozen=True)
class StdioBackend:
    """A server that is a local command."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    protocol: ProtocolSetting = "auto"
    roots: tuple[Raw, ...] = ()
    max_message_bytes: int = 64 * 2**20
    guard: process.ProcessGuard = field(default_factory=process.ProcessGuard)
    mask: Callable[[str], str] = str
    """Masks secrets in stderr lines, before these are cut."""
    diagnostic_data: dict[str, Any] = field(default_factory=dict)

    kind = "stdio"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Start the command and perform the handshake."""
        try:
            try:
                return await self._connect_once(listener, self.protocol, era)
            except ProbeFailed:
                if era != "modern":
                    raise
                # It accepted the probe before, so something else ended it.
                return await self._connect_once(listener, self.protocol, era)
        except ProbeFailed:
            return await self._connect_once(listener, "legacy", None)
        except AmbiguousEra:
            return await self._connect_once(listener, "modern", None)
        except RemoteError:
            if self.protocol != "auto" or era != "legacy":
                raise
            return await self.connect(listener)  # the server has changed since

    async def _connect_once(
        self, listener: Listener, protocol: ProtocolSetting, era: Era | None
    ) -> Connection:
        environment = process.build_environment(self.env, self.inherit_env)
        child = await process.start(
            self.command,
            self.args,
            environment,
            self.cwd,
            output_lines.STREAM_BUFFER_BYTES,
            self.guard,
        )
        connection = StdioConnection(self, child, listener)
        try:
            await connection.open(protocol, era)
        except BaseException:
            await connection.abandon()
            raise
        return connection

    def diagnostics(self) -> Mapping[str, Any]:
        """Return pid, exit code, noise on stdout and the last lines of stderr."""
        return {
            key: list(value) if isinstance(value, deque) else value
            for key, value in self.diagnostic_data.items()
        }


class StdioConnection:
    """Connection to one child process."""

    def __init__(
        self, backend: StdioBackend, child: process.ChildProcess, listener: Listener
    ) -> None:
        self._backend = backend
        self._child = child
        self._listener = listener
        self._session = JsonRpcSession(backend.name, self._write_frame, listener, backend.roots)
        self._subscription_opener = StdioSubscriptionOpener(self._session)
        self._subscription: Subscription | None = None
        self._initialize_info: InitializeInfo | None = None
        self._write_lock = asyncio.Lock()
        self.has_activity = False
        self._close_task: asyncio.Task[None] | None = None
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._noise_samples: deque[str] = deque(maxlen=NOISE_SAMPLES)
        backend.diagnostic_data.clear()
        backend.diagnostic_data.update(
            pid=child.pid, stderr=self._stderr_lines, noise=0, noise_samples=self._noise_samples
        )
        self._stdout_task = asyncio.create_task(self._read_stdout())
        self._stderr_task = asyncio.create_task(self._read_stderr())
        self._tasks = {
            self._stdout_task,
            self._stderr_task,
            asyncio.create_task(self._watch_for_end()),
        }

    async def open(self, protocol: ProtocolSetting, era: Era | None) -> None:
        """Perform the handshake; with a modern server, subscribe to its changes."""
        self._initialize_info = await perform_handshake(
            self, protocol, era, INITIALIZE_TIMEOUT_S, single_era=True
        )
        if self._initialize_info.era == "modern":
            self._subscription = Subscription(
                self._backend.name,
                self._initialize_info.capabilities,
                self._subscription_opener.open,
                self._listener.on_notification,
            )
            self._tasks.add(asyncio.create_task(self._follow_subscription(self._subscription)))

    @property
    def initialize_info(self) -> InitializeInfo:
        assert self._initialize_info is not None, "the connection was never opened"
        return self._initialize_info

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request in the negotiated era."""
        if self._subscription is not None and method in SUBSCRIPTION_METHODS:
            return await self._subscription.request(method, params, options.timeout)
        return await self._session.request(method, self._wrap_params(params), options)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Send a notification."""
        await self._session.notify(method, to_legacy_params(params))

    async def send_request(self, method: str, params: Raw | None) -> Raw:
        """Send a handshake request without any era's envelope."""
        return await self._session.request(method, params)

    async def send_notification(self, method: str, params: Raw | None) -> None:
        """Send a handshake notification without any era's envelope."""
        await self._session.notify(method, params)

    async def close(self) -> None:
        """Stop the child and its whole process group."""
        if self._close_task is None:
            self._close_task = asyncio.create_task(
                self._close(short_grace=False), name=f"stop {self._backend.name}"
            )
        await asyncio.shield(self._close_task)

    async def abandon(self) -> None:
        """Stop a child whose handshake failed; cancellation does not interrupt this."""
        self._close_task = closing = asyncio.create_task(
            self._close(short_grace=True), name=f"stop {self._backend.name}"
        )
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({closing})

    async def _close(self, *, short_grace: bool) -> None:
        self._session.end("the connection was closed")
        await process.stop(self._child, short_grace=short_grace)
        self._record_diagnostics(exit_code=self._child.returncode)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._session.join()

    def _wrap_params(self, params: Raw | None) -> Raw | None:
        if self.initialize_info.era == "modern":
            return to_modern_params(params)
        return to_legacy_params(params)

    async def _follow_subscription(self, subscription: Subscription) -> None:
        await subscription.keep_open()  # the end of the pipe is reported by _watch_for_end

    async def _write_frame(self, frame: Raw) -> None:
        self._subscription_opener.observe_outgoing(frame)
        try:
            async with self._write_lock:
                await self._write_line(await chunked_encoder.encode(frame))
        except (OSError, RuntimeError) as error:
            # Most likely the process has died; its exit code and stderr are the better reason.
            await asyncio.wait({self._stderr_task, self._child.exited}, timeout=EXIT_GRACE_S)
            reason = self._describe_exit() or "the server no longer reads its input"
            raise BackendUnavailable(
                f"{self._backend.name}: {reason}{self._format_last_stderr()}"
            ) from error

    async def _write_line(self, pieces: list[bytes]) -> None:
        """Write a message piece by piece; once begun, it is written in full."""
        stdin = self._child.stdin
        pieces[-1] += b"\n"
        written = 0
        try:
            for piece in pieces:
                stdin.write(piece)
                written += 1
                await stdin.drain()
        except asyncio.CancelledError:
            stdin.writelines(pieces[written:])  # a partial line would corrupt the next one
            raise

    def _describe_exit(self) -> str:
        code = self._child.returncode
        if code is None:
            return ""
        return f"the server exited with code {code}"

    async def _watch_for_end(self) -> None:
        """Wait for the end of the connection and report its reason."""
        await asyncio.wait(
            {self._stdout_task, self._child.exited}, return_when=asyncio.FIRST_COMPLETED
        )
        # An orphaned child may hold stdout open for ever, and a server may run without stdout.
        await asyncio.wait(
            {self._stdout_task, self._stderr_task, self._child.exited}, timeout=EXIT_GRACE_S
        )
        if self._describe_exit():
            reason = self._describe_exit()
        elif self._stdout_task.exception() is None:
            reason = self._stdout_task.result()
        else:
            reason = f"the server's output could not be read: {self._stdout_task.exception()!r}"
        if self._close_task is not None:
            return
        reason = f"{reason}{self._format_last_stderr()}"
        self._session.end(reason)
        if self._initialize_info is not None:
            self._listener.on_lost(reason)

    async def _read_stdout(self) -> str:
        limit = self._backend.max_message_bytes
        lines = output_lines.LineReader(self._child.stdout, limit)
        yield_budget = YieldBudget()
        while True:
            await yield_budget.maybe_yield()
            try:
                line = await lines.read_line()
            except output_lines.LineTooLong as error:
                if error.error_response is None:
                    return f"the server sent a message over {limit} bytes"
                self._session.receive(error.error_response)
                continue
            if not line:
                return "the server closed its output"
            if len(line) >= chunked_decoder.LARGE_BYTES:
                message, is_clean = await asyncio.to_thread(
                    output_lines.parse_message, line, chunked_decoder.decode_chunked
                )
                self._handle_message(line, message, is_clean)
                del message
            elif line.strip():
                self._handle_message(line, *output_lines.parse_message(line))
            yield_budget.spend(len(line))
            del line  # it may be large, and the next one may take long to arrive

    def _handle_message(self, line: bytes, message: object, is_clean: bool) -> None:
        self.has_activity = True
        before = self._session.noise
        if isinstance(message, dict):
            if not self._subscription_opener.handle_acknowledgement(frame := cast(Raw, message)):
                self._session.receive(strip_subscription_id(frame))
        else:
            self._session.receive(message)
        if not is_clean and self._session.noise == before:
            self._session.noise += 1
        if self._session.noise != before:
            self._record_diagnostics(noise=self._session.noise)
            self._noise_samples.append(
                output_lines.strip_control_characters(line[:200].decode(errors="replace")).rstrip()
            )

    def _record_diagnostics(self, **facts: Any) -> None:
        diagnostics = self._backend.diagnostic_data
        # A later child may have replaced this one.
        if diagnostics.get("pid") == self._child.pid:
            diagnostics.update(facts)

    def _format_last_stderr(self) -> str:
        lines = [line for line in self._stderr_lines if line.strip()]
        if lines:
            return f" (stderr: {self._backend.mask(' | '.join(lines[-3:]))[-400:]})"
        return ""

    def _mask_if_long(self, line: str) -> str:
        """Mask a line that will be cut; shorter lines are masked where they are shown."""
        if len(line) <= STDERR_LINE_CHARS:
            return line
        return self._backend.mask(line[: 4 * STDERR_LINE_CHARS])

    async def _read_stderr(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        partial = ""
        while chunk := await self._child.stderr.read(65_536):
            await asyncio.sleep(0)  # a flood is always ready to be read
            if partial:
                self._stderr_lines.pop()
            *complete, partial = (partial + decoder.decode(chunk)).split("\n")
            self._stderr_lines.extend(
                output_lines.strip_control_characters(self._mask_if_long(line)[:STDERR_LINE_CHARS])
                for line in complete[-STDERR_LINES:]
            )
            partial = self._mask_if_long(partial[-4 * STDERR_LINE_CHARS :])[-STDERR_LINE_CHARS:]
            if partial:  # such as a prompt that waits for input
                self._stderr_lines.append(output_lines.strip_control_characters(partial))
