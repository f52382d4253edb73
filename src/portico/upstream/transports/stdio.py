"""MCP over a child process's stdin and stdout.

The child runs in its own process group with a scrubbed environment. Output that is not JSON-RPC is
counted, not fatal; the last lines of stderr are kept. A child that does not survive the modern
probe is started again without it.
"""

import asyncio
import codecs
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.config.inherited_environment import build_environment
from portico.containment.specification import Specification
from portico.errors import BackendUnavailable, RemoteError
from portico.json_text import chunked_decoder, json_codec
from portico.json_text.json_codec import to_object
from portico.upstream.backend import Connection, Era, Listener, Raw
from portico.upstream.containment.contained_start import Containment, specify_start
from portico.upstream.containment.denials import find_denials
from portico.upstream.containment.machine_support import render_launch
from portico.upstream.protocol.envelope import (
    SUBSCRIPTION_KEY,
    strip_subscription_id,
)
from portico.upstream.protocol.handshake import (
    AmbiguousEra,
    ProbeFailed,
    ProtocolSetting,
    perform_handshake,
)
from portico.upstream.protocol.jsonrpc import PendingCall
from portico.upstream.protocol.server_requests import MAX_TASKS
from portico.upstream.protocol.session import JsonRpcSession
from portico.upstream.protocol.subscription import ACKNOWLEDGED_METHOD, TaskStream
from portico.upstream.server_log import MAX_ENTRIES, ServerLog
from portico.upstream.transports import message_streams, process
from portico.upstream.transports.process import describe_exit_code, pick_telling_line

STDERR_LINES = 100
STDERR_LINE_CHARS = 1_000
NOISE_SAMPLES = 5
EXIT_GRACE_S = 0.3
"""Seconds after a server's end in which exit code, last responses and stderr may arrive."""
INITIALIZE_TIMEOUT_S = 5.0
"""Seconds without an answer to `initialize` after a refused probe before a restart without it."""


@dataclass(frozen=True)
class StdioBackend:
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
    log: ServerLog = field(default_factory=ServerLog)
    containment: Containment | None = None
    diagnostic_data: dict[str, Any] = field(default_factory=dict)

    kind = "stdio"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
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
        environment = build_environment(os.environ, self.env, self.inherit_env)
        specification = await self._specify_containment(environment)
        words = [self.command, *self.args]
        cwd = self.cwd
        if specification is not None:
            words = render_launch(specification)
            cwd = None
        child = await process.start(
            words[0],
            words[1:],
            environment,
            cwd,
            message_streams.STREAM_BUFFER_BYTES,
            self.guard,
        )
        transport = StdioTransport(self, child, listener, specification)
        session = transport.session
        try:
            info = await perform_handshake(
                session, protocol, era, INITIALIZE_TIMEOUT_S, single_era=True
            )
        except BaseException:
            await session.abandon()
            raise
        session.start(info, transport.open_subscription)
        return session

    async def _specify_containment(self, environment: Mapping[str, str]) -> Specification | None:
        if self.containment is None:
            return None
        program = process.find_program(self.command, environment.get("PATH"), self.cwd)
        words = (os.path.join(os.getcwd(), program), *self.args)
        return await specify_start(self.containment, words, environment, self.env, self.cwd)

    def diagnostics(self) -> Mapping[str, Any]:
        """Return pid, exit code, noise on stdout, the last lines of stderr, and denials."""
        facts = {
            key: list(value) if isinstance(value, deque) else value
            for key, value in self.diagnostic_data.items()
        }
        specification = facts.pop("specification", None)
        if isinstance(specification, Specification):
            facts["denials"] = list(find_denials(facts["stderr"], specification))
        return facts


class StdioTransport:
    max_tasks = MAX_TASKS
    sends_cancellation = True

    def __init__(
        self,
        backend: StdioBackend,
        child: process.ChildProcess,
        listener: Listener,
        specification: Specification | None = None,
    ) -> None:
        self.session = JsonRpcSession(backend.name, self, listener, backend.roots)
        self.session.pid = child.pid
        self._opening: TaskStream | None = None
        """The subscription that is not acknowledged yet."""
        self._opening_id: object = None
        self._backend = backend
        self._specification = specification
        self._child = child
        self._write_lock = asyncio.Lock()
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._noise_samples: deque[str] = deque(maxlen=NOISE_SAMPLES)
        backend.diagnostic_data.clear()
        backend.diagnostic_data.update(
            pid=child.pid, stderr=self._stderr_lines, noise=0, noise_samples=self._noise_samples
        )
        if specification is not None:
            backend.diagnostic_data["specification"] = specification
        self._stdout_task = asyncio.create_task(self._read_stdout())
        self._stderr_task = asyncio.create_task(self._read_stderr())
        self._end_task = asyncio.create_task(self._watch_for_end())

    async def open_subscription(self, params: Raw) -> TaskStream:
        """Open a subscription; return when it is acknowledged.

        It is a request that stays unanswered while the subscription lasts; the acknowledgement is a
        notification that names the id of that request.
        """
        work = self.session.request("subscriptions/listen", params)
        self._opening = stream = TaskStream(work)
        try:
            await stream.wait_for_agreement()
        finally:
            self._opening = None
        return stream

    async def send_request(self, call: PendingCall) -> None:
        call.was_sent = True
        if call.message["method"] == "subscriptions/listen":
            self._opening_id = call.message["id"]
        await self.send(call.message)

    async def send(self, message: Raw) -> None:
        """Write a message piece by piece; once begun, it is written in full."""
        stdin = self._child.stdin
        pieces = await json_codec.encode(message)
        pieces[-1] += b"\n"
        written = 0
        try:
            async with self._write_lock:
                try:
                    for piece in pieces:
                        stdin.write(piece)
                        written += 1
                        await stdin.drain()
                except asyncio.CancelledError:
                    stdin.writelines(pieces[written:])  # a partial line would corrupt the next one
                    raise
        except (OSError, RuntimeError) as error:
            # Most likely the process has died; its exit code and stderr are the better reason.
            await asyncio.wait({self._stderr_task, self._child.exited}, timeout=EXIT_GRACE_S)
            reason = self._describe_exit() or "the server no longer reads its input"
            raise BackendUnavailable(
                f"{self._backend.name}: {reason}{self._format_last_stderr()}"
            ) from error

    async def close(self, was_open: bool) -> None:
        """Stop the child and its whole process group; quickly, if the handshake failed."""
        await process.stop(self._child, short_grace=not self.session.is_open)
        self._record_diagnostics(exit_code=self._child.returncode)
        tasks = {self._stdout_task, self._stderr_task, self._end_task}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    def _describe_exit(self) -> str:
        code = self._child.returncode
        if code is None:
            return ""
        return f"the server {describe_exit_code(code)}"

    async def _watch_for_end(self) -> None:
        await asyncio.wait(
            {self._stdout_task, self._child.exited}, return_when=asyncio.FIRST_COMPLETED
        )
        # An orphaned child may hold stdout open for ever, and a server may run without stdout.
        await asyncio.wait(
            {self._stdout_task, self._stderr_task, self._child.exited}, timeout=EXIT_GRACE_S
        )
        reason = self._describe_exit()
        if not reason and self._stdout_task.exception() is not None:
            reason = f"the server's output could not be read: {self._stdout_task.exception()!r}"
        reason = reason or self._stdout_task.result()
        if not self.session.is_closing:
            reason = f"{reason}{self._format_last_stderr()}"
            self.session.lose(reason)
            self.session.end(reason)

    async def _read_stdout(self) -> str:
        limit = self._backend.max_message_bytes
        lines = message_streams.LineReader(self._child.stdout, limit)
        yield_budget = message_streams.YieldBudget()
        while True:
            try:
                line = await lines.read_line()
            except message_streams.LineTooLong as error:
                if error.error_response is None:
                    return f"the server sent a message over {limit} bytes"
                self.session.receive(error.error_response)
                continue
            if not line:
                return "the server closed its output"
            if len(line) >= chunked_decoder.LARGE_BYTES:
                message, is_clean = await asyncio.to_thread(
                    message_streams.parse_message, line, chunked_decoder.decode_chunked
                )
                self._handle_message(line, message, is_clean)
                del message
            elif line.strip():
                self._handle_message(line, *message_streams.parse_message(line))
            must_yield = yield_budget.spend(len(line))
            del line  # it may be large, and the next one may take long to arrive
            if must_yield:
                await asyncio.sleep(0)

    def _handle_message(self, line: bytes, message: object, is_clean: bool) -> None:
        session = self.session
        before = session.noise
        if isinstance(message, dict) and "method" in message:
            frame = cast(Raw, message)
            if frame["method"] == ACKNOWLEDGED_METHOD:
                self._handle_acknowledgement(frame)
            else:
                session.receive(strip_subscription_id(frame))
        else:
            session.receive(message)
        if not is_clean and session.noise == before:
            session.noise += 1
        if session.noise != before:
            self._record_diagnostics(noise=session.noise)
            self._noise_samples.append(
                message_streams.strip_control_characters(
                    line[:200].decode(errors="replace")
                ).rstrip()
            )

    def _handle_acknowledgement(self, message: Raw) -> None:
        meta = to_object(to_object(message.get("params")).get("_meta"))
        request_id = meta.get(SUBSCRIPTION_KEY)
        is_expected = request_id is None or str(request_id) == str(self._opening_id)
        if self._opening is not None and is_expected:
            self._opening.acknowledge(message)

    def _record_diagnostics(self, **facts: Any) -> None:
        diagnostics = self._backend.diagnostic_data
        # A later child may have replaced this one.
        if diagnostics.get("pid") == self._child.pid:
            diagnostics.update(facts)

    def _format_last_stderr(self) -> str:
        text = ""
        if line := pick_telling_line(self._stderr_lines):
            text = f" (stderr: {self._backend.mask(line)[:400]})"
        if self._specification is None:
            return text
        if denials := find_denials(self._stderr_lines, self._specification):
            text += f"; its containment seems to deny it {'; '.join(denials)}"
        return text

    def _mask_if_long(self, line: str) -> str:
        """Mask a line that will be cut; shorter lines are masked where they are shown."""
        if len(line) <= STDERR_LINE_CHARS:
            return line
        return self._backend.mask(line[: 4 * STDERR_LINE_CHARS])

    async def _read_stderr(self) -> None:
        log = self._backend.log
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        partial = ""
        try:
            while chunk := await self._child.stderr.read(65_536):
                await asyncio.sleep(0)  # a flood is always ready to be read
                if partial:
                    self._stderr_lines.pop()
                *complete, partial = (partial + decoder.decode(chunk)).split("\n")
                log.skip(max(0, len(complete) - MAX_ENTRIES))
                lines = [
                    message_streams.strip_control_characters(
                        self._mask_if_long(line)[:STDERR_LINE_CHARS]
                    )
                    for line in complete[-MAX_ENTRIES:]
                ]
                log.add_stderr(lines)
                self._stderr_lines.extend(lines)
                partial = self._mask_if_long(partial[-4 * STDERR_LINE_CHARS :])[-STDERR_LINE_CHARS:]
                if partial:  # such as a prompt that waits for input
                    self._stderr_lines.append(message_streams.strip_control_characters(partial))
        finally:
            log.add_stderr([message_streams.strip_control_characters(partial)])
