"""One worker process as the host sees it: start, exchange of frames, end.

It leads a session of its own, inherits no environment and no open files, and ends with the gateway
(`jail.exit_with_parent`).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import Any, cast

import orjson

from portico.scripts.sandbox.worker import jail
from portico.scripts.sandbox.worker.protocol import LENGTH_PREFIX, MAX_FRAME_BYTES
from portico.upstream.transports.own_processes import render_main_import, set_close_on_exec
from portico.upstream.transports.process import ChildStreams

START_TIMEOUT_S = 30.0
"""Generous, because a loaded machine starts an interpreter slowly."""
EXIT_TIMEOUT_S = 5.0
BUFFER_BYTES = 1024**2
HIGH_WATER_BYTES = 4 * 1024**2
"""Unread replies from which further calls are held back."""

_ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC"}


class WorkerLost(Exception):
    """The worker's pipe ended."""


class BadFrame(Exception):
    """The worker sent an invalid frame."""


class WorkerStartFailed(Exception):
    """The worker could not start; the text says why."""


class WorkerProcess:
    def __init__(self, transport: asyncio.SubprocessTransport, pipes: ChildStreams) -> None:
        self._transport = transport
        self._pipes = pipes
        self._stdout = cast(asyncio.StreamReader, pipes.stdout)
        self._stdin = cast(asyncio.StreamWriter, pipes.stdin)
        self._stdin.transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._base_bytes = 0
        self.pid = transport.get_pid()
        self.script_count = 0
        """Number of scripts it has run."""
        self.restrictions: tuple[str, ...] = ()
        """Restrictions of its jail."""

    @classmethod
    async def start(cls, runtime: str) -> "WorkerProcess":
        """Start a worker and wait until it is ready; raises WorkerStartFailed."""
        set_close_on_exec()
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            lambda: ChildStreams(BUFFER_BYTES),
            *_build_command(runtime),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_build_environment(),
            cwd=os.sep if os.name == "posix" else None,
            start_new_session=os.name == "posix",
        )
        worker = cls(transport, pipes)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                message = orjson.loads(await worker.read_frame(BUFFER_BYTES))
        except WorkerLost:
            stderr = cast(asyncio.StreamReader, pipes.stderr)
            error_output = (await stderr.read(4096)).decode(errors="replace").strip()
            await worker.close()
            raise WorkerStartFailed(
                error_output.rpartition("\n")[2] or "it ended at once"
            ) from None
        except TimeoutError:
            await worker.close()
            raise WorkerStartFailed(f"it was not ready after {START_TIMEOUT_S:g} s") from None
        except BaseException:
            await worker.close()
            raise
        if "ready" not in message:
            await worker.close()
            raise WorkerStartFailed(str(message.get("failed")))
        worker._base_bytes = message["size"]
        worker.restrictions = tuple(message["kept"])
        return worker

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    @property
    def is_usable(self) -> bool:
        return (
            self.returncode is None and not self._stdin.is_closing() and not self._stdout.at_eof()
        )

    def get_cpu_seconds(self) -> float | None:
        """Return the CPU seconds it has used; None if the system does not report them."""
        return jail.get_cpu_seconds(self.pid)

    def apply_limits(self, memory_bytes: int, cpu_s: float) -> None:
        jail.limit_process(
            self.pid, self._base_bytes, memory_bytes, (self.get_cpu_seconds() or 0.0) + cpu_s
        )

    async def read_frame(self, max_bytes: int) -> bytes:
        """Return the body of the next frame; raises WorkerLost at the end, BadFrame if it is too
        large."""
        try:
            (size,) = LENGTH_PREFIX.unpack(await self._stdout.readexactly(LENGTH_PREFIX.size))
            if size > max_bytes:
                raise BadFrame(f"a frame of {size:,} bytes, where {max_bytes:,} are allowed")
            return await self._stdout.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLost from None

    def send_frame(self, body: bytes) -> None:
        """Write a frame without waiting; raises ValueError if it is too large."""
        if len(body) > MAX_FRAME_BYTES:
            raise ValueError(f"{len(body):,} bytes are too many for a script")
        if not self._stdin.is_closing():
            self._stdin.write(LENGTH_PREFIX.pack(len(body)))
            self._stdin.write(body)

    @property
    def unread_bytes(self) -> int:
        """Bytes written and not yet passed to the pipe."""
        return self._stdin.transport.get_write_buffer_size()

    async def drain(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._stdin.drain()

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.name == "posix":
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self._transport.kill()
        if not self._stdin.is_closing():
            self._stdin.transport.abort()

    async def wait_for_exit(self) -> int | None:
        """Wait for its end, at most EXIT_TIMEOUT_S; returns the return code."""
        await asyncio.wait({self._pipes.exited}, timeout=EXIT_TIMEOUT_S)
        return self.returncode

    async def close(self) -> None:
        self.kill()
        await self.wait_for_exit()
        self._transport.close()


def _build_command(runtime: str) -> list[str]:
    boot = (
        render_main_import("portico.scripts.sandbox.worker.main")
        + "main(sys.argv[1], int(sys.argv[2]))"
    )
    return [sys.executable, "-I", "-S", "-c", boot, runtime, str(os.getpid())]


def _build_environment() -> dict[str, str]:
    inherited: dict[str, Any] = {
        name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ
    }
    return {**_ENVIRONMENT, **inherited}
