"""How late the event loop is: what everybody waits for when somebody computes where all are served."""

import asyncio
import time
from collections import deque

EVERY_S = 0.5
WINDOW_S = 30.0
"""The worst of so long is told: a scrape now and then would miss nearly every single delay."""


class Lag:
    """Sleeps, and sees how late it wakes."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=int(WINDOW_S / EVERY_S))

    @property
    def worst(self) -> float:
        """The longest delay of the last half minute, in seconds."""
        since = time.monotonic() - WINDOW_S
        return max((late for at, late in self._late if at >= since), default=0.0)

    async def watch(self) -> None:
        """Measure until it is cancelled."""
        while True:
            due = time.monotonic() + EVERY_S
            await asyncio.sleep(EVERY_S)
            now = time.monotonic()
            self._late.append((now, max(0.0, now - due)))
