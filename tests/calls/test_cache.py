"""Answers that are kept: only where configured, only while true, and asked once at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from portico.callers import Caller
from portico.calls.cache import ResultCache, get_ttl
from portico.calls.call import Call, CallContext
from portico.catalog.tool import Tool, make_tool
from portico.config import CacheConfig
from portico.events import CatalogChanged
from portico.results.result_meta import get_cache_age
from portico.upstream.backend import Raw

READ = make_tool("s", {"name": "read", "annotations": {"readOnlyHint": True}})
WRITE = make_tool("s", {"name": "write"})
ME = Caller("session", "client", "profile")


def make_call(tool: Tool, arguments: Raw, caller: Caller = ME) -> Call:
    return Call(
        tool=tool,
        arguments=arguments,
        context=CallContext(caller),
        server=tool.server,
        initial_hash=tool.hash,
        params={},
    )


class Clock:
    """A clock that a test moves."""

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

    async def ask(self, call: Call) -> Raw:
        self.asked += 1
        number = self.asked
        self.reached.set()
        if self.gate is not None:
            try:
                async with asyncio.timeout(240):
                    await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return self.answer(number)


class CacheUnderTest:
    def __init__(self, rule: CacheConfig | None = None, **options: Any) -> None:
        self.clock, self.server = Clock(), Server()
        self.cache = ResultCache({"s": rule or CacheConfig(ttl_s=60)}, clock=self.clock, **options)

    async def call(
        self, tool: Tool = READ, arguments: Raw | None = None, caller: Caller = ME
    ) -> Raw:
        async with asyncio.timeout(240):
            return await self.cache.get_or_call(
                make_call(tool, arguments or {}, caller), self.server.ask
            )


def number(result: Raw) -> int:
    return result["structuredContent"]["n"]


async def test_an_identical_call_is_answered_from_the_cache_and_marked():
    under_test = CacheUnderTest()
    first = await under_test.call(arguments={"a": 1, "b": [2]})
    under_test.clock.now += 12
    second = await under_test.call(arguments={"b": [2], "a": 1})
    assert (number(first), get_cache_age(first)) == (1, None)
    assert (number(second), get_cache_age(second)) == (1, 12)
    assert under_test.server.asked == 1


async def test_a_cached_entry_cannot_be_changed_by_a_caller():
    under_test = CacheUnderTest()
    (await under_test.call())["structuredContent"]["n"] = "changed"
    (await under_test.call())["structuredContent"]["n"] = "changed"
    assert number(await under_test.call()) == 1


async def test_an_answer_ends_with_its_time():
    under_test = CacheUnderTest()
    await under_test.call()
    under_test.clock.now += 59.9
    assert number(await under_test.call()) == 1
    under_test.clock.now += 0.1
    assert number(await under_test.call()) == 2
    assert len(under_test.cache) == 1


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
async def test_a_call_with_another_key_is_made(other: dict[str, Any]):
    under_test = CacheUnderTest()
    await under_test.call(arguments={"a": 1})
    asked: dict[str, Any] = {"arguments": {"a": 1}, **other}
    assert number(await under_test.call(**asked)) == 2


async def test_sessions_share_answers_only_of_a_server_they_share():
    other = Caller("other session", "client", "profile")
    shared, isolated = CacheUnderTest(), CacheUnderTest(isolated=["s"])
    for under_test, asked in ((shared, 1), (isolated, 2)):
        await under_test.call()
        await under_test.call(caller=other)
        assert under_test.server.asked == asked


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (CacheConfig(), []),
        (CacheConfig(ttl_s=60), ["read"]),
        (CacheConfig(ttl_s=60, tools={"read": 0}), []),
        (CacheConfig(tools={"wr*": 5}), ["write"]),
        (CacheConfig(ttl_s=60, tools={"write": 5}), ["read", "write"]),
    ],
)
def test_what_is_kept_is_said_by_the_configuration_and_the_tool(rule: CacheConfig, kept: list[str]):
    assert [tool.name for tool in (READ, WRITE) if get_ttl(rule, tool) > 0] == kept


@pytest.mark.parametrize(
    "said", [{}, {"readOnlyHint": False}, {"readOnlyHint": "yes"}, {"readOnlyHint": None}]
)
def test_a_tool_that_does_not_say_that_it_is_read_only_is_not_kept(said: Raw):
    assert get_ttl(CacheConfig(ttl_s=60), make_tool("s", {"name": "t", "annotations": said})) == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"content": [], "isError": True},
        {"resultType": "input_required"},
        {"content": [{"text": "x" * 2_000_000}]},
    ],
)
async def test_errors_elicitations_and_large_results_are_not_cached(answer: Raw):
    under_test = CacheUnderTest()
    under_test.server.answer = lambda number: answer
    await under_test.call()
    assert await under_test.call() is answer
    assert under_test.server.asked == 2
    assert len(under_test.cache) == 0


async def test_a_failure_is_not_cached_and_is_raised_for_all_waiters():
    under_test = CacheUnderTest()

    def fail(number: int) -> Raw:
        raise ConnectionError("gone")

    under_test.server.answer = fail
    outcomes = await asyncio.gather(*(under_test.call() for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionError] * 3
    assert under_test.server.asked == 1
    under_test.server.answer = lambda number: {"structuredContent": {"n": number}}
    assert number(await under_test.call()) == 2


async def test_a_call_that_may_change_the_server_makes_what_is_kept_of_it_doubtful():
    under_test = CacheUnderTest()
    await under_test.call()
    await under_test.call(WRITE)
    assert number(await under_test.call()) == 3


async def test_an_answer_that_was_asked_before_a_change_is_not_kept_after_it():
    under_test = CacheUnderTest()
    under_test.server.gate = asyncio.Event()
    reading = asyncio.create_task(under_test.call())
    await asyncio.wait_for(under_test.server.reached.wait(), 240)
    under_test.cache.invalidate("s")
    under_test.server.gate.set()
    await reading
    assert len(under_test.cache) == 0


async def test_a_call_after_an_invalidation_does_not_join_an_earlier_one():
    under_test = CacheUnderTest()
    under_test.server.gate = asyncio.Event()
    before = asyncio.create_task(under_test.call())
    await asyncio.wait_for(under_test.server.reached.wait(), 240)
    under_test.cache.invalidate("s")
    under_test.server.reached.clear()
    after = asyncio.create_task(under_test.call())
    await asyncio.wait_for(under_test.server.reached.wait(), 240)
    before.cancel()
    await asyncio.wait({before}, timeout=240)
    third = asyncio.create_task(under_test.call())
    under_test.server.gate.set()
    assert [number(await after), number(await third)] == [2, 2], (
        "the newer flight survives the end of the older"
    )


async def test_forgetting_a_tool_keeps_the_others_of_its_server():
    under_test = CacheUnderTest(CacheConfig(tools={"*": 60}))
    other = make_tool("s", {"name": "other"})
    await under_test.call()
    await under_test.call(other)
    under_test.cache.invalidate("s", {"s.read"})
    assert (number(await under_test.call(other)), number(await under_test.call())) == (2, 3)


async def test_a_tool_that_changed_or_went_is_forgotten_and_what_was_only_added_changes_nothing():
    under_test = CacheUnderTest()
    await under_test.call()
    under_test.cache.handle_event(CatalogChanged("s", added=("s.new",)))
    under_test.cache.handle_event(CatalogChanged("s", resources_changed=True))
    under_test.cache.handle_event(CatalogChanged("other", changed=("other.read",)))
    assert len(under_test.cache) == 1
    under_test.cache.handle_event(CatalogChanged("s", changed=("s.read",)))
    assert len(under_test.cache) == 0


async def test_memory_is_bounded_by_entries_and_by_bytes_and_the_least_used_goes():
    under_test = CacheUnderTest(max_entries=3)
    for n in (1, 2, 3, 1, 4):
        await under_test.call(arguments={"n": n})
    assert len(under_test.cache) == 3
    assert under_test.server.asked == 4
    await under_test.call(arguments={"n": 1})
    assert under_test.server.asked == 4
    await under_test.call(arguments={"n": 2})
    assert under_test.server.asked == 5

    small = CacheUnderTest(max_bytes=20_000)
    small.server.answer = lambda number: {"content": [{"type": "text", "text": "x" * 5_000}]}
    for n in range(50):
        await small.call(arguments={"n": n})
        assert small.cache.size_bytes <= 20_000
    assert len(small.cache) == 3


async def test_expired_entries_are_dropped_by_expire():
    under_test = CacheUnderTest()
    await under_test.call()
    under_test.clock.now += 61
    under_test.cache.expire()
    assert (len(under_test.cache), under_test.cache.size_bytes) == (0, 0)


async def waiting(under_test: CacheUnderTest, count: int) -> list[asyncio.Task[Raw]]:
    """So many identical calls, all waiting for the one that was made."""
    under_test.server.gate = asyncio.Event()
    tasks = [asyncio.create_task(under_test.call()) for _ in range(count)]
    await asyncio.wait_for(under_test.server.reached.wait(), 240)
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_identical_calls_at_the_same_time_are_one():
    under_test = CacheUnderTest()
    tasks = await waiting(under_test, 20)
    assert under_test.server.gate
    under_test.server.gate.set()
    assert {number(result) for result in await asyncio.gather(*tasks)} == {1}
    assert under_test.server.asked == 1


async def test_a_cancelled_waiter_does_not_cancel_the_call_of_others():
    under_test = CacheUnderTest()
    first, *others = await waiting(under_test, 3)
    first.cancel()
    await asyncio.wait({first}, timeout=240)
    assert first.cancelled()
    assert under_test.server.gate
    under_test.server.gate.set()
    assert [number(result) for result in await asyncio.gather(*others)] == [1, 1]
    assert under_test.server.cancelled == 0


async def test_the_call_is_cancelled_with_its_last_waiter_and_the_next_calls_again():
    under_test = CacheUnderTest()
    tasks = await waiting(under_test, 3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=240)
    assert under_test.server.cancelled == 1
    under_test.server.gate = None
    assert number(await under_test.call()) == 2


async def test_waiters_of_a_call_cancelled_from_outside_do_not_hang():
    under_test = CacheUnderTest()
    tasks = await waiting(under_test, 2)
    (flight,) = [task for task in asyncio.all_tasks() if task.get_name() == "call s.read"]
    flight.cancel()
    done, pending = await asyncio.wait(tasks, timeout=240)
    assert not pending
    assert all(task.cancelled() for task in done)


async def test_without_a_rule_nothing_is_held():
    cache, server = ResultCache({}), Server()
    for _ in range(3):
        await cache.get_or_call(make_call(READ, {}), server.ask)
    assert (server.asked, len(cache)) == (3, 0)


async def test_numbers_that_cannot_be_compared_are_asked_each_time():
    under_test = CacheUnderTest()
    await under_test.call(arguments={"n": 2**80})
    assert number(await under_test.call(arguments={"n": 2**80})) == 2


@pytest.mark.slow
async def test_a_hundred_thousand_calls_leave_memory_as_it_was():
    under_test = CacheUnderTest(max_entries=100)
    for n in range(100_000):
        under_test.clock.now += 0.001
        await under_test.cache.get_or_call(make_call(READ, {"n": n % 250}), under_test.server.ask)
    assert len(under_test.cache) <= 100
    assert under_test.cache.size_bytes < 100_000
