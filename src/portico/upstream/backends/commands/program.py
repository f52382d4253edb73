"""Runs one program to its end: words and input in, what it printed and how it ended out.

It leads a process group of its own under the guard, like every server. Its input is written and
both of its outputs are read at the same time, so that no full pipe holds up another. Whatever ends
the wait (its end, the caller's patience, a flood), the whole group is ended before the caller hears
of it.
"""

import asyncio
import contextlib
import os
import re
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from portico.errors import BackendUnavailable
from portico.upstream.transports import output_lines, process

MAX_STDERR_BYTES = 64 * 1024
"""Bytes of what it says on stderr: the last."""
DRAIN_TIMEOUT_S = 0.5
"""How long, once it has exited, its outputs may be silent before nobody is thought to write there
any more."""
_READ_BYTES = 1 << 16
_BATCH = re.compile(r".*\.(?:bat|cmd)", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_ .:/\\@+-]*")
"""What cmd.exe takes for nothing else than itself, in quotes or not."""


class OutputTooLarge(Exception):
    """It printed more than may be kept."""


class ClosedWhileRunning(Exception):
    """The server was closed meanwhile."""


class ProgramNotStarted(BackendUnavailable):
    """It could not be started; the next call would fail the same way, and nothing has run."""

    retryable = False
    may_have_begun = False
    was_sent = False


@dataclass(frozen=True)
class ProgramContext:
    """Where and how programs of one server run."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    max_output_bytes: int = 64 * 2**20
    """Bytes of stdout."""
    guard: process.ProcessGuard = field(default_factory=process.ProcessGuard, repr=False)


@dataclass(frozen=True)
class ProgramOutcome:
    """A program that has ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes
    stderr_size: int


class _OutputBuffer:
    """What comes out of one pipe."""

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.size = 0

    async def read_all(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        """Everything, up to so many bytes."""
        while piece := await reader.read(_READ_BYTES):
            self.size += len(piece)
            if self.size > max_bytes:
                raise OutputTooLarge
            self.pieces.append(piece)
            await asyncio.sleep(0)  # a flood is always ready to be read

    async def read_tail(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        """Only the end."""
        waiting = 0
        while piece := await reader.read(_READ_BYTES):
            self.size += len(piece)
            self.pieces.append(piece)
            waiting += len(piece)
            while waiting - len(self.pieces[0]) >= max_bytes:
                waiting -= len(self.pieces.popleft())
            await asyncio.sleep(0)


async def run_program(
    words: Sequence[str], stdin: bytes, context: ProgramContext, closing: "asyncio.Future[None]"
) -> ProgramOutcome:
    """Run it; raises NotStarted, Flood, or Closed when `closing` is done first. Cancelling ends it."""
    environment = process.build_environment(context.env, context.inherit_env)
    program, *rest = words
    try:
        child = await process.start(
            _expand_home(program),
            rest,
            environment,
            context.cwd,
            output_lines.STREAM_BUFFER_BYTES,
            context.guard,
        )
    except BackendUnavailable as error:
        raise ProgramNotStarted(
            error.message,
            advice="Install it, write its full path as the first word, or put its folder on PATH in the server's env; "
            "`portico doctor` looks at every command.",
        ) from error
    out = _OutputBuffer()
    err = _OutputBuffer()
    tasks = [
        asyncio.create_task(out.read_all(child.stdout, context.max_output_bytes)),
        asyncio.create_task(err.read_tail(child.stderr, MAX_STDERR_BYTES)),
        asyncio.create_task(_write_stdin(child.stdin, stdin)),
    ]
    try:
        await _wait_for_exit(child, tasks[:2], (out, err), closing)
    finally:
        await _stop_and_clean_up(child, tasks)
    return ProgramOutcome(
        child.returncode or 0,
        b"".join(out.pieces),
        b"".join(err.pieces)[-MAX_STDERR_BYTES:],
        err.size,
    )


async def _write_stdin(pipe: asyncio.StreamWriter, text: bytes) -> None:
    # A program need not read what it is given.
    with contextlib.suppress(OSError, RuntimeError):
        pipe.write(text)
        await pipe.drain()
    pipe.close()


async def _wait_for_exit(
    child: process.ChildProcess,
    readers: "Sequence[asyncio.Task[None]]",
    outputs: tuple[_OutputBuffer, _OutputBuffer],
    closing: "asyncio.Future[None]",
) -> None:
    """Wait until it has exited and all is read that it said. A child it left behind may hold its
    output for ever."""
    heard = -1
    while not child.exited.done() or not all(task.done() for task in readers):
        exited = child.exited.done()
        if exited and heard == (heard := sum(output.size for output in outputs)):
            return
        waited: set[asyncio.Future[None]] = {task for task in readers if not task.done()} | {
            closing
        }
        if not exited:
            waited.add(child.exited)
        await asyncio.wait(
            waited, timeout=DRAIN_TIMEOUT_S if exited else None, return_when=asyncio.FIRST_COMPLETED
        )
        if closing.done():
            raise ClosedWhileRunning
        for task in readers:
            if task.done():
                task.result()


async def _stop_and_clean_up(
    child: process.ChildProcess, tasks: "Sequence[asyncio.Task[None]]"
) -> None:
    """End the group and the reading of it. Nothing cuts this short, and it is short: nobody waits
    for it to be done."""

    async def clear() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await process.stop(child, short_grace=True)

    clearing = asyncio.create_task(clear(), name=f"end {child.pid}")
    cancelled = False
    while not clearing.done():
        try:
            await asyncio.wait({clearing})
        except asyncio.CancelledError:
            cancelled = True
    clearing.result()
    if cancelled:
        raise asyncio.CancelledError


def explain_batch_refusal(program: str, texts: Sequence[str]) -> str:
    """Why a batch file of Windows cannot be given these texts: cmd.exe reads its command line as a
    shell does."""
    if not _BATCH.fullmatch(program) or all(_PLAIN.fullmatch(text) for text in texts):
        return ""
    return (
        f"{os.path.basename(program)} is a batch file, and cmd.exe would read signs in a value as commands: only "
        "letters, digits, spaces and _ . : / \\ @ + - can be given to it. Whoever configures the tool can name the "
        "program that the batch file runs."
    )


def _expand_home(program: str) -> str:
    return os.path.expanduser(program)


def locate_program(program: str, context: ProgramContext) -> str:
    """The file that would be run; as it was written where none is found."""
    path = process.build_environment(context.env, context.inherit_env).get("PATH")
    sought = _expand_home(program)
    if os.path.dirname(sought):
        sought = os.path.abspath(os.path.join(context.cwd or "", sought))
    return shutil.which(sought, path=path) or program
