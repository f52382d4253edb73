"""Who may come in now, and who is next: so many at once, so many in a second, in all and of each caller.

A caller that finds room comes in without waiting. The others stand in line, each caller's requests in the order they
came, and callers take turns: a thousand requests of one hold up nobody else by more than one of them. A line that is
too long turns its owner away at once.

One event loop's own: between two awaits nothing changes, so there is no lock.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_KNOWN = 4_096
"""Callers remembered only for their rate; of more, who came first is forgotten."""
REMEMBERED = 64
"""How many of those who left last tell how quickly places become free."""
SOONEST_S, LATEST_S, UNKNOWN_S = 0.1, 60.0, 1.0
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
    def none(self) -> bool:
        """Whether it limits nothing."""
        return self.concurrency <= 0 and self.rate_per_s <= 0


NO_LIMIT = Limit(queue=2**31)


class TurnedAway(Exception):
    """There is no turn: why, and when to try again."""

    def __init__(self, why: str, retry_after_s: float) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after_s = round(min(LATEST_S, max(SOONEST_S, retry_after_s)), 1)


class _Bucket:
    """How many may begin now."""

    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, limit: Limit, now: float) -> None:
        self._rate, self._burst = limit.rate_per_s, float(max(1, limit.burst))
        self._tokens, self._filled_at = self._burst, now

    def wait(self, now: float) -> float:
        """Seconds until the next may begin."""
        if self._rate <= 0:
            return 0.0
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # What waited for a whole one need not wait for the rounding too.
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self._rate

    def take(self) -> None:
        self._tokens -= 1

    def full(self, now: float) -> bool:
        return self._rate <= 0 or self._tokens + (now - self._filled_at) * self._rate >= self._burst


_BOTTOMLESS = _Bucket(NO_LIMIT, 0.0)


def _bucket(limit: Limit, now: float) -> _Bucket:
    return _Bucket(limit, now) if limit.rate_per_s > 0 else _BOTTOMLESS


class _Caller:
    """One caller: what is inside, and what waits."""

    __slots__ = ("bucket", "key", "line", "listed", "running", "timer")

    def __init__(self, key: str, limit: Limit, now: float) -> None:
        self.key = key
        self.running = 0
        self.bucket = _bucket(limit, now)
        self.line: deque[asyncio.Future[None]] = deque()
        self.listed = False
        """Whether it stands among those whose turn can come."""
        self.timer: asyncio.TimerHandle | None = None


class Turns:
    """Lets callers in, in turn."""

    def __init__(self, whole: Limit, each: Limit = NO_LIMIT, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._whole, self._each = whole, each
        self._clock = clock
        self._bucket = _Bucket(whole, clock())
        self._running = self._waiting = 0
        self._callers: OrderedDict[str, _Caller] = OrderedDict()
        self._next: deque[_Caller] = deque()
        """Callers with someone in line whom their own limit would let in: empty, or all places are taken."""
        self._timer: asyncio.TimerHandle | None = None
        self._left: deque[float] = deque(maxlen=REMEMBERED)
        """When places became free since they were all taken; nothing while there is room."""

    def configure(self, whole: Limit, each: Limit = NO_LIMIT) -> None:
        """Go by these from now on; who is inside stays, who waits keeps its turn."""
        now = self._clock()
        self._whole, self._each, self._bucket = whole, each, _Bucket(whole, now)
        for caller in self._callers.values():
            caller.bucket = _bucket(each, now)
            if caller.timer is not None:
                caller.timer.cancel()
                caller.timer = None
            self._list(caller)
        if self._waiting:
            self._move()

    @property
    def running(self) -> int:
        """How many are inside."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return self._waiting

    @property
    def callers(self) -> int:
        """How many callers are known: inside, in line, or not yet rested."""
        return len(self._callers)

    def of(self, key: str) -> tuple[int, int]:
        """How many of one caller are inside, and how many in line."""
        caller = self._callers.get(key)
        return (caller.running, len(caller.line)) if caller else (0, 0)

    def enter_now(self, key: str) -> bool:
        """Come in if there is room and nobody is before it; who came in must `leave`."""
        caller = self._known(key)
        if caller.line or self._next or not self._may_enter(caller):
            self._forget(caller)
            return False
        self._admit(caller)
        return True

    def pass_by(self, key: str) -> None:
        """Begin something that needs no place: it counts for its caller's rate only; raises TurnedAway."""
        if self._each.rate_per_s <= 0:
            return
        caller = self._known(key)
        wait = caller.bucket.wait(self._clock())
        if caller.line or wait > 0:
            raise TurnedAway(*self._too_fast(caller, wait))
        caller.bucket.take()

    async def enter(self, key: str, patience_s: float | None) -> None:
        """Wait for a turn, but not longer; raises TurnedAway. Who came in must `leave`."""
        if self.enter_now(key):
            return
        caller = self._known(key)
        if (full := self._full(caller)) is not None:
            self._forget(caller)
            raise full
        turn = asyncio.get_running_loop().create_future()
        caller.line.append(turn)
        self._waiting += 1
        self._list(caller)
        self._move()
        try:
            async with asyncio.timeout(patience_s):
                await turn
        except TimeoutError:
            self._give_up(caller, turn)
            raise TurnedAway(f"there was no turn within {patience_s:g} s", self._estimate(self._waiting)) from None
        except asyncio.CancelledError:
            self._give_up(caller, turn)
            raise

    def leave(self, key: str) -> None:
        """One is done."""
        caller = self._callers[key]
        if self._waiting or not self._has_place:
            self._left.append(self._clock())
        elif self._left:
            self._left.clear()
        caller.running -= 1
        self._running -= 1
        if caller.line:
            self._list(caller)
        if self._waiting:
            self._move()
        self._forget(caller)

    # --- who may

    def _may_enter(self, caller: _Caller) -> bool:
        return self._fits(caller) and self._has_place and (self._whole.rate_per_s <= 0 or not self._dry)

    def _fits(self, caller: _Caller) -> bool:
        """Whether its own limit would let it in."""
        each = self._each
        if 0 < each.concurrency <= caller.running:
            return False
        return each.rate_per_s <= 0 or caller.bucket.wait(self._clock()) <= 0

    @property
    def _has_place(self) -> bool:
        return self._whole.concurrency <= 0 or self._running < self._whole.concurrency

    @property
    def _dry(self) -> float:
        """Seconds until the next of all may begin."""
        return self._bucket.wait(self._clock())

    def _admit(self, caller: _Caller) -> None:
        caller.running += 1
        self._running += 1
        if self._whole.rate_per_s > 0:
            self._bucket.take()
        if self._each.rate_per_s > 0:
            caller.bucket.take()

    # --- the lines

    def _list(self, caller: _Caller) -> None:
        """Its turn can come, if its own limit lets it; if only its rate does not, it is looked at again in time."""
        if caller.listed or not caller.line:
            return
        if self._fits(caller):
            caller.listed = True
            self._next.append(caller)
        elif self._each.rate_per_s > 0 and caller.timer is None:
            wait = caller.bucket.wait(self._clock())
            if wait > 0:
                caller.timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._rested, caller)

    def _rested(self, caller: _Caller) -> None:
        caller.timer = None
        self._list(caller)
        self._move()

    def _move(self) -> None:
        """Let in whoever may come, each caller in turn."""
        while self._next and self._has_place and (self._whole.rate_per_s <= 0 or not self._dry):
            caller = self._next.popleft()
            caller.listed = False
            if caller.line and self._fits(caller):
                turn = caller.line.popleft()
                self._waiting -= 1
                # One that was cancelled has left its place in line already, or will find it gone.
                if not turn.done():
                    self._admit(caller)
                    turn.set_result(None)
            self._list(caller)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next and self._has_place:
            self._timer = asyncio.get_running_loop().call_later(max(self._dry, 0.001), self._move)

    def _give_up(self, caller: _Caller, turn: "asyncio.Future[None]") -> None:
        if turn.done() and not turn.cancelled():
            self.leave(caller.key)  # the turn came at the very moment its owner went
            return
        if turn in caller.line:
            caller.line.remove(turn)
            self._waiting -= 1
        if not caller.line and caller.listed:
            self._next.remove(caller)
            caller.listed = False
        self._move()
        self._forget(caller)

    # --- who is known

    def _known(self, key: str) -> _Caller:
        caller = self._callers.get(key)
        if caller is None:
            if len(self._callers) >= MAX_KNOWN:
                self._forget_one()
            caller = self._callers[key] = _Caller(key, self._each, self._clock())
        return caller

    def _forget(self, caller: _Caller) -> None:
        """Nothing of it is here: a caller with its whole burst to spend is like one who never came."""
        if not caller.running and not caller.line and caller.bucket.full(self._clock()):
            self._drop(caller)

    def _forget_one(self) -> None:
        for caller in self._callers.values():
            if not caller.running and not caller.line:
                self._drop(caller)
                return

    def _drop(self, caller: _Caller) -> None:
        if caller.timer is not None:
            caller.timer.cancel()
            caller.timer = None
        # It may have been forgotten before, and have come again as another.
        if self._callers.get(caller.key) is caller:
            del self._callers[caller.key]

    # --- what they are told

    def _full(self, caller: _Caller) -> TurnedAway | None:
        own = len(caller.line)
        if own >= self._each.queue:
            wait = caller.bucket.wait(self._clock())
            if wait > 0:
                return TurnedAway(*self._too_fast(caller, wait))
            return TurnedAway(f"{caller.running:,} of your calls run and {own:,} wait", self._estimate(own))
        if self._waiting >= self._whole.queue:
            return TurnedAway(f"{self._waiting:,} calls already wait for it", self._estimate(self._waiting))
        return None

    def _too_fast(self, caller: _Caller, wait: float) -> tuple[str, float]:
        each = self._each
        return f"you began more than {each.rate_per_s:g} calls a second", wait + len(caller.line) / each.rate_per_s

    def _estimate(self, before: int) -> float:
        """Seconds until so many will have had their turn, as quickly as places became free of late."""
        dry = self._dry
        if self._whole.rate_per_s > 0 and self._has_place:
            return dry + before / self._whole.rate_per_s
        if len(self._left) < 2:
            return UNKNOWN_S
        return (before + 1) * (self._clock() - self._left[0]) / (len(self._left) - 1)
