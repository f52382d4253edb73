"""System limits of a Python script's process: priority, open files, memory, CPU time.

They back up those of the interpreter and the gateway, also if the gateway dies first.
"""

import contextlib
import os

from portico.scripts.sandbox.script import WORKER_NICENESS, ScriptLimits
from portico.scripts.sandbox.worker import jail

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
