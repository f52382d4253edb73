"""A last limit on a Python script's process, held by the system: for when the gateway does not live to end it."""

import math
import os

try:
    import resource
except ImportError:  # a system without rlimits
    resource = None

GRACE_S = 0.5
"""How long past its limit an operation that does not look at the clock may run before its process is killed."""
_MORE_S = 2


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
