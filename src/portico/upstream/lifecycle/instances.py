"""The conversations with one server that are open now: who is using which, and which may go.

A server that all share has one, under the empty key. One that keeps a state for each client has one
for each, and one under the empty key to be listed by. Deliberately without I/O: it says what may be
closed, and closes nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType

from portico.upstream.backend import Connection

SHARED = ""
"""The key of the conversation that nobody owns."""
QUIET_PERIOD_S = 0.1


@dataclass(eq=False, slots=True)
class Instance:
    """One conversation."""

    connection: Connection
    last_used_at: float
    """When it was last asked something, or was started."""
    started_at: float
    last_heard_at: float
    """When it was last known to have said something; `heard` since then waits to be looked at."""
    has_answered: bool = False
    heard_since_check: bool = False
    pending_calls: int = 0
    """Requests that it has not answered yet."""
    missed_checks: int = 0
    """Health checks in a row that it did not answer."""
    end_reason: str = ""
    """Why we end it, while somebody may still wait for it."""
    idle_event: asyncio.Event | None = None
    """Set when its last request is over, once it is to go."""


class Instances:
    """The open conversations of one server, by whose they are."""

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
        """What is known of one client's conversation."""
        return self._open.get(key)

    def get_connection(self, key: str) -> Connection | None:
        """The conversation of one client."""
        instance = self._open.get(key)
        if instance:
            return instance.connection
        return None

    def items(self) -> list[tuple[str, Instance]]:
        """Every one, with whose it is."""
        return list(self._open.items())

    @property
    def any_connection(self) -> Connection | None:
        """The one that nobody owns, or else whichever is open."""
        return self.get_connection(SHARED) or next(
            (instance.connection for instance in self._open.values()), None
        )

    @property
    def owned_keys(self) -> list[str]:
        """The keys of those that are one client's own."""
        return [key for key in self._open if key != SHARED]

    def add(self, key: str, connection: Connection) -> Instance:
        """One more is open."""
        now = self._clock()
        self._open[key] = instance = Instance(
            connection, last_used_at=now, started_at=now, last_heard_at=now
        )
        return instance

    def remove(self, key: str) -> Instance | None:
        """Forget one; whoever takes it closes it."""
        return self._open.pop(key, None)

    def remove_all(self) -> list[Instance]:
        """Forget them all."""
        taken = list(self._open.values())
        self._open = {}
        return taken

    def use(self, key: str) -> "InstanceLease":
        """While somebody waits for one or for what it answers; from before it is open, so that
        nobody closes it."""
        return InstanceLease(self, key)

    def add_user(self, key: str) -> None:
        """Somebody waits for it."""
        self._user_counts[key] = self._user_counts.get(key, 0) + 1
        self._use_count += 1

    def remove_user(self, key: str) -> None:
        """Somebody no longer does."""
        left = self._user_counts[key] - 1
        if left:
            self._user_counts[key] = left
        else:
            del self._user_counts[key]
            if self._unused_event is not None and not self._user_counts:
                self._unused_event.set()
        if (instance := self._open.get(key)) is not None:
            instance.last_used_at = self._clock()

    def is_in_use(self, key: str) -> bool:
        """Whether anybody waits for it now."""
        return key in self._user_counts

    async def wait_until_unused(self, timeout: float) -> bool:
        """Wait until nobody waits for any of them, but not longer; whether that is so.

        Nobody for a moment, because a call takes more than one step and holds nothing between them.
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
        """The keys of those nobody has used for so long, but for those that are kept."""
        now = self._clock()
        return [
            key
            for key, instance in self._open.items()
            if key not in self._user_counts
            and key not in excluded
            and now - instance.last_used_at >= min_idle_s
        ]

    def find_longest_idle(self) -> str | None:
        """The client's own that has been out of use longest; None where all are in use."""
        free = [key for key in self.owned_keys if key not in self._user_counts]
        return min(free, key=lambda key: self._open[key].last_used_at, default=None)


class InstanceLease:
    """Somebody's use of one; a class because it is entered with every request, and a generator
    costs twice as much."""

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
