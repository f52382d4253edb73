"""The pipeline with what issue 5 adds: answers kept, shapes learnt, and structure instead of
content."""

import asyncio
import json
from typing import Any

import pytest

from portico.access import Caller
from portico.calls.cache import CacheRule, ResultCache
from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.shape_view import SHAPE_TOKENS, call_for_shape, describe_result
from portico.catalog.tool import Tool, make_tool
from portico.errors import InvalidArguments
from portico.events import Event, EventBus, ToolCalled
from portico.rendering.token_count import count_tokens
from portico.results.learned_shapes import LearnedShapes
from portico.results.marks import get_cache_age
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream
from tests.execution.json_values import issues, nested

READ = make_tool("s", {"name": "read", "annotations": {"readOnlyHint": True}})
WRITE = make_tool("s", {"name": "write"})
ME = CallContext(Caller("session", "client"))


class House:
    """A pipeline over one fake server that counts its calls."""

    def __init__(self, answer: Raw) -> None:
        self.bus, self.backend, self.shapes = EventBus(), FakeBackend(), LearnedShapes()
        for name in ("read", "write"):
            self.backend.on_call(name, lambda arguments: answer)
        upstream = Upstream("s", self.backend, self.bus)
        self.cache = ResultCache({"s": CacheRule(ttl_s=60)})
        self.calls = CallPipeline(
            {"s": upstream}, {}, self.bus, cache=self.cache, shapes=self.shapes
        )
        self.told: list[Event] = []
        self.bus.subscribe(self.told.append)

    @property
    def asked(self) -> int:
        return sum(method == "tools/call" for method, _ in self.backend.requests)

    async def call(self, tool: Tool = READ, origin: CallContext = ME) -> Raw:
        async with asyncio.timeout(20):
            return await self.calls.call(tool, {}, origin)

    async def look(self, tool: Tool = READ, **options: Any) -> str:
        async with asyncio.timeout(20):
            return (await call_for_shape(self.calls, tool, {}, ME, count=count_tokens, **options))[
                "content"
            ][0]["text"]


ITEMS: Raw = {"content": [], "structuredContent": {"items": issues(40), "total": 40}}


async def test_a_kept_answer_is_given_and_told_as_a_call():
    house = House(ITEMS)
    first, second = await house.call(), await house.call()
    assert (get_cache_age(first), get_cache_age(second) is not None) == (None, True)
    assert second["structuredContent"] == ITEMS["structuredContent"]
    assert house.asked == 1
    assert [event.ok for event in house.told if isinstance(event, ToolCalled)] == [True, True]


async def test_what_continues_an_earlier_round_is_never_answered_from_what_was_kept():
    house = House(ITEMS)
    await house.call()
    await house.call(origin=CallContext(ME.caller, extra={"inputResponses": {"a": 1}}))
    assert house.asked == 2
    await house.call(origin=CallContext(ME.caller, extra={"_meta": {"progressToken": 1}}))
    assert house.asked == 2


async def test_a_shape_is_learnt_from_real_calls():
    house = House(ITEMS)
    await house.call(WRITE)
    assert house.shapes.render_line(WRITE, 100, count_tokens).startswith(
        "returns (learned from 1 result): {items: [40 × {id: integer"
    )


async def test_looking_calls_the_tool_and_tells_only_the_structure():
    house = House(ITEMS)
    told = await house.look()
    assert house.asked == 1
    assert (
        "{items: [40 × {id: integer, title: string, state: string, labels: [0–2 × string], body: string}]"
        in told
    )
    assert 'items[0]: {"id":0,"title":"Issue number 0"' in told
    assert "Issue number 1" not in told


async def test_looking_at_what_may_change_things_needs_the_caller_s_word():
    house = House(ITEMS)
    with pytest.raises(InvalidArguments, match="not known to be read-only") as caught:
        await house.look(WRITE)
    assert "confirm=true" in caught.value.advice
    assert house.asked == 0
    assert "40 ×" in await house.look(WRITE, confirm=True)


async def test_an_error_is_shown_as_it_is():
    answer = {"content": [{"type": "text", "text": "no such repo"}], "isError": True}
    assert await call_for_shape(House(answer).calls, READ, {}, ME, count=count_tokens) == answer


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": []}, "answers with"),
        ({"content": [{"type": "text", "text": "plain words"}]}, "string"),
        ({"content": [{"type": "text", "text": json.dumps(issues(5_000))}]}, "[5,000 × {id: integer"),
        ({"structuredContent": {"items": issues(5_000)}}, "[5,000 × {id: integer"),
        ({"content": [{"type": "text", "text": "[" + "word " * 50_000}]}, "string(250,001)"),
        ({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}, "(1 blocks: image)"),
        ({"content": [{"type": "text", "text": "word " * 50_000}] * 2}, "string(500,001)"),
        ({"structuredContent": nested(300, issues(900))}, "deeper"),
        ({"structuredContent": {f"k{n}" * 30: {f"{m}": [m] * 9 for m in range(40)} for n in range(99)}}, "keys like"),
    ],
)  # fmt: skip
def test_the_structure_of_anything_is_told_in_few_tokens(result: Raw, said: str):
    told = describe_result("s.read", result, count_tokens)
    assert said in told
    assert count_tokens(told) <= SHAPE_TOKENS
