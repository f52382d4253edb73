"""The pipeline with a cache and learned shapes, and `mode: "shape"`, which answers structure
instead of content."""

import asyncio
import json
from typing import Any

import pytest

from portico.callers import Caller
from portico.calls.cache import ResultCache
from portico.calls.pipeline import CallContext
from portico.catalog.tool import Tool, make_tool
from portico.config import CacheConfig
from portico.errors import InvalidArguments
from portico.events import ToolCalled
from portico.meta_tools.call_tool import SHAPE_TOKENS, call_for_shape, describe_result
from portico.rendering.token_budget import count_tokens
from portico.results.learned_shapes import LearnedShapes
from portico.results.result_meta import get_cache_age
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S, PipelineUnderTest
from tests.results.json_values import issues, nested

READ = make_tool("s", {"name": "read", "annotations": {"readOnlyHint": True}})
WRITE = make_tool("s", {"name": "write"})
ME = CallContext(Caller("session", "client"))


class ShapePipeline(PipelineUnderTest):
    """A pipeline with a cache and learned shapes over a server with one answer."""

    def __init__(self, answer: Raw) -> None:
        self.shapes = LearnedShapes()
        self.cache = ResultCache({"s": CacheConfig(ttl_s=60)})
        super().__init__(cache=self.cache, shapes=self.shapes)
        for name in ("read", "write"):
            self.backend.on_call(name, lambda arguments: answer)

    @property
    def asked(self) -> int:
        return len(self.received)

    async def call(
        self, tool: Tool = READ, arguments: Any = None, context: CallContext | None = None
    ) -> Raw:
        return await super().call(tool, arguments or {}, context or ME)

    async def look(self, tool: Tool = READ, **options: Any) -> str:
        async with asyncio.timeout(TIMEOUT_S):
            shape = await call_for_shape(self.calls, tool, {}, ME, count=count_tokens, **options)
        return shape["content"][0]["text"]


ITEMS: Raw = {"content": [], "structuredContent": {"items": issues(40), "total": 40}}


async def test_a_cached_result_is_returned_and_published_as_a_call():
    pipeline = ShapePipeline(ITEMS)
    first, second = await pipeline.call(), await pipeline.call()
    assert (get_cache_age(first), get_cache_age(second) is not None) == (None, True)
    assert second["structuredContent"] == ITEMS["structuredContent"]
    assert pipeline.asked == 1
    assert [event.ok for event in pipeline.events if isinstance(event, ToolCalled)] == [True, True]


async def test_what_continues_an_earlier_round_is_never_answered_from_what_was_kept():
    pipeline = ShapePipeline(ITEMS)
    await pipeline.call()
    await pipeline.call(context=CallContext(ME.caller, extra={"inputResponses": {"a": 1}}))
    assert pipeline.asked == 2
    await pipeline.call(context=CallContext(ME.caller, extra={"_meta": {"progressToken": 1}}))
    assert pipeline.asked == 2


async def test_a_shape_is_learnt_from_real_calls():
    pipeline = ShapePipeline(ITEMS)
    await pipeline.call(WRITE)
    assert pipeline.shapes.render_line(WRITE, 100, count_tokens).startswith(
        "returns (learned from 1 result): {items: [40 × {id: integer"
    )


async def test_the_shape_view_calls_the_tool_and_returns_only_the_structure():
    pipeline = ShapePipeline(ITEMS)
    rendered = await pipeline.look()
    assert pipeline.asked == 1
    assert (
        "{items: [40 × {id: integer, title: string, state: string, labels: [0–2 × "
        "string], body: string}]"
    ) in rendered
    assert 'items[0]: {"id":0,"title":"Issue number 0"' in rendered
    assert "Issue number 1" not in rendered


async def test_the_shape_of_a_tool_that_may_change_things_needs_confirmation():
    pipeline = ShapePipeline(ITEMS)
    with pytest.raises(InvalidArguments, match="not known to be read-only") as caught:
        await pipeline.look(WRITE)
    assert "confirm=true" in caught.value.advice
    assert pipeline.asked == 0
    assert "40 ×" in await pipeline.look(WRITE, confirm=True)


async def test_an_error_is_shown_as_it_is():
    answer = {"content": [{"type": "text", "text": "no such repo"}], "isError": True}
    assert (
        await call_for_shape(ShapePipeline(answer).calls, READ, {}, ME, count=count_tokens)
        == answer
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": []}, "answers with"),
        ({"content": [{"type": "text", "text": "plain words"}]}, "string"),
        ({"content": [{"type": "text", "text": json.dumps(issues(5_000))}]},
            "[5,000 × {id: integer"),
        ({"structuredContent": {"items": issues(5_000)}}, "[5,000 × {id: integer"),
        ({"content": [{"type": "text", "text": "[" + "word " * 50_000}]}, "string(250,001)"),
        ({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
            "(1 blocks: image)"),
        ({"content": [{"type": "text", "text": "word " * 50_000}] * 2}, "string(500,001)"),
        ({"structuredContent": nested(300, issues(900))}, "deeper"),
        ({"structuredContent": {f"k{n}" * 30: {f"{m}": [m] * 9 for m in range(40)} for n in range(
            99)}}, "keys like"),
    ],
)  # fmt: skip
def test_the_structure_of_any_result_fits_its_token_budget(result: Raw, said: str):
    rendered = describe_result("s.read", result, count_tokens)
    assert said in rendered
    assert count_tokens(rendered) <= SHAPE_TOKENS
