"""MCP over a child process's stdin and stdout.

The child runs in its own process group with a scrubbed environment. What it prints that is not JSON-RPC is counted, not
fatal; what it says on stderr is kept, last lines only. A child that dies of the modern probe is started again without.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.errors import BackendUnavailable
from portico.upstream import jsontext, process
from portico.upstream.backend import Ask, Connection, Era, Hello, Listener, Raw
from portico.upstream.envelope import SUBSCRIPTION_KEY, legacy_params, modern_params, subscription_params
from portico.upstream.handshake import DiedOfProbe, Protocols, introduce
from portico.upstream.peer import NO_OPTIONS, Peer

STDERR_LINES = 100
STDERR_LINE_CHARS = 1_000
NOISE_SAMPLES = 5


@dataclass(frozen=True)
class StdioBackend:
    """A server that is a command on this machine."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    protocol: Protocols = "auto"
    roots: tuple[Raw, ...] = ()
    max_message_bytes: int = 64 * 2**20
    guard: process.Guard = field(default_factory=process.Guard)
    notes: dict[str, Any] = field(default_factory=dict)

    kind = "stdio"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Start the command and shake hands."""
        try:
            return await self._attempt(listener, self.protocol, era)
        except DiedOfProbe:
            return await self._attempt(listener, "legacy", None)

    async def _attempt(self, listener: Listener, protocol: Protocols, era: Era | None) -> Connection:
        environment = process.environment(self.env, self.inherit_env)
        child = await process.start(self.command, self.args, environment, self.cwd, self.max_message_bytes)
        self.guard.watch(child.pid)
        connection = StdioConnection(self, child, listener)
        try:
            await connection.open(protocol, era)
        except BaseException:
            await asyncio.shield(connection.close())
            raise
        return connection

    def diagnostics(self) -> Mapping[str, Any]:
        """pid, exit code, noise on stdout and the last lines of stderr."""
        return {key: list(value) if isinstance(value, deque) else value for key, value in self.notes.items()}


class StdioConnection:
    """One running child."""

    def __init__(self, backend: StdioBackend, child: asyncio.subprocess.Process, listener: Listener) -> None:
        self._backend = backend
        self._child = child
        self._listener = listener
        self._peer = Peer(backend.name, self._write, listener, backend.roots)
        self._hello: Hello | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._noise: deque[str] = deque(maxlen=NOISE_SAMPLES)
        backend.notes.clear()
        backend.notes.update(pid=child.pid, stderr=self._stderr, noise=0, noise_samples=self._noise)
        self._reading = asyncio.create_task(self._read_stdout())
        self._background = {self._reading, asyncio.create_task(self._read_stderr())}

    async def open(self, protocol: Protocols, era: Era | None) -> None:
        """Shake hands; then follow the server's lists if it announces changes."""
        self._hello = await introduce(self, protocol, era)
        follow = subscription_params(self._hello.capabilities) if self._hello.era == "modern" else None
        if follow is not None:
            self._background.add(asyncio.create_task(self._follow(follow)))

    @property
    def hello(self) -> Hello:
        assert self._hello is not None, "the connection was never opened"
        return self._hello

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """Send a request in the era that was agreed."""
        return await self._peer.request(method, self._wrapped(params), ask)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Send a notification."""
        await self._peer.notify(method, legacy_params(params))

    async def send_request(self, method: str, params: Raw | None) -> Raw:
        """A request with nothing around it: the handshake's own."""
        return await self._peer.request(method, params)

    async def send_notification(self, method: str, params: Raw | None) -> None:
        """A notification with nothing around it: the handshake's own."""
        await self._peer.notify(method, params)

    async def close(self) -> None:
        """Stop the child and its whole group."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._peer.end("the connection was closed")
        await process.stop(self._child)
        self._backend.guard.release(self._child.pid)
        self._backend.notes["exit_code"] = self._child.returncode
        for task in self._background:
            task.cancel()
        await asyncio.wait(self._background)
        await self._peer.join()

    def _wrapped(self, params: Raw | None) -> Raw | None:
        return modern_params(params) if self.hello.era == "modern" else legacy_params(params)

    async def _follow(self, params: Raw) -> None:
        with contextlib.suppress(Exception):
            await self.request("subscriptions/listen", params)

    async def _write(self, frame: Raw) -> None:
        stdin = self._child.stdin
        assert stdin is not None
        try:
            stdin.write(jsontext.dumps(frame) + b"\n")
            await stdin.drain()
        except (OSError, RuntimeError) as error:
            raise BackendUnavailable(f"{self._backend.name} no longer reads its input: {self._last_words()}") from error

    async def _read_stdout(self) -> None:
        stdout = self._child.stdout
        assert stdout is not None
        reason = "the server closed its output"
        try:
            while line := await stdout.readline():
                try:
                    message = jsontext.loads(line)
                except ValueError:
                    message = None
                before = self._peer.noise
                if line.strip():
                    self._peer.receive(_without_subscription(message))
                if self._peer.noise != before:
                    self._backend.notes["noise"] = self._peer.noise
                    self._noise.append(line[:200].decode(errors="replace").rstrip())
        except ValueError:
            reason = f"the server sent a message over {self._backend.max_message_bytes} bytes"
        if self._closing is None:
            await self._lost(reason)

    async def _lost(self, reason: str) -> None:
        # The exit code and the last words on stderr arrive a moment after stdout closes.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wait(self._background - {self._reading}), 0.3)
        if self._child.returncode is not None:
            reason = f"the server exited with code {self._child.returncode}"
        reason = f"{reason}{self._last_words()}"
        self._peer.end(reason)
        if self._hello is not None:
            self._listener.lost(reason)

    def _last_words(self) -> str:
        words = [line for line in self._stderr if line.strip()]
        return f" (stderr: {' | '.join(words[-3:])[:400]})" if words else ""

    async def _read_stderr(self) -> None:
        stderr = self._child.stderr
        assert stderr is not None
        partial = ""
        while chunk := await stderr.read(65_536):
            *lines, partial = (partial + chunk.decode(errors="replace")).split("\n")
            self._stderr.extend(line[:STDERR_LINE_CHARS] for line in lines[-STDERR_LINES:])
            partial = partial[-STDERR_LINE_CHARS:]
        if partial:
            self._stderr.append(partial)


def _without_subscription(message: Any) -> Any:
    """List changes of a modern server carry the id of our subscription: ours, not the client's."""
    if isinstance(message, dict) and "method" in message:
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict):
            meta.pop(SUBSCRIPTION_KEY, None)
    return message
