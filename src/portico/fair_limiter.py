"""Fair limiter: concurrency and rate limits, in total and for each caller, with a queue per caller.

A caller within the limits runs without waiting. Other requests are queued, those of each caller in
their order, and callers are served round-robin: a thousand requests of one delay no other caller by
more than one of them. A request to a full queue is rejected at once.

For one event loop: between two awaits nothing changes, so there is no lock.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

MAX_CALLERS = 4_096
"""Maximum number of callers remembered only for their rate; above it the oldest is forgotten."""
MAX_RELEASES = 64
"""Number of latest releases from which the wait is estimated."""
MIN_RETRY_S = 0.1
MAX_RETRY_S = 60.0
DEFAULT_RETRY_S = 1.0
"""Retry times: the least, the most, and the one without any release yet."""


class LimitSettings(Protocol):
    """Limits of one caller, or in total; a section of the configuration has them too."""

    @property
    def concurrency(self) -> int:
        """Concurrent calls; 0: any number."""
        ...

    @property
    def rate_per_s(self) -> float:
        """Calls started per second in the long run; 0: any number."""
        ...

    @property
    def burst(self) -> int:
        """Calls that may start at once after a pause."""
        ...

    @property
    def queue(self) -> int: ...


@dataclass(frozen=True)
class Limit:
    """Limits that are not from the configuration; by default only the queue is limited."""

    concurrency: int = 0
    rate_per_s: float = 0
    burst: int = 1
    queue: int = 1_000


NO_LIMIT = Limit(queue=2**31)


class LimitExceeded(Exception):
    """A request was rejected: the reason, and when to retry."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = round(min(MAX_RETRY_S, max(MIN_RETRY_S, retry_after_s)), 1)


class _RateBucket:
    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, limit: LimitSettings, now: float) -> None:
        self._rate = limit.rate_per_s
        self._burst = float(max(1, limit.burst))
        self._tokens = self._burst
        self._filled_at = now

    def compute_wait(self, now: float) -> float:
        """Return the seconds until the next call may start."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # Rounding must not delay a call that waited for a whole token.
        if self._tokens >= 1 - 1e-9:
            return 0.0
        return (1 - self._tokens) / self._rate

    def take(self) -> None:
        self._tokens -= 1

    def is_full(self, now: float) -> bool:
        return self._tokens + (now - self._filled_at) * self._rate >= self._burst


def _make_bucket(limit: LimitSettings, now: float) -> _RateBucket | None:
    return _RateBucket(limit, now) if limit.rate_per_s > 0 else None


@dataclass(slots=True, eq=False)
class _CallerQueue:
    """One caller: number of running calls, and queued ones."""

    key: str
    bucket: _RateBucket | None = None
    """None without a rate limit."""
    running: int = 0
    queue: deque[asyncio.Future[None]] = field(default_factory=deque)
    is_scheduled: bool = False
    """Whether it is in the round-robin queue."""
    timer: asyncio.TimerHandle | None = None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class FairLimiter:
    """Admits calls within the limits, round-robin among callers."""

    def __init__(
        self,
        total: LimitSettings,
        per_caller: LimitSettings = NO_LIMIT,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._per_caller = per_caller
        self._clock = clock
        self._bucket = _make_bucket(total, clock())
        self.running = 0
        """Number of running calls."""
        self.waiting = 0
        """Number of queued calls."""
        self._callers: OrderedDict[str, _CallerQueue] = OrderedDict()
        self._scheduled: deque[_CallerQueue] = deque()
        """Callers with queued calls that are within their own limit; only non-empty while the total
        limit is reached."""
        self._timer: asyncio.TimerHandle | None = None
        self._released_at: deque[float] = deque(maxlen=MAX_RELEASES)
        """Times of the latest releases since the total limit was reached; empty while it is not."""

    def configure(self, total: LimitSettings, per_caller: LimitSettings = NO_LIMIT) -> None:
        """Apply new limits. Running calls stay, queued ones keep their place."""
        now = self._clock()
        self._total = total
        self._per_caller = per_caller
        self._bucket = _make_bucket(total, now)
        for caller in self._callers.values():
            caller.bucket = _make_bucket(per_caller, now)
            caller.cancel_timer()
            self._schedule(caller)
        if self.waiting:
            self._admit_waiting()

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
        caller = self._callers.get(key) or self._add_caller(key)
        if (
            caller.queue
            or self._scheduled
            or self._get_wait(self._per_caller, caller.running, caller.bucket) > 0
            or self._get_wait(self._total, self.running, self._bucket) > 0
        ):
            self._forget_if_idle(caller)
            return False
        self._admit(caller)
        return True

    def take_rate_token(self, key: str) -> None:
        """Count a call that needs no slot against its caller's rate; raises LimitExceeded."""
        if self._per_caller.rate_per_s <= 0:
            return
        caller = self._callers.get(key) or self._add_caller(key)
        if caller.bucket is not None:
            wait = caller.bucket.compute_wait(self._clock())
            if caller.queue or wait > 0:
                raise self._make_rate_rejection(caller, wait)
            caller.bucket.take()

    async def acquire(self, key: str, timeout_s: float | None) -> None:
        """Acquire a slot within `timeout_s` seconds, else raise LimitExceeded; pair with
        `release`."""
        if self.try_acquire(key):
            return
        caller = self._callers.get(key) or self._add_caller(key)
        if (rejection := self._find_full_queue(caller)) is not None:
            self._forget_if_idle(caller)
            raise rejection
        slot = asyncio.get_running_loop().create_future()
        caller.queue.append(slot)
        self.waiting += 1
        self._schedule(caller)
        self._admit_waiting()
        try:
            async with asyncio.timeout(timeout_s):
                await slot
        except TimeoutError:
            self._cancel_wait(caller, slot)
            raise LimitExceeded(
                f"there was no turn within {timeout_s:g} s", self._estimate_wait(self.waiting)
            ) from None
        except asyncio.CancelledError:
            self._cancel_wait(caller, slot)
            raise

    def release(self, key: str) -> None:
        """Release a slot, and admit queued calls."""
        caller = self._callers[key]
        if self.waiting or 0 < self._total.concurrency <= self.running:
            self._released_at.append(self._clock())
        elif self._released_at:
            self._released_at.clear()
        caller.running -= 1
        self.running -= 1
        if caller.queue:
            self._schedule(caller)
        if self.waiting:
            self._admit_waiting()
        self._forget_if_idle(caller)

    # --- limits

    def _get_wait(self, limit: LimitSettings, running: int, bucket: _RateBucket | None) -> float:
        """Return 0 if a limit admits one more call, the seconds until its rate does, or infinity
        until a running call ends."""
        if 0 < limit.concurrency <= running:
            return math.inf
        return bucket.compute_wait(self._clock()) if bucket is not None else 0.0

    def _admit(self, caller: _CallerQueue) -> None:
        caller.running += 1
        self.running += 1
        if self._bucket is not None:
            self._bucket.take()
        if caller.bucket is not None:
            caller.bucket.take()

    # --- queues

    def _schedule(self, caller: _CallerQueue) -> None:
        """Put a caller into the round-robin queue if it is within its own limit.

        If only its rate prevents that, it is rescheduled by a timer.
        """
        if caller.is_scheduled or not caller.queue:
            return
        wait = self._get_wait(self._per_caller, caller.running, caller.bucket)
        if wait <= 0:
            caller.is_scheduled = True
            self._scheduled.append(caller)
        elif wait < math.inf and caller.timer is None:
            caller.timer = asyncio.get_running_loop().call_later(
                max(wait, 0.001), self._reschedule, caller
            )

    def _reschedule(self, caller: _CallerQueue) -> None:
        caller.timer = None
        self._schedule(caller)
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit queued calls within the limits, round-robin among callers."""
        wait = self._get_wait(self._total, self.running, self._bucket)
        while self._scheduled and wait <= 0:
            caller = self._scheduled.popleft()
            caller.is_scheduled = False
            if (
                caller.queue
                and self._get_wait(self._per_caller, caller.running, caller.bucket) <= 0
            ):
                slot = caller.queue.popleft()
                self.waiting -= 1
                # A cancelled call has already left the queue, or will find itself removed.
                if not slot.done():
                    self._admit(caller)
                    slot.set_result(None)
            self._schedule(caller)
            wait = self._get_wait(self._total, self.running, self._bucket)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._scheduled and wait < math.inf:
            self._timer = asyncio.get_running_loop().call_later(
                max(wait, 0.001), self._admit_waiting
            )

    def _cancel_wait(self, caller: _CallerQueue, slot: "asyncio.Future[None]") -> None:
        if slot.done() and not slot.cancelled():
            self.release(caller.key)  # acquired at the very moment it was cancelled
            return
        if slot in caller.queue:
            caller.queue.remove(slot)
            self.waiting -= 1
        if not caller.queue and caller.is_scheduled:
            self._scheduled.remove(caller)
            caller.is_scheduled = False
        self._admit_waiting()
        self._forget_if_idle(caller)

    # --- known callers

    def _add_caller(self, key: str) -> _CallerQueue:
        if len(self._callers) >= MAX_CALLERS:
            idle = (one for one in self._callers.values() if not one.running and not one.queue)
            if (oldest := next(idle, None)) is not None:
                oldest.cancel_timer()
                del self._callers[oldest.key]
        caller = self._callers[key] = _CallerQueue(key)
        if self._per_caller.rate_per_s > 0:
            caller.bucket = _RateBucket(self._per_caller, self._clock())
        return caller

    def _forget_if_idle(self, caller: _CallerQueue) -> None:
        """Forget a caller without calls and with a full bucket: it is like an unknown one."""
        if caller.running or caller.queue:
            return
        if caller.bucket is not None and not caller.bucket.is_full(self._clock()):
            return
        if caller.timer is not None:
            caller.cancel_timer()
        # It may have been forgotten before, and the key may belong to a newer queue.
        if self._callers.get(caller.key) is caller:
            del self._callers[caller.key]

    # --- rejections

    def _find_full_queue(self, caller: _CallerQueue) -> LimitExceeded | None:
        queued = len(caller.queue)
        if queued >= self._per_caller.queue:
            if caller.bucket is not None and (wait := caller.bucket.compute_wait(self._clock())):
                return self._make_rate_rejection(caller, wait)
            return LimitExceeded(
                f"{caller.running:,} of your calls run and {queued:,} wait",
                self._estimate_wait(queued),
            )
        if self.waiting >= self._total.queue:
            return LimitExceeded(
                f"{self.waiting:,} calls already wait for it", self._estimate_wait(self.waiting)
            )
        return None

    def _make_rate_rejection(self, caller: _CallerQueue, wait: float) -> LimitExceeded:
        rate_per_s = self._per_caller.rate_per_s
        return LimitExceeded(
            f"you began more than {rate_per_s:g} calls a second",
            wait + len(caller.queue) / rate_per_s,
        )

    def _estimate_wait(self, ahead: int) -> float:
        """Estimate the seconds until `ahead` queued calls are admitted, from the latest
        releases."""
        wait = self._get_wait(self._total, self.running, self._bucket)
        if self._bucket is not None and wait < math.inf:
            return wait + ahead / self._total.rate_per_s
        if len(self._released_at) < 2:
            return DEFAULT_RETRY_S
        return (ahead + 1) * (self._clock() - self._released_at[0]) / (len(self._released_at) - 1)
