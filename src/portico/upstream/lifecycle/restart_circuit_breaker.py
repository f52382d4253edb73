"""Circuit breaker: decides whether and when a failed server may be started. Pure; injected clock.

closed     no known failures: any request may start the server
open       it failed: requests are refused at once, with the reason, until a (doubling) pause ends
half-open  the pause has ended: one trial start, other requests are refused until it is decided

A command that fails or dies too often is quarantined, which is a long open phase. A remote server
never is: it may only be unreachable and recover by itself, so it is tried once per longest pause.
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
"""Seconds of uptime after which an answer clears the record of earlier failures."""
_JITTER = 0.2
"""Random share of a pause, so that servers that failed together do not all retry at once."""


@dataclass(frozen=True)
class StartRefusal:
    reason: str
    failing_since: float
    """Wall-clock time of the first failure."""
    retry_after_s: float | None
    """Seconds until the next try; 0 while one is running, None if only a restart can end it."""
    quarantined: bool = False


class CircuitBreaker:
    def __init__(
        self,
        policy: RestartConfig,
        *,
        can_quarantine: bool = False,
        clock: Callable[[], float] = time.monotonic,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        """`can_quarantine` is set for commands; remote servers are never quarantined."""
        self._policy = policy
        self._can_quarantine = can_quarantine
        self._clock = clock
        self._random_fraction = random_fraction
        self._failure_times: deque[float] = deque()
        self._failure_streak = 0
        self._retry_at: float | None = 0.0
        self._trial_running = False
        self.reason = ""
        """Reason of the last failure; empty after recovery."""
        self.failing_since = 0.0
        """Wall-clock time of the first failure; 0 while the server works."""
        self.quarantined = False
        self.has_failures = False
        """Whether a failure is recorded; while none is, answers need not be reported."""

    @property
    def phase(self) -> BreakerPhase:
        if not self._is_blocked and not self._failure_streak:
            return "closed"
        if self._trial_running or not self._is_backing_off:
            return "half-open"
        return "open"

    @property
    def failures(self) -> int:
        self._drop_old_failures()
        return max(len(self._failure_times), self._failure_streak)

    @property
    def retry_after_s(self) -> float | None:
        """Seconds until the next try; None if only a restart can end the pause."""
        if self._retry_at is None:
            return None
        return max(0.0, self._retry_at - self._clock())

    def get_refusal(self) -> StartRefusal | None:
        """Return why the server may not be started now, or None if it may."""
        if self.phase == "closed" or (self.phase == "half-open" and not self._trial_running):
            return None
        retry_after_s = 0.0 if self._trial_running else self.retry_after_s
        return StartRefusal(self.reason, self.failing_since, retry_after_s, self.quarantined)

    def begin_start(self) -> None:
        self._trial_running = self.phase == "half-open"

    def end_start(self) -> None:
        """Record that a start has ended; failures are recorded separately."""
        self._trial_running = False

    def record_failure(self, reason: str, now: float | None = None) -> None:
        """Record a failed start, or a death before the first answer that no call caused."""
        self._record(reason, now)
        was_quarantined = self.quarantined
        self._trial_running = False
        self._failure_streak += 1
        if not self._quarantine_if_due(was_quarantined):
            self._back_off(self._policy.pause_s * 2.0 ** min(self._failure_streak - 1, 32))

    def record_crash(self, reason: str, now: float | None = None) -> None:
        """Record a death during work or a loss of response.

        A single crash does not open the circuit: the server may be started again at once.
        """
        self._record(reason, now)
        if not self._quarantine_if_due(False) and len(self._failure_times) >= self._policy.tries:
            self._failure_streak += 1
            self._back_off(self._policy.longest_s)

    def record_success(self, uptime: float) -> None:
        """Record an answer, `uptime` seconds after the start."""
        self._failure_streak = 0
        self._retry_at = 0.0
        self.failing_since = 0.0
        self.quarantined = False
        if uptime >= STABLE_UPTIME_S:
            self.reset()

    def configure(self, policy: RestartConfig) -> None:
        """Apply a new policy and clear the record: the change may have fixed the cause."""
        self._policy = policy
        self.reset()

    def reset(self) -> None:
        self._failure_times.clear()
        self._failure_streak = 0
        self._retry_at = 0.0
        self._trial_running = self.quarantined = self.has_failures = False
        self.reason = ""
        self.failing_since = 0.0

    @property
    def _is_blocked(self) -> bool:
        return self._retry_at is None or self.quarantined

    @property
    def _is_backing_off(self) -> bool:
        return self._retry_at is None or self._clock() < self._retry_at

    def _record(self, reason: str, now: float | None) -> None:
        self._failure_times.append(self._clock())
        self._drop_old_failures()
        self.reason = reason
        self.failing_since = self.failing_since or (time.time() if now is None else now)
        self.has_failures = True

    def _drop_old_failures(self) -> None:
        oldest = self._clock() - self._policy.window_s
        while self._failure_times and (
            self._failure_times[0] < oldest or len(self._failure_times) > self._policy.tries
        ):
            self._failure_times.popleft()

    def _quarantine_if_due(self, was_quarantined: bool) -> bool:
        """Quarantine the server if due; one failure after a quarantine is enough."""
        if not self._can_quarantine or not (
            was_quarantined or len(self._failure_times) >= self._policy.tries
        ):
            return False
        self.quarantined = True
        self._failure_streak = max(self._failure_streak, 1)
        self._retry_at = None
        if self._policy.quarantine_s:
            self._retry_at = self._clock() + self._policy.quarantine_s
        return True

    def _back_off(self, seconds: float) -> None:
        longest = min(seconds, self._policy.longest_s)
        self._retry_at = self._clock() + longest * (1.0 - _JITTER * self._random_fraction())
