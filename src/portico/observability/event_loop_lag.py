"""Event loop lag: how late timers fire when something blocks the loop."""

import asyncio
import time
from collections import deque

INTERVAL_S = 0.5
WINDOW_S = 30.0
"""Seconds over which the maximum is kept: a scrape now and then would miss most single delays."""


class EventLoopLag:
    """Measures how late a periodic sleep wakes up."""

    def __init__(self) -> None:
        self._delays: deque[tuple[float, float]] = deque(maxlen=int(WINDOW_S / INTERVAL_S))

    @property
    def max_delay_s(self) -> float:
        """The longest delay within the window, in seconds."""
        since = time.monotonic() - WINDOW_S
        return max((delay for at, delay in self._delays if at >= since), default=0.0)

    async def measure(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            now = time.monotonic()
            self._delays.append((now, max(0.0, now - due)))
