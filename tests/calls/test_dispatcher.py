"""A server gets so many calls at once and in a second; the others wait in line, and none is lost or
let in twice."""

import asyncio

import pytest

from portico.calls.dispatcher import ServerLimiter
from portico.errors import BackendBusy
from portico.fair_limiter import Limit

TIMEOUT_S = 240.0


async def wait_for_queue(limiter: ServerLimiter, count: int) -> None:
    """Wait until so many stand in line."""
    async with asyncio.timeout(TIMEOUT_S):
        while limiter.waiting != count:  # noqa: ASYNC110  (a limiter tells nobody who stands there)
            await asyncio.sleep(0)


class Crowd:
    """Callers of one limiter, by number, and the order in which they came in."""

    def __init__(self, limiter: ServerLimiter) -> None:
        self.limiter, self.inside, self.free = limiter, list[int](), asyncio.Event()

    async def visit(self, number: int) -> None:
        await self.limiter.acquire("", TIMEOUT_S)
        try:
            self.inside.append(number)
            await self.free.wait()
        finally:
            self.limiter.release("")


async def test_concurrency_is_limited_and_the_queue_is_first_in_first_out():
    limiter = ServerLimiter("s", Limit(concurrency=2))
    crowd = Crowd(limiter)
    tasks: list[asyncio.Task[None]] = []
    for number in range(6):
        tasks.append(asyncio.create_task(crowd.visit(number)))
        await wait_for_queue(limiter, max(0, number - 1))
    assert (crowd.inside, limiter.running, limiter.waiting) == ([0, 1], 2, 4)
    crowd.free.set()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)
    assert crowd.inside == list(range(6))
    assert (limiter.running, limiter.waiting) == (0, 0)


async def test_a_full_queue_rejects_at_once():
    limiter = ServerLimiter("s", Limit(concurrency=1, queue=1))
    await limiter.acquire("", None)
    waiting = asyncio.create_task(limiter.acquire("", None))
    await wait_for_queue(limiter, 1)
    with pytest.raises(BackendBusy, match="1 calls already wait") as caught:
        await limiter.acquire("", None)
    assert (caught.value.kind, caught.value.retryable) == ("busy", True)
    assert caught.value.advice
    limiter.release("")
    await asyncio.wait_for(waiting, TIMEOUT_S)


async def test_a_call_that_waits_too_long_is_rejected_and_leaves_the_queue():
    limiter = ServerLimiter("s", Limit(concurrency=1))
    await limiter.acquire("", None)
    with pytest.raises(BackendBusy, match=r"no turn within 0\.01 s"):
        await limiter.acquire("", 0.01)
    assert (limiter.running, limiter.waiting) == (1, 0)
    limiter.release("")
    await asyncio.wait_for(limiter.acquire("", None), TIMEOUT_S)


async def test_who_goes_away_leaves_the_line_and_the_next_moves_up():
    limiter = ServerLimiter("s", Limit(concurrency=1))
    await limiter.acquire("", None)
    crowd = Crowd(limiter)
    first, second = (asyncio.create_task(crowd.visit(number)) for number in (1, 2))
    await wait_for_queue(limiter, 2)
    first.cancel()
    limiter.release("")  # before the one who was cancelled could say so
    crowd.free.set()
    await asyncio.wait({first, second}, timeout=TIMEOUT_S)
    assert first.cancelled()
    assert (crowd.inside, limiter.running, limiter.waiting) == ([2], 0, 0)


async def test_a_turn_that_comes_as_its_owner_goes_is_given_to_the_next():
    limiter = ServerLimiter("s", Limit(concurrency=1))
    await limiter.acquire("", None)
    crowd = Crowd(limiter)
    first, second = (asyncio.create_task(crowd.visit(number)) for number in (1, 2))
    await wait_for_queue(limiter, 2)
    limiter.release("")  # the turn is the first one's, who has not heard of it yet
    first.cancel()
    crowd.free.set()
    await asyncio.wait({first, second}, timeout=TIMEOUT_S)
    assert (crowd.inside, limiter.running, limiter.waiting) == ([2], 0, 0)


async def test_a_caller_s_many_calls_hold_up_another_caller_by_one():
    limiter = ServerLimiter("s", Limit(concurrency=1))
    await limiter.acquire("script", None)
    inside: list[str] = []

    async def visit(caller: str) -> None:
        await limiter.acquire(caller, TIMEOUT_S)
        inside.append(caller)
        limiter.release(caller)

    tasks = [asyncio.create_task(visit("script")) for _ in range(16)]
    await wait_for_queue(limiter, 16)
    tasks.append(asyncio.create_task(visit("other")))
    await wait_for_queue(limiter, 17)
    limiter.release("script")
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)
    assert "other" in inside[:2]


async def test_a_rejected_call_learns_when_to_retry():
    now = [0.0]
    limiter = ServerLimiter("s", Limit(concurrency=1, queue=3), clock=lambda: now[0])
    await limiter.acquire("", None)
    tasks = [asyncio.create_task(limiter.acquire("", None)) for _ in range(3)]
    await wait_for_queue(limiter, 3)
    for _ in range(4):
        now[0] += 2
        limiter.release("")
        await wait_for_queue(limiter, 2)
        tasks.append(asyncio.create_task(limiter.acquire("", None)))
        await wait_for_queue(limiter, 3)
    with pytest.raises(BackendBusy) as caught:
        await limiter.acquire("", None)
    assert caught.value.retry_after_s == 8.0, "four turns of two seconds"
    assert "Try again in 8 s" in caught.value.advice
    for visit in tasks:
        visit.cancel()


async def test_so_many_begin_at_once_and_then_so_many_in_a_second():
    now = [0.0]
    limiter = ServerLimiter("s", Limit(rate_per_s=10, burst=2, queue=0), clock=lambda: now[0])

    async def let_in() -> int:
        count = 0
        for _ in range(10):
            try:
                await limiter.acquire("", None)
            except BackendBusy:
                break
            limiter.release("")
            count += 1
        return count

    assert await let_in() == 2
    assert await let_in() == 0
    now[0] += 0.1
    assert await let_in() == 1
    now[0] += 60
    assert await let_in() == 2


async def test_calls_queued_for_the_rate_are_admitted_in_order_by_a_timer():
    limiter = ServerLimiter("s", Limit(rate_per_s=200, burst=1))
    crowd = Crowd(limiter)
    crowd.free.set()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*(crowd.visit(number) for number in range(8)))
    assert crowd.inside == list(range(8))
