"""Limits how often each network may ask for something; for one event loop."""

import time
from collections import OrderedDict
from collections.abc import Callable

MAX_NETWORKS = 4_096


class NetworkRateLimiter:
    """A bucket of `burst` requests for each network, which refills one every `refill_s`."""

    def __init__(
        self, burst: int, refill_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When a network's bucket is full again; those not listed are full."""

    def take(self, network: str) -> float:
        """Count a request; return the seconds to wait where there may be none now, else 0."""
        now = self._clock()
        full_at = max(now, self._full_at.get(network, now))
        wait = full_at - now - (self._burst - 1) * self._refill_s
        if wait > 0:
            return wait
        self._full_at[network] = full_at + self._refill_s
        self._full_at.move_to_end(network)
        if len(self._full_at) > MAX_NETWORKS:
            self._full_at.popitem(last=False)
        return 0.0
