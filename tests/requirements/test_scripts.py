"""Rows A13, C5, C6, D5, D6 and E4 of docs/requirements.md: scripts that call tools, as earlier
projects
printed them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from portico.catalog.address import assign_identifiers
from portico.observability import tracing
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw

TIMEOUT_S = 240


def calculator() -> FakeBackend:
    def tool(name: str) -> Raw:
        number = {"type": "number"}
        schema = {
            "type": "object",
            "properties": {"a": number, "b": number},
            "required": ["a", "b"],
        }
        return {"name": name, "description": f"{name.title()} two numbers", "inputSchema": schema}

    def answer(value: float) -> Raw:
        return {
            "content": [{"type": "text", "text": json.dumps({"result": value})}],
            "structuredContent": {"result": value},
        }

    backend = FakeBackend([tool("add"), tool("multiply"), tool("divide")])
    backend.on_call("add", lambda given: answer(given["a"] + given["b"]))
    backend.on_call("multiply", lambda given: answer(given["a"] * given["b"]))
    return backend


@asynccontextmanager
async def open_client() -> AsyncGenerator[Any]:
    async with gateway_over({"calculator": calculator()}) as gateway, connect(gateway) as client:
        yield client


async def run(client: Any, code: str, language: str) -> Any:
    return await asyncio.wait_for(
        client.call_tool("run_code", {"code": code, "language": language}), TIMEOUT_S
    )


# Row C5, as the earlier design prints it

EXECUTE = """\
local sum = calculator.add({ a = 10, b = 20 }):await()
local product = calculator.multiply({ a = sum.result, b = 2 }):await()
result({ sum = sum, product = product })
"""
USAGE = """\
local result = calculator.add({
  a = ...,
  b = ...
}):await()
"""


async def test_c5_a_lua_script_runs_as_printed_with_text_and_structured_content():
    async with open_client() as client:
        answered = await run(client, EXECUTE, "lua")
        assert answered.structured_content == {"sum": {"result": 30}, "product": {"result": 60}}
        assert json.loads(answered.content[0].text) == answered.structured_content


@pytest.mark.parametrize(
    "code",
    [
        "result(calculator.add({a=5,b=3}):await())",
        "local r = calculator.add({a=5,b=3}):await() result(r)",
    ],
)
async def test_c5_one_line_is_enough(code: str):
    async with open_client() as client:
        assert (await run(client, code, "lua")).structured_content == {"result": 8}


async def test_c5_the_printed_usage_is_lua_and_says_which_values_are_still_to_be_filled_in():
    async with open_client() as client:
        answered = await run(client, USAGE, "lua")
        assert answered.is_error
        assert '"a" is a required property' in answered.content[0].text
        filled = (
            USAGE.replace("a = ...", "a = 1").replace("b = ...", "b = 2") + "return result.result"
        )
        assert (await run(client, filled, "lua")).content[0].text == "3"


def test_c6_names_become_identifiers_as_printed():
    printed = {
        "data-server": "data_server",
        "my.api": "my_api",
        "123numbers": "_123numbers",
        "while": "_while",
    }
    assert {name: word for word, name in assign_identifiers(printed).items()} == printed


async def test_c6_scripts_know_servers_and_tools_by_their_identifiers():
    odd = FakeBackend([{"name": "while", "inputSchema": {"type": "object"}}])
    odd.on_call("while", lambda _: {"content": [{"type": "text", "text": "ran"}]})
    async with gateway_over({"123numbers": odd}) as gateway, connect(gateway) as client:
        for language, code in (
            ("lua", "return _123numbers._while({}):await()"),
            ("python", "await _123numbers._while()"),
            ("javascript", "await _123numbers._while()"),
        ):
            assert (await run(client, code, language)).content[0].text == "ran"


CHAIN = """\
interface Answer { result: number }
const sum: Answer = await calculator.add({ a: 1, b: 2 });
const product: Answer = await calculator.multiply({ a: sum.result, b: 10 });
product.result"""


async def test_a13_typescript_chains_tools():
    async with open_client() as client:
        answered = await run(client, CHAIN, "typescript")
        assert answered.content[0].text == "30"
        assert "called: calculator.add, calculator.multiply" in answered.content[1].text


async def test_d6_e4_code_runs_in_a_sandbox_and_chains_tools():
    async with open_client() as client:
        chain = (
            "x = 1\nfor n in range(5):\n    x = (await calculator.multiply(a=x, b=2))['result']\nx"
        )
        assert (await run(client, chain, "python")).content[0].text == "32"
        for language, code in (
            ("python", "open('/etc/passwd').read()"),
            ("lua", "return io.open('/etc/passwd'):read('a')"),
            ("javascript", "require('fs').readFileSync('/etc/passwd')"),
            ("typescript", "const text: string = require('fs').readFileSync('/etc/passwd');"),
        ):
            answered = await run(client, code, language)
            assert answered.is_error
            assert "root:" not in answered.content[0].text


# Rows of D


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Return what is exported. Nobody else's provider is replaced: there is one for a process."""
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    monkeypatch.setattr(tracing, "_TRACER", provider.get_tracer("portico"))
    return exported


async def test_d5_every_execution_is_a_span_without_arguments_or_results(
    spans: InMemorySpanExporter,
):
    async with open_client() as client:
        spans.clear()
        await client.call_tool(
            "call_tool", {"name": "calculator.add", "arguments": {"a": 123456, "b": 2}}
        )
        await client.call_tool("call_tool", {"name": "calculator.add", "arguments": {"a": "no"}})
        await run(client, EXECUTE, "lua")
        ended = [
            span for span in spans.get_finished_spans() if span.name.startswith("execute_tool")
        ]
        assert [span.name for span in ended] == [
            "execute_tool calculator.add",
            "execute_tool calculator.add",
            "execute_tool calculator.add",
            "execute_tool calculator.multiply",
        ]
        reported: list[dict[str, Any]] = [dict(span.attributes or {}) for span in ended]
        assert reported[0]["gen_ai.tool.name"] == "calculator.add"
        assert reported[1]["error.type"] == "invalid_arguments"
        assert "123456" not in repr(reported)


async def test_d5_a_span_belongs_to_the_trace_of_its_caller(spans: InMemorySpanExporter):
    async with open_client() as client:
        spans.clear()
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await client.call_tool(
            "call_tool",
            {"name": "calculator.add", "arguments": {"a": 1, "b": 2}},
            meta={"traceparent": parent},
        )
        (span,) = [
            span for span in spans.get_finished_spans() if span.name.startswith("execute_tool")
        ]
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}" == parent.split("-")[1]
