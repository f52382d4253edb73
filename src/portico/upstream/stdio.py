"""MCP over a child process's stdin and stdout.

The child runs in its own process group with a scrubbed environment. What it prints that is not JSON-RPC is counted, not
fatal; what it says on stderr is kept, last lines only. A child that the modern probe spoils is started again without.
"""

import asyncio
import codecs
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.errors import BackendUnavailable, RemoteError
from portico.upstream import json_pieces, json_windows, lines, process
from portico.upstream.backend import NO_OPTIONS, Ask, Connection, Era, Hello, Listener, Raw
from portico.upstream.envelope import legacy_params, modern_params, without_subscription
from portico.upstream.handshake import DiedOfProbe, Protocols, SpokeBoth, introduce
from portico.upstream.peer import Peer
from portico.upstream.stdio_following import PipeListens
from portico.upstream.subscription import WATCHING, Subscription
from portico.upstream.turns import Turns

STDERR_LINES = 100
STDERR_LINE_CHARS = 1_000
NOISE_SAMPLES = 5
LAST_WORDS_S = 0.3
"""How long after a server's end its exit code, its last answers and its last words may still arrive."""
REFUSED_PATIENCE_S = 5.0
"""How long `initialize` may stay unanswered behind a refused probe before the server is started anew without one."""


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
    mask: Callable[[str], str] = str
    """Takes secrets out of what it writes on stderr, before a part of that is cut off."""
    notes: dict[str, Any] = field(default_factory=dict)

    kind = "stdio"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Start the command and shake hands."""
        try:
            try:
                return await self._attempt(listener, self.protocol, era)
            except DiedOfProbe:
                if era != "modern":
                    raise
                # It has borne the probe before: something else killed it.
                return await self._attempt(listener, self.protocol, era)
        except DiedOfProbe:
            return await self._attempt(listener, "legacy", None)
        except SpokeBoth:
            return await self._attempt(listener, "modern", None)
        except RemoteError:
            if self.protocol != "auto" or era != "legacy":
                raise
            return await self.connect(listener)  # it is another server than it was

    async def _attempt(self, listener: Listener, protocol: Protocols, era: Era | None) -> Connection:
        environment = process.environment(self.env, self.inherit_env)
        child = await process.start(self.command, self.args, environment, self.cwd, lines.BUFFERED, self.guard)
        connection = StdioConnection(self, child, listener)
        try:
            await connection.open(protocol, era)
        except BaseException:
            await connection.abandon()
            raise
        return connection

    def diagnostics(self) -> Mapping[str, Any]:
        """pid, exit code, noise on stdout and the last lines of stderr."""
        return {key: list(value) if isinstance(value, deque) else value for key, value in self.notes.items()}


class StdioConnection:
    """One running child."""

    def __init__(self, backend: StdioBackend, child: process.Child, listener: Listener) -> None:
        self._backend = backend
        self._child = child
        self._listener = listener
        self._peer = Peer(backend.name, self._write, listener, backend.roots)
        self._listens = PipeListens(self._peer)
        self._subscription: Subscription | None = None
        self._hello: Hello | None = None
        self._writing = asyncio.Lock()
        self.spoke = False
        self._closing: asyncio.Task[None] | None = None
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._noise: deque[str] = deque(maxlen=NOISE_SAMPLES)
        backend.notes.clear()
        backend.notes.update(pid=child.pid, stderr=self._stderr, noise=0, noise_samples=self._noise)
        self._reading = asyncio.create_task(self._read_stdout())
        self._hearing = asyncio.create_task(self._read_stderr())
        self._background = {self._reading, self._hearing, asyncio.create_task(self._attend())}

    async def open(self, protocol: Protocols, era: Era | None) -> None:
        """Shake hands; then follow the server's lists if it announces changes."""
        self._hello = await introduce(self, protocol, era, REFUSED_PATIENCE_S, one_era=True)
        if self._hello.era == "modern":
            self._subscription = Subscription(
                self._backend.name, self._hello.capabilities, self._listens.open, self._listener.notified
            )
            self._background.add(asyncio.create_task(self._follow(self._subscription)))

    @property
    def hello(self) -> Hello:
        assert self._hello is not None, "the connection was never opened"
        return self._hello

    @property
    def pid(self) -> int:
        """The child's process."""
        return self._child.pid

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """Send a request in the era that was agreed."""
        if self._subscription is not None and method in WATCHING:
            return await self._subscription.request(method, params, ask.timeout)
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
            self._closing = asyncio.create_task(self._close(hurry=False), name=f"stop {self._backend.name}")
        await asyncio.shield(self._closing)

    async def abandon(self) -> None:
        """Stop a child that never got as far as a conversation; nothing cuts this short."""
        self._closing = closing = asyncio.create_task(self._close(hurry=True), name=f"stop {self._backend.name}")
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({closing})

    async def _close(self, *, hurry: bool) -> None:
        self._peer.end("the connection was closed")
        await process.stop(self._child, hurry=hurry)
        self._note(exit_code=self._child.returncode)
        for task in self._background:
            task.cancel()
        await asyncio.wait(self._background)
        await self._peer.join()

    def _wrapped(self, params: Raw | None) -> Raw | None:
        return modern_params(params) if self.hello.era == "modern" else legacy_params(params)

    async def _follow(self, subscription: Subscription) -> None:
        await subscription.follow()  # the end of a pipe is heard elsewhere

    async def _write(self, frame: Raw) -> None:
        self._listens.sent(frame)
        try:
            async with self._writing:
                await self._write_line(await json_pieces.encode(frame))
        except (OSError, RuntimeError) as error:
            # Most likely it has died, and how it died says more.
            await asyncio.wait({self._hearing, self._child.exited}, timeout=LAST_WORDS_S)
            reason = self._exit() or "the server no longer reads its input"
            raise BackendUnavailable(f"{self._backend.name}: {reason}{self._last_words()}") from error

    async def _write_line(self, pieces: list[bytes]) -> None:
        """Write a message, piece by piece as the server takes it; once it is begun, all of it."""
        stdin = self._child.stdin
        pieces[-1] += b"\n"
        written = 0
        try:
            for piece in pieces:
                stdin.write(piece)
                written += 1
                await stdin.drain()
        except asyncio.CancelledError:
            stdin.writelines(pieces[written:])  # half a line would spoil the next one
            raise

    def _exit(self) -> str:
        code = self._child.returncode
        return "" if code is None else f"the server exited with code {code}"

    async def _attend(self) -> None:
        """Wait for the end of the conversation, whichever way it comes, and tell everyone why."""
        await asyncio.wait({self._reading, self._child.exited}, return_when=asyncio.FIRST_COMPLETED)
        # A child it left behind may hold its output open for ever, and a server may live on without any.
        await asyncio.wait({self._reading, self._hearing, self._child.exited}, timeout=LAST_WORDS_S)
        if self._exit():
            reason = self._exit()
        elif self._reading.exception() is None:
            reason = self._reading.result()
        else:
            reason = f"the server's output could not be read: {self._reading.exception()!r}"
        if self._closing is not None:
            return
        reason = f"{reason}{self._last_words()}"
        self._peer.end(reason)
        if self._hello is not None:
            self._listener.lost(reason)

    async def _read_stdout(self) -> str:
        limit = self._backend.max_message_bytes
        reading, turns = lines.Lines(self._child.stdout, limit), Turns()
        while True:
            await turns.taken()
            try:
                line = await reading.next()
            except lines.TooLong as long:
                if long.answer is None:
                    return f"the server sent a message over {limit} bytes"
                self._peer.receive(long.answer)
                continue
            if not line:
                return "the server closed its output"
            if len(line) >= json_windows.LARGE:
                self._take(line, *await asyncio.to_thread(lines.message, line, json_windows.read))
            elif line.strip():
                self._take(line, *lines.message(line))
            turns.spend(len(line))
            del line  # it may be large, and the next one long in coming

    def _take(self, line: bytes, message: object, clean: bool) -> None:
        self.spoke = True
        before = self._peer.noise
        if isinstance(message, dict):
            if not self._listens.take(frame := cast(Raw, message)):
                self._peer.receive(without_subscription(frame))
        else:
            self._peer.receive(message)
        if not clean and self._peer.noise == before:
            self._peer.noise += 1
        if self._peer.noise != before:
            self._note(noise=self._peer.noise)
            self._noise.append(lines.without_control(line[:200].decode(errors="replace")).rstrip())

    def _note(self, **facts: Any) -> None:
        notes = self._backend.notes
        if notes.get("pid") == self._child.pid:  # a later child may have taken the place of this one
            notes.update(facts)

    def _last_words(self) -> str:
        words = [line for line in self._stderr if line.strip()]
        return f" (stderr: {self._backend.mask(' | '.join(words[-3:]))[-400:]})" if words else ""

    def _masked(self, line: str) -> str:
        """A line that is to be cut, without secrets; one that stays whole is masked where it is shown."""
        return line if len(line) <= STDERR_LINE_CHARS else self._backend.mask(line[: 4 * STDERR_LINE_CHARS])

    async def _read_stderr(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        partial = ""
        while chunk := await self._child.stderr.read(65_536):
            await asyncio.sleep(0)  # a flood is always ready to be read
            if partial:
                self._stderr.pop()
            *whole, partial = (partial + decoder.decode(chunk)).split("\n")
            self._stderr.extend(
                lines.without_control(self._masked(line)[:STDERR_LINE_CHARS]) for line in whole[-STDERR_LINES:]
            )
            partial = self._masked(partial[-4 * STDERR_LINE_CHARS :])[-STDERR_LINE_CHARS:]
            if partial:  # a question waits on the same line for its answer
                self._stderr.append(lines.without_control(partial))
