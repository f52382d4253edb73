"""The conversations with one server that are open now: who is using which, and which may go.

A server that all share has one, under the empty key. One that keeps a state for each client has one for each, and one
under the empty key to be listed by. Deliberately without I/O: it says what may be closed, and closes nothing.
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
MOMENT_S = 0.1


@dataclass(eq=False, slots=True)
class Instance:
    """One conversation."""

    connection: Connection
    used: float
    """When it was last asked something, or was started."""
    started: float
    heard_at: float
    """When it was last known to have said something; `heard` since then waits to be looked at."""
    answered: bool = False
    heard: bool = False
    calls: int = 0
    """Requests that it has not answered yet."""
    missed: int = 0
    """Health checks in a row that it did not answer."""
    ended: str = ""
    """Why we end it, while somebody may still wait for it."""
    idle: asyncio.Event | None = None
    """Set when its last request is over, once it is to go."""


class Instances:
    """The open conversations of one server, by whose they are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[str, Instance] = {}
        self._users: dict[str, int] = {}
        self._uses = 0
        self._quiet: asyncio.Event | None = None
        self._clock = clock

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def find(self, key: str) -> Instance | None:
        """What is known of one client's conversation."""
        return self._open.get(key)

    def get(self, key: str) -> Connection | None:
        """The conversation of one client."""
        instance = self._open.get(key)
        return instance.connection if instance else None

    def all(self) -> list[tuple[str, Instance]]:
        """Every one, with whose it is."""
        return list(self._open.items())

    @property
    def any(self) -> Connection | None:
        """The one that nobody owns, or else whichever is open."""
        return self.get(SHARED) or next((instance.connection for instance in self._open.values()), None)

    @property
    def owned(self) -> list[str]:
        """The keys of those that are one client's own."""
        return [key for key in self._open if key != SHARED]

    def add(self, key: str, connection: Connection) -> Instance:
        """One more is open."""
        now = self._clock()
        self._open[key] = instance = Instance(connection, used=now, started=now, heard_at=now)
        return instance

    def take(self, key: str) -> Instance | None:
        """Forget one; whoever takes it closes it."""
        return self._open.pop(key, None)

    def take_all(self) -> list[Instance]:
        """Forget them all."""
        taken, self._open = list(self._open.values()), {}
        return taken

    def use(self, key: str) -> "Use":
        """While somebody waits for one or for what it answers; from before it is open, so that nobody closes it."""
        return Use(self, key)

    def begin(self, key: str) -> None:
        """Somebody waits for it."""
        self._users[key] = self._users.get(key, 0) + 1
        self._uses += 1

    def end(self, key: str) -> None:
        """Somebody no longer does."""
        left = self._users[key] - 1
        if left:
            self._users[key] = left
        else:
            del self._users[key]
            if self._quiet is not None and not self._users:
                self._quiet.set()
        if (instance := self._open.get(key)) is not None:
            instance.used = self._clock()

    def in_use(self, key: str) -> bool:
        """Whether anybody waits for it now."""
        return key in self._users

    async def settled(self, seconds: float) -> bool:
        """Wait until nobody waits for any of them, but not longer; whether that is so.

        Nobody for a moment, because a call takes more than one step and holds nothing between them.
        """
        if not self._users and len(self.idle(MOMENT_S)) == len(self._open):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._unused()
                    uses = self._uses
                    await asyncio.sleep(MOMENT_S)
                    if not self._users and uses == self._uses:
                        return True
        return not self._users

    async def _unused(self) -> None:
        while self._users:
            if self._quiet is None or self._quiet.is_set():
                self._quiet = asyncio.Event()
            await self._quiet.wait()

    def idle(self, seconds: float, kept: Collection[str] = ()) -> list[str]:
        """The keys of those nobody has used for so long, but for those that are kept."""
        now = self._clock()
        return [
            key
            for key, instance in self._open.items()
            if key not in self._users and key not in kept and now - instance.used >= seconds
        ]

    def longest_idle(self) -> str | None:
        """The client's own that has been out of use longest; None where all are in use."""
        free = [key for key in self.owned if key not in self._users]
        return min(free, key=lambda key: self._open[key].used, default=None)


class Use:
    """Somebody's use of one; a class because it is entered with every request, and a generator costs twice as much."""

    __slots__ = ("_instances", "_key")

    def __init__(self, instances: Instances, key: str) -> None:
        self._instances, self._key = instances, key

    def __enter__(self) -> None:
        self._instances.begin(self._key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._instances.end(self._key)
