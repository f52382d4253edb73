"""Arguments of a script reach the gateway's own code only as data."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.config import Config
from portico.scripts.sandbox.script import LANGUAGES
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw

NAMES = (
    "self",
    "cls",
    "args",
    "kwargs",
    "name",
    "namespace",
    "function",
    "tool",
    "arguments",
    "origin",
    "names",
    "class",
)
"""Words that functions of the gateway have for their own parameters, and one that Python keeps for
itself."""
INTERNAL = ("Inside", "_Host", "functions", "Traceback", "coroutine", "NoneType", "object has no")

PYTHON = (
    "try:\n    out = await {call}\nexcept Exception as error:\n    out = str(error)\nresult(out)"
)
JAVASCRIPT = (
    "let out; try {{ out = await {call} }} catch (error) {{ out = "
    "String(error.message) }}\nresult(out)"
)
LUA = (
    "local ok, out = pcall(function() return {call}:await() end)\n"
    "result(ok and out or (type(out) == 'table' and out.message or tostring(out)))"
)
CALLS = {"python": PYTHON, "javascript": JAVASCRIPT, "typescript": JAVASCRIPT, "lua": LUA}


def everything() -> FakeBackend:
    """A server whose one tool has parameters of all those names and gives back what it got."""
    properties = {name: {"type": "integer"} for name in NAMES}
    schema = {"type": "object", "properties": properties}
    backend = FakeBackend(
        [{"name": "take", "description": "Take anything.", "inputSchema": schema}]
    )

    def taken(given: Raw) -> Raw:
        return {
            "content": [{"type": "text", "text": json.dumps(given)}],
            "structuredContent": given,
        }

    backend.on_call("take", taken)
    return backend


@asynccontextmanager
async def open_client() -> AsyncGenerator[Any]:
    async with gateway_over({"server": everything()}, Config()) as gateway, connect(gateway) as one:
        yield one


async def run_call(client: Any, language: str, call: str) -> Any:
    result = await client.call_tool(
        "run_code", {"code": CALLS[language].format(call=call), "language": language}
    )
    assert not result.is_error, result.content
    return (
        result.structured_content
        if result.structured_content is not None
        else result.content[0].text
    )


def literal(language: str, fields: dict[str, Any]) -> str:
    if language != "lua":
        return json.dumps(fields)
    return (
        "{"
        + ", ".join(f"[{json.dumps(key)}]={json.dumps(value)}" for key, value in fields.items())
        + "}"
    )


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("function", ["search_tools", "describe_tools"])
async def test_a_misspelt_argument_is_reported_without_naming_what_the_gateway_is_made_of(
    language: str, function: str
) -> None:
    async with open_client() as client:
        for name in NAMES:
            reported = await run_call(
                client, language, f"{function}({literal(language, {name: 1})})"
            )
            assert isinstance(reported, str)
            assert function in reported
            assert not [word for word in INTERNAL if word in reported], reported


async def test_named_arguments_of_python_are_reported_the_same_way() -> None:
    async with open_client() as client:
        calls = [
            "search_tools(self=1)",
            "search_tools('x', self=1)",
            "search_tools()",
            "search_tools('x', 1, 2, 3, 4)",
        ]
        calls += [
            "describe_tools(self=1)",
            "describe_tools()",
            "describe_tools(['a'], 1)",
            "call_tool(self=1)",
        ]
        for call in calls:
            reported = await run_call(client, "python", call)
            assert isinstance(reported, str)
            assert call.partition("(")[0] in reported
            assert not [word for word in INTERNAL if word in reported], reported


async def test_a_query_within_a_query_is_refused_and_not_followed() -> None:
    async with open_client() as client:
        nested: Any = "x"
        for _ in range(50):
            nested = {"query": nested}
        reported = await run_call(client, "python", f"search_tools({json.dumps(nested)})")
        assert reported.startswith("invalid_arguments")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_tool_gets_parameters_of_any_name(language: str) -> None:
    async with open_client() as client:
        fields: dict[str, Any] = dict.fromkeys(NAMES, 1)
        assert (
            await run_call(client, language, f"server.take({literal(language, fields)})") == fields
        )


async def test_a_tool_gets_named_arguments_of_any_name_from_python() -> None:
    async with open_client() as client:
        words = {name: 1 for name in NAMES if name != "class"}
        named = ", ".join(f"{name}=1" for name in words)
        assert await run_call(client, "python", f"server.take({named})") == words
        assert await run_call(
            client, "python", f"call_tool('server.take', {named.replace('name=1, ', '')})"
        ) == {name: 1 for name in words if name != "name"}
