"""Finding 1: short schemas that take long to check, to compile or to illustrate are left to the
server."""

from typing import Any

import pytest

from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backends.openapi.schemas import is_supported_pattern

"""Without bounds most of these run for minutes or take gigabytes."""

TREE = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/T"}}] * 2}
NAMES = [f"n{n}" for n in range(15_000)]
LEFT = "the server has it"


async def ask(schema: dict[str, Any], meta_tool: str, arguments: dict[str, Any]) -> str:
    backend = FakeBackend(tools=[{"name": "t", "inputSchema": {"type": "object", **schema}}])
    backend.on_call("t", lambda _: {"content": [{"type": "text", "text": LEFT}]})
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool(meta_tool, arguments)
        return result.content[0].text


async def call(rule: Any, value: Any, **more: Any) -> str:
    schema = {"properties": {"a": rule}, **more}
    return await ask(schema, "call_tool", {"name": "s.t", "arguments": {"a": value}})


async def test_the_depth_of_a_value_counts_that_is_beside_very_many_others():
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    rule = {"items": {"items": {"$ref": "#/$defs/T"}}}
    assert await call(rule, [deep, *[1] * 250_000], **{"$defs": {"T": TREE}}) == LEFT


@pytest.mark.parametrize("keyword", ["dependentRequired", "dependencies"])
async def test_names_that_a_member_requires_count(keyword: str):
    assert await call({"items": {keyword: {"k": NAMES}}}, [{"k": 1}] * 300) == LEFT


async def test_integers_beyond_64_bits_that_must_differ_count_by_pairs():
    assert await call({"uniqueItems": True}, [10**20 + n for n in range(20_000)]) == LEFT


async def test_a_few_integers_beyond_64_bits_are_still_compared():
    assert "do not fit" in await call({"uniqueItems": True}, [10**20, 10**20])


async def test_formats_of_a_long_text_count():
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    rule = {"allOf": [{"format": "uri-reference"}] * 3_000}
    assert await call(rule, "a" * 1_000_000, **draft) == LEFT


async def test_a_format_of_a_short_text_is_still_checked():
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert "do not fit" in await call({"format": "date"}, "tomorrow", **draft)


@pytest.mark.parametrize("pattern", [r"\s" * 5_000, r"\w" * 15_000, "(?i)" + r"\p{L}" * 20_000])
async def test_a_pattern_that_takes_long_to_compile_is_not_compiled(pattern: str):
    assert await call({"type": "string", "pattern": pattern}, "!") == LEFT
    assert "do not fit" in await call({"type": "string", "pattern": pattern}, [1])


@pytest.mark.parametrize("pattern", [r"^[\p{L}\p{N}]{1,250}$", r"\s" * 400])
async def test_examples_are_made_without_trying_every_pattern(pattern: str):
    fields = {f"x{n}": {"type": "string", "pattern": f"{pattern}{n}?"} for n in range(50)}
    schema = {"properties": fields, "required": list(fields)}
    text = await ask(schema, "describe_tools", {"names": ["s.t"], "detail": "full"})
    assert "x0" in text


def test_a_pattern_of_an_api_description_that_takes_long_to_compile_is_not_understood():
    assert not is_supported_pattern(r"\s" * 1_000)
    assert is_supported_pattern(r"^\s*\w+\s*(,\s*\w+\s*)*$")
