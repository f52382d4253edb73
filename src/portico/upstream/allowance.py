"""How often something may happen: a number at once, and so many a second after that."""

import time


class Allowance:
    """What is left of it."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, most: int, rate_per_s: float) -> None:
        self._most, self._rate = most, rate_per_s
        self._left, self._at = float(most), time.monotonic()

    def take(self) -> bool:
        """Whether it may happen once more."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
