"""How many servers are started at the same time because somebody called them, in the whole gateway.

A start holds its place for its first seconds only: a few servers that never answer must not keep
the others waiting until they are given up.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import BackendBusy

SLOT_S = 5.0


class StartSlots:
    """So many places."""

    def __init__(self, limit: int = 16, *, slot_s: float = SLOT_S) -> None:
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._slot_s = slot_s

    @asynccontextmanager
    async def acquire(self, name: str, timeout: float) -> AsyncGenerator[None]:
        """Wait for a place, but not longer than that, and hold it for as long as this lasts or a
        place is held."""
        try:
            async with asyncio.timeout(timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise BackendBusy(
                f"{name} was not started within {timeout:g} s: as many as may be ({self._limit}) are being started",
                advice="Try again shortly, or raise limits.call_starts.",
            ) from None
        left = False

        def release() -> None:
            nonlocal left
            if not left:
                left = True
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(self._slot_s, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
