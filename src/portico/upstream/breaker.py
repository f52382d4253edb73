"""Whether a server that failed may be tried again, and when. Pure: it starts nothing, and its clock is given.

closed     it works, or nothing is known against it: whoever needs it starts it
open       it failed: everyone is answered at once, with the reason, until the pause is over; pauses double
half-open  the pause is over: one try, and everyone else is answered at once until that is decided

A command that fails or dies too often is put in quarantine, which is open for a long time. A server elsewhere never is:
it may only be out of reach, and comes back by itself; it is tried once in each longest pause.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from portico.config import Restart

Phase = Literal["closed", "open", "half-open"]

STEADY_S = 10.0
"""How long a server must have lived before an answer of its wipes out that it failed before."""
_JITTER = 0.2
"""The part of a pause that is left to chance, so that many who failed together do not come back together."""


@dataclass(frozen=True)
class Refusal:
    """Why nothing is started now."""

    reason: str
    since: float
    """When it began to fail, in the time of day."""
    wait: float | None
    """Seconds until the next try; 0 while that is under way, None where only a person can end it."""
    quarantined: bool = False


class Breaker:
    """What is known against one server."""

    def __init__(
        self,
        rule: Restart,
        *,
        command: bool = False,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`command` is whether it can be put in quarantine."""
        self._rule = rule
        self._command = command
        self._clock, self._chance = clock, chance
        self._recent: deque[float] = deque()
        self._streak = 0
        self._retry_at: float | None = 0.0
        self._trying = False
        self._reason = ""
        self._since = 0.0
        self.quarantined = False
        self.troubled = False
        """Whether anything is known against it: while nothing is, an answer need not be reported."""

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        if not self._barred and not self._streak:
            return "closed"
        return "half-open" if self._trying or not self._pausing else "open"

    @property
    def failures(self) -> int:
        """How often it failed lately."""
        self._forget_old()
        return max(len(self._recent), self._streak)

    @property
    def reason(self) -> str:
        """Why it failed last; empty once it works again."""
        return self._reason

    @property
    def since(self) -> float:
        """When it began to fail, in the time of day; 0 while it does not."""
        return self._since

    @property
    def wait(self) -> float | None:
        """Seconds until it may be tried; None where only a person can end the pause."""
        return None if self._retry_at is None else max(0.0, self._retry_at - self._clock())

    def refusal(self) -> Refusal | None:
        """Why it may not be started now; None where it may, by whoever asks first."""
        if self.phase == "closed" or (self.phase == "half-open" and not self._trying):
            return None
        return Refusal(self._reason, self._since, 0.0 if self._trying else self.wait, self.quarantined)

    def begin(self) -> None:
        """It is being started."""
        self._trying = self.phase == "half-open"

    def decided(self) -> None:
        """The start is over, however it ended; whether that was a failure is told beside."""
        self._trying = False

    def failed(self, reason: str, now: float | None = None) -> None:
        """It could not be started, or died before it had answered anybody and of nobody's call."""
        self._note(reason, now)
        again, self._trying = self.quarantined, False
        self._streak += 1
        if not self._give_up(again):
            self._pause(self._rule.pause_s * 2.0 ** min(self._streak - 1, 32))

    def died(self, reason: str, now: float | None = None) -> None:
        """It died at work, or no longer answered. Once is nobody's fault: it may be started again at once."""
        self._note(reason, now)
        if not self._give_up(False) and len(self._recent) >= self._rule.tries:
            self._streak += 1
            self._pause(self._rule.longest_s)

    def answered(self, age: float) -> None:
        """It answered somebody, so many seconds after its start."""
        self._streak, self._retry_at, self._since, self.quarantined = 0, 0.0, 0.0, False
        if age >= STEADY_S:
            self.reset()

    def configure(self, rule: Restart) -> None:
        """Go by another rule, and begin anew: what is another may be what was wrong."""
        self._rule = rule
        self.reset()

    def reset(self) -> None:
        """Nothing is known against it any more."""
        self._recent.clear()
        self._streak, self._retry_at = 0, 0.0
        self._trying = self.quarantined = self.troubled = False
        self._reason, self._since = "", 0.0

    @property
    def _barred(self) -> bool:
        return self._retry_at is None or self.quarantined

    @property
    def _pausing(self) -> bool:
        return self._retry_at is None or self._clock() < self._retry_at

    def _note(self, reason: str, now: float | None) -> None:
        self._recent.append(self._clock())
        self._forget_old()
        self._reason = reason
        self._since = self._since or (time.time() if now is None else now)
        self.troubled = True

    def _forget_old(self) -> None:
        oldest = self._clock() - self._rule.window_s
        while self._recent and (self._recent[0] < oldest or len(self._recent) > self._rule.tries):
            self._recent.popleft()

    def _give_up(self, again: bool) -> bool:
        """Put it in quarantine where that is due; one more failure after a quarantine is enough."""
        if not self._command or not (again or len(self._recent) >= self._rule.tries):
            return False
        self.quarantined = True
        self._streak = max(self._streak, 1)
        self._retry_at = self._clock() + self._rule.quarantine_s if self._rule.quarantine_s else None
        return True

    def _pause(self, seconds: float) -> None:
        longest = min(seconds, self._rule.longest_s)
        self._retry_at = self._clock() + longest * (1.0 - _JITTER * self._chance())
