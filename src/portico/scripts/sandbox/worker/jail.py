"""The jail: what a worker may do to the machine, which is nothing but compute and talk over its two
pipes.

Linux: limits of the kernel, Landlock, seccomp. Elsewhere: what there is of the limits (POSIX), and
on Windows nothing but the process boundary, the minimal environment and the host's kill; `close`
says what it could do, for `doctor`. Imports little, since every worker's start waits for it.
"""

import ctypes
import os
import sys
import time

from portico.scripts.sandbox.worker import landlock, seccomp

if sys.platform != "win32":
    import resource  # here: once the jail is closed, nothing can be imported

IS_LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_SIGKILL = 9
_PROCESS_CLOCK = 2
"""A process's clock is named by its number and this; so does the C library's clock_getcpuclockid.
"""
SPARE_BYTES = 128 * 1024**2
"""Beside the engine's own limit, twice: a large reply is there as text and as values before the
engine has it."""
MAX_ADDRESS_SPACE = 8 * 1024**3
"""Never more, whatever a script's limits say."""
LAYERS = ("rlimit", "prctl", "landlock", "seccomp")
ZEROED_RLIMITS = ("FSIZE", "CORE", "NPROC", "NOFILE", "MSGQUEUE", "MEMLOCK")
"""Limits of the kernel that are set to nothing; what is open stays open."""
START_RLIMITS = ("NPROC", "NOFILE")
"""Of these, what a program needs to start: a thread, and its libraries."""


def confine_process(program_files: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Close the jail behind this process, for good; what it holds, in words.

    `program`: the files of a program that this process will execute, and nothing else. It starts inside the jail; once
    it has, `close_started` takes away what only its start needed.
    """
    if not IS_LINUX:
        return _set_rlimits()
    libc = ctypes.CDLL(None, use_errno=True)
    kept: list[str] = []
    if not program_files and _prctl(libc, _PR_SET_DUMPABLE, 0):  # executing a program would undo it
        kept.append("prctl: no debugger, no core")
    private = _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    if private:
        kept += ("prctl: no new privileges", *landlock.deny_all(libc, program_files))
    kept += _set_rlimits(
        START_RLIMITS if program_files else ()
    )  # after Landlock, which needs a file descriptor
    if private:
        kept += seccomp.install_filter(libc, allow_loading=bool(program_files))
    return tuple(kept)


def restrict_started_program(pid: int) -> None:
    """Take from a program that has started in the jail what only its start needed: opening files,
    making threads."""
    if sys.platform != "linux":
        return
    try:
        for name in START_RLIMITS:
            resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), (0, 0))
    except (OSError, ValueError):  # as in `hold`
        return


def _set_rlimits(deferred: tuple[str, ...] = ()) -> tuple[str, ...]:
    if sys.platform == "win32":
        return ()
    kept: list[str] = []
    for name in ZEROED_RLIMITS:
        if (
            name not in deferred
            and (number := getattr(resource, f"RLIMIT_{name}", None)) is not None
        ):
            # A core of one byte: none is written, and none is piped to a program, which a limit of
            # 0 would allow.
            if name == "CORE":
                most = 1
            else:
                most = 0
            try:
                resource.setrlimit(number, (most, most))
            except (OSError, ValueError):
                continue
            kept.append(name.lower())
    if kept:
        return (f"rlimit: no {', '.join(kept)}",)
    return ()


def limit_process(pid: int, base_bytes: int, memory_bytes: int, cpu_s: float) -> None:
    """From outside, behind the engine's own limits: address space, and processor time in all, of a
    worker.

    Only Linux lets one process limit another, and the jail there forbids a worker to change its
    own.
    """
    if sys.platform != "linux":
        return
    space = min(base_bytes + 2 * memory_bytes + SPARE_BYTES, MAX_ADDRESS_SPACE)
    seconds = int(cpu_s) + 2
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (space, hard))
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, hard))
    except (OSError, ValueError):  # it has just ended, or a policy of the machine forbids it
        return


def limit_own_cpu_time(cpu_s: float) -> None:
    """Where nobody else can: the kernel ends this process once it has used so much more of the
    processor."""
    if sys.platform in ("linux", "win32"):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + cpu_s) + 1, hard))
    except (OSError, ValueError):
        return


def get_cpu_seconds(pid: int) -> float | None:
    """Seconds of the processor that another process has used; None where the system does not say."""
    if not IS_LINUX:
        return None
    try:
        return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return None


def get_address_space() -> int:
    """Bytes of this process's address space; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def exit_with_parent(parent_pid: int) -> None:
    """End with the gateway, even if it is killed while this process computes; elsewhere the closed
    pipe ends it."""
    if not IS_LINUX:
        return
    _prctl(ctypes.CDLL(None, use_errno=True), _PR_SET_PDEATHSIG, _SIGKILL)
    if parent_pid and os.getppid() != parent_pid:
        os._exit(0)  # the gateway ended before this was said


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> bool:
    numbers = (ctypes.c_ulong(number) for number in (value, 0, 0, 0))
    return libc.prctl(ctypes.c_int(option), *numbers) == 0


def find_missing_layers(restrictions: tuple[str, ...]) -> tuple[str, ...]:
    """Which layers of the jail a worker that holds these does without."""
    return tuple(
        layer for layer in LAYERS if not any(held.startswith(layer) for held in restrictions)
    )
