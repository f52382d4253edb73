"""A time limit that stands still while a person is asked."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

MAX_PAUSED_S = 900.0
"""Seconds that it stands still at most, in all: who waits holds a process and a place."""


class PausableClock:
    """Counts how long it was paused. For one event loop."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when it stops and when it goes on."""
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_s = 0.0

    @property
    def is_paused(self) -> bool:
        return self._pauses > 0

    @property
    def paused_s(self) -> float:
        """Seconds that it was paused until now, at most MAX_PAUSED_S."""
        total = self._paused_s
        if self.is_paused:
            total += asyncio.get_running_loop().time() - self._paused_at
        return min(total, MAX_PAUSED_S)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Stop it; several that overlap count once."""
        loop = asyncio.get_running_loop()
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = loop.time()
            self.on_change()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._paused_s += loop.time() - self._paused_at
                self.on_change()
