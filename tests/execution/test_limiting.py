"""A server gets so many calls at once and in a second; the others wait in line, and none is lost or
let in twice."""

import asyncio

import pytest

from portico.calls.server_limiter import Limit, ServerLimiter
from portico.errors import BackendBusy

PATIENCE_S = 30.0


async def standing(gate: ServerLimiter, count: int) -> None:
    """Wait until so many stand in line."""
    async with asyncio.timeout(PATIENCE_S):
        while gate.waiting != count:  # noqa: ASYNC110  (a gate tells nobody who stands there)
            await asyncio.sleep(0)


class Crowd:
    """Callers of one gate, by number, and the order in which they came in."""

    def __init__(self, gate: ServerLimiter) -> None:
        self.gate, self.inside, self.free = gate, list[int](), asyncio.Event()

    async def visit(self, number: int) -> None:
        await self.gate.acquire(PATIENCE_S)
        try:
            self.inside.append(number)
            await self.free.wait()
        finally:
            self.gate.release()


async def test_no_more_than_so_many_are_inside_and_the_first_who_came_is_next():
    gate = ServerLimiter("s", Limit(concurrency=2))
    crowd = Crowd(gate)
    visits: list[asyncio.Task[None]] = []
    for number in range(6):
        visits.append(asyncio.create_task(crowd.visit(number)))
        await standing(gate, max(0, number - 1))
    assert (crowd.inside, gate.running, gate.waiting) == ([0, 1], 2, 4)
    crowd.free.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*visits)
    assert crowd.inside == list(range(6))
    assert (gate.running, gate.waiting) == (0, 0)


async def test_who_comes_when_the_line_is_full_is_turned_away_at_once():
    gate = ServerLimiter("s", Limit(concurrency=1, queue=1))
    await gate.acquire(None)
    waiting = asyncio.create_task(gate.acquire(None))
    await standing(gate, 1)
    with pytest.raises(BackendBusy, match="1 calls already wait") as caught:
        await gate.acquire(None)
    assert (caught.value.kind, caught.value.retryable) == ("busy", True)
    assert caught.value.advice
    gate.release()
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_who_gets_no_turn_in_time_is_told_so_and_stands_in_nobody_s_way():
    gate = ServerLimiter("s", Limit(concurrency=1))
    await gate.acquire(None)
    with pytest.raises(BackendBusy, match=r"no turn within 0\.01 s"):
        await gate.acquire(0.01)
    assert (gate.running, gate.waiting) == (1, 0)
    gate.release()
    await asyncio.wait_for(gate.acquire(None), PATIENCE_S)


async def test_who_goes_away_leaves_the_line_and_the_next_moves_up():
    gate = ServerLimiter("s", Limit(concurrency=1))
    await gate.acquire(None)
    crowd = Crowd(gate)
    first, second = (asyncio.create_task(crowd.visit(number)) for number in (1, 2))
    await standing(gate, 2)
    first.cancel()
    gate.release()  # before the one who was cancelled could say so
    crowd.free.set()
    await asyncio.wait({first, second}, timeout=PATIENCE_S)
    assert first.cancelled()
    assert (crowd.inside, gate.running, gate.waiting) == ([2], 0, 0)


async def test_a_turn_that_comes_as_its_owner_goes_is_given_to_the_next():
    gate = ServerLimiter("s", Limit(concurrency=1))
    await gate.acquire(None)
    crowd = Crowd(gate)
    first, second = (asyncio.create_task(crowd.visit(number)) for number in (1, 2))
    await standing(gate, 2)
    gate.release()  # the turn is the first one's, who has not heard of it yet
    first.cancel()
    crowd.free.set()
    await asyncio.wait({first, second}, timeout=PATIENCE_S)
    assert (crowd.inside, gate.running, gate.waiting) == ([2], 0, 0)


async def test_a_caller_s_many_calls_hold_up_another_caller_by_one():
    gate = ServerLimiter("s", Limit(concurrency=1))
    await gate.acquire(None, "script")
    inside: list[str] = []

    async def visit(caller: str) -> None:
        await gate.acquire(PATIENCE_S, caller)
        inside.append(caller)
        gate.release(caller)

    visits = [asyncio.create_task(visit("script")) for _ in range(16)]
    await standing(gate, 16)
    visits.append(asyncio.create_task(visit("other")))
    await standing(gate, 17)
    gate.release("script")
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*visits)
    assert "other" in inside[:2]


async def test_who_is_turned_away_is_told_when_to_come_again():
    now = [0.0]
    gate = ServerLimiter("s", Limit(concurrency=1, queue=3), clock=lambda: now[0])
    await gate.acquire(None)
    visits = [asyncio.create_task(gate.acquire(None)) for _ in range(3)]
    await standing(gate, 3)
    for _ in range(4):
        now[0] += 2
        gate.release()
        await standing(gate, 2)
        visits.append(asyncio.create_task(gate.acquire(None)))
        await standing(gate, 3)
    with pytest.raises(BackendBusy) as caught:
        await gate.acquire(None)
    assert caught.value.retry_after_s == 8.0, "four turns of two seconds"
    assert "Try again in 8 s" in caught.value.advice
    for visit in visits:
        visit.cancel()


async def test_so_many_begin_at_once_and_then_so_many_in_a_second():
    now = [0.0]
    gate = ServerLimiter("s", Limit(rate_per_s=10, burst=2, queue=0), clock=lambda: now[0])

    async def let_in() -> int:
        count = 0
        for _ in range(10):
            try:
                await gate.acquire(None)
            except BackendBusy:
                break
            gate.release()
            count += 1
        return count

    assert await let_in() == 2
    assert await let_in() == 0
    now[0] += 0.1
    assert await let_in() == 1
    now[0] += 60
    assert await let_in() == 2


async def test_those_who_wait_for_the_rate_come_in_by_themselves_in_order():
    gate = ServerLimiter("s", Limit(rate_per_s=200, burst=1))
    crowd = Crowd(gate)
    crowd.free.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(crowd.visit(number) for number in range(8)))
    assert crowd.inside == list(range(8))


def test_no_limit_is_none():
    assert Limit().is_unlimited
    assert not Limit(concurrency=1).is_unlimited
    assert not Limit(rate_per_s=0.5).is_unlimited
