"""Who may come in now, and who is next: so many at once, so many in a second, in all and of each
caller.

A caller that finds room comes in without waiting. The others stand in line, each caller's requests
in the order they came, and callers take turns: a thousand requests of one hold up nobody else by
more than one of them. A line that is too long turns its owner away at once.

One event loop's own: between two awaits nothing changes, so there is no lock.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_CALLERS = 4_096
"""Callers remembered only for their rate; of more, who came first is forgotten."""
MAX_RELEASES = 64
"""How many of those who left last tell how quickly places become free."""
MIN_RETRY_S = 0.1
MAX_RETRY_S = 60.0
DEFAULT_RETRY_S = 1.0
"""What anyone is told to wait, at least and at most, and where nobody has left yet."""


@dataclass(frozen=True)
class Limit:
    """What is borne, of one caller or in all."""

    concurrency: int = 0
    """Calls at the same time; 0: any number."""
    rate_per_s: float = 0
    """Calls that begin in a second, in the long run; 0: any number."""
    burst: int = 1
    """Calls that may begin at once after a pause."""
    queue: int = 1_000
    """Calls that may wait."""

    @property
    def is_unlimited(self) -> bool:
        """Whether it limits nothing."""
        return self.concurrency <= 0 and self.rate_per_s <= 0


NO_LIMIT = Limit(queue=2**31)


class LimitExceeded(Exception):
    """There is no turn: why, and when to try again."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = round(min(MAX_RETRY_S, max(MIN_RETRY_S, retry_after_s)), 1)


class _RateBucket:
    """How many may begin now."""

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, limit: Limit, now: float) -> None:
        self._rate = limit.rate_per_s
        self._burst = float(max(1, limit.burst))
        self._tokens = self._burst
        self._filled_at = now

    def compute_wait(self, now: float) -> float:
        """Seconds until the next may begin."""
        if self._rate <= 0:
            return 0.0
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # What waited for a whole one need not wait for the rounding too.
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
    """One caller: what is inside, and what waits."""

    __slots__ = ("bucket", "is_scheduled", "key", "queue", "running", "timer")

    def __init__(self, key: str, limit: Limit, now: float) -> None:
        self.key = key
        self.running = 0
        self.bucket = _build_bucket(limit, now)
        self.queue: deque[asyncio.Future[None]] = deque()
        self.is_scheduled = False
        """Whether it stands among those whose turn can come."""
        self.timer: asyncio.TimerHandle | None = None


class FairLimiter:
    """Lets callers in, in turn."""

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
        """Callers with someone in line whom their own limit would let in: empty, or all places are
        taken."""
        self._timer: asyncio.TimerHandle | None = None
        self._released_at: deque[float] = deque(maxlen=MAX_RELEASES)
        """When places became free since they were all taken; nothing while there is room."""

    def configure(self, total: Limit, per_caller: Limit = NO_LIMIT) -> None:
        """Go by these from now on; who is inside stays, who waits keeps its turn."""
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
        """How many are inside."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return self._waiting

    @property
    def caller_count(self) -> int:
        """How many callers are known: inside, in line, or not yet rested."""
        return len(self._callers)

    def count_for_caller(self, key: str) -> tuple[int, int]:
        """How many of one caller are inside, and how many in line."""
        caller = self._callers.get(key)
        if caller:
            return (caller.running, len(caller.queue))
        return (0, 0)

    def try_acquire(self, key: str) -> bool:
        """Come in if there is room and nobody is before it; who came in must `leave`."""
        caller = self._get_or_add_caller(key)
        if caller.queue or self._scheduled or not self._can_admit(caller):
            self._forget_if_idle(caller)
            return False
        self._admit(caller)
        return True

    def take_rate_token(self, key: str) -> None:
        """Begin something that needs no place: it counts for its caller's rate only; raises
        TurnedAway."""
        if self._per_caller.rate_per_s <= 0:
            return
        caller = self._get_or_add_caller(key)
        wait = caller.bucket.compute_wait(self._clock())
        if caller.queue or wait > 0:
            raise LimitExceeded(*self._describe_rate_excess(caller, wait))
        caller.bucket.take()

    async def acquire(self, key: str, timeout_s: float | None) -> None:
        """Wait for a turn, but not longer; raises TurnedAway. Who came in must `leave`."""
        if self.try_acquire(key):
            return
        caller = self._get_or_add_caller(key)
        if (full := self._find_full_queue(caller)) is not None:
            self._forget_if_idle(caller)
            raise full
        turn = asyncio.get_running_loop().create_future()
        caller.queue.append(turn)
        self._waiting += 1
        self._schedule(caller)
        self._admit_waiting()
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            self._cancel_wait(caller, turn)
            raise LimitExceeded(
                f"there was no turn within {timeout_s:g} s", self._estimate_wait(self._waiting)
            ) from None
        except asyncio.CancelledError:
            self._cancel_wait(caller, turn)
            raise

    def release(self, key: str) -> None:
        """One is done."""
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

    # --- who may

    def _can_admit(self, caller: _CallerQueue) -> bool:
        return (
            self._is_within_caller_limit(caller)
            and self._has_free_slot
            and (self._total.rate_per_s <= 0 or not self._rate_wait_s)
        )

    def _is_within_caller_limit(self, caller: _CallerQueue) -> bool:
        """Whether its own limit would let it in."""
        each = self._per_caller
        if 0 < each.concurrency <= caller.running:
            return False
        return each.rate_per_s <= 0 or caller.bucket.compute_wait(self._clock()) <= 0

    @property
    def _has_free_slot(self) -> bool:
        return self._total.concurrency <= 0 or self._running < self._total.concurrency

    @property
    def _rate_wait_s(self) -> float:
        """Seconds until the next of all may begin."""
        return self._bucket.compute_wait(self._clock())

    def _admit(self, caller: _CallerQueue) -> None:
        caller.running += 1
        self._running += 1
        if self._total.rate_per_s > 0:
            self._bucket.take()
        if self._per_caller.rate_per_s > 0:
            caller.bucket.take()

    # --- the lines

    def _schedule(self, caller: _CallerQueue) -> None:
        """Its turn can come, if its own limit lets it; if only its rate does not, it is looked at
        again in time."""
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
        """Let in whoever may come, each caller in turn."""
        while (
            self._scheduled
            and self._has_free_slot
            and (self._total.rate_per_s <= 0 or not self._rate_wait_s)
        ):
            caller = self._scheduled.popleft()
            caller.is_scheduled = False
            if caller.queue and self._is_within_caller_limit(caller):
                turn = caller.queue.popleft()
                self._waiting -= 1
                # One that was cancelled has left its place in line already, or will find it gone.
                if not turn.done():
                    self._admit(caller)
                    turn.set_result(None)
            self._schedule(caller)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._scheduled and self._has_free_slot:
            self._timer = asyncio.get_running_loop().call_later(
                max(self._rate_wait_s, 0.001), self._admit_waiting
            )

    def _cancel_wait(self, caller: _CallerQueue, turn: "asyncio.Future[None]") -> None:
        if turn.done() and not turn.cancelled():
            self.release(caller.key)  # the turn came at the very moment its owner went
            return
        if turn in caller.queue:
            caller.queue.remove(turn)
            self._waiting -= 1
        if not caller.queue and caller.is_scheduled:
            self._scheduled.remove(caller)
            caller.is_scheduled = False
        self._admit_waiting()
        self._forget_if_idle(caller)

    # --- who is known

    def _get_or_add_caller(self, key: str) -> _CallerQueue:
        caller = self._callers.get(key)
        if caller is None:
            if len(self._callers) >= MAX_CALLERS:
                self._forget_oldest_idle()
            caller = self._callers[key] = _CallerQueue(key, self._per_caller, self._clock())
        return caller

    def _forget_if_idle(self, caller: _CallerQueue) -> None:
        """Nothing of it is here: a caller with its whole burst to spend is like one who never came."""
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
        # It may have been forgotten before, and have come again as another.
        if self._callers.get(caller.key) is caller:
            del self._callers[caller.key]

    # --- what they are told

    def _find_full_queue(self, caller: _CallerQueue) -> LimitExceeded | None:
        own = len(caller.queue)
        if own >= self._per_caller.queue:
            wait = caller.bucket.compute_wait(self._clock())
            if wait > 0:
                return LimitExceeded(*self._describe_rate_excess(caller, wait))
            return LimitExceeded(
                f"{caller.running:,} of your calls run and {own:,} wait", self._estimate_wait(own)
            )
        if self._waiting >= self._total.queue:
            return LimitExceeded(
                f"{self._waiting:,} calls already wait for it", self._estimate_wait(self._waiting)
            )
        return None

    def _describe_rate_excess(self, caller: _CallerQueue, wait: float) -> tuple[str, float]:
        each = self._per_caller
        return f"you began more than {each.rate_per_s:g} calls a second", wait + len(
            caller.queue
        ) / each.rate_per_s

    def _estimate_wait(self, ahead: int) -> float:
        """Seconds until so many will have had their turn, as quickly as places became free of late."""
        dry = self._rate_wait_s
        if self._total.rate_per_s > 0 and self._has_free_slot:
            return dry + ahead / self._total.rate_per_s
        if len(self._released_at) < 2:
            return DEFAULT_RETRY_S
        return (ahead + 1) * (self._clock() - self._released_at[0]) / (len(self._released_at) - 1)
