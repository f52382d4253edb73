"""The conversations with one server that are open now: who is using which, and which may go.

A server that all share has one, under the empty key. One that keeps a state for each client has one for each, and one
under the empty key to be listed by. Deliberately without I/O: it says what may be closed, and closes nothing.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from portico.upstream.backend import Connection

SHARED = ""
"""The key of the conversation that nobody owns."""


@dataclass(eq=False)
class Instance:
    """One conversation."""

    connection: Connection
    used: float
    """When it was last asked something, or was started."""
    answered: bool = False


class Instances:
    """The open conversations of one server, by whose they are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[str, Instance] = {}
        self._users: Counter[str] = Counter()
        self._clock = clock

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def get(self, key: str) -> Connection | None:
        """The conversation of one client."""
        instance = self._open.get(key)
        return instance.connection if instance else None

    @property
    def any(self) -> Connection | None:
        """The one that nobody owns, or else whichever is open."""
        return self.get(SHARED) or next((instance.connection for instance in self._open.values()), None)

    @property
    def owned(self) -> list[str]:
        """The keys of those that are one client's own."""
        return [key for key in self._open if key != SHARED]

    def add(self, key: str, connection: Connection) -> None:
        """One more is open."""
        self._open[key] = Instance(connection, self._clock())

    def take(self, key: str) -> Instance | None:
        """Forget one; whoever takes it closes it."""
        return self._open.pop(key, None)

    def take_all(self) -> list[Connection]:
        """Forget them all."""
        taken, self._open = [instance.connection for instance in self._open.values()], {}
        return taken

    @contextmanager
    def use(self, key: str) -> Generator[None]:
        """While somebody waits for one or for what it answers; from before it is open, so that nobody closes it."""
        self._users[key] += 1
        try:
            yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
            if (instance := self._open.get(key)) is not None:
                instance.used = self._clock()

    def in_use(self, key: str) -> bool:
        """Whether anybody waits for it now."""
        return key in self._users

    def answered(self, key: str) -> None:
        """It has answered somebody: it works."""
        if (instance := self._open.get(key)) is not None:
            instance.answered = True

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
