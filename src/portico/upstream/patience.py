"""How long one request is waited for: so long without a sign of life, so long in all.

While the server asks the client that made the request, both clocks stand still: a person may take longer to answer than
a server may. Whoever asks the client has a bound of its own.
"""

import asyncio
import contextlib

from portico.upstream.backend import Ask


class Patience:
    """One request's. Enter `clock` around the wait."""

    __slots__ = ("_asked_at", "_asking", "_began", "ask", "clock")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._began = now = asyncio.get_running_loop().time()
        self._asking = 0
        self._asked_at = 0.0
        self.clock = asyncio.timeout_at(ask.deadline(now, now))

    @property
    def waited(self) -> float:
        """Seconds since it began, without those its client was being asked."""
        now = asyncio.get_running_loop().time()
        return (self._asked_at if self._asking else now) - self._began

    def progressed(self) -> None:
        """A server that reports progress is given its time anew, up to the longest a call may take."""
        if not self._asking:
            self._set(asyncio.get_running_loop().time())

    def hold(self) -> None:
        """Its client is being asked; every `hold` has its `release`."""
        if not self._asking:
            self._asked_at = asyncio.get_running_loop().time()
            self._set(None)
        self._asking += 1

    def release(self) -> None:
        """Its client has answered, or was not to be asked."""
        self._asking -= 1
        if not self._asking:
            now = asyncio.get_running_loop().time()
            self._began += now - self._asked_at
            self._set(now)

    def _set(self, now: float | None) -> None:
        # It cannot be set any more when the wait is over.
        with contextlib.suppress(RuntimeError):
            if not self.clock.expired():
                self.clock.reschedule(None if now is None else self.ask.deadline(self._began, now))
