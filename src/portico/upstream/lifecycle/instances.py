"""Open connections of one server: which are in use and which may be closed.

A shared server has one, under the empty key. An isolated server has one for each client, and one
under the empty key for listings. Performs no I/O: it says what may be closed, and closes nothing.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from portico.upstream.backend import Connection

logger = logging.getLogger(__name__)

SHARED = ""
"""Key of the connection that belongs to no client."""
QUIET_PERIOD_S = 0.1
"""Seconds without users after which a server counts as unused."""


@dataclass(eq=False, slots=True)
class Instance:
    connection: Connection
    last_used_at: float
    """Time of the last request, or of the start."""
    started_at: float
    last_heard_at: float
    """Time of the last known activity; `heard_since_check` marks later activity."""
    has_answered: bool = False
    heard_since_check: bool = False
    pending_calls: int = 0
    """Requests without an answer yet."""
    missed_checks: int = 0
    """Consecutive health checks without an answer."""
    end_reason: str = ""
    """Why the gateway closes it; reported to requests that are still pending."""
    idle_event: asyncio.Event | None = None
    """Set when the last request is done; present only while draining."""


class Instances:
    """Open connections of one server by owner key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.open: dict[str, Instance] = {}
        self.clock = clock
        self.user_counts: dict[str, int] = {}
        """Number of users by key; what is not used is not in it."""
        self.use_count = 0
        """Uses since the start."""
        self.unused_event: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self.open)

    @property
    def owned_keys(self) -> list[str]:
        return [key for key in self.open if key != SHARED]

    def add(self, key: str, connection: Connection) -> Instance:
        now = self.clock()
        self.open[key] = instance = Instance(
            connection, last_used_at=now, started_at=now, last_heard_at=now
        )
        return instance

    async def wait_until_unused(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no instance has users; return whether that is so.

        No users for `QUIET_PERIOD_S`, because a call takes several steps and holds nothing in
        between.
        """
        if not self.user_counts and len(self.find_idle(QUIET_PERIOD_S)) == len(self.open):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    await self._wait_for_no_users()
                    uses = self.use_count
                    await asyncio.sleep(QUIET_PERIOD_S)
                    if not self.user_counts and uses == self.use_count:
                        return True
        return not self.user_counts

    async def _wait_for_no_users(self) -> None:
        while self.user_counts:
            if self.unused_event is None or self.unused_event.is_set():
                self.unused_event = asyncio.Event()
            await self.unused_event.wait()

    def find_idle(self, min_idle_s: float, excluded: Collection[str] = ()) -> list[str]:
        """Return the keys unused for `min_idle_s` seconds, without the excluded ones."""
        now = self.clock()
        return [
            key
            for key, instance in self.open.items()
            if key not in self.user_counts
            and key not in excluded
            and now - instance.last_used_at >= min_idle_s
        ]

    def find_longest_idle(self) -> str | None:
        """Return the key of the longest unused client instance, or None if all are in use."""
        free = [key for key in self.owned_keys if key not in self.user_counts]
        return min(free, key=lambda key: self.open[key].last_used_at, default=None)


class Draining:
    def __init__(self, name: str) -> None:
        self._name = name
        self._close_tasks: set[asyncio.Task[None]] = set()
        self._instances: set[Instance] = set()

    def close(self, instance: Instance, reason: str = "") -> "asyncio.Task[None]":
        """Close an instance now; its pending requests fail with `reason`."""
        instance.end_reason = instance.end_reason or reason
        return self._start_task(instance.connection.close())

    def drain(self, instance: Instance, timeout: float, reason: str) -> "asyncio.Task[None]":
        """Close an instance when its pending requests are done, or after `timeout` seconds."""
        if not instance.pending_calls or timeout <= 0:
            return self.close(instance, reason)
        instance.idle_event = asyncio.Event()
        self._instances.add(instance)
        return self._start_task(
            self._close_when_idle(instance, instance.idle_event, timeout, reason)
        )

    def abort(self) -> None:
        """Close all draining instances without further waiting."""
        for instance in self._instances:
            if instance.idle_event is not None:
                instance.idle_event.set()

    async def wait_closed(self) -> None:
        while self._close_tasks:
            await asyncio.wait(set(self._close_tasks))

    async def _close_when_idle(
        self, instance: Instance, idle: asyncio.Event, timeout: float, reason: str
    ) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await idle.wait()
        finally:
            self._instances.discard(instance)
        instance.end_reason = instance.end_reason or reason
        await instance.connection.close()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        # A separate task: the caller may be cancelled, and `wait_closed` waits for all of them.
        task = asyncio.create_task(work, name=f"close {self._name}")
        self._close_tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._close_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s did not close cleanly: %r", self._name, error)
