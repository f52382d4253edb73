"""How many servers are started at the same time because somebody called them, in the whole gateway.

A start holds its place for its first seconds only: a few servers that never answer must not keep the others waiting
until they are given up.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import BackendBusy

PLACE_S = 5.0


class Starts:
    """So many places."""

    def __init__(self, most: int = 16, *, place_s: float = PLACE_S) -> None:
        self._most = most
        self._places = asyncio.Semaphore(most)
        self._place_s = place_s

    @asynccontextmanager
    async def place(self, name: str, patience: float) -> AsyncGenerator[None]:
        """Wait for a place, but not longer than that, and hold it for as long as this lasts or a place is held."""
        try:
            async with asyncio.timeout(patience):
                await self._places.acquire()
        except TimeoutError:
            raise BackendBusy(
                f"{name} was not started within {patience:g} s: as many as may be ({self._most}) are being started",
                advice="Try again shortly, or raise limits.call_starts.",
            ) from None
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._places.release()

        timer = asyncio.get_running_loop().call_later(self._place_s, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()
