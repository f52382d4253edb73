"""How much memory servers take, each with every process it started."""

import asyncio
from collections.abc import Iterable, Mapping

from portico.upstream.lifecycle.instances import Instance


def get_pid(instance: Instance) -> int | None:
    """The process at the other end of a conversation, where there is one on this machine."""
    found: object = getattr(instance.connection, "pid", None)
    if isinstance(found, int):
        return found
    return None


async def measure_resident_bytes(pids: Iterable[int]) -> Mapping[int, int]:
    """Bytes in memory by pid; 0 for one that is gone. In a thread: the system is asked about every
    process."""
    return await asyncio.to_thread(_measure_all, tuple(pids))


def _measure_all(pids: tuple[int, ...]) -> dict[int, int]:
    return {pid: _measure_with_children(pid) for pid in pids}


def _measure_with_children(pid: int) -> int:
    import psutil  # it costs start-up time, and a gateway may never have a command to look after

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
