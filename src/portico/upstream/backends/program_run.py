"""Runs one program to its end: words and input in, output and exit code out.

It leads its own process group under the guard, like every server. Its input is written and both
outputs are read concurrently, so that no full pipe blocks another. Whatever ends the wait (its
exit, the caller's timeout, too much output), the whole group is ended before the caller continues.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from portico.config.command_tool import CommandTool
from portico.config.inherited_environment import build_environment
from portico.errors import BackendUnavailable
from portico.json_text import chunked_decoder
from portico.upstream.backend import Raw
from portico.upstream.backends.tool_connection import (
    make_error_result,
    make_json_result,
    make_text_result,
)
from portico.upstream.transports import message_streams, process

MAX_STDERR_BYTES = 64 * 1024
"""Bytes of stderr that are kept: the last."""
DRAIN_TIMEOUT_S = 0.5
"""Seconds of silence after the exit before its outputs count as complete."""
_READ_BYTES = 1 << 16
_BATCH = re.compile(r".*\.(?:bat|cmd)", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_ .:/\\@+-]*")
"""Characters without special meaning to cmd.exe, quoted or not."""


class OutputTooLarge(Exception):
    """The program printed more than the limit."""


class ClosedWhileRunning(Exception):
    """The connection was closed while the program ran."""


class ProgramNotStarted(BackendUnavailable):
    """The program could not be started; nothing has run, and a retry would fail the same way."""

    retryable = False
    may_have_begun = False
    was_sent = False


@dataclass(frozen=True)
class ProgramContext:
    """Environment, working directory and limits of one server's programs."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()
    cwd: str | None = None
    max_output_bytes: int = 64 * 2**20
    """Limit of stdout."""
    guard: process.ProcessGuard = field(default_factory=process.ProcessGuard, repr=False)


@dataclass(frozen=True)
class ProgramOutcome:
    exit_code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes
    stderr_size: int


class _OutputBuffer:
    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.size = 0

    async def read_all(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        """Read everything; raise OutputTooLarge above `max_bytes`."""
        while piece := await reader.read(_READ_BYTES):
            self.size += len(piece)
            if self.size > max_bytes:
                raise OutputTooLarge
            self.pieces.append(piece)
            await asyncio.sleep(0)  # yield: a flood always has more to read

    async def read_tail(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        """Read everything, keeping about the last `max_bytes`."""
        buffered = 0
        while piece := await reader.read(_READ_BYTES):
            self.size += len(piece)
            self.pieces.append(piece)
            buffered += len(piece)
            while buffered - len(self.pieces[0]) >= max_bytes:
                buffered -= len(self.pieces.popleft())
            await asyncio.sleep(0)


async def run_program(
    words: Sequence[str], stdin: bytes, context: ProgramContext, closing: "asyncio.Future[None]"
) -> ProgramOutcome:
    """Run a program; cancelling ends it.

    Raises ProgramNotStarted, OutputTooLarge, or ClosedWhileRunning when `closing` is done first.
    """
    environment = build_environment(os.environ, context.env, context.inherit_env)
    program, *rest = words
    try:
        child = await process.start(
            _expand_home(program),
            rest,
            environment,
            context.cwd,
            message_streams.STREAM_BUFFER_BYTES,
            context.guard,
        )
    except BackendUnavailable as error:
        raise ProgramNotStarted(
            error.message,
            advice="Install it, write its full path as the first word, or put its folder on PATH "
            "in the server's env; `portico doctor` looks at every command.",
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
    # A program need not read its input.
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
    """Wait until the program has exited and its output is read.

    Orphaned children may hold its outputs open, so silence after the exit counts as their end.
    """
    total = -1
    while not child.exited.done() or not all(task.done() for task in readers):
        exited = child.exited.done()
        if exited and total == (total := sum(output.size for output in outputs)):
            return
        awaited: set[asyncio.Future[None]] = {task for task in readers if not task.done()}
        awaited.add(closing)
        if not exited:
            awaited.add(child.exited)
        timeout = DRAIN_TIMEOUT_S if exited else None
        await asyncio.wait(awaited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if closing.done():
            raise ClosedWhileRunning
        for task in readers:
            if task.done():
                task.result()


async def _stop_and_clean_up(
    child: process.ChildProcess, tasks: "Sequence[asyncio.Task[None]]"
) -> None:
    """End the process group and the reading tasks; cancellation does not interrupt this.

    The grace periods are short, because the caller waits.
    """

    async def clean_up() -> None:
        for io_task in tasks:
            io_task.cancel()
        await asyncio.wait(tasks)
        await process.stop(child, short_grace=True)

    task = asyncio.create_task(clean_up(), name=f"end {child.pid}")
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def explain_batch_refusal(program: str, texts: Sequence[str]) -> str:
    """Return why a Windows batch file cannot be given these texts; empty if it can.

    cmd.exe parses the command line of a batch file as a shell does.
    """
    if not _BATCH.fullmatch(program) or all(_PLAIN.fullmatch(text) for text in texts):
        return ""
    return (
        f"{os.path.basename(program)} is a batch file, and cmd.exe would read signs in a value "
        "as commands: only letters, digits, spaces and _ . : / \\ @ + - can be given to it. "
        "Its configuration can name the program that the batch file runs."
    )


def _expand_home(program: str) -> str:
    return os.path.expanduser(program)


def locate_program(program: str, context: ProgramContext) -> str:
    """Return the file that would be run, or `program` unchanged if there is none."""
    path = build_environment(os.environ, context.env, context.inherit_env).get("PATH")
    candidate = _expand_home(program)
    if os.path.dirname(candidate):
        candidate = os.path.abspath(os.path.join(context.cwd or "", candidate))
    return shutil.which(candidate, path=path) or program


SHOWN_CHARS = 4_000
"""Characters of each output in a failure: the last."""
_CONTROL_SEQUENCES = re.compile(
    "\x1b\\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\\\)"  # titles, links
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    "|\x1b[PX^_][^\x1b]{0,4000}\x1b\\\\"  # strings for devices
    "|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean_output(output: bytes) -> str:
    """Decode output as UTF-8, without colours and control characters."""
    text = output.decode(errors="replace")
    # Most output has none, and a search is faster than a substitution.
    if _CONTROL_CHARACTER.search(text):
        return re.sub("\r+\n?", "\n", _CONTROL_SEQUENCES.sub("", text))
    return text


def to_tool_result(program: str, tool: CommandTool, outcome: ProgramOutcome) -> Raw:
    if outcome.exit_code not in tool.success:
        return _make_failure_result(program, outcome)
    text = clean_output(outcome.stdout)
    if tool.output == "json":
        return _make_json_result(program, outcome, text)
    if text.strip():
        return make_text_result(text)
    text = f"(no output; exit code {outcome.exit_code})"
    if stderr := clean_output(outcome.stderr).strip():
        tail = _keep_tail(stderr, outcome.stderr_size > len(outcome.stderr))
        text = f"{text}\nstderr:\n{tail}"
    return make_text_result(text)


def describe_exit(code: int) -> str:
    """Describe an exit code: `exit code 3`, `ended by SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by the signal {-code}"


def _make_failure_result(program: str, outcome: ProgramOutcome) -> Raw:
    parts = [f"{program} failed: {describe_exit(outcome.exit_code)}"]
    for name, output, cut in (
        ("stderr", outcome.stderr, outcome.stderr_size > len(outcome.stderr)),
        ("stdout", outcome.stdout[-4 * SHOWN_CHARS :], len(outcome.stdout) > 4 * SHOWN_CHARS),
    ):
        if text := clean_output(output).strip():
            parts.append(f"{name}:\n{_keep_tail(text, cut)}")
    if len(parts) == 1:
        parts.append("It printed nothing.")
    return make_error_result("\n".join(parts))


def _keep_tail(text: str, cut: bool) -> str:
    if cut or len(text) > SHOWN_CHARS:
        return f"… {text[-SHOWN_CHARS:]}"
    return text


def _make_json_result(program: str, outcome: ProgramOutcome, text: str) -> Raw:
    try:
        value: Any = chunked_decoder.decode_sync(outcome.stdout.strip())
    except ValueError:
        try:
            # The only problem may be colours, or bytes that are not UTF-8.
            value = chunked_decoder.decode_sync(text.strip().removeprefix("\ufeff").encode())
        except ValueError as error:
            parts = [
                f"{program} printed what is not JSON, though its `output` says so ({error}); "
                f"{describe_exit(outcome.exit_code)}",
                f"stdout:\n{text[:SHOWN_CHARS].strip() or '(nothing)'}",
            ]
            if stderr := clean_output(outcome.stderr).strip():
                parts.append(f"stderr:\n{_keep_tail(stderr, cut=False)}")
            return make_error_result("\n".join(parts))
    return make_json_result(text.strip(), value)
