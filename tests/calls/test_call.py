"""The call pipeline: arguments are validated, answers unchanged, and every call is published."""

import asyncio
from typing import Any

import pytest

from portico.callers import Caller
from portico.calls.call_recorder import CallRecorder
from portico.calls.pipeline import CallContext, CallPipeline, CallSettings
from portico.catalog.tool import make_tool
from portico.errors import BackendTimeout, BackendUnavailable, InvalidArguments, RemoteError
from portico.events import Event, EventBus, ToolCalled
from portico.testing import FakeBackend
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.lifecycle.supervisor import Upstream
from tests.gateways import PipelineUnderTest

ECHO: Raw = {
    "name": "echo",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}
TOOL = make_tool("s", ECHO, name="say")


def make_pipeline(**timeouts: float) -> PipelineUnderTest:
    return PipelineUnderTest([ECHO], settings={"timeouts": timeouts})


async def test_the_server_s_answer_is_returned_untouched():
    pipeline = make_pipeline()
    answer = {
        "content": [{"type": "odd", "x": 1}],
        "structuredContent": {"n": 2**60},
        "_meta": {"a": 1},
        "new": [],
    }
    pipeline.backend.on_call("echo", lambda arguments: answer)
    assert await pipeline.call(TOOL, {"text": "hi"}) is answer


async def test_the_server_is_asked_by_its_own_name_with_whatever_the_client_sent_beside():
    pipeline = make_pipeline()
    pipeline.backend.on_call("echo", lambda arguments: {"content": []})
    await pipeline.call(
        TOOL,
        {"text": "hi"},
        context=CallContext(extra={"_meta": {"progressToken": 7}, "requestState": "s"}),
    )
    assert pipeline.backend.requests == [
        (
            "tools/call",
            {
                "name": "echo",
                "arguments": {"text": "hi"},
                "_meta": {"progressToken": 7},
                "requestState": "s",
            },
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(None, "an object"), ("text", "an object"), (3, "an object"), ([], "required property")],
)
async def test_arguments_that_are_no_object_are_refused(arguments: Any, why: str):
    pipeline = make_pipeline()
    with pytest.raises(InvalidArguments, match=why):
        await pipeline.call(TOOL, arguments)
    assert pipeline.backend.connections == 0


async def test_wrong_arguments_never_reach_the_server():
    pipeline = make_pipeline()
    with pytest.raises(InvalidArguments):
        await pipeline.call(TOOL, {"text": [3]})
    assert pipeline.backend.connections == 0
    assert pipeline.tool_calls == []


@pytest.mark.parametrize(
    ("answer", "ok"), [({"content": []}, True), ({"content": [], "isError": True}, False)]
)
async def test_a_call_is_published_with_its_outcome(answer: Raw, ok: bool):
    pipeline = make_pipeline()
    pipeline.backend.on_call("echo", lambda arguments: answer)
    await pipeline.call(TOOL, {"text": "hi"})
    (event,) = pipeline.tool_calls
    assert (event.tool, event.tool_hash, event.ok) == ("s.say", TOOL.hash, ok)
    assert event.seconds >= 0


async def test_a_protocol_error_of_the_server_is_passed_on_as_it_is():
    pipeline = make_pipeline()

    def refuse(arguments: Raw) -> Raw:
        raise RemoteError(-32099, "no", {"why": "because"})

    pipeline.backend.on_call("echo", refuse)
    with pytest.raises(RemoteError) as caught:
        await pipeline.call(TOOL, {"text": "hi"})
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        -32099,
        "no",
        {"why": "because"},
    )
    assert [event.ok for event in pipeline.tool_calls] == [False]


async def test_a_server_that_does_not_answer_is_given_up_after_its_time():
    pipeline = make_pipeline(call_s=0.01)

    async def never(arguments: Raw) -> Raw:
        await asyncio.sleep(600)
        return {}

    pipeline.backend.on_call("echo", never)
    with pytest.raises(BackendTimeout):
        await pipeline.call(TOOL, {"text": "hi"})
    assert [event.ok for event in pipeline.tool_calls] == [False]


async def test_a_cancelled_call_is_published_as_cancelled():
    pipeline = make_pipeline()
    asked = asyncio.Event()

    async def never(arguments: Raw) -> Raw:
        asked.set()
        await asyncio.sleep(600)
        return {}

    pipeline.backend.on_call("echo", never)
    caller = Caller("session", "client", "profile")
    calling = asyncio.create_task(pipeline.call(TOOL, {"text": "hi"}, context=CallContext(caller)))
    await asyncio.wait_for(asked.wait(), 240)
    calling.cancel()
    await asyncio.wait({calling}, timeout=240)
    assert [(event.ok, event.cancelled, event.caller) for event in pipeline.tool_calls] == [
        (False, True, caller)
    ]


async def test_a_server_that_is_down_says_why_and_since_when():
    pipeline = make_pipeline()
    pipeline.backend.refuses = BackendUnavailable("out of paper")
    with pytest.raises(
        BackendUnavailable, match=r"known but unavailable since \d\d:\d\d:\d\d: out of paper"
    ):
        await pipeline.call(TOOL, {"text": "hi"})


async def test_a_server_that_does_not_run_here_is_unavailable():
    pipeline = make_pipeline()
    with pytest.raises(BackendUnavailable, match="elsewhere is not running here"):
        await pipeline.call(make_tool("elsewhere", {"name": "t"}), {})


async def test_other_requests_are_forwarded_and_not_published_as_calls():
    pipeline = make_pipeline()
    pipeline.backend.on("prompts/get", lambda params, ask: {"messages": [params]})
    assert await pipeline.calls.request("s", "prompts/get", {"name": "p"}) == {
        "messages": [{"name": "p"}]
    }
    assert pipeline.tool_calls == []


async def test_arguments_that_a_server_wants_as_headers_are_given_as_headers_too():
    pipeline = make_pipeline()
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    tool = make_tool(
        "s", {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}
    )
    asks: list[RequestOptions] = []

    def remember(params: Raw, ask: RequestOptions) -> Raw:
        asks.append(ask)
        return {"content": []}

    pipeline.backend.on("tools/call", remember)
    await pipeline.call(tool, {"region": "eu"})
    await pipeline.call(TOOL, {"text": "hi"})
    assert [dict(ask.headers) for ask in asks] == [{"Mcp-Param-Region": "eu"}, {}]


async def test_a_header_that_no_header_can_be_is_left_out():
    pipeline = make_pipeline()
    properties = {"region": {"type": "string", "x-mcp-header": "no\r\nheader"}}
    tool = make_tool(
        "s", {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}
    )
    pipeline.backend.on(
        "tools/call", lambda params, ask: {"content": [], "headers": dict(ask.headers)}
    )
    assert (await pipeline.call(tool, {"region": "eu"}))["headers"] == {}


async def test_the_start_of_a_server_is_not_the_time_of_its_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition: Raw = {"name": "t", "inputSchema": {"type": "object"}}
    backend, clock, heard = FakeBackend([definition]), [0.0], list[Event]()

    def takes(seconds: float, answer: Any) -> Any:
        clock[0] += seconds
        return answer

    connect = backend.connect
    monkeypatch.setattr(backend, "connect", lambda *given: takes(100, connect(*given)))
    backend.on_call("t", lambda arguments: takes(1, {"content": []}))
    bus = EventBus()
    bus.subscribe(heard.append, ToolCalled)
    upstream = Upstream("s", backend, bus)
    monkeypatch.setattr("portico.calls.dispatcher.time.perf_counter", lambda: clock[0])
    await CallPipeline({"s": upstream}, CallSettings(), CallRecorder(bus)).call(
        make_tool("s", definition), {}
    )
    await upstream.stop()
    assert [event.seconds for event in heard if isinstance(event, ToolCalled)] == [1]
