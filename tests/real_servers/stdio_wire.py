"""A conversation over the stdin and stdout of a child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from tests.real_servers.catalogue import Era, Raw
from tests.real_servers.jsonrpc_client import Conversation

STOP_S = 5.0
LINE_BYTES = 64 * 2**20


class StdioConversation(Conversation):
    """Starts its server when it introduces itself."""

    def __init__(self, era: Era, command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        super().__init__(era)
        self._command, self._env, self._cwd = command, env, cwd
        self._process: asyncio.subprocess.Process | None = None

    async def introduce(self) -> None:
        self._process = await start(
            self._command, self._env, self._cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.spawn(self._read())
        await super().introduce()

    async def send(self, frame: Raw) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        await self._process.stdin.drain()

    async def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await end(self._process)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            try:
                frame = json.loads(line)
            except ValueError:
                frame = None
            self.received(frame)
        self.over()


async def start(
    command: Sequence[str], env: Mapping[str, str], cwd: str, *, stdin: int, stdout: int
) -> asyncio.subprocess.Process:
    """Start a server in a process group of its own."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env=dict(env),
        cwd=cwd,
        limit=LINE_BYTES,
        start_new_session=os.name == "posix",
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """End a server and every process it started."""
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_S)
