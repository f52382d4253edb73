"""Launcher of the Python interpreter inside the jail.

pydantic_monty starts its own processes and accepts only the path of a program. On Linux that is a
script in memory that enters the jail and executes the interpreter (`boot`). Elsewhere, and without
/proc, the interpreter is started directly.
"""

import contextlib
import os
import subprocess
import sys

from portico.scripts.sandbox.python.boot import REPORT_OPTION
from portico.scripts.sandbox.script import WORKER_NICENESS, ScriptLimits
from portico.scripts.sandbox.worker import jail
from portico.upstream.transports.own_processes import render_main_import

_LOADER_FILES = ("/etc/ld.so.cache",)
_LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
"""Used if the loader does not list a program's libraries."""
_SUBPROCESS_TIMEOUT_S = 10.0
_MAX_INTERPRETER_CHARS = 120
"""Length of the first line of a script that every kernel accepts."""


class Launcher:
    """The program that pydantic_monty starts; keep it open while processes may be started."""

    def __init__(self, binary: str) -> None:
        self._fd: int | None = None
        self.path = binary
        if sys.platform != "linux":
            return
        with contextlib.suppress(OSError):
            self._fd = os.memfd_create("portico-python")
            os.write(self._fd, _build_script(binary).encode())
            path = f"/proc/{os.getpid()}/fd/{self._fd}"
            if os.access(path, os.R_OK | os.X_OK):
                self.path = path

    @property
    def is_jailed(self) -> bool:
        return self._fd is not None and self.path.startswith("/proc/")

    def report_restrictions(self) -> tuple[str, ...]:
        """Return descriptions of the jail's restrictions. Starts a process and waits for it."""
        if not self.is_jailed:
            return ()
        try:
            done = subprocess.run(  # noqa: S603
                [self.path, REPORT_OPTION],
                capture_output=True,
                env={},
                timeout=_SUBPROCESS_TIMEOUT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return ()
        return tuple(done.stdout.decode().splitlines())

    def close(self) -> None:
        """Close the file in memory. Idempotent."""
        file = self._fd
        self._fd = None
        if file is not None:
            os.close(file)


def _build_script(binary: str) -> str:
    boot = (
        render_main_import("portico.scripts.sandbox.python.boot")
        + f"main({binary!r}, {_list_program_files(binary)!r})"
    )
    if " " not in sys.executable and len(sys.executable) < _MAX_INTERPRETER_CHARS:
        return f"#!{sys.executable} -IS\n{boot}\n"
    # A shell accepts any path. This line is a command to the shell and a string to Python.
    quoted = sys.executable.replace("'", "'\\''")
    return f"#!/bin/sh\n'''exec' '{quoted}' -IS \"$0\" \"$@\"\n' '''\n{boot}\n"


def _list_program_files(binary: str) -> tuple[str, ...]:
    """Return the files of a program: itself, the loader's cache, its libraries."""
    libraries: list[str] = []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # The loader lists the libraries and does not run the program.
        done = subprocess.run(  # noqa: S603
            [binary, "--version"],
            env={"LD_TRACE_LOADED_OBJECTS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SUBPROCESS_TIMEOUT_S,
            check=True,
        )
        libraries = [
            word for word in done.stdout.decode(errors="replace").split() if word.startswith("/")
        ]
    return (binary, *_LOADER_FILES, *(libraries or _LIBRARY_FOLDERS))


GRACE_S = 0.5
"""Seconds beyond its limit that an operation which does not check the clock may run before its
process is killed."""
_INTERPRETER_BYTES = 256 * 1024**2
"""Address space of the interpreter before any script: 114 MB, mostly reserved by the allocator."""


def lower_priority(pid: int) -> None:
    """Lower the priority of a process below the gateway's, once."""
    if not hasattr(os, "setpriority"):
        return
    with contextlib.suppress(OSError):
        niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + WORKER_NICENESS, 19)
        if os.getpriority(os.PRIO_PROCESS, pid) < niceness:
            os.setpriority(os.PRIO_PROCESS, pid, niceness)


def apply_limits(pid: int, limits: ScriptLimits) -> None:
    """Set the system limits for a script: open files, address space, CPU time."""
    jail.restrict_started_program(pid)
    jail.limit_process(
        pid,
        _INTERPRETER_BYTES,
        limits.memory_bytes,
        (jail.get_cpu_seconds(pid) or 0.0) + limits.cpu_s,
    )
