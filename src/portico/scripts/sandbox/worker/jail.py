"""The jail of a worker, which may only compute and use its two pipes.

Linux: kernel limits, Landlock, seccomp. Other POSIX systems: the limits they have. Windows: only
the process boundary, the minimal environment and the host's kill. `confine_process` returns what it
applied, for `doctor`. Imports little, because it delays the start of every worker.
"""

import ctypes
import os
import sys
import time

from portico.containment import landlock
from portico.containment.privileges import (
    SET_DEATH_SIGNAL,
    SET_DUMPABLE,
    SET_NO_NEW_PRIVILEGES,
    call_prctl,
)
from portico.scripts.sandbox.worker import seccomp

if sys.platform != "win32":
    import resource  # at the top, because nothing can be imported inside the jail

IS_LINUX = sys.platform == "linux"

_SIGKILL = 9
_PROCESS_CLOCK = 2
"""Type bits of a CPU clock id, as in the C library's clock_getcpuclockid."""
SPARE_BYTES = 128 * 1024**2
"""Address space in addition to twice the engine's limit, because a large reply exists as text and
as values."""
MAX_ADDRESS_SPACE = 8 * 1024**3
"""Upper bound, whatever a script's limits are."""
LAYERS = ("rlimit", "prctl", "landlock", "seccomp")
ZEROED_RLIMITS = ("FSIZE", "CORE", "NPROC", "NOFILE", "MSGQUEUE", "MEMLOCK")
"""Kernel limits that are set to zero; open files stay open."""
START_RLIMITS = ("NPROC", "NOFILE")
"""Limits that are set after a program's start, which needs a thread and its libraries."""


def confine_process(program_files: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Confine this process irrevocably; returns descriptions of the restrictions.

    `program_files` are the files of a program that this process will execute. It starts inside the
    jail; `restrict_started_program` then removes what only the start needs.
    """
    if not IS_LINUX:
        return _set_rlimits()
    libc = ctypes.CDLL(None, use_errno=True)
    restrictions: list[str] = []
    # Executing a program would undo it.
    if not program_files and call_prctl(libc, SET_DUMPABLE, 0):
        restrictions.append("prctl: no debugger, no core")
    has_no_new_privileges = call_prctl(libc, SET_NO_NEW_PRIVILEGES, 1)
    if has_no_new_privileges:
        restrictions += ("prctl: no new privileges", *deny_all(libc, program_files))
    # After Landlock, which needs a file descriptor.
    restrictions += _set_rlimits(START_RLIMITS if program_files else ())
    if has_no_new_privileges:
        restrictions += seccomp.install_filter(libc, allow_loading=bool(program_files))
    return tuple(restrictions)


def restrict_started_program(pid: int) -> None:
    """Deny a program that has started inside the jail to open files and create threads."""
    if sys.platform != "linux":
        return
    try:
        for name in START_RLIMITS:
            resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), (0, 0))
    except (OSError, ValueError):  # as in `limit_process`
        return


def _set_rlimits(deferred: tuple[str, ...] = ()) -> tuple[str, ...]:
    if sys.platform == "win32":
        return ()
    applied: list[str] = []
    for name in ZEROED_RLIMITS:
        if (
            name not in deferred
            and (number := getattr(resource, f"RLIMIT_{name}", None)) is not None
        ):
            # One byte for CORE: 0 would still allow to pipe a core dump to a program.
            limit = 1 if name == "CORE" else 0
            try:
                resource.setrlimit(number, (limit, limit))
            except (OSError, ValueError):
                continue
            applied.append(name.lower())
    if applied:
        return (f"rlimit: no {', '.join(applied)}",)
    return ()


def limit_process(pid: int, base_bytes: int, memory_bytes: int, cpu_s: float) -> None:
    """Limit a worker's address space and total CPU time from outside, behind the engine's limits.

    Only Linux can limit another process, and its jail forbids a worker to change its own limits.
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
    except (OSError, ValueError):  # the process has just ended, or a security policy forbids it
        return


def limit_own_cpu_time(cpu_s: float) -> None:
    """Limit this process to so many further CPU seconds, where the host cannot (not Linux)."""
    if sys.platform in ("linux", "win32"):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + cpu_s) + 1, hard))
    except (OSError, ValueError):
        return


def get_cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds used by another process; None if the system does not report them."""
    if not IS_LINUX:
        return None
    try:
        return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return None


def get_address_space() -> int:
    """Return the size of this process's address space in bytes; 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def exit_with_parent(parent_pid: int) -> None:
    """End this process with the gateway, even while it computes; elsewhere the closed pipe does."""
    if not IS_LINUX:
        return
    call_prctl(ctypes.CDLL(None, use_errno=True), SET_DEATH_SIGNAL, _SIGKILL)
    if parent_pid and os.getppid() != parent_pid:
        os._exit(0)  # the gateway ended before prctl took effect


def find_missing_layers(restrictions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        layer
        for layer in LAYERS
        if not any(restriction.startswith(layer) for restriction in restrictions)
    )


def deny_all(libc: ctypes.CDLL, program_files: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Deny everything; returns descriptions of what is denied, empty without Landlock.

    `program_files` are files and folders that may still be read and executed.
    """
    rights = dict.fromkeys(program_files, landlock.EXECUTE | landlock.READ_FILE)
    version = landlock.restrict(libc, rights)
    if not version:
        return ()
    restrictions = ["landlock: no files"]
    if version >= landlock.NETWORK_ABI:
        restrictions.append("landlock: no TCP")
    if version >= landlock.SCOPE_ABI:
        restrictions.append("landlock: no signals to others")
    return tuple(restrictions)
