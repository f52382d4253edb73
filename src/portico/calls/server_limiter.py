"""Limits of a server: concurrent calls and calls per second; further calls are queued.

The queue is fair between callers and first-in-first-out for each: a script that makes two hundred
calls delays any other caller by one call at most. A full queue rejects at once, and queueing time
is deducted from the call's timeout. A server without limits has no limiter.
"""

import time
from collections.abc import Callable

from portico.errors import BackendBusy
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded

__all__ = ["Limit", "ServerLimiter"]


class ServerLimiter:
    """Limiter of one server; bound to one event loop."""

    def __init__(
        self, server: str, limit: Limit, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._limiter = FairLimiter(limit, clock=clock)

    @property
    def running(self) -> int:
        """Number of calls that hold a slot."""
        return self._limiter.running

    @property
    def waiting(self) -> int:
        """Number of queued calls."""
        return self._limiter.waiting

    async def acquire(self, timeout_s: float | None, caller: str = "") -> None:
        """Acquire a slot within `timeout_s`, else raise BackendBusy. Pair with `release`."""
        try:
            await self._limiter.acquire(caller, timeout_s)
        except LimitExceeded as refused:
            raise BackendBusy(
                f"{self._server} is busy: {refused.reason}",
                advice=f"Nothing was sent. Try again in {refused.retry_after_s:g} s, "
                "or make fewer calls at once.",
                retry_after_s=refused.retry_after_s,
            ) from None

    def release(self, caller: str = "") -> None:
        """Release the slot of a finished call."""
        self._limiter.release(caller)
