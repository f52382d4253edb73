"""How many calls a server gets at once, and how many in a second; whoever is too many waits in line.

First come, first served. A line that is too long turns callers away at once, and waiting takes from the time the call
may take in all. A server without limits has no gate, and a gate with room lets a call through without waiting.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from portico.errors import BackendBusy


@dataclass(frozen=True)
class Limit:
    """What one server is asked to bear."""

    concurrency: int = 0
    """Calls at the same time; 0: any number."""
    rate_per_s: float = 0
    """Calls that begin in a second, in the long run; 0: any number."""
    burst: int = 1
    """Calls that may begin at once after a pause."""
    queue: int = 1_000
    """Calls that may wait."""

    @property
    def none(self) -> bool:
        """Whether it limits nothing."""
        return self.concurrency <= 0 and self.rate_per_s <= 0


class Gate:
    """One server's. One event loop's own."""

    def __init__(self, server: str, limit: Limit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._limit = limit
        self._clock = clock
        self._running = 0
        self._tokens = float(max(1, limit.burst))
        self._filled_at = clock()
        self._line: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        """Calls that are inside."""
        return self._running

    @property
    def waiting(self) -> int:
        """Calls that stand in line."""
        return len(self._line)

    async def enter(self, patience_s: float | None) -> None:
        """Wait for a turn, but not longer; raises BackendBusy. Who came in must `leave`."""
        if not self._line and self._admit():
            return
        if len(self._line) >= self._limit.queue:
            raise self._busy(f"{len(self._line):,} calls already wait for it")
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self._move()
        try:
            async with asyncio.timeout(patience_s):
                await turn
        except TimeoutError:
            self._give_up(turn)
            raise self._busy(f"there was no turn within {patience_s:g} s") from None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    def leave(self) -> None:
        """A call is over."""
        self._running -= 1
        self._move()

    def _give_up(self, turn: "asyncio.Future[None]") -> None:
        if turn.done() and not turn.cancelled():
            self.leave()  # the turn came at the very moment its owner went
            return
        with contextlib.suppress(ValueError):  # it may have been passed over already
            self._line.remove(turn)
        self._move()

    def _move(self) -> None:
        while self._line and (self._line[0].done() or self._admit()):
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line and self._limit.rate_per_s > 0 and self._has_room:
            wait = (1 - self._tokens) / self._limit.rate_per_s
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._move)

    @property
    def _has_room(self) -> bool:
        return self._limit.concurrency <= 0 or self._running < self._limit.concurrency

    def _admit(self) -> bool:
        if not self._has_room:
            return False
        if self._limit.rate_per_s > 0:
            now = self._clock()
            gained = (now - self._filled_at) * self._limit.rate_per_s
            self._tokens = min(float(max(1, self._limit.burst)), self._tokens + gained)
            self._filled_at = now
            # What waited for a whole one need not wait for the rounding too.
            if self._tokens < 1 - 1e-9:
                return False
            self._tokens -= 1
        self._running += 1
        return True

    def _busy(self, why: str) -> BackendBusy:
        return BackendBusy(
            f"{self._server} is busy: {why}",
            advice="Nothing was sent. Try again in a moment, or make fewer calls at once.",
        )
