"""Python callables as a server."""

import asyncio
import dataclasses
import functools
import threading
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Connection, Raw, RequestOptions
from portico.upstream.backends import functions
from portico.upstream.backends.functions import FunctionsBackend, ToolFunction, make_function_tool
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener


async def connected(*offered: ToolFunction) -> Connection:
    tools = tuple(
        make_function_tool(function, f"f{number}") for number, function in enumerate(offered)
    )
    return await FunctionsBackend("mine", tools, "Read me.", "3").connect(RecordingListener())


async def call(function: ToolFunction, **arguments: Any) -> Raw:
    connection = await connected(function)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return await connection.request("tools/call", {"name": "f0", "arguments": arguments})


def text(result: Raw) -> str:
    return result["content"][0]["text"]


def convert(amount: float, unit: Literal["m", "ft"] = "m", digits: int | None = None) -> str:
    """Convert a length.

    Rounds when told to.
    """
    return f"{amount} {unit} {digits}"


def test_a_signature_is_the_schema_and_a_docstring_the_description():
    definition = make_function_tool(convert, annotations={"readOnlyHint": True}).definition
    assert definition["name"] == "convert"
    assert definition["description"] == "Convert a length.\n\nRounds when told to."
    assert definition["annotations"] == {"readOnlyHint": True}
    schema = definition["inputSchema"]
    assert (schema["required"], schema["additionalProperties"]) == (["amount"], False)
    assert schema["properties"]["unit"] == {"default": "m", "enum": ["m", "ft"], "type": "string"}
    assert "title" not in str(schema)


def test_what_a_function_gathers_is_no_parameter():
    def gather(a: int, *rest: int, **named: int) -> int:
        return a

    assert list(make_function_tool(gather).definition["inputSchema"]["properties"]) == ["a"]


async def test_a_server_of_functions_introduces_itself_and_lists_them():
    connection = await connected(convert)
    assert (connection.initialize_info.era, connection.initialize_info.instructions) == (
        "modern",
        "Read me.",
    )
    assert connection.initialize_info.server_info == {"name": "mine", "version": "3"}
    assert [tool["name"] for tool in (await connection.request("tools/list"))["tools"]] == ["f0"]


async def test_plain_functions_coroutines_partials_and_objects_can_be_called():
    async def later(amount: float) -> str:
        await asyncio.sleep(0)
        return str(amount)

    class Adder:
        async def __call__(self, amount: float) -> str:
            return str(amount)

    assert text(await call(convert, amount=2)) == "2.0 m None"
    assert text(await call(later, amount=2)) == "2.0"
    assert text(await call(functools.partial(convert, 2.0, unit="ft"), digits=1)) == "2.0 ft 1"
    assert text(await call(Adder(), amount=2)) == "2.0"


async def test_text_is_text_and_anything_else_is_also_structured():
    @dataclasses.dataclass
    class Point:
        x: int

    class Model(BaseModel):
        y: int

    assert "structuredContent" not in await call(lambda: "plain")
    for value, structured in (
        ({"a": 1}, {"a": 1}),
        ([1, 2], {"result": [1, 2]}),
        (None, {"result": None}),
        (Point(1), {"x": 1}),
        (Model(y=2), {"y": 2}),
        ({"s": {3}}, {"s": [3]}),
        ({1: "one"}, {"1": "one"}),
        (2**100, {"result": 2**100}),
        ({"n": -(2**90)}, {"n": -(2**90)}),
    ):
        assert (await call(lambda value=value: value))["structuredContent"] == structured  # pyright: ignore[reportUnknownLambdaType]


async def test_a_result_that_cannot_be_written_is_the_tools_error():
    endless: list[Any] = []
    endless.append(endless)
    result = await call(lambda: endless)
    assert result["isError"] is True


async def test_wrong_arguments_are_named():
    result = await call(convert, unit="mile", amount="far", extra=1)
    assert result["isError"] is True
    assert all(word in text(result) for word in ("amount", "unit", "extra"))


@pytest.mark.parametrize(
    "error",
    [ValueError("bad"), SystemExit(1), KeyboardInterrupt(), StopIteration(7), TimeoutError()],
)
async def test_whatever_a_function_raises_is_its_tools_error(error: BaseException):
    def fail() -> None:
        raise error

    result = await call(fail)
    assert result["isError"] is True
    assert type(error).__name__ in text(result)


async def test_a_coroutine_that_exits_does_not_take_the_gateway_along():
    async def leave() -> None:
        raise SystemExit(3)

    assert text(await call(leave)) == "SystemExit: 3"


async def test_unknown_tools_and_methods_are_refused():
    connection = await connected(convert)
    with pytest.raises(RemoteError, match="Unknown tool: absent"):
        await connection.request("tools/call", {"name": "absent"})
    with pytest.raises(RemoteError, match="resources/list"):
        await connection.request("resources/list")


async def test_a_function_out_of_time_times_out():
    release = threading.Event()
    connection = await connected(release.wait)
    try:
        with pytest.raises(BackendTimeout, match=r"did not return within 0\.05 s"):
            await connection.request("tools/call", {"name": "f0"}, RequestOptions(timeout=0.05))
    finally:
        release.set()


async def test_functions_that_never_return_use_up_nobodys_threads_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(functions, "MAX_THREADS", 3)
    release = threading.Event()
    connection = await connected(lambda: release.wait(TEST_TIMEOUT_S) and "done")
    stuck = [
        asyncio.create_task(connection.request("tools/call", {"name": "f0"})) for _ in range(3)
    ]
    try:
        await asyncio.sleep(0)
        with pytest.raises(BackendUnavailable, match="3 of mine's functions are running already"):
            await connection.request("tools/call", {"name": "f0"})
        async with asyncio.timeout(TEST_TIMEOUT_S):
            assert await asyncio.to_thread(lambda: "free") == "free"
        assert all(
            thread.daemon for thread in threading.enumerate() if thread.name == "portico function"
        )
    finally:
        release.set()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        assert [text(result) for result in await asyncio.gather(*stuck)] == ["done"] * 3
        assert text(await connection.request("tools/call", {"name": "f0"})) == "done"
