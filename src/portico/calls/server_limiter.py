"""How many calls a server gets at once, and how many in a second; whoever is too many waits in
line.

Callers take turns, and each of them is served in the order of its calls: a script that calls a
server two hundred times holds up nobody else by more than one call. A line that is too long turns
callers away at once, and waiting takes from the time the call may take in all. A server without
limits has no gate, and a gate with room lets a call through without waiting.
"""

import time
from collections.abc import Callable

from portico.errors import BackendBusy
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded

__all__ = ["Limit", "ServerLimiter"]


class ServerLimiter:
    """One server's. One event loop's own."""

    def __init__(
        self, server: str, limit: Limit, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._limiter = FairLimiter(limit, clock=clock)

    @property
    def running(self) -> int:
        """Calls that are inside."""
        return self._limiter.running

    @property
    def waiting(self) -> int:
        """Calls that stand in line."""
        return self._limiter.waiting

    async def acquire(self, timeout_s: float | None, caller: str = "") -> None:
        """Wait for a turn, but not longer; raises BackendBusy. Who came in must `leave`."""
        try:
            await self._limiter.acquire(caller, timeout_s)
        except LimitExceeded as refused:
            raise BackendBusy(
                f"{self._server} is busy: {refused.reason}",
                advice=f"Nothing was sent. Try again in {refused.retry_after_s:g} s, or make fewer calls at once.",
                retry_after_s=refused.retry_after_s,
            ) from None

    def release(self, caller: str = "") -> None:
        """A call is over."""
        self._limiter.release(caller)
