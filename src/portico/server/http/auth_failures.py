"""Counts wrong tokens by peer, slows guessing down, and reports it.

A peer (`identify_network` in `server/http/auth.py`) has a token bucket of wrong tokens that refills
slowly. While it is empty, requests with a token from there are refused unchecked, so that guessing
is slow. Peers that sent the right token within `TRUSTED_S` are exempt: a client behind the same
proxy or address translation as the guesser is not affected. Every operation takes constant time,
and memory is bounded.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from portico.events import TokensRefused

logger = logging.getLogger(__name__)

BURST = 20
"""Wrong tokens that a peer may send at once."""
REFILL_S = 2.0
"""Seconds until a peer may send one more."""
TRUSTED_S = 3_600.0
"""Seconds after the right token for which no request of a peer is refused unchecked."""
REPORT_S = 60.0
"""Minimum seconds between two reports of refusals."""
MAX_PEERS = 4_096
MAX_REPORTED = 16
"""Addresses named in one report; others count as `elsewhere`."""


class AuthFailureLimiter:
    """Counts wrong tokens by peer and reports them. For one event loop."""

    def __init__(
        self,
        publish: Callable[[TokensRefused], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When the bucket of a peer is full again; buckets of peers not listed are full."""
        self._trusted: OrderedDict[str, float] = OrderedDict()
        self._refused_counts = Counter[str]()
        self._report_timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")

    def get_wait_s(self, peer: str) -> float:
        """Return the seconds until a token of the peer is checked; 0 if it is checked now."""
        if self._trusted.get(peer, float("-inf")) + TRUSTED_S > self._clock():
            return 0.0
        return self._compute_wait_s(peer)

    def record_success(self, peer: str) -> None:
        """Record the right token of a peer."""
        now = self._clock()
        if self._trusted.get(peer, float("-inf")) + REPORT_S > now:
            return
        self._trusted[peer] = now
        self._trusted.move_to_end(peer)
        if len(self._trusted) > MAX_PEERS:
            self._trusted.popitem(last=False)

    def record_failure(self, peer: str) -> float:
        """Record a token that was wrong or unchecked; return the seconds the peer has to wait, or
        0."""
        self._schedule_report(peer)
        wait = self._compute_wait_s(peer)
        if not wait:
            now = self._clock()
            self._full_at[peer] = max(now, self._full_at.get(peer, now)) + REFILL_S
            self._full_at.move_to_end(peer)
            if len(self._full_at) > MAX_PEERS:
                self._full_at.popitem(last=False)
        return wait

    def _compute_wait_s(self, peer: str) -> float:
        """Return the seconds for which the bucket of a peer stays empty."""
        now = self._clock()
        return max(0.0, self._full_at.get(peer, now) - now - (BURST - 1) * REFILL_S)

    def close(self) -> None:
        """Send the pending report."""
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._send_report()

    def _schedule_report(self, peer: str) -> None:
        is_named = peer in self._refused_counts or len(self._refused_counts) < MAX_REPORTED
        self._refused_counts[peer if is_named else "elsewhere"] += 1
        if self._report_timer is None:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._reported_at + REPORT_S - loop.time())
            self._report_timer = loop.call_later(wait, self._send_report)

    def _send_report(self) -> None:
        self._report_timer = None
        self._reported_at = asyncio.get_running_loop().time()
        refused = self._refused_counts
        self._refused_counts = Counter[str]()
        logger.warning("%d wrong tokens were refused, from %s", refused.total(), ", ".join(refused))
        if self._publish is not None:
            self._publish(TokensRefused(refused.total(), tuple(refused.most_common())))
