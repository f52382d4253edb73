"""Limits of rules: calls per minute and tokens per day of one principal, counted in this process.

A minute slides; a day is one of UTC. Tokens are those of arguments and results as JSON, four
characters each.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from portico.calls.call import Call, Handler, Request, ServerRequest
from portico.config.rules import RuleLimit
from portico.errors import Overloaded
from portico.json_text import json_codec
from portico.policy.decision import Decision
from portico.upstream.backend import Raw

MINUTE_S = 60.0
DAY_S = 86_400.0
CHARS_PER_TOKEN = 4
MAX_CHARS = 2**40
MAX_COUNTED = 10_000
"""Principals and rules that are counted; above it those that called longest ago are forgotten."""


@dataclass(slots=True)
class _Use:
    minute: int = 0
    calls: int = 0
    previous_calls: int = 0
    """Calls of the minute before."""
    day: int = 0
    tokens: int = 0


class RuleLimiter:
    """Counts what principals do by rules that have limits. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._uses: OrderedDict[tuple[str, str], _Use] = OrderedDict()

    def __len__(self) -> int:
        return len(self._uses)

    def acquire(self, decision: Decision, limit: RuleLimit, principal: str) -> None:
        """Count a call; raises Overloaded, with when to try again, if the limit is reached."""
        use = self._find_use(decision.rule, principal)
        now = self._clock()
        if limit.tokens_per_day is not None and use.tokens >= limit.tokens_per_day:
            wait_s = DAY_S - now % DAY_S
            raise _make_refusal(decision, f"{limit.tokens_per_day:,} tokens a day", wait_s)
        if limit.calls_per_minute is None:
            return
        passed = now % MINUTE_S / MINUTE_S
        still_counted = use.previous_calls * (1 - passed)
        if use.calls + still_counted > limit.calls_per_minute - 1:
            wait_s = _compute_wait(use, limit.calls_per_minute, passed)
            raise _make_refusal(decision, f"{limit.calls_per_minute:,} calls a minute", wait_s)
        use.calls += 1

    def charge(self, decision: Decision, principal: str, tokens: int) -> None:
        """Count the tokens of a call that was admitted."""
        self._find_use(decision.rule, principal).tokens += tokens

    def _find_use(self, rule: str, principal: str) -> _Use:
        key = (rule, principal)
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = _Use()
            if len(self._uses) > MAX_COUNTED:
                self._uses.popitem(last=False)
        self._uses.move_to_end(key)
        now = self._clock()
        minute = int(now // MINUTE_S)
        if minute != use.minute:
            use.previous_calls = use.calls if minute == use.minute + 1 else 0
            use.calls = 0
            use.minute = minute
        day = int(now // DAY_S)
        if day != use.day:
            use.day = day
            use.tokens = 0
        return use


def _compute_wait(use: _Use, allowed: int, passed: float) -> float:
    """Return the seconds until one more call fits."""
    if use.calls < allowed:
        # Calls of the minute before leave the window as it slides.
        share = (allowed - 1 - use.calls) / use.previous_calls
        return (1 - share - passed) * MINUTE_S
    return (1 - passed) * MINUTE_S + MINUTE_S / allowed


def _make_refusal(decision: Decision, limit: str, wait_s: float) -> Overloaded:
    wait_s = float(math.ceil(wait_s))
    return Overloaded(
        f"{decision.rule} of this gateway's rules allows you {limit}, and these are used up",
        advice=f"Nothing was sent. Try again in {wait_s:,.0f} s.",
        retry_after_s=wait_s,
    )


class RuleLimits:
    """Middlewares that hold callers to the limits of the rule that decided."""

    def __init__(self, limiter: RuleLimiter | None = None) -> None:
        self.limiter = limiter or RuleLimiter()

    def limit_call(self, call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: raises Overloaded where the limits of the rule are reached."""
        if call.decision is None or call.decision.limit is None:
            return call_next(call)
        return self._run(call, call.decision, call.decision.limit, call.arguments, call_next)

    def limit_request(
        self, request: ServerRequest, /, call_next: Handler[ServerRequest]
    ) -> Coroutine[Any, Any, Raw]:
        """Middleware: the same for resources, prompts and other requests."""
        if request.decision is None or request.decision.limit is None:
            return call_next(request)
        decision = request.decision
        return self._run(request, decision, request.decision.limit, request.params, call_next)

    async def _run(
        self,
        request: Request,
        decision: Decision,
        limit: RuleLimit,
        sent: Any,
        call_next: Handler[Request],
    ) -> Raw:
        principal = request.context.caller.principal.id
        self.limiter.acquire(decision, limit, principal)
        result = await call_next(request)
        if limit.tokens_per_day is not None:
            await self._charge(decision, principal, [sent, result])
        return result

    async def _charge(self, decision: Decision, principal: str, values: list[Any]) -> None:
        if json_codec.is_large(values):
            size = await asyncio.to_thread(json_codec.estimate_size, values, MAX_CHARS)
        else:
            size = json_codec.estimate_size(values, MAX_CHARS)
        self.limiter.charge(decision, principal, -(-size // CHARS_PER_TOKEN))
