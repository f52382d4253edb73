"""Token bucket: allows a burst, then a steady rate."""

import time


class TokenBucket:
    """A bucket of `capacity` tokens, refilled at `rate_per_s`."""

    __slots__ = ("_capacity", "_rate", "_tokens", "_updated_at")

    def __init__(self, capacity: int, rate_per_s: float) -> None:
        self._capacity = capacity
        self._rate = rate_per_s
        self._tokens = float(capacity)
        self._updated_at = time.monotonic()

    def try_acquire(self) -> bool:
        """Take a token; return False if none is left."""
        now = time.monotonic()
        self._tokens = min(self._capacity, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
