"""The operating system's part in a stdio backend: start a server in a group of its own, end the group, leave nothing.

POSIX: each server leads its own process group, so one signal reaches every child it made. One small guard process per
gateway knows those groups and ends them when the gateway is gone, even by SIGKILL, because the guard's stdin closes.
Windows: no groups and no guard; a server is ended with its direct process, and a killed gateway closes the server's
stdin, which well-behaved servers obey.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from portico.errors import BackendUnavailable

POSIX = os.name == "posix"

SAFE_ENVIRONMENT = (
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES",
    "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""What a server inherits; everything else, credentials above all, must be named in its config."""

STDIN_GRACE_S = 2.0
TERM_GRACE_S = 2.0

_GUARD = """
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


class Guard:
    """Ends every registered process group when this process is gone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Register a group."""
        if not POSIX:
            return
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own text
                [sys.executable, "-I", "-S", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._say(b"+", group)

    def release(self, group: int) -> None:
        """Forget a group that has ended."""
        self._say(b"-", group)

    def _say(self, verb: bytes, group: int) -> None:
        pipe = self._process.stdin if self._process else None
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.write(b"%b %d\n" % (verb, group))
                pipe.flush()

    def close(self) -> None:
        """Let the guard go; it ends whatever is still registered."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)


def environment(extra: Mapping[str, str], inherit: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a server: the harmless part of ours, what its config names, what its config sets."""
    kept = {name: os.environ[name] for name in (*SAFE_ENVIRONMENT, *inherit) if name in os.environ}
    return {**kept, **extra}


async def start(
    command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None, limit: int
) -> asyncio.subprocess.Process:
    """Start a server, no shell, in its own process group."""
    program = shutil.which(command, path=env.get("PATH"))
    if program is None:
        raise BackendUnavailable(
            f"the command {command!r} does not exist",
            advice="Install it, give its full path, or put its folder on PATH in the server's env.",
        )
    try:
        return await asyncio.create_subprocess_exec(
            program,
            *args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            limit=limit,
            start_new_session=POSIX,
            creationflags=0 if POSIX else getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except OSError as error:
        raise BackendUnavailable(
            f"the command {command!r} could not be started: {error.strerror or error}",
            advice="Check cwd, the file's permissions and its interpreter line.",
        ) from error


async def stop(process: asyncio.subprocess.Process) -> None:
    """Close stdin, then SIGTERM, then SIGKILL, each with its grace, and leave no member of the group behind."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _ended(process, STDIN_GRACE_S):
        _signal(process, signal.SIGTERM)
        if not await _ended(process, TERM_GRACE_S):
            _signal(process, _KILL)
            await _ended(process, TERM_GRACE_S)
    if POSIX and _group_lives(process.pid):
        _signal(process, signal.SIGTERM)
        for _ in range(25):
            if not _group_lives(process.pid):
                return
            await asyncio.sleep(0.02)
        _signal(process, _KILL)


_KILL = signal.SIGKILL if POSIX else signal.SIGTERM


async def _ended(process: asyncio.subprocess.Process, grace: float) -> bool:
    # Not process.wait(): that also waits for the pipes, which a child left behind may hold open.
    deadline = asyncio.get_running_loop().time() + grace
    pause = 0.001
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if POSIX:
            os.killpg(process.pid, number)
        else:
            process.terminate()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
