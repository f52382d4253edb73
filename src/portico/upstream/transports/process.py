"""Process handling of stdio backends: starts a server in its own group and ends the group.

POSIX: each server leads its own process group, so one signal reaches all its children. One small
guard process per gateway knows those groups and ends them when the gateway is gone, even by
SIGKILL, because the guard's stdin closes. Windows: no groups and no guard; only the server's direct
process is ended, and a killed gateway closes the server's stdin, which well-behaved servers obey.

Why a program ended is told from its exit code and the end of its stderr.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

from portico.errors import BackendUnavailable
from portico.upstream.transports.own_processes import set_close_on_exec

POSIX = os.name == "posix"

STDIN_GRACE_S = 2.0
TERM_GRACE_S = 2.0
KILL_GRACE_S = 2.0
SHORT_GRACE_S = 0.3
"""Each grace period of a server without a handshake: it has no state to save."""
ORPHAN_GRACE_S = 0.5
"""Seconds between SIGTERM and SIGKILL for the children that a server left behind."""

_GUARD_SCRIPT = """
import os, signal, sys, time
groups = set()
for line in sys.stdin.buffer:
    verb, _, group = line.partition(b" ")
    (groups.add if verb == b"+" else groups.discard)(int(group))
def kill(number):
    for group in list(groups):
        try:
            os.killpg(group, number)
        except OSError:
            groups.discard(group)
kill(signal.SIGTERM)
deadline = time.monotonic() + 2
while groups and time.monotonic() < deadline:
    time.sleep(.02)
    kill(0)
kill(signal.SIGKILL)
"""
_SHELL_SIGNAL_BASE = 128
"""A shell, npx or docker reports the signal N of its child as the exit code 128 + N."""
_SIGNAL_CAUSES = {"SIGKILL": "killed, perhaps because memory ran out"}
_WORDS = re.compile(r"[^\W\d_]{3}")
_ERROR = re.compile(
    r"\b\w*(?:error|exception|fatal|panic|critical)\b[\])]?:"
    r"|^[\w.]+(?:Error|Exception|Interrupt|Exit)$"
    r"|\b(?-i:ERROR|FATAL|CRITICAL)\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"denied|refused|not found|cannot|can't|could not|unable|missing|invalid|required|must be"
    r"|\bnot\b|no such|no solution|fail|usage:",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"at \S+ (?:\[.*\] )?\(|at \S+:\d+|at (?:async|new) |File \"|goroutine \d|\S+:\d+(?: \+0x\w+)?$"
    r"|Traceback |Require stack|Node\.js v|stack backtrace|note: |\d+: \S+$|Emitted 'error' event"
    r"|(?:errno|code|syscall|path|address|port):"
)
"""Lines of a stack trace, and of the object that Node.js prints below one."""
_NOISE = re.compile(
    r"npm (?:notice|warn|WARN)|npm (?:error|ERR!)(?: \w+)?\s*$"
    r"|npm (?:error|ERR!) (?:code|errno|syscall|path|command|network|A complete log|Did you mean"
    r"|To see a list|   )|(?:Run|Try|See) '.*help"
    r"|\(Use `node|Downloading |Downloaded |Installed \d|.*ExperimentalWarning|.*DeprecationWarning"
)
"""Lines of programs that start servers, about themselves."""
_NPM_ERROR = re.compile(r"npm (?:error|ERR!) ")


class ProcessGuard:
    """Ends every registered process group when the gateway process is gone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def ensure_running(self) -> None:
        """Start the guard unless it runs; called before each server, so that none is unguarded."""
        if not POSIX or (self._process is not None and self._process.poll() is None):
            return
        self._detach()
        self._process = subprocess.Popen(  # noqa: S603 - own interpreter, constant script
            [sys.executable, "-I", "-S", "-c", _GUARD_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for group in self._groups:  # a guard that was killed has lost its groups
            self._send(b"+", group)

    def register(self, group: int) -> None:
        self._groups.add(group)
        self._send(b"+", group)

    def unregister(self, group: int) -> None:
        """Remove a process group that has ended."""
        self._groups.discard(group)
        self._send(b"-", group)

    def close(self) -> None:
        """Stop the guard, which ends all groups that are still registered."""
        process = self._detach()
        self._groups.clear()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)

    def _send(self, verb: bytes, group: int) -> None:
        pipe = self._process.stdin if self._process else None
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.write(b"%b %d\n" % (verb, group))
                pipe.flush()

    def _detach(self) -> "subprocess.Popen[bytes] | None":
        process = self._process
        self._process = None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        return process


class ChildStreams(SubprocessStreamProtocol):
    """asyncio's subprocess streams, with the exit as a future.

    asyncio's `Process.wait` also waits for the pipes, which a child left behind may hold open for
    ever.
    """

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit, loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


@dataclass(frozen=True)
class ChildProcess:
    """A running server process."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    exited: "asyncio.Future[None]"
    """Done when the process itself has exited, even if others hold its pipes."""
    transport: asyncio.SubprocessTransport = field(repr=False)
    guard: ProcessGuard = field(repr=False)

    @property
    def returncode(self) -> int | None:
        return self.transport.get_returncode()


async def start(
    command: str,
    args: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    limit: int,
    guard: ProcessGuard,
) -> ChildProcess:
    """Start a server without a shell, in its own process group, registered with the guard.

    At most `limit` bytes of each output are buffered. Raises BackendUnavailable.
    """
    program = find_program(command, env.get("PATH"), cwd)
    try:
        guard.ensure_running()
        set_close_on_exec()
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            lambda: ChildStreams(limit),
            program,
            *args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=POSIX,
            creationflags=0 if POSIX else getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument or a variable
        raise BackendUnavailable(
            f"the command {command!r} could not be started: "
            f"{getattr(error, 'strerror', None) or error}",
            advice="Check the file's permissions and its interpreter line, "
            "and the server's args and env.",
        ) from error
    guard.register(transport.get_pid())
    return ChildProcess(
        transport.get_pid(),
        cast(asyncio.StreamWriter, pipes.stdin),
        cast(asyncio.StreamReader, pipes.stdout),
        cast(asyncio.StreamReader, pipes.stderr),
        pipes.exited,
        transport,
        guard,
    )


def find_program(command: str, path: str | None, cwd: str | None) -> str:
    """Return the path of a program as a shell in `cwd` finds it; raises BackendUnavailable."""
    if cwd is not None and not os.path.isdir(cwd):
        raise BackendUnavailable(
            f"its working directory {cwd!r} does not exist", advice="Create it, or correct `cwd`."
        )
    # A relative path is resolved as a shell in `cwd` would.
    if os.path.dirname(command):
        candidate = os.path.abspath(os.path.join(cwd or "", command))
    else:
        candidate = command
    program = shutil.which(candidate, path=path)
    if program is not None:
        return program
    if os.path.isfile(candidate):
        raise BackendUnavailable(
            f"the command {command!r} is not executable",
            advice="Make it so (chmod +x), or run it by its interpreter.",
        )
    words = command.split()
    if len(words) > 1:
        advice = f"Put arguments into args: command: {words[0]}, args: [{', '.join(words[1:])}]."
    else:
        advice = "Install it, give its full path, or put its folder on PATH in the server's env."
    where = "" if not words or os.path.dirname(words[0]) else " on PATH"
    raise BackendUnavailable(f"the command {command!r} does not exist{where}", advice=advice)


async def stop(child: ChildProcess, *, short_grace: bool = False) -> None:
    """Close stdin, then SIGTERM, then SIGKILL, each after a grace period, for the whole group."""
    child.stdin.close()
    if not await _wait_for_exit(child, SHORT_GRACE_S if short_grace else STDIN_GRACE_S):
        _send_signal(child, signal.SIGTERM)
        if not await _wait_for_exit(child, SHORT_GRACE_S if short_grace else TERM_GRACE_S):
            _send_signal(child, _KILL_SIGNAL)
            await _wait_for_exit(child, KILL_GRACE_S)
    if POSIX and _is_group_alive(child):
        _send_signal(child, signal.SIGTERM)
        if not await _wait_for_group_end(child):
            _send_signal(child, _KILL_SIGNAL)
            await _wait_for_group_end(child)
    # Unread data, and pipes held by processes outside the group, would otherwise stay open.
    if child.stdin.transport.get_write_buffer_size():
        child.stdin.transport.abort()
    child.transport.close()
    child.guard.unregister(child.pid)


_KILL_SIGNAL = signal.SIGKILL if POSIX else signal.SIGTERM


async def _wait_for_exit(child: ChildProcess, grace: float) -> bool:
    await asyncio.wait({child.exited}, timeout=grace)
    return child.exited.done()


def _send_signal(child: ChildProcess, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if POSIX:
            os.killpg(child.pid, number)
        else:
            child.transport.terminate()


async def _wait_for_group_end(child: ChildProcess) -> bool:
    deadline = asyncio.get_running_loop().time() + ORPHAN_GRACE_S
    while _is_group_alive(child):
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def _is_group_alive(child: ChildProcess) -> bool:
    if child.exited.done():
        # As the first process of a container, the gateway has to reap orphans itself.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-child.pid, os.WNOHANG)[0]:
                pass
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def describe_exit_code(code: int) -> str:
    """Describe an exit code, as in `exited with code 1`; signals by their names."""
    if code < 0:
        return f"was ended by {_name_signal(-code) or f'the signal {-code}'}"
    if code > _SHELL_SIGNAL_BASE and (name := _name_signal(code - _SHELL_SIGNAL_BASE)):
        return f"exited with code {code} ({name})"
    return f"exited with code {code}"


def _name_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    if cause := _SIGNAL_CAUSES.get(name):
        return f"{name}: {cause}"
    return name


def pick_telling_line(lines: Sequence[str]) -> str:
    """Return the line that says why a program failed; empty if none has words.

    That is the latest error, else the first of npm's own, else the latest trouble, else the latest
    words. Stack traces, dumped objects and remarks of npm and uv about themselves are passed over.
    """
    stripped = [line.strip(" \t|+×╰─▶") for line in lines]
    worded = [
        line
        for line in stripped
        if _WORDS.search(line) and not _FRAME.match(line) and not _NOISE.match(line)
    ]
    own = [line for line in worded if not _NPM_ERROR.match(line)]
    # Rust says why on the line below.
    panics = [line for before, line in pairwise(own) if "panicked at" in before]
    errors = panics or [line for line in own if _ERROR.search(line)]
    npm_errors = [line for line in worded if _NPM_ERROR.match(line)]
    troubles = [line for line in own if _TROUBLE.search(line)]
    return next(reversed(errors or npm_errors[:1] or troubles or worded), "")
