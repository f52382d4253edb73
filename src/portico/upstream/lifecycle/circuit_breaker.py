"""Whether a server that failed may be tried again, and when. Pure: it starts nothing, and its clock
is given.

closed     it works, or nothing is known against it: whoever needs it starts it
open       it failed: everyone is answered at once, with the reason, until the pause is over; pauses double
half-open  the pause is over: one try, and everyone else is answered at once until that is decided

A command that fails or dies too often is put in quarantine, which is open for a long time. A server
elsewhere never is: it may only be out of reach, and comes back by itself; it is tried once in each
longest pause.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from portico.config import RestartConfig

BreakerPhase = Literal["closed", "open", "half-open"]

STABLE_UPTIME_S = 10.0
"""How long a server must have lived before an answer of its wipes out that it failed before."""
_JITTER = 0.2
"""The part of a pause that is left to chance, so that many who failed together do not come back
together."""


@dataclass(frozen=True)
class StartRefusal:
    """Why nothing is started now."""

    reason: str
    failing_since: float
    """When it began to fail, in the time of day."""
    retry_after_s: float | None
    """Seconds until the next try; 0 while that is under way, None where only a person can end it.
    """
    quarantined: bool = False


class CircuitBreaker:
    """What is known against one server."""

    def __init__(
        self,
        policy: RestartConfig,
        *,
        can_quarantine: bool = False,
        clock: Callable[[], float] = time.monotonic,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        """`command` is whether it can be put in quarantine."""
        self._policy = policy
        self._can_quarantine = can_quarantine
        self._clock = clock
        self._random_fraction = random_fraction
        self._failure_times: deque[float] = deque()
        self._failure_streak = 0
        self._retry_at: float | None = 0.0
        self._trial_running = False
        self._reason = ""
        self._failing_since = 0.0
        self.quarantined = False
        self.has_failures = False
        """Whether anything is known against it: while nothing is, an answer need not be reported.
        """

    @property
    def phase(self) -> BreakerPhase:
        """Where it stands."""
        if not self._is_blocked and not self._failure_streak:
            return "closed"
        if self._trial_running or not self._is_backing_off:
            return "half-open"
        return "open"

    @property
    def failures(self) -> int:
        """How often it failed lately."""
        self._drop_old_failures()
        return max(len(self._failure_times), self._failure_streak)

    @property
    def reason(self) -> str:
        """Why it failed last; empty once it works again."""
        return self._reason

    @property
    def failing_since(self) -> float:
        """When it began to fail, in the time of day; 0 while it does not."""
        return self._failing_since

    @property
    def retry_after_s(self) -> float | None:
        """Seconds until it may be tried; None where only a person can end the pause."""
        if self._retry_at is None:
            return None
        return max(0.0, self._retry_at - self._clock())

    def get_refusal(self) -> StartRefusal | None:
        """Why it may not be started now; None where it may, by whoever asks first."""
        if self.phase == "closed" or (self.phase == "half-open" and not self._trial_running):
            return None
        return StartRefusal(
            self._reason,
            self._failing_since,
            0.0 if self._trial_running else self.retry_after_s,
            self.quarantined,
        )

    def begin_start(self) -> None:
        """It is being started."""
        self._trial_running = self.phase == "half-open"

    def end_start(self) -> None:
        """The start is over, however it ended; whether that was a failure is told beside."""
        self._trial_running = False

    def record_failure(self, reason: str, now: float | None = None) -> None:
        """It could not be started, or died before it had answered anybody and of nobody's call."""
        self._record(reason, now)
        again = self.quarantined
        self._trial_running = False
        self._failure_streak += 1
        if not self._quarantine_if_due(again):
            self._back_off(self._policy.pause_s * 2.0 ** min(self._failure_streak - 1, 32))

    def record_crash(self, reason: str, now: float | None = None) -> None:
        """It died at work, or no longer answered. Once is nobody's fault: it may be started again
        at once."""
        self._record(reason, now)
        if not self._quarantine_if_due(False) and len(self._failure_times) >= self._policy.tries:
            self._failure_streak += 1
            self._back_off(self._policy.longest_s)

    def record_success(self, uptime: float) -> None:
        """It answered somebody, so many seconds after its start."""
        self._failure_streak = 0
        self._retry_at = 0.0
        self._failing_since = 0.0
        self.quarantined = False
        if uptime >= STABLE_UPTIME_S:
            self.reset()

    def configure(self, policy: RestartConfig) -> None:
        """Go by another rule, and begin anew: what is another may be what was wrong."""
        self._policy = policy
        self.reset()

    def reset(self) -> None:
        """Nothing is known against it any more."""
        self._failure_times.clear()
        self._failure_streak = 0
        self._retry_at = 0.0
        self._trial_running = self.quarantined = self.has_failures = False
        self._reason = ""
        self._failing_since = 0.0

    @property
    def _is_blocked(self) -> bool:
        return self._retry_at is None or self.quarantined

    @property
    def _is_backing_off(self) -> bool:
        return self._retry_at is None or self._clock() < self._retry_at

    def _record(self, reason: str, now: float | None) -> None:
        self._failure_times.append(self._clock())
        self._drop_old_failures()
        self._reason = reason
        self._failing_since = self._failing_since or (time.time() if now is None else now)
        self.has_failures = True

    def _drop_old_failures(self) -> None:
        oldest = self._clock() - self._policy.window_s
        while self._failure_times and (
            self._failure_times[0] < oldest or len(self._failure_times) > self._policy.tries
        ):
            self._failure_times.popleft()

    def _quarantine_if_due(self, was_quarantined: bool) -> bool:
        """Put it in quarantine where that is due; one more failure after a quarantine is enough."""
        if not self._can_quarantine or not (
            was_quarantined or len(self._failure_times) >= self._policy.tries
        ):
            return False
        self.quarantined = True
        self._failure_streak = max(self._failure_streak, 1)
        if self._policy.quarantine_s:
            self._retry_at = self._clock() + self._policy.quarantine_s
        else:
            self._retry_at = None
        return True

    def _back_off(self, seconds: float) -> None:
        longest = min(seconds, self._policy.longest_s)
        self._retry_at = self._clock() + longest * (1.0 - _JITTER * self._random_fraction())
