"""Answers that are kept: only where configured, only while true, and asked once at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from portico.access import Caller
from portico.calls.cache import CacheRule, ResultCache
from portico.catalog.tool import Tool, make_tool
from portico.events import CatalogChanged
from portico.results.marks import get_cache_age
from portico.upstream.backend import Raw

READ = make_tool("s", {"name": "read", "annotations": {"readOnlyHint": True}})
WRITE = make_tool("s", {"name": "write"})
ME = Caller("session", "client", "profile")


class Clock:
    """Time that passes when told."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[int], Raw] = lambda number: {
            "content": [],
            "structuredContent": {"n": number},
        }
        self.gate: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.cancelled = 0

    async def ask(self) -> Raw:
        self.asked += 1
        number = self.asked
        self.reached.set()
        if self.gate is not None:
            try:
                async with asyncio.timeout(20):
                    await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return self.answer(number)


class House:
    def __init__(self, rule: CacheRule | None = None, **options: Any) -> None:
        self.clock, self.server = Clock(), Server()
        self.cache = ResultCache({"s": rule or CacheRule(ttl_s=60)}, clock=self.clock, **options)

    async def call(
        self, tool: Tool = READ, arguments: Raw | None = None, caller: Caller = ME
    ) -> Raw:
        async with asyncio.timeout(20):
            return await self.cache.get_or_call(tool, arguments or {}, caller, self.server.ask)


def number(result: Raw) -> int:
    return result["structuredContent"]["n"]


async def test_the_same_question_is_answered_from_what_was_kept_and_says_so():
    house = House()
    first = await house.call(arguments={"a": 1, "b": [2]})
    house.clock.now += 12
    second = await house.call(arguments={"b": [2], "a": 1})
    assert (number(first), get_cache_age(first)) == (1, None)
    assert (number(second), get_cache_age(second)) == (1, 12)
    assert house.server.asked == 1


async def test_what_is_kept_is_nobody_s_to_change():
    house = House()
    (await house.call())["structuredContent"]["n"] = "changed"
    (await house.call())["structuredContent"]["n"] = "changed"
    assert number(await house.call()) == 1


async def test_an_answer_ends_with_its_time():
    house = House()
    await house.call()
    house.clock.now += 59.9
    assert number(await house.call()) == 1
    house.clock.now += 0.1
    assert number(await house.call()) == 2
    assert len(house.cache) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"arguments": {"a": 2}},
        {"arguments": {"a": 1.0}},
        {"caller": Caller("session", "client", "other profile")},
        {
            "tool": make_tool(
                "s",
                {"name": "read", "annotations": {"readOnlyHint": True}, "description": "changed"},
            )
        },
    ],
)
async def test_another_question_is_asked(other: dict[str, Any]):
    house = House()
    await house.call(arguments={"a": 1})
    asked: dict[str, Any] = {"arguments": {"a": 1}, **other}
    assert number(await house.call(**asked)) == 2


async def test_sessions_share_answers_only_of_a_server_they_share():
    other = Caller("other session", "client", "profile")
    shared, isolated = House(), House(isolated=["s"])
    for house, asked in ((shared, 1), (isolated, 2)):
        await house.call()
        await house.call(caller=other)
        assert house.server.asked == asked


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (CacheRule(), []),
        (CacheRule(ttl_s=60), ["read"]),
        (CacheRule(ttl_s=60, tools={"read": 0}), []),
        (CacheRule(tools={"wr*": 5}), ["write"]),
        (CacheRule(ttl_s=60, tools={"write": 5}), ["read", "write"]),
    ],
)
def test_what_is_kept_is_said_by_the_configuration_and_the_tool(rule: CacheRule, kept: list[str]):
    assert [tool.name for tool in (READ, WRITE) if rule.get_ttl(tool) > 0] == kept


@pytest.mark.parametrize(
    "said", [{}, {"readOnlyHint": False}, {"readOnlyHint": "yes"}, {"readOnlyHint": None}]
)
def test_a_tool_that_does_not_say_that_it_is_read_only_is_not_kept(said: Raw):
    assert CacheRule(ttl_s=60).get_ttl(make_tool("s", {"name": "t", "annotations": said})) == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"content": [], "isError": True},
        {"resultType": "input_required"},
        {"content": [{"text": "x" * 2_000_000}]},
    ],
)
async def test_errors_questions_and_what_is_large_are_not_kept(answer: Raw):
    house = House()
    house.server.answer = lambda number: answer
    await house.call()
    assert await house.call() is answer
    assert house.server.asked == 2
    assert len(house.cache) == 0


async def test_a_failure_is_not_kept_and_everybody_who_waits_hears_it():
    house = House()

    def fail(number: int) -> Raw:
        raise ConnectionError("gone")

    house.server.answer = fail
    outcomes = await asyncio.gather(*(house.call() for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionError] * 3
    assert house.server.asked == 1
    house.server.answer = lambda number: {"structuredContent": {"n": number}}
    assert number(await house.call()) == 2


async def test_a_call_that_may_change_the_server_makes_what_is_kept_of_it_doubtful():
    house = House()
    await house.call()
    await house.call(WRITE)
    assert number(await house.call()) == 3


async def test_an_answer_that_was_asked_before_a_change_is_not_kept_after_it():
    house = House()
    house.server.gate = asyncio.Event()
    reading = asyncio.create_task(house.call())
    await asyncio.wait_for(house.server.reached.wait(), 20)
    house.cache.invalidate("s")
    house.server.gate.set()
    await reading
    assert len(house.cache) == 0


async def test_who_asks_after_a_change_does_not_get_what_was_asked_before_it():
    house = House()
    house.server.gate = asyncio.Event()
    before = asyncio.create_task(house.call())
    await asyncio.wait_for(house.server.reached.wait(), 20)
    house.cache.invalidate("s")
    house.server.reached.clear()
    after = asyncio.create_task(house.call())
    await asyncio.wait_for(house.server.reached.wait(), 20)
    before.cancel()
    await asyncio.wait({before}, timeout=20)
    third = asyncio.create_task(house.call())
    house.server.gate.set()
    assert [number(await after), number(await third)] == [2, 2], (
        "the newer flight survives the end of the older"
    )


async def test_forgetting_a_tool_keeps_the_others_of_its_server():
    house = House(CacheRule(tools={"*": 60}))
    other = make_tool("s", {"name": "other"})
    await house.call()
    await house.call(other)
    house.cache.invalidate("s", {"s.read"})
    assert (number(await house.call(other)), number(await house.call())) == (2, 3)


async def test_a_tool_that_changed_or_went_is_forgotten_and_what_was_only_added_changes_nothing():
    house = House()
    await house.call()
    house.cache.handle_event(CatalogChanged("s", added=("s.new",)))
    house.cache.handle_event(CatalogChanged("s", resources_changed=True))
    house.cache.handle_event(CatalogChanged("other", changed=("other.read",)))
    assert len(house.cache) == 1
    house.cache.handle_event(CatalogChanged("s", changed=("s.read",)))
    assert len(house.cache) == 0


async def test_memory_is_bounded_by_entries_and_by_bytes_and_the_least_used_goes():
    house = House(max_entries=3)
    for n in (1, 2, 3, 1, 4):
        await house.call(arguments={"n": n})
    assert len(house.cache) == 3
    assert house.server.asked == 4
    await house.call(arguments={"n": 1})
    assert house.server.asked == 4
    await house.call(arguments={"n": 2})
    assert house.server.asked == 5

    small = House(max_bytes=20_000)
    small.server.answer = lambda number: {"content": [{"type": "text", "text": "x" * 5_000}]}
    for n in range(50):
        await small.call(arguments={"n": n})
        assert small.cache.size_bytes <= 20_000
    assert len(small.cache) == 3


async def test_what_is_over_its_time_is_let_go_without_being_asked_for():
    house = House()
    await house.call()
    house.clock.now += 61
    house.cache.expire()
    assert (len(house.cache), house.cache.size_bytes) == (0, 0)


async def waiting(house: House, count: int) -> list[asyncio.Task[Raw]]:
    """So many identical calls, all waiting for the one that was made."""
    house.server.gate = asyncio.Event()
    tasks = [asyncio.create_task(house.call()) for _ in range(count)]
    await asyncio.wait_for(house.server.reached.wait(), 20)
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_identical_calls_at_the_same_time_are_one():
    house = House()
    tasks = await waiting(house, 20)
    assert house.server.gate
    house.server.gate.set()
    assert {number(result) for result in await asyncio.gather(*tasks)} == {1}
    assert house.server.asked == 1


async def test_who_leaves_takes_the_answer_from_nobody_else():
    house = House()
    first, *others = await waiting(house, 3)
    first.cancel()
    await asyncio.wait({first}, timeout=20)
    assert first.cancelled()
    assert house.server.gate
    house.server.gate.set()
    assert [number(result) for result in await asyncio.gather(*others)] == [1, 1]
    assert house.server.cancelled == 0


async def test_when_the_last_leaves_the_call_is_cancelled_and_the_next_asks_anew():
    house = House()
    tasks = await waiting(house, 3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=20)
    assert house.server.cancelled == 1
    house.server.gate = None
    assert number(await house.call()) == 2


async def test_a_call_cancelled_by_the_server_s_end_does_not_hang_those_who_wait():
    house = House()
    tasks = await waiting(house, 2)
    (flight,) = [task for task in asyncio.all_tasks() if task.get_name() == "call s.read"]
    flight.cancel()
    done, pending = await asyncio.wait(tasks, timeout=20)
    assert not pending
    assert all(task.cancelled() for task in done)


async def test_without_a_rule_nothing_is_held():
    cache, server = ResultCache({}), Server()
    ask: Callable[[], Awaitable[Raw]] = server.ask
    for _ in range(3):
        await cache.get_or_call(READ, {}, ME, ask)
    assert (server.asked, len(cache)) == (3, 0)


async def test_numbers_that_cannot_be_compared_are_asked_each_time():
    house = House()
    await house.call(arguments={"n": 2**80})
    assert number(await house.call(arguments={"n": 2**80})) == 2


async def test_a_hundred_thousand_calls_leave_memory_as_it_was():
    house = House(max_entries=100)
    for n in range(100_000):
        house.clock.now += 0.001
        await house.cache.get_or_call(READ, {"n": n % 250}, ME, house.server.ask)
    assert len(house.cache) <= 100
    assert house.cache.size_bytes < 100_000
