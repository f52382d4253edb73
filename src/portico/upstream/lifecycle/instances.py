"""Open connections of one server: which are in use and which may be closed.

A shared server has one, under the empty key. An isolated server has one for each client, and one
under the empty key for listings. Performs no I/O: it says what may be closed, and closes nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType

from portico.upstream.backend import Connection

SHARED = ""
"""Key of the connection that belongs to no client."""
QUIET_PERIOD_S = 0.1
"""Seconds without users after which a server counts as unused."""


@dataclass(eq=False, slots=True)
class Instance:
    """One open connection and its use."""

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
        self._open: dict[str, Instance] = {}
        self._user_counts: dict[str, int] = {}
        self._use_count = 0
        self._unused_event: asyncio.Event | None = None
        self._clock = clock

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def find(self, key: str) -> Instance | None:
        """Return the instance with this key, or None."""
        return self._open.get(key)

    def get_connection(self, key: str) -> Connection | None:
        """Return the connection with this key, or None."""
        instance = self._open.get(key)
        if instance:
            return instance.connection
        return None

    def items(self) -> list[tuple[str, Instance]]:
        """Return all keys and instances, as a copy."""
        return list(self._open.items())

    @property
    def any_connection(self) -> Connection | None:
        """The shared connection, or any other that is open."""
        return self.get_connection(SHARED) or next(
            (instance.connection for instance in self._open.values()), None
        )

    @property
    def owned_keys(self) -> list[str]:
        """Keys of the instances that belong to one client."""
        return [key for key in self._open if key != SHARED]

    def add(self, key: str, connection: Connection) -> Instance:
        """Record an opened connection."""
        now = self._clock()
        self._open[key] = instance = Instance(
            connection, last_used_at=now, started_at=now, last_heard_at=now
        )
        return instance

    def remove(self, key: str) -> Instance | None:
        """Remove and return an instance; the caller closes it."""
        return self._open.pop(key, None)

    def remove_all(self) -> list[Instance]:
        """Remove and return all instances."""
        removed = list(self._open.values())
        self._open = {}
        return removed

    def use(self, key: str) -> "InstanceLease":
        """Return a context that marks an instance in use, so that it is not closed as idle.

        It may be entered before the instance is open.
        """
        return InstanceLease(self, key)

    def add_user(self, key: str) -> None:
        """Count one more user."""
        self._user_counts[key] = self._user_counts.get(key, 0) + 1
        self._use_count += 1

    def remove_user(self, key: str) -> None:
        """Count one user less."""
        remaining = self._user_counts[key] - 1
        if remaining:
            self._user_counts[key] = remaining
        else:
            del self._user_counts[key]
            if self._unused_event is not None and not self._user_counts:
                self._unused_event.set()
        if (instance := self._open.get(key)) is not None:
            instance.last_used_at = self._clock()

    def is_in_use(self, key: str) -> bool:
        """Return whether the instance has users."""
        return key in self._user_counts

    async def wait_until_unused(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no instance has users; return whether that is so.

        No users for `QUIET_PERIOD_S`, because a call takes several steps and holds nothing in
        between.
        """
        if not self._user_counts and len(self.find_idle(QUIET_PERIOD_S)) == len(self._open):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    await self._wait_for_no_users()
                    uses = self._use_count
                    await asyncio.sleep(QUIET_PERIOD_S)
                    if not self._user_counts and uses == self._use_count:
                        return True
        return not self._user_counts

    async def _wait_for_no_users(self) -> None:
        while self._user_counts:
            if self._unused_event is None or self._unused_event.is_set():
                self._unused_event = asyncio.Event()
            await self._unused_event.wait()

    def find_idle(self, min_idle_s: float, excluded: Collection[str] = ()) -> list[str]:
        """Return the keys unused for `min_idle_s` seconds, without the excluded ones."""
        now = self._clock()
        return [
            key
            for key, instance in self._open.items()
            if key not in self._user_counts
            and key not in excluded
            and now - instance.last_used_at >= min_idle_s
        ]

    def find_longest_idle(self) -> str | None:
        """Return the key of the longest unused client instance, or None if all are in use."""
        free = [key for key in self.owned_keys if key not in self._user_counts]
        return min(free, key=lambda key: self._open[key].last_used_at, default=None)


class InstanceLease:
    """One use of an instance.

    A class because it is entered with every request, and a generator costs twice as much.
    """

    __slots__ = ("_instances", "_key")

    def __init__(self, instances: Instances, key: str) -> None:
        self._instances = instances
        self._key = key

    def __enter__(self) -> None:
        self._instances.add_user(self._key)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._instances.remove_user(self._key)
