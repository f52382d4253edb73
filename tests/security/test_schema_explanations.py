"""Finding 1: whatever is checked against whatever schema, the gateway answers, and explains what is
cheap."""

import json
from typing import Any

import pytest

from portico.testing import FakeBackend, connect, gateway_over

"""Without bounds these run for hours."""


def nest(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def shared_branches(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {
            "anyOf": [{"type": "array", "items": below}, {"items": below, "maxItems": 5}]
        }
    return {"$defs": definitions, "properties": {"a": {"$ref": f"#/$defs/d{levels}"}}}


RECURSIVE = {
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/n"}},
                {"type": "array", "maxItems": 0},
            ]
        }
    },
    "properties": {"a": {"$ref": "#/$defs/n"}},
}
DOUBLING = {
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/n"}},
                {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 5},
            ]
        }
    },
    "properties": {"a": {"$ref": "#/$defs/n"}},
}


async def call(schema: Any, arguments: Any) -> str:
    backend = FakeBackend(tools=[{"name": "t", "inputSchema": {"type": "object", **schema}}])
    backend.on_call("t", lambda _: {"content": [{"type": "text", "text": "the server has it"}]})
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool("call_tool", {"name": "s.t", "arguments": arguments})
        return result.content[0].text


@pytest.mark.parametrize("levels", [12, 24, 60])
async def test_a_recursive_choice_is_answered_however_deep_the_value(levels: int):
    text = await call(DOUBLING, {"a": nest(levels)})
    assert "do not fit" in text or "the server has it" in text


async def test_branches_that_share_definitions_are_not_unfolded_without_end():
    assert await call(shared_branches(48), {"a": nest(48)}) == "the server has it"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[a-z]*x[a-z]{5000}y", "x" * 1_000_000),
        ("^(?=a)(.*)*(.*)*(.*)*b$", "a" * 1_000_000),
        ("^(?:(?=a)(a|aa)+)+b$", "a" * 2_000),
    ],
    ids=["many states", "look-around", "nested look-around"],
)
async def test_a_pattern_that_would_take_long_is_left_to_the_server(pattern: str, text: str):
    schema = {"properties": {"a": {"type": "array", "items": {"pattern": pattern}}}}
    assert await call(schema, {"a": [text] * 4}) == "the server has it"


async def test_an_answer_that_fits_none_of_hundreds_of_choices_is_passed_on():
    declared = {
        "properties": {"a": {"items": {"anyOf": [{"const": {"n": n}} for n in range(200)]}}}
    }
    backend = FakeBackend(
        tools=[{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": declared}]
    )
    answer = {
        "content": [{"type": "text", "text": "ok"}],
        "structuredContent": {"a": ["x"] * 20_000},
    }
    backend.on_call("t", lambda _: answer)
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool("call_tool", {"name": "s.t", "arguments": {}})
        assert not result.is_error


async def test_what_is_wrong_with_a_small_value_is_still_explained():
    assert "a.0: true is not of type" in await call(
        {"properties": {"a": {"items": {"type": "string"}}}}, {"a": [True, "x"]}
    )
    assert "is not valid under any of the schemas" in await call(RECURSIVE, {"a": [0]})


async def test_what_is_wrong_at_the_beginning_of_a_large_value_is_still_explained():
    schema = {
        "properties": {"a": {"items": {"type": "string"}}, "b": {"type": "string"}},
        "required": ["c"],
    }
    text = await call(schema, {"a": [True, *(["x"] * 20_000)], "b": "y" * 1_000_000})
    assert "a.0: true is not of type" in text
    assert '"c" is a required property' in text
    assert len(text) < 5_000


async def test_a_value_that_is_wrong_everywhere_is_explained_by_its_first_items():
    text = await call({"properties": {"a": {"items": {"type": "string"}}}}, {"a": [True] * 20_000})
    assert [f"a.{n}: true is not of type" in text for n in range(6)] == [True] * 5 + [False]


async def test_an_item_that_is_wrong_after_hundreds_of_right_ones_is_still_explained():
    arguments = {"a": ["x"] * 400 + [True] + ["x"] * 20_000}
    text = await call({"properties": {"a": {"items": {"type": "string"}}}}, arguments)
    assert "a.400: true is not of type" in text


async def test_a_value_that_is_wrong_where_nobody_looks_is_refused_with_the_schema():
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    text = await call(schema, {"a": [*(["x"] * 20_000), 3]})
    assert "too large" in text
    assert "string[]" in text


async def test_a_wrong_name_among_hundreds_is_compared_cheaply():
    names = {f"{'a' * 50}{number}": {} for number in range(400)}
    arguments = {f"{'ab' * 25}{number}": 1 for number in range(50)}
    text = await call({"properties": names, "additionalProperties": False}, arguments)
    assert "do not fit" in text


async def test_a_request_of_a_million_values_is_refused_before_it_is_decoded():
    import httpx2

    from portico.testing import serve_http

    backend = FakeBackend(tools=[{"name": "t", "inputSchema": {"type": "object"}}])
    values = ",".join(["[]"] * 1_000_000)
    params = f'{{"name":"x","arguments":{{"a":[{values}]}}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with (
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        httpx2.AsyncClient(timeout=240) as client,
    ):
        answer = await client.post(url, content=body, headers=headers)
        assert answer.status_code == 413
        assert "limits.max_request_values" in json.dumps(answer.json())


async def test_a_script_calls_no_tool_with_hundreds_of_thousands_of_values():
    backend = FakeBackend(tools=[{"name": "t", "inputSchema": {"type": "object"}}])
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        code = "await s.t(x=[[] for _ in range(400000)])"
        result: Any = await client.call_tool("run_code", {"code": code})
        assert "may have 50,000 values" in result.content[0].text
        assert [method for method, _ in backend.requests if method == "tools/call"] == []
