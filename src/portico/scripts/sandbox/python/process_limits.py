"""The system's limits on a Python script's process: priority after the gateway, open files, memory,
processor time.

They stand behind those of the interpreter and the gateway, also when the gateway does not live to
see to its own.
"""

import contextlib
import os

from portico.scripts.sandbox.script import WORKER_NICENESS, ScriptLimits
from portico.scripts.sandbox.worker import jail

GRACE_S = 0.5
"""How long past its limit an operation that does not look at the clock may run before its process
is killed."""
_INTERPRETER_BYTES = 256 * 1024**2
"""Of the interpreter's address space before any script: 114 MB, most of it set aside by the
allocator."""


def lower_priority(pid: int) -> None:
    """Let the gateway go first where processors are short; once for each process."""
    if not hasattr(os, "setpriority"):
        return
    with contextlib.suppress(OSError):
        wanted = min(os.getpriority(os.PRIO_PROCESS, 0) + WORKER_NICENESS, 19)
        if os.getpriority(os.PRIO_PROCESS, pid) < wanted:
            os.setpriority(os.PRIO_PROCESS, pid, wanted)


def apply_limits(pid: int, limits: ScriptLimits) -> None:
    """Let the system stand behind the limits of a script: what it may open, its address space, its
    processor time."""
    jail.restrict_started_program(pid)
    jail.limit_process(
        pid,
        _INTERPRETER_BYTES,
        limits.memory_bytes,
        (jail.get_cpu_seconds(pid) or 0.0) + limits.cpu_s,
    )
