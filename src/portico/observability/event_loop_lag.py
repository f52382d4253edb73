"""How late the event loop is: what everybody waits for when somebody computes where all are served."""

import asyncio
import time
from collections import deque

INTERVAL_S = 0.5
WINDOW_S = 30.0
"""The worst of so long is told: a scrape now and then would miss nearly every single delay."""


class EventLoopLag:
    """Sleeps, and sees how late it wakes."""

    def __init__(self) -> None:
        self._delays: deque[tuple[float, float]] = deque(maxlen=int(WINDOW_S / INTERVAL_S))

    @property
    def max_delay_s(self) -> float:
        """The longest delay of the last half minute, in seconds."""
        since = time.monotonic() - WINDOW_S
        return max((late for at, late in self._delays if at >= since), default=0.0)

    async def measure(self) -> None:
        """Measure until it is cancelled."""
        while True:
            due = time.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            now = time.monotonic()
            self._delays.append((now, max(0.0, now - due)))
