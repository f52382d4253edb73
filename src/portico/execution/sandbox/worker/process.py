"""The host's hold on one worker process: start it, exchange frames with it, end it.

It leads a session of its own, inherits no environment and no open file, and ends with the gateway (`jail.die_with`).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from asyncio.subprocess import SubprocessStreamProtocol
from typing import Any, cast

import orjson

from portico.execution.sandbox.worker import jail
from portico.execution.sandbox.worker.wire import LENGTH, MAX_FRAME
from portico.upstream.descriptors import set_close_on_exec
from portico.upstream.own_interpreter import import_main

START_S = 30.0
"""Generous: a loaded machine starts an interpreter slowly, and nobody gains by a worker that is given up."""
GONE_S = 5.0
BUFFER = 1024**2
HIGH_WATER = 4 * 1024**2
"""Bytes of replies that may wait for a worker to read them before further calls are held back."""

_ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC"}


class WorkerLost(Exception):
    """The worker's pipe ended."""


class BadFrame(Exception):
    """The worker said what no worker says."""


class WorkerFailed(Exception):
    """The worker could not start; why, in words."""


class _Pipes(SubprocessStreamProtocol):
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(BUFFER, loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


class WorkerProcess:
    """One worker, from its start to its end."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
        self._transport = transport
        self._pipes = pipes
        self._source = cast(asyncio.StreamReader, pipes.stdout)
        self._sink = cast(asyncio.StreamWriter, pipes.stdin)
        self._sink.transport.set_write_buffer_limits(HIGH_WATER)
        self._base = 0
        self.pid = transport.get_pid()
        self.scripts = 0
        """How many it was given."""
        self.kept: tuple[str, ...] = ()
        """What its jail holds."""

    @classmethod
    async def start(cls, runtime: str) -> "WorkerProcess":
        """Start one and wait until it may be given a script. Raises WorkerFailed."""
        set_close_on_exec()
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            _Pipes,
            *_command(runtime),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            cwd=os.sep if os.name == "posix" else None,
            start_new_session=os.name == "posix",
        )
        worker = cls(transport, pipes)
        try:
            async with asyncio.timeout(START_S):
                message = orjson.loads(await worker.read(BUFFER))
        except WorkerLost:
            said = (await cast(asyncio.StreamReader, pipes.stderr).read(4096)).decode(errors="replace").strip()
            await worker.close()
            raise WorkerFailed(said.rpartition("\n")[2] or "it ended at once") from None
        except TimeoutError:
            await worker.close()
            raise WorkerFailed(f"it was not ready after {START_S:g} s") from None
        except BaseException:
            await worker.close()
            raise
        if "ready" not in message:
            await worker.close()
            raise WorkerFailed(str(message.get("failed")))
        worker._base, worker.kept = message["size"], tuple(message["kept"])
        return worker

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    @property
    def usable(self) -> bool:
        """Whether it still runs and listens."""
        return self.returncode is None and not self._sink.is_closing() and not self._source.at_eof()

    def cpu(self) -> float | None:
        """Seconds of the processor it has used so far; None where the system does not say."""
        return jail.cpu(self.pid)

    def hold(self, memory: int, cpu_s: float) -> None:
        """Let the kernel stand behind the limits of the next script."""
        jail.hold(self.pid, self._base, memory, (self.cpu() or 0.0) + cpu_s)

    async def read(self, most: int) -> bytes:
        """The next frame's body. Raises WorkerLost at the end, BadFrame before anything too large is read."""
        try:
            (size,) = LENGTH.unpack(await self._source.readexactly(LENGTH.size))
            if size > most:
                raise BadFrame(f"a frame of {size:,} bytes, where {most:,} are allowed")
            return await self._source.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLost from None

    def send(self, body: bytes) -> None:
        """Send one frame, now or when the worker reads; raises ValueError for one that is too large."""
        if len(body) > MAX_FRAME:
            raise ValueError(f"{len(body):,} bytes are too many for a script")
        if not self._sink.is_closing():
            self._sink.write(LENGTH.pack(len(body)))
            self._sink.write(body)

    @property
    def unread(self) -> int:
        """Bytes sent that the worker has not read yet, but for what the pipe itself holds."""
        return self._sink.transport.get_write_buffer_size()

    async def room(self) -> None:
        """Wait while the worker leaves too much unread."""
        with contextlib.suppress(ConnectionError):
            await self._sink.drain()

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.name == "posix":
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self._transport.kill()
        if not self._sink.is_closing():
            self._sink.transport.abort()

    async def gone(self) -> int | None:
        """Wait for its end, for a while; how it ended."""
        await asyncio.wait({self._pipes.exited}, timeout=GONE_S)
        return self.returncode

    async def close(self) -> None:
        """End it and wait for that."""
        self.kill()
        await self.gone()
        self._transport.close()


def _command(runtime: str) -> list[str]:
    boot = import_main("portico.execution.sandbox.worker.inside") + "main(sys.argv[1], int(sys.argv[2]))"
    return [sys.executable, "-I", "-S", "-c", boot, runtime, str(os.getpid())]


def _environment() -> dict[str, str]:
    kept: dict[str, Any] = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return {**_ENVIRONMENT, **kept}
