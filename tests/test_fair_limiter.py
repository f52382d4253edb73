"""Callers take turns: no limit is exceeded, nobody waits while there is room, and no place is
lost."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.fair_limiter import FairLimiter, Limit, LimitExceeded

PATIENCE_S = 30.0
CALLERS = ("a", "b", "c")


@dataclass
class Model:
    """A crowd before the turns, and what has become of each."""

    turns: FairLimiter
    whole: Limit
    each: Limit
    inside: dict[str, list[int]] = field(default_factory=lambda: {who: [] for who in CALLERS})
    lines: dict[str, deque[tuple[int, "asyncio.Task[None]"]]] = field(
        default_factory=lambda: {who: deque() for who in CALLERS}
    )
    number: int = 0

    async def come(self, who: str) -> None:
        self.number += 1
        number = self.number
        task = asyncio.create_task(self._visit(who, number))
        self.lines[who].append((number, task))
        await settle()

    async def _visit(self, who: str, number: int) -> None:
        refused: LimitExceeded | None = None
        try:
            await self.turns.acquire(who, None)
        except LimitExceeded as error:
            refused = error
        if refused is not None:
            own = len(self.lines[who]) - 1
            others = sum(map(len, self.lines.values())) - 1
            assert own >= self.each.queue or others >= self.whole.queue, refused.reason
            assert refused.retry_after_s > 0
            self.lines[who] = deque(one for one in self.lines[who] if one[0] != number)
            return
        assert self.lines[who][0][0] == number, "its caller's first comes first"
        self.lines[who].popleft()
        self.inside[who].append(number)

    def check(self) -> None:
        inside = sum(map(len, self.inside.values()))
        waiting = {who: len(line) for who, line in self.lines.items()}
        assert (self.turns.running, self.turns.waiting) == (inside, sum(waiting.values()))
        assert inside <= self.whole.concurrency
        for who in CALLERS:
            assert len(self.inside[who]) <= self.each.concurrency
            assert self.turns.count_for_caller(who) == (len(self.inside[who]), waiting[who])
            has_room = (
                inside < self.whole.concurrency and len(self.inside[who]) < self.each.concurrency
            )
            assert not (waiting[who] and has_room), f"{who} waits while there is room"


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("come", "leave", "go", "go as the turn comes", "two at once")),
        st.sampled_from(CALLERS),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    steps=STEPS,
    whole=st.integers(1, 4),
    each=st.integers(1, 3),
    queue=st.integers(0, 5),
    own=st.integers(0, 4),
)
def test_whatever_callers_do_the_limits_hold_and_no_place_is_lost(
    steps: list[tuple[str, str]], whole: int, each: int, queue: int, own: int
):
    async def live() -> None:
        limits = Limit(whole, queue=queue), Limit(each, queue=own)
        crowd = Model(FairLimiter(*limits), *limits)
        for step, who in steps:
            if step == "come":
                await crowd.come(who)
            elif step == "two at once":
                await asyncio.gather(crowd.come(who), crowd.come(who))
            elif step == "leave" and crowd.inside[who]:
                crowd.inside[who].pop()
                crowd.turns.release(who)
            elif step.startswith("go") and crowd.lines[who]:
                _, task = crowd.lines[who].pop()
                if "turn" in step and (
                    busy := next((one for one in CALLERS if crowd.inside[one]), None)
                ):
                    crowd.inside[busy].pop()
                    crowd.turns.release(busy)
                task.cancel()
            await settle()
            crowd.check()
        for who in CALLERS:
            for _, task in crowd.lines[who]:
                task.cancel()
            crowd.lines[who].clear()
        await settle()
        for who in CALLERS:
            for _ in crowd.inside[who]:
                crowd.turns.release(who)
        assert (crowd.turns.running, crowd.turns.waiting, crowd.turns.caller_count) == (0, 0, 0), (
            "nothing is left"
        )

    asyncio.run(live())


async def test_callers_take_turns_however_many_calls_one_of_them_has_queued():
    turns = FairLimiter(Limit(1, queue=100))
    order: list[str] = []

    async def visit(who: str) -> None:
        await turns.acquire(who, PATIENCE_S)
        order.append(who)
        await asyncio.sleep(0)
        turns.release(who)

    await turns.acquire("first", None)
    flood = [asyncio.create_task(visit("flood")) for _ in range(20)]
    await settle()
    others = [asyncio.create_task(visit(who)) for who in ("b", "c")]
    await settle()
    turns.release("first")
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*flood, *others)
    assert set(order[:4]) == {"flood", "b", "c"}


async def test_retry_after_follows_the_latest_releases():
    now = [0.0]
    turns = FairLimiter(Limit(1, queue=9), clock=lambda: now[0])
    await turns.acquire("a", None)
    line = [asyncio.create_task(turns.acquire("a", None)) for _ in range(9)]
    await settle()
    with pytest.raises(LimitExceeded) as unknown:
        await turns.acquire("a", None)
    assert unknown.value.retry_after_s == 1.0
    for _ in range(5):
        now[0] += 0.5
        turns.release("a")
        await settle()
        line.append(asyncio.create_task(turns.acquire("a", None)))
        await settle()
    with pytest.raises(LimitExceeded) as told:
        await turns.acquire("b", None)
    assert told.value.retry_after_s == pytest.approx(5.0)
    for task in line:
        task.cancel()
    await settle()


async def test_a_caller_s_rate_is_its_own_and_its_line_moves_by_itself():
    now = [0.0]
    turns = FairLimiter(Limit(100), Limit(rate_per_s=50, burst=2, queue=2), clock=lambda: now[0])
    for _ in range(2):
        await turns.acquire("fast", None)
    waiting = [asyncio.create_task(turns.acquire("fast", None)) for _ in range(2)]
    await settle()
    assert turns.count_for_caller("fast") == (2, 2)
    with pytest.raises(LimitExceeded, match="more than 50 calls a second") as refused:
        await turns.acquire("fast", None)
    assert refused.value.retry_after_s == 0.1
    with pytest.raises(LimitExceeded):
        turns.take_rate_token("fast")
    await asyncio.wait_for(turns.acquire("other", None), PATIENCE_S)
    now[0] += 10
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting)
    assert turns.count_for_caller("fast") == (4, 0)


async def test_limits_can_change_while_some_are_inside_and_some_wait():
    turns = FairLimiter(Limit(1, queue=10))
    await turns.acquire("a", None)
    line = [asyncio.create_task(turns.acquire("a", None)) for _ in range(3)]
    await settle()
    turns.configure(Limit(3, queue=10))
    await settle()
    assert turns.count_for_caller("a") == (3, 1)
    turns.configure(Limit(1, queue=0))
    turns.release("a")
    turns.release("a")
    await settle()
    assert turns.count_for_caller("a") == (1, 1), "who waits keeps its turn"
    turns.release("a")
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*line)
    assert turns.count_for_caller("a") == (1, 0)


async def test_callers_that_are_remembered_for_their_rate_only_are_few():
    turns = FairLimiter(Limit(1), Limit(rate_per_s=0.001, burst=5))
    for number in range(6_000):
        turns.take_rate_token(str(number))
    assert turns.caller_count <= 4_096
