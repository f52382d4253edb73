"""Runs one program to its end: words and input in, what it printed and how it ended out.

It leads a process group of its own under the guard, like every server. Its input is written and both of its outputs are
read at the same time, so that no full pipe holds up another. Whatever ends the wait (its end, the caller's patience, a
flood), the whole group is ended before the caller hears of it.
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
from portico.upstream import lines, process

STDERR_KEPT = 64 * 1024
"""Bytes of what it says on stderr: the last."""
LAST_WORDS_S = 0.5
"""How long, once it has exited, its outputs may be silent before nobody is thought to write there any more."""
_PIECE = 1 << 16
_BATCH = re.compile(r".*\.(?:bat|cmd)", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_ .:/\\@+-]*")
"""What cmd.exe takes for nothing else than itself, in quotes or not."""


class Flood(Exception):
    """It printed more than may be kept."""


class Closed(Exception):
    """The server was closed meanwhile."""


class NotStarted(BackendUnavailable):
    """It could not be started; the next call would fail the same way, and nothing has run."""

    retryable = False
    begun = False
    sent = False


@dataclass(frozen=True)
class Surroundings:
    """Where and how programs of one server run."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    most: int = 64 * 2**20
    """Bytes of stdout."""
    guard: process.Guard = field(default_factory=process.Guard, repr=False)


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes
    stderr_size: int


class _Output:
    """What comes out of one pipe."""

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.size = 0

    async def gather(self, reader: asyncio.StreamReader, most: int) -> None:
        """Everything, up to so many bytes."""
        while piece := await reader.read(_PIECE):
            self.size += len(piece)
            if self.size > most:
                raise Flood
            self.pieces.append(piece)
            await asyncio.sleep(0)  # a flood is always ready to be read

    async def last(self, reader: asyncio.StreamReader, kept: int) -> None:
        """Only the end."""
        waiting = 0
        while piece := await reader.read(_PIECE):
            self.size += len(piece)
            self.pieces.append(piece)
            waiting += len(piece)
            while waiting - len(self.pieces[0]) >= kept:
                waiting -= len(self.pieces.popleft())
            await asyncio.sleep(0)


async def run(words: Sequence[str], stdin: bytes, around: Surroundings, closing: "asyncio.Future[None]") -> Ran:
    """Run it; raises NotStarted, Flood, or Closed when `closing` is done first. Cancelling ends it."""
    environment = process.environment(around.env, around.inherit_env)
    program, *rest = words
    try:
        child = await process.start(_at_home(program), rest, environment, around.cwd, lines.BUFFERED, around.guard)
    except BackendUnavailable as error:
        raise NotStarted(
            error.message,
            advice="Install it, write its full path as the first word, or put its folder on PATH in the server's env; "
            "`portico doctor` looks at every command.",
        ) from error
    out, err = _Output(), _Output()
    tasks = [
        asyncio.create_task(out.gather(child.stdout, around.most)),
        asyncio.create_task(err.last(child.stderr, STDERR_KEPT)),
        asyncio.create_task(_feed(child.stdin, stdin)),
    ]
    try:
        await _ended(child, tasks[:2], (out, err), closing)
    finally:
        await _cleared(child, tasks)
    return Ran(child.returncode or 0, b"".join(out.pieces), b"".join(err.pieces)[-STDERR_KEPT:], err.size)


async def _feed(pipe: asyncio.StreamWriter, text: bytes) -> None:
    # A program need not read what it is given.
    with contextlib.suppress(OSError, RuntimeError):
        pipe.write(text)
        await pipe.drain()
    pipe.close()


async def _ended(
    child: process.Child,
    reading: "Sequence[asyncio.Task[None]]",
    outputs: tuple[_Output, _Output],
    closing: "asyncio.Future[None]",
) -> None:
    """Wait until it has exited and all is read that it said. A child it left behind may hold its output for ever."""
    heard = -1
    while not child.exited.done() or not all(task.done() for task in reading):
        exited = child.exited.done()
        if exited and heard == (heard := sum(output.size for output in outputs)):
            return
        waited: set[asyncio.Future[None]] = {task for task in reading if not task.done()} | {closing}
        if not exited:
            waited.add(child.exited)
        await asyncio.wait(waited, timeout=LAST_WORDS_S if exited else None, return_when=asyncio.FIRST_COMPLETED)
        if closing.done():
            raise Closed
        for task in reading:
            if task.done():
                task.result()


async def _cleared(child: process.Child, tasks: "Sequence[asyncio.Task[None]]") -> None:
    """End the group and the reading of it. Nothing cuts this short, and it is short: nobody waits for it to be done."""

    async def clear() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await process.stop(child, hurry=True)

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


def batch_refusal(program: str, texts: Sequence[str]) -> str:
    """Why a batch file of Windows cannot be given these texts: cmd.exe reads its command line as a shell does."""
    if not _BATCH.fullmatch(program) or all(_PLAIN.fullmatch(text) for text in texts):
        return ""
    return (
        f"{os.path.basename(program)} is a batch file, and cmd.exe would read signs in a value as commands: only "
        "letters, digits, spaces and _ . : / \\ @ + - can be given to it. Whoever configures the tool can name the "
        "program that the batch file runs."
    )


def _at_home(program: str) -> str:
    return os.path.expanduser(program)


def located(program: str, around: Surroundings) -> str:
    """The file that would be run; as it was written where none is found."""
    path = process.environment(around.env, around.inherit_env).get("PATH")
    sought = _at_home(program)
    if os.path.dirname(sought):
        sought = os.path.abspath(os.path.join(around.cwd or "", sought))
    return shutil.which(sought, path=path) or program
