"""What the pipeline does beside asking: repairs, limits, a second attempt, and a look at what came
back."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from portico.calls.cache import ResultCache
from portico.calls.pipeline import CallContext
from portico.catalog import schema_validator
from portico.catalog.tool import Tool, make_tool
from portico.config import CacheConfig
from portico.errors import BackendBusy, BackendUnavailable, InvalidArguments
from portico.upstream.backend import Raw, RequestOptions
from tests.gateways import TIMEOUT_S, PipelineUnderTest

INPUT: Raw = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUTPUT: Raw = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
READ: Raw = {"name": "read", "inputSchema": INPUT, "annotations": {"readOnlyHint": True}}
WRITE: Raw = {"name": "write", "inputSchema": INPUT}
DECLARED: Raw = {"name": "declared", "outputSchema": OUTPUT}


class RetryPipeline(PipelineUnderTest):
    """A pipeline with a limit and a retry rule over a server that can lose its connection."""

    def __init__(self, limits: Raw | None = None, retry: Raw | None = None, **options: Any) -> None:
        self.fell = asyncio.Event()
        settings = {"limits": limits or {"concurrency": 0}, "retry": retry or {}}
        super().__init__([READ, WRITE, DECLARED], settings=settings, **options)

    def lose_connection(self, times: int, then: Raw) -> None:
        """Lose the connection this many times in the middle of a call, then answer."""
        left = [times]

        def answer(params: Raw, ask: RequestOptions) -> Raw:
            if left[0]:
                left[0] -= 1
                self.backend.die("it fell over")
                self.fell.set()
                raise BackendUnavailable("s: the conversation was lost")
            return then

        self.backend.on("tools/call", answer)

    async def call_definition(
        self, definition: Raw, arguments: Any = None, context: CallContext | None = None
    ) -> Raw:
        if arguments is None:
            arguments = {"n": 1}
        return await self.call(make_tool("s", definition), arguments, context)


def tool(definition: Raw) -> Tool:
    return make_tool("s", definition)


DONE: Raw = {"content": [{"type": "text", "text": "done"}]}


async def test_repaired_arguments_are_sent_and_said():
    pipeline = RetryPipeline()
    pipeline.backend.on_call("read", lambda arguments: DONE)
    answer = await pipeline.call_definition(READ, {"n": "5"})
    assert pipeline.received == [{"n": 5}]
    assert answer == {**DONE, "_meta": {"portico/repaired": ['n: "5" read as 5']}}
    assert "_meta" not in DONE


async def test_repaired_arguments_have_the_same_cache_key():
    pipeline = RetryPipeline(cache=ResultCache({"s": CacheConfig(ttl_s=60)}))
    pipeline.backend.on_call("read", lambda arguments: DONE)
    assert "_meta" not in await pipeline.call_definition(READ, {"n": 5})
    again = await pipeline.call_definition(READ, {"n": "5"})
    assert set(again["_meta"]) == {"portico/cached", "portico/repaired"}
    assert set((await pipeline.call_definition(READ, {"n": 5}))["_meta"]) == {"portico/cached"}
    assert len(pipeline.received) == 1


async def test_what_a_server_says_in_our_name_is_not_believed():
    pipeline = RetryPipeline()
    forged = {"portico/repaired": ["x"], "portico/changed": {}, "portico/error": {}, "own": 1}
    pipeline.backend.on_call("read", lambda arguments: {**DONE, "_meta": forged})
    assert (await pipeline.call_definition(READ))["_meta"] == {"own": 1}


# --- limits


async def test_calls_wait_for_their_turn_and_are_all_answered():
    pipeline, most, now = RetryPipeline({"concurrency": 3}), 0, 0

    async def answer(arguments: Raw) -> Raw:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return DONE

    pipeline.backend.on_call("read", answer)
    answers = await asyncio.gather(*(pipeline.call_definition(READ, {"n": n}) for n in range(20)))
    assert answers == [DONE] * 20
    assert most == 3


async def test_a_call_too_many_is_busy_and_a_cancelled_one_gives_its_place_back():
    pipeline, begun, free = (
        RetryPipeline({"concurrency": 1, "queue": 0}),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def answer(arguments: Raw) -> Raw:
        begun.set()
        await free.wait()
        return DONE

    pipeline.backend.on_call("read", answer)
    first = asyncio.create_task(pipeline.call_definition(READ))
    await asyncio.wait_for(begun.wait(), TIMEOUT_S)
    with pytest.raises(BackendBusy) as caught:
        await pipeline.call_definition(READ)
    assert caught.value.retryable
    first.cancel()
    await asyncio.wait({first}, timeout=TIMEOUT_S)
    free.set()
    assert await pipeline.call_definition(READ) == DONE
    assert [event.cancelled for event in pipeline.tool_calls] == [False, True, False]


async def test_waiting_takes_from_the_time_a_call_may_take():
    pipeline = RetryPipeline({"concurrency": 1}, max_call_s=TIMEOUT_S)
    asks, begun, free = list[RequestOptions](), asyncio.Event(), asyncio.Event()

    async def answer(params: Raw, ask: RequestOptions) -> Raw:
        asks.append(ask)
        begun.set()
        await free.wait()
        return DONE

    pipeline.backend.on("tools/call", answer)
    calls = [asyncio.create_task(pipeline.call_definition(READ)) for _ in range(2)]
    await asyncio.wait_for(begun.wait(), TIMEOUT_S)
    await asyncio.wait(calls, timeout=0.05)
    free.set()
    await asyncio.gather(*calls)
    first, second = (ask.total_timeout or 0 for ask in asks)
    assert 0 < second < first - 0.03


async def test_a_call_queued_longer_than_its_timeout_is_rejected_unsent():
    pipeline = RetryPipeline({"concurrency": 1}, max_call_s=0.05)
    begun, released = asyncio.Event(), asyncio.Event()

    async def hold_the_slot(params: Raw, ask: RequestOptions) -> Raw:
        begun.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):  # of its own timeout, which ends sooner
                await released.wait()
        return DONE

    pipeline.backend.on("tools/call", hold_the_slot)
    inside = asyncio.create_task(pipeline.call_definition(READ))
    await asyncio.wait_for(begun.wait(), TIMEOUT_S)
    with pytest.raises(BackendBusy, match="no turn within"):
        await pipeline.call_definition(READ)
    released.set()
    await asyncio.wait({inside}, timeout=TIMEOUT_S)
    assert len(pipeline.received) == 1


# --- a second attempt


async def test_a_lost_conversation_is_begun_again_for_a_tool_that_reads():
    pipeline = RetryPipeline()
    pipeline.lose_connection(1, DONE)
    assert await pipeline.call_definition(READ) == DONE
    assert len(pipeline.received) == 2
    assert [event.ok for event in pipeline.tool_calls] == [True]


async def test_a_tool_that_may_change_things_is_not_run_twice():
    pipeline = RetryPipeline()
    pipeline.lose_connection(1, DONE)
    with pytest.raises(BackendUnavailable, match="lost"):
        await pipeline.call_definition(WRITE)
    assert len(pipeline.received) == 1


async def test_the_configuration_may_say_that_it_can_be():
    pipeline = RetryPipeline(retry={"times": 2, "tools": ["write"]})
    pipeline.lose_connection(2, DONE)
    assert await pipeline.call_definition(WRITE) == DONE
    assert len(pipeline.received) == 3


async def test_what_continues_an_earlier_round_is_not_repeated():
    pipeline = RetryPipeline()
    pipeline.lose_connection(1, DONE)
    with pytest.raises(BackendUnavailable):
        await pipeline.call_definition(READ, context=CallContext(extra={"requestState": "x"}))
    assert len(pipeline.received) == 1


@pytest.mark.parametrize("answer", [{**DONE, "isError": True}], ids=["a failure"])
async def test_a_failure_is_an_answer_and_is_asked_for_once(answer: Raw):
    pipeline = RetryPipeline(retry={"times": 5})
    pipeline.backend.on_call("read", lambda arguments: answer)
    assert await pipeline.call_definition(READ) is answer
    assert len(pipeline.received) == 1


async def test_a_caller_that_leaves_between_two_attempts_is_not_waited_for():
    pipeline = RetryPipeline(retry={"times": 5})
    pipeline.lose_connection(100, DONE)
    calling = asyncio.create_task(pipeline.call_definition(READ))
    await asyncio.wait_for(pipeline.fell.wait(), TIMEOUT_S)
    calling.cancel()
    await asyncio.wait({calling}, timeout=TIMEOUT_S)
    assert calling.cancelled()
    asked = len(pipeline.received)
    assert [event.cancelled for event in pipeline.tool_calls] == [True]
    assert asked == 1


# --- what came back


async def test_an_answer_that_is_not_what_was_declared_is_passed_on_and_says_so():
    pipeline = RetryPipeline()
    answer = {**DONE, "structuredContent": {"n": "x"}}
    pipeline.backend.on_call("declared", lambda arguments: answer)
    found = await pipeline.call_definition(DECLARED)
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
    pipeline = RetryPipeline()
    pipeline.backend.on_call("declared", lambda arguments: answer)
    assert ("_meta" in await pipeline.call_definition(DECLARED)) is marked


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/nowhere"}, {"type": "objekt"}, "text", True, None], ids=str
)
async def test_a_declaration_that_cannot_be_used_judges_nothing(schema: Any):
    pipeline = RetryPipeline()
    pipeline.backend.on_call("declared", lambda arguments: DONE)
    assert await pipeline.call_definition({"name": "declared", "outputSchema": schema}) is DONE


async def test_arguments_that_cannot_be_repaired_are_refused_before_anything_starts():
    pipeline = RetryPipeline()
    with pytest.raises(InvalidArguments, match="five"):
        await pipeline.call_definition(READ, {"n": "five"})
    assert pipeline.backend.connections == 0


async def test_the_schema_of_a_large_definition_is_compiled_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
):
    compiled_in: list[threading.Thread] = []
    compile_schema = schema_validator._compile_schema  # pyright: ignore[reportPrivateUsage]

    def record(schema: Raw, **options: Any) -> Any:
        compiled_in.append(threading.current_thread())
        return compile_schema(schema, **options)

    monkeypatch.setattr(schema_validator, "_compile_schema", record)
    pipeline = RetryPipeline()
    pipeline.backend.on_call("read", lambda arguments: DONE)
    large = {**READ, "description": "word " * 4_000}
    answer = await pipeline.call_definition(large, {"n": "5"})
    assert answer["_meta"] == {"portico/repaired": ['n: "5" read as 5']}
    assert compiled_in
    assert threading.main_thread() not in compiled_in
