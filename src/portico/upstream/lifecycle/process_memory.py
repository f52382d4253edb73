"""Measures the resident memory of servers, each with all its child processes."""

import asyncio
from collections.abc import Iterable, Mapping

from portico.upstream.lifecycle.instances import Instance


def get_pid(instance: Instance) -> int | None:
    """Return the process id behind a connection, or None if it is not a local process."""
    pid: object = getattr(instance.connection, "pid", None)
    if isinstance(pid, int):
        return pid
    return None


async def measure_resident_bytes(pids: Iterable[int]) -> Mapping[int, int]:
    """Return resident bytes by pid; 0 for a process that has exited.

    Runs in a thread, because all processes of the system are inspected.
    """
    return await asyncio.to_thread(_measure_all, tuple(pids))


def _measure_all(pids: tuple[int, ...]) -> dict[int, int]:
    return {pid: _measure_with_children(pid) for pid in pids}


def _measure_with_children(pid: int) -> int:
    import psutil  # imported late: slow, and not needed by a gateway without commands

    def measure(process: psutil.Process) -> int:
        try:
            return process.memory_info().rss
        except psutil.Error:
            return 0

    try:
        process = psutil.Process(pid)
        return measure(process) + sum(map(measure, process.children(recursive=True)))
    except psutil.Error:
        return 0
