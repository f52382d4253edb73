"""Health checks: pings a running server while nothing is received from it.

Only silence counts as a failure: a server that answers with an error is alive. One with a pending
call may be busy and is not pinged for as long as a call may take. Requests pay for no clock: they
set a flag that is read at the next check.

Also measures the memory and the processes of servers, each with all its child processes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from portico.config import HealthConfig
from portico.errors import BackendTimeout, PorticoError
from portico.upstream.backend import RequestOptions
from portico.upstream.lifecycle.instances import Instance, Instances

logger = logging.getLogger(__name__)

UNCHECKED_KINDS = ("commands", "functions", "openapi", "recorded")
"""Backends that run in this process, or only while they are called."""


def needs_check(instance: Instance, now: float, max_call_s: float) -> bool:
    """Return whether to ping an instance, and clear its activity flags.

    `max_call_s` is how long a call may take.
    """
    if _take_activity_flag(instance) or instance.heard_since_check:
        instance.heard_since_check = False
        instance.last_heard_at = now
        instance.missed_checks = 0
        return False
    return not is_busy(instance, now, max_call_s)


def _take_activity_flag(instance: Instance) -> bool:
    """Return whether anything was received during a call, and clear the flag."""
    connection: Any = instance.connection
    if active := bool(getattr(connection, "has_activity", False)):
        connection.has_activity = False
    return active


def is_busy(instance: Instance, now: float, max_call_s: float) -> bool:
    return instance.pending_calls > 0 and now - instance.last_heard_at < max_call_s


class HealthChecker:
    def __init__(
        self,
        name: str,
        policy: HealthConfig,
        instances: Instances,
        *,
        max_call_s: float,
        on_missed: Callable[[str, Instance], None],
        on_recovered: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_missed` is called per unanswered ping, `on_recovered` for the first answer after."""
        self._name = name
        self._policy = policy
        self._instances = instances
        self._max_call_s = max_call_s
        self._on_missed = on_missed
        self._on_recovered = on_recovered
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def configure(self, policy: HealthConfig) -> None:
        self.cancel()
        self._policy = policy
        if self._instances:
            self.start()

    def start(self) -> None:
        """Start checking, if the policy asks for it and no task runs yet."""
        if self._policy.every_s and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name=f"check {self._name}")

    def cancel(self) -> None:
        """Stop checking without waiting for the task."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """Stop checking and wait for the task to end."""
        task = self._task
        self.cancel()
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait({task})

    async def _run(self) -> None:
        while self._instances:
            interval = self._policy.every_s
            if any(instance.missed_checks for instance in self._instances.open.values()):
                # An instance that missed a check is pinged again sooner.
                interval = min(interval, self._policy.timeout_s)
            await asyncio.sleep(interval)
            now = self._clock()
            checks = [
                self._check(key, instance)
                for key, instance in list(self._instances.open.items())
                if needs_check(instance, now, self._max_call_s)
            ]
            if checks:
                await asyncio.gather(*checks)

    async def _check(self, key: str, instance: Instance) -> None:
        if await self._ping(instance):
            instance.last_heard_at = self._clock()
            if instance.missed_checks:
                instance.missed_checks = 0
                self._on_recovered()
        elif (
            not instance.heard_since_check
            and not _take_activity_flag(instance)
            and not is_busy(instance, self._clock(), self._max_call_s)
        ):
            instance.missed_checks += 1
            self._on_missed(key, instance)

    async def _ping(self, instance: Instance) -> bool:
        is_legacy = instance.connection.initialize_info.era == "legacy"
        method = "ping" if is_legacy else "server/discover"
        options = RequestOptions(
            timeout=self._policy.timeout_s, total_timeout=self._policy.timeout_s
        )
        try:
            await instance.connection.request(method, None, options)
        except BackendTimeout:
            return False
        except PorticoError:
            return True  # it refused, or the connection is closed, which is reported elsewhere
        except Exception:  # a backend may be third-party code
            logger.exception("%s: the health check failed", self._name)
        return True


def get_pid(instance: Instance) -> int | None:
    """Return the process id behind a connection, or None if it is not a local process."""
    pid: object = getattr(instance.connection, "pid", None)
    if isinstance(pid, int):
        return pid
    return None


class ProcessUsage(NamedTuple):
    """What a process takes, with its children."""

    memory_bytes: int = 0
    """Resident memory."""
    processes: int = 0
    """Number of processes; 0 if it has exited."""


def measure_processes(pids: Collection[int]) -> dict[int, ProcessUsage]:
    """Measure processes with all their children.

    Belongs in a thread, because all processes of the system are inspected, once.
    """
    if not pids:
        return {}
    import psutil  # imported late: slow, and not needed by a gateway without commands

    found: dict[int, psutil.Process] = {}
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        found[process.pid] = process
        children.setdefault(process.info["ppid"], []).append(process.pid)

    def measure(pid: int) -> ProcessUsage:
        family = {pid}
        pending = [pid]
        while pending:
            new = [child for child in children.get(pending.pop(), ()) if child not in family]
            family.update(new)
            pending += new
        memory_bytes = 0
        processes = 0
        for member in family & found.keys():
            with contextlib.suppress(psutil.Error):
                memory_bytes += found[member].memory_info().rss
                processes += 1
        return ProcessUsage(memory_bytes, processes)

    return {pid: measure(pid) for pid in pids}


def measure_own_memory() -> int:
    """Return the resident bytes of this process."""
    import psutil

    return psutil.Process().memory_info().rss
