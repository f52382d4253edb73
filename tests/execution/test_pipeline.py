"""What the pipeline does beside asking: repairs, limits, a second attempt, and a look at what came
back."""

import asyncio
from typing import Any

import pytest

from portico.calls.cache import CacheRule, ResultCache
from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.retry import RetryRule
from portico.calls.server_limiter import Limit
from portico.catalog.tool import Tool, make_tool
from portico.errors import BackendBusy, BackendUnavailable, InvalidArguments
from portico.events import Event, EventBus, ToolCalled
from portico.testing import FakeBackend
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.lifecycle.supervisor import Upstream

PATIENCE_S = 30.0
INPUT: Raw = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUTPUT: Raw = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
READ: Raw = {"name": "read", "inputSchema": INPUT, "annotations": {"readOnlyHint": True}}
WRITE: Raw = {"name": "write", "inputSchema": INPUT}
DECLARED: Raw = {"name": "declared", "outputSchema": OUTPUT}


class House:
    """A pipeline over one fake server."""

    def __init__(
        self, limit: Limit | None = None, rule: RetryRule | None = None, **options: Any
    ) -> None:
        self.bus, self.called, self.fell = EventBus(), list[ToolCalled](), asyncio.Event()
        self.backend = FakeBackend([READ, WRITE, DECLARED])
        self.upstream = Upstream("s", self.backend, self.bus)
        self.calls = CallPipeline(
            {"s": self.upstream},
            options.pop("timeouts", {}),
            self.bus,
            limits={"s": limit} if limit else {},
            retries={"s": rule} if rule else {},
            **options,
        )
        self.bus.subscribe(self._hear, ToolCalled)

    def _hear(self, event: Event) -> None:
        assert isinstance(event, ToolCalled)
        self.called.append(event)

    @property
    def asked(self) -> list[Any]:
        return [
            params["arguments"]
            for method, params in self.backend.requests
            if method == "tools/call"
        ]

    def lost(self, times: int, then: Raw) -> None:
        """Lose the conversation so many times in the middle of a call, then answer."""
        left = [times]

        def answer(params: Raw, ask: RequestOptions) -> Raw:
            if left[0]:
                left[0] -= 1
                self.backend.die("it fell over")
                self.fell.set()
                raise BackendUnavailable("s: the conversation was lost")
            return then

        self.backend.on("tools/call", answer)

    async def call(
        self, definition: Raw, arguments: Any = None, origin: CallContext | None = None
    ) -> Raw:
        async with asyncio.timeout(PATIENCE_S):
            return await self.calls.call(
                tool(definition),
                {"n": 1} if arguments is None else arguments,
                origin or CallContext(),
            )


def tool(definition: Raw) -> Tool:
    return make_tool("s", definition)


DONE: Raw = {"content": [{"type": "text", "text": "done"}]}


async def test_repaired_arguments_are_sent_and_said():
    house = House()
    house.backend.on_call("read", lambda arguments: DONE)
    answer = await house.call(READ, {"n": "5"})
    assert house.asked == [{"n": 5}]
    assert answer == {**DONE, "_meta": {"portico/repaired": ['n: "5" read as 5']}}
    assert "_meta" not in DONE


async def test_a_repaired_question_is_the_same_question_to_the_cache():
    house = House(cache=ResultCache({"s": CacheRule(ttl_s=60)}))
    house.backend.on_call("read", lambda arguments: DONE)
    assert "_meta" not in await house.call(READ, {"n": 5})
    again = await house.call(READ, {"n": "5"})
    assert set(again["_meta"]) == {"portico/cached", "portico/repaired"}
    assert set((await house.call(READ, {"n": 5}))["_meta"]) == {"portico/cached"}
    assert len(house.asked) == 1


async def test_what_a_server_says_in_our_name_is_not_believed():
    house = House()
    forged = {"portico/repaired": ["x"], "portico/changed": {}, "portico/error": {}, "own": 1}
    house.backend.on_call("read", lambda arguments: {**DONE, "_meta": forged})
    assert (await house.call(READ))["_meta"] == {"own": 1}


# --- limits


async def test_calls_wait_for_their_turn_and_are_all_answered():
    house, most, now = House(Limit(concurrency=3)), 0, 0

    async def answer(arguments: Raw) -> Raw:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return DONE

    house.backend.on_call("read", answer)
    answers = await asyncio.gather(*(house.call(READ, {"n": n}) for n in range(20)))
    assert answers == [DONE] * 20
    assert most == 3


async def test_a_call_too_many_is_busy_and_a_cancelled_one_gives_its_place_back():
    house, begun, free = House(Limit(concurrency=1, queue=0)), asyncio.Event(), asyncio.Event()

    async def answer(arguments: Raw) -> Raw:
        begun.set()
        await free.wait()
        return DONE

    house.backend.on_call("read", answer)
    first = asyncio.create_task(house.call(READ))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    with pytest.raises(BackendBusy) as caught:
        await house.call(READ)
    assert caught.value.retryable
    first.cancel()
    await asyncio.wait({first}, timeout=PATIENCE_S)
    free.set()
    assert await house.call(READ) == DONE
    assert [told.cancelled for told in house.called] == [False, True, False]


async def test_waiting_takes_from_the_time_a_call_may_take():
    house, asks, free = (
        House(Limit(concurrency=1), max_call_s=PATIENCE_S),
        list[RequestOptions](),
        asyncio.Event(),
    )

    async def answer(params: Raw, ask: RequestOptions) -> Raw:
        asks.append(ask)
        await free.wait()
        return DONE

    house.backend.on("tools/call", answer)
    calls = [asyncio.create_task(house.call(READ)) for _ in range(2)]
    await asyncio.wait(calls, timeout=0.05)
    free.set()
    await asyncio.gather(*calls)
    first, second = (ask.total_timeout or 0 for ask in asks)
    assert first >= PATIENCE_S - 1
    assert second < PATIENCE_S - 0.03


async def test_who_waits_longer_than_a_call_may_take_is_turned_away_unsent():
    house, begun = House(Limit(concurrency=1), max_call_s=0.05), asyncio.Event()

    async def never(params: Raw, ask: RequestOptions) -> Raw:
        begun.set()
        await asyncio.sleep(PATIENCE_S)
        return DONE

    house.backend.on("tools/call", never)
    inside = asyncio.create_task(house.call(READ))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    with pytest.raises(BackendBusy, match="no turn within"):
        await house.call(READ)
    inside.cancel()
    await asyncio.wait({inside}, timeout=PATIENCE_S)
    assert len(house.asked) == 1


# --- a second attempt


async def test_a_lost_conversation_is_begun_again_for_a_tool_that_reads():
    house = House()
    house.lost(1, DONE)
    assert await house.call(READ) == DONE
    assert len(house.asked) == 2
    assert [told.ok for told in house.called] == [True]


async def test_a_tool_that_may_change_things_is_not_run_twice():
    house = House()
    house.lost(1, DONE)
    with pytest.raises(BackendUnavailable, match="lost"):
        await house.call(WRITE)
    assert len(house.asked) == 1


async def test_the_configuration_may_say_that_it_can_be():
    house = House(rule=RetryRule(times=2, tools=("write",)))
    house.lost(2, DONE)
    assert await house.call(WRITE) == DONE
    assert len(house.asked) == 3


async def test_what_continues_an_earlier_round_is_not_repeated():
    house = House()
    house.lost(1, DONE)
    with pytest.raises(BackendUnavailable):
        await house.call(READ, origin=CallContext(extra={"requestState": "x"}))
    assert len(house.asked) == 1


@pytest.mark.parametrize("answer", [{**DONE, "isError": True}], ids=["a failure"])
async def test_a_failure_is_an_answer_and_is_asked_for_once(answer: Raw):
    house = House(rule=RetryRule(times=5))
    house.backend.on_call("read", lambda arguments: answer)
    assert await house.call(READ) is answer
    assert len(house.asked) == 1


async def test_a_caller_that_leaves_between_two_attempts_is_not_waited_for():
    house = House(rule=RetryRule(times=5))
    house.lost(100, DONE)
    calling = asyncio.create_task(house.call(READ))
    await asyncio.wait_for(house.fell.wait(), PATIENCE_S)
    calling.cancel()
    await asyncio.wait({calling}, timeout=PATIENCE_S)
    assert calling.cancelled()
    asked = len(house.asked)
    assert [told.cancelled for told in house.called] == [True]
    assert asked == 1


# --- what came back


async def test_an_answer_that_is_not_what_was_declared_is_passed_on_and_says_so():
    house = House()
    answer = {**DONE, "structuredContent": {"n": "x"}}
    house.backend.on_call("declared", lambda arguments: answer)
    found = await house.call(DECLARED)
    assert {key: found[key] for key in answer} == answer
    (problem,) = found["_meta"]["portico/output_mismatch"]
    assert "n" in problem
    assert "integer" in problem


@pytest.mark.parametrize(
    ("answer", "marked"),
    [
        ({**DONE, "structuredContent": {"n": 1}}, False),
        ({**DONE, "isError": True}, False),
        ({**DONE, "resultType": "input_required"}, False),
        (DONE, True),
        ({**DONE, "structuredContent": {"n": [[1] * 1_000] * 60}}, False),
    ],
    ids=["fits", "failed", "a question", "nothing structured", "too large to be checked"],
)
async def test_only_what_can_be_judged_is(answer: Raw, marked: bool):
    house = House()
    house.backend.on_call("declared", lambda arguments: answer)
    assert ("_meta" in await house.call(DECLARED)) is marked


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/nowhere"}, {"type": "objekt"}, "text", True, None], ids=str
)
async def test_a_declaration_that_cannot_be_used_judges_nothing(schema: Any):
    house = House()
    house.backend.on_call("declared", lambda arguments: DONE)
    assert await house.call({"name": "declared", "outputSchema": schema}) is DONE


async def test_arguments_that_cannot_be_repaired_are_refused_before_anything_starts():
    house = House()
    with pytest.raises(InvalidArguments, match="five"):
        await house.call(READ, {"n": "five"})
    assert house.backend.connections == 0
