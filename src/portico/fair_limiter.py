"""Fair limiter: concurrency and rate limits, in total and for each caller, with a queue per caller.

A caller within the limits runs without waiting. Other requests are queued, those of each caller in
their order, and callers are served round-robin: a thousand requests of one delay no other caller by
more than one of them. A request to a full queue is rejected at once.

For one event loop: between two awaits nothing changes, so there is no lock.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_CALLERS = 4_096
"""Maximum number of callers remembered only for their rate; above it the oldest is forgotten."""
MAX_RELEASES = 64
"""Number of latest releases from which the wait is estimated."""
MIN_RETRY_S = 0.1
MAX_RETRY_S = 60.0
DEFAULT_RETRY_S = 1.0
"""Retry times: the least, the most, and the one without any release yet."""


@dataclass(frozen=True)
class Limit:
    """Limits of one caller, or in total."""

    concurrency: int = 0
    """Concurrent calls; 0: any number."""
    rate_per_s: float = 0
    """Calls started per second in the long run; 0: any number."""
    burst: int = 1
    """Calls that may start at once after a pause."""
    queue: int = 1_000
    """Calls that may be queued."""

    @property
    def is_unlimited(self) -> bool:
        """Whether it limits neither concurrency nor rate."""
        return self.concurrency <= 0 and self.rate_per_s <= 0


NO_LIMIT = Limit(queue=2**31)


class LimitExceeded(Exception):
    """A request was rejected: the reason, and when to retry."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = round(min(MAX_RETRY_S, max(MIN_RETRY_S, retry_after_s)), 1)


class _RateBucket:
    """Token bucket of one rate limit."""

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, limit: Limit, now: float) -> None:
        self._rate = limit.rate_per_s
        self._burst = float(max(1, limit.burst))
        self._tokens = self._burst
        self._filled_at = now

    def compute_wait(self, now: float) -> float:
        """Return the seconds until the next call may start."""
        if self._rate <= 0:
            return 0.0
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # Rounding must not delay a call that waited for a whole token.
        if self._tokens >= 1 - 1e-9:
            return 0.0
        return (1 - self._tokens) / self._rate

    def take(self) -> None:
        self._tokens -= 1

    def is_full(self, now: float) -> bool:
        return self._rate <= 0 or self._tokens + (now - self._filled_at) * self._rate >= self._burst


_UNLIMITED_BUCKET = _RateBucket(NO_LIMIT, 0.0)


def _build_bucket(limit: Limit, now: float) -> _RateBucket:
    if limit.rate_per_s > 0:
        return _RateBucket(limit, now)
    return _UNLIMITED_BUCKET


class _CallerQueue:
    """One caller: number of running calls, and queued ones."""

    __slots__ = ("bucket", "is_scheduled", "key", "queue", "running", "timer")

    def __init__(self, key: str, limit: Limit, now: float) -> None:
        self.key = key
        self.running = 0
        self.bucket = _build_bucket(limit, now)
        self.queue: deque[asyncio.Future[None]] = deque()
        self.is_scheduled = False
        """Whether it is in the round-robin queue."""
        self.timer: asyncio.TimerHandle | None = None


class FairLimiter:
    """Admits calls within the limits, round-robin among callers."""

    def __init__(
        self,
        total: Limit,
        per_caller: Limit = NO_LIMIT,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._per_caller = per_caller
        self._clock = clock
        self._bucket = _RateBucket(total, clock())
        self._running = self._waiting = 0
        self._callers: OrderedDict[str, _CallerQueue] = OrderedDict()
        self._scheduled: deque[_CallerQueue] = deque()
        """Callers with queued calls that are within their own limit; only non-empty while the total
        limit is reached."""
        self._timer: asyncio.TimerHandle | None = None
        self._released_at: deque[float] = deque(maxlen=MAX_RELEASES)
        """Times of the latest releases since the total limit was reached; empty while it is not."""

    def configure(self, total: Limit, per_caller: Limit = NO_LIMIT) -> None:
        """Apply new limits. Running calls stay, queued ones keep their place."""
        now = self._clock()
        self._total = total
        self._per_caller = per_caller
        self._bucket = _RateBucket(total, now)
        for caller in self._callers.values():
            caller.bucket = _build_bucket(per_caller, now)
            if caller.timer is not None:
                caller.timer.cancel()
                caller.timer = None
            self._schedule(caller)
        if self._waiting:
            self._admit_waiting()

    @property
    def running(self) -> int:
        """Number of running calls."""
        return self._running

    @property
    def waiting(self) -> int:
        """Number of queued calls."""
        return self._waiting

    @property
    def caller_count(self) -> int:
        """Number of known callers: running, queued, or with a bucket that is not full."""
        return len(self._callers)

    def count_for_caller(self, key: str) -> tuple[int, int]:
        """Return the number of running and of queued calls of a caller."""
        caller = self._callers.get(key)
        if caller:
            return (caller.running, len(caller.queue))
        return (0, 0)

    def try_acquire(self, key: str) -> bool:
        """Acquire a slot if one is free and no call is queued before; pair with `release`."""
        caller = self._get_or_add_caller(key)
        if caller.queue or self._scheduled or not self._can_admit(caller):
            self._forget_if_idle(caller)
            return False
        self._admit(caller)
        return True

    def take_rate_token(self, key: str) -> None:
        """Count a call that needs no slot against its caller's rate; raises LimitExceeded."""
        if self._per_caller.rate_per_s <= 0:
            return
        caller = self._get_or_add_caller(key)
        wait = caller.bucket.compute_wait(self._clock())
        if caller.queue or wait > 0:
            raise LimitExceeded(*self._describe_rate_excess(caller, wait))
        caller.bucket.take()

    async def acquire(self, key: str, timeout_s: float | None) -> None:
        """Acquire a slot within `timeout_s` seconds, else raise LimitExceeded; pair with
        `release`."""
        if self.try_acquire(key):
            return
        caller = self._get_or_add_caller(key)
        if (rejection := self._find_full_queue(caller)) is not None:
            self._forget_if_idle(caller)
            raise rejection
        slot = asyncio.get_running_loop().create_future()
        caller.queue.append(slot)
        self._waiting += 1
        self._schedule(caller)
        self._admit_waiting()
        try:
            async with asyncio.timeout(timeout_s):
                await slot
        except TimeoutError:
            self._cancel_wait(caller, slot)
            raise LimitExceeded(
                f"there was no turn within {timeout_s:g} s", self._estimate_wait(self._waiting)
            ) from None
        except asyncio.CancelledError:
            self._cancel_wait(caller, slot)
            raise

    def release(self, key: str) -> None:
        """Release a slot, and admit queued calls."""
        caller = self._callers[key]
        if self._waiting or not self._has_free_slot:
            self._released_at.append(self._clock())
        elif self._released_at:
            self._released_at.clear()
        caller.running -= 1
        self._running -= 1
        if caller.queue:
            self._schedule(caller)
        if self._waiting:
            self._admit_waiting()
        self._forget_if_idle(caller)

    # --- limits

    def _can_admit(self, caller: _CallerQueue) -> bool:
        return (
            self._is_within_caller_limit(caller)
            and self._has_free_slot
            and (self._total.rate_per_s <= 0 or not self._rate_wait_s)
        )

    def _is_within_caller_limit(self, caller: _CallerQueue) -> bool:
        """Return whether the caller's own limit admits one more call."""
        limit = self._per_caller
        if 0 < limit.concurrency <= caller.running:
            return False
        return limit.rate_per_s <= 0 or caller.bucket.compute_wait(self._clock()) <= 0

    @property
    def _has_free_slot(self) -> bool:
        return self._total.concurrency <= 0 or self._running < self._total.concurrency

    @property
    def _rate_wait_s(self) -> float:
        """Seconds until the total rate admits the next call."""
        return self._bucket.compute_wait(self._clock())

    def _admit(self, caller: _CallerQueue) -> None:
        caller.running += 1
        self._running += 1
        if self._total.rate_per_s > 0:
            self._bucket.take()
        if self._per_caller.rate_per_s > 0:
            caller.bucket.take()

    # --- queues

    def _schedule(self, caller: _CallerQueue) -> None:
        """Put a caller into the round-robin queue if it is within its own limit.

        If only its rate prevents that, it is rescheduled by a timer.
        """
        if caller.is_scheduled or not caller.queue:
            return
        if self._is_within_caller_limit(caller):
            caller.is_scheduled = True
            self._scheduled.append(caller)
        elif self._per_caller.rate_per_s > 0 and caller.timer is None:
            wait = caller.bucket.compute_wait(self._clock())
            if wait > 0:
                caller.timer = asyncio.get_running_loop().call_later(
                    max(wait, 0.001), self._reschedule, caller
                )

    def _reschedule(self, caller: _CallerQueue) -> None:
        caller.timer = None
        self._schedule(caller)
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit queued calls within the limits, round-robin among callers."""
        while (
            self._scheduled
            and self._has_free_slot
            and (self._total.rate_per_s <= 0 or not self._rate_wait_s)
        ):
            caller = self._scheduled.popleft()
            caller.is_scheduled = False
            if caller.queue and self._is_within_caller_limit(caller):
                slot = caller.queue.popleft()
                self._waiting -= 1
                # A cancelled call has already left the queue, or will find itself removed.
                if not slot.done():
                    self._admit(caller)
                    slot.set_result(None)
            self._schedule(caller)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._scheduled and self._has_free_slot:
            self._timer = asyncio.get_running_loop().call_later(
                max(self._rate_wait_s, 0.001), self._admit_waiting
            )

    def _cancel_wait(self, caller: _CallerQueue, slot: "asyncio.Future[None]") -> None:
        if slot.done() and not slot.cancelled():
            self.release(caller.key)  # acquired at the very moment it was cancelled
            return
        if slot in caller.queue:
            caller.queue.remove(slot)
            self._waiting -= 1
        if not caller.queue and caller.is_scheduled:
            self._scheduled.remove(caller)
            caller.is_scheduled = False
        self._admit_waiting()
        self._forget_if_idle(caller)

    # --- known callers

    def _get_or_add_caller(self, key: str) -> _CallerQueue:
        caller = self._callers.get(key)
        if caller is None:
            if len(self._callers) >= MAX_CALLERS:
                self._forget_oldest_idle()
            caller = self._callers[key] = _CallerQueue(key, self._per_caller, self._clock())
        return caller

    def _forget_if_idle(self, caller: _CallerQueue) -> None:
        """Forget a caller without calls and with a full bucket: it is like an unknown one."""
        if not caller.running and not caller.queue and caller.bucket.is_full(self._clock()):
            self._drop(caller)

    def _forget_oldest_idle(self) -> None:
        for caller in self._callers.values():
            if not caller.running and not caller.queue:
                self._drop(caller)
                return

    def _drop(self, caller: _CallerQueue) -> None:
        if caller.timer is not None:
            caller.timer.cancel()
            caller.timer = None
        # It may have been forgotten before, and the key may belong to a newer queue.
        if self._callers.get(caller.key) is caller:
            del self._callers[caller.key]

    # --- rejections

    def _find_full_queue(self, caller: _CallerQueue) -> LimitExceeded | None:
        queued = len(caller.queue)
        if queued >= self._per_caller.queue:
            wait = caller.bucket.compute_wait(self._clock())
            if wait > 0:
                return LimitExceeded(*self._describe_rate_excess(caller, wait))
            return LimitExceeded(
                f"{caller.running:,} of your calls run and {queued:,} wait",
                self._estimate_wait(queued),
            )
        if self._waiting >= self._total.queue:
            return LimitExceeded(
                f"{self._waiting:,} calls already wait for it", self._estimate_wait(self._waiting)
            )
        return None

    def _describe_rate_excess(self, caller: _CallerQueue, wait: float) -> tuple[str, float]:
        rate_per_s = self._per_caller.rate_per_s
        reason = f"you began more than {rate_per_s:g} calls a second"
        return reason, wait + len(caller.queue) / rate_per_s

    def _estimate_wait(self, ahead: int) -> float:
        """Estimate the seconds until `ahead` queued calls are admitted, from the latest
        releases."""
        if self._total.rate_per_s > 0 and self._has_free_slot:
            return self._rate_wait_s + ahead / self._total.rate_per_s
        if len(self._released_at) < 2:
            return DEFAULT_RETRY_S
        return (ahead + 1) * (self._clock() - self._released_at[0]) / (len(self._released_at) - 1)
