"""The system's limits on a Python script's process: priority after the gateway, open files, memory, processor time.

They stand behind those of the interpreter and the gateway, also when the gateway does not live to see to its own.
"""

import contextlib
import os

from portico.execution.sandbox.script import NICE, Limits
from portico.execution.sandbox.worker import jail

GRACE_S = 0.5
"""How long past its limit an operation that does not look at the clock may run before its process is killed."""
_OWN_BYTES = 256 * 1024**2
"""Of the interpreter's address space before any script: 114 MB, most of it set aside by the allocator."""


def stand_back(pid: int) -> None:
    """Let the gateway go first where processors are short; once for each process."""
    if not hasattr(os, "setpriority"):
        return
    with contextlib.suppress(OSError):
        wanted = min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, 19)
        if os.getpriority(os.PRIO_PROCESS, pid) < wanted:
            os.setpriority(os.PRIO_PROCESS, pid, wanted)


def hold(pid: int, limits: Limits) -> None:
    """Let the system stand behind the limits of a script: what it may open, its address space, its processor time."""
    jail.close_started(pid)
    jail.hold(pid, _OWN_BYTES, limits.memory_bytes, (jail.cpu(pid) or 0.0) + limits.cpu_s)
