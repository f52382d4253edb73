"""What the system is told of a Python script's process: that it comes after the gateway, and when to end it.

Its end is a last limit, for when the gateway does not live to see to it.
"""

import contextlib
import math
import os

from portico.execution.sandbox.script import NICE

try:
    import resource
except ImportError:  # a system without rlimits
    resource = None

GRACE_S = 0.5
"""How long past its limit an operation that does not look at the clock may run before its process is killed."""
_MORE_S = 2


def stand_back(pid: int) -> None:
    """Let the gateway go first where processors are short; once for each process."""
    if not hasattr(os, "setpriority"):
        return
    with contextlib.suppress(OSError):
        wanted = min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, 19)
        if os.getpriority(os.PRIO_PROCESS, pid) < wanted:
            os.setpriority(os.PRIO_PROCESS, pid, wanted)


def limit_processor(pid: int, more_s: float) -> None:
    """Let the system end a process after this much more of the processor, and a little."""
    if resource is None or not hasattr(resource, "prlimit"):
        return
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        used = (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
        hard = resource.prlimit(pid, resource.RLIMIT_CPU)[1]
        soft = math.ceil(used + more_s + GRACE_S + _MORE_S)
        if hard == resource.RLIM_INFINITY or soft < hard:
            resource.prlimit(pid, resource.RLIMIT_CPU, (soft, hard))
    except (OSError, ValueError, IndexError):
        return  # a backstop only: the clock of the sandbox and the gateway's hold without it
