"""How many calls a server gets at once, and how many in a second; whoever is too many waits in line.

Callers take turns, and each of them is served in the order of its calls: a script that calls a server two hundred times
holds up nobody else by more than one call. A line that is too long turns callers away at once, and waiting takes from
the time the call may take in all. A server without limits has no gate, and a gate with room lets a call through without
waiting.
"""

import time
from collections.abc import Callable

from portico.errors import BackendBusy
from portico.execution.turns import Limit, TurnedAway, Turns

__all__ = ["Gate", "Limit"]


class Gate:
    """One server's. One event loop's own."""

    def __init__(self, server: str, limit: Limit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._turns = Turns(limit, clock=clock)

    @property
    def running(self) -> int:
        """Calls that are inside."""
        return self._turns.running

    @property
    def waiting(self) -> int:
        """Calls that stand in line."""
        return self._turns.waiting

    async def enter(self, patience_s: float | None, caller: str = "") -> None:
        """Wait for a turn, but not longer; raises BackendBusy. Who came in must `leave`."""
        try:
            await self._turns.enter(caller, patience_s)
        except TurnedAway as refused:
            raise BackendBusy(
                f"{self._server} is busy: {refused.why}",
                advice=f"Nothing was sent. Try again in {refused.retry_after_s:g} s, or make fewer calls at once.",
                retry_after_s=refused.retry_after_s,
            ) from None

    def leave(self, caller: str = "") -> None:
        """A call is over."""
        self._turns.leave(caller)
