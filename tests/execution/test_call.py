"""One pipeline for every call: checked before, untouched after, told to whoever listens."""

import asyncio
from typing import Any

import pytest

from portico.access import Caller
from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.tool import Tool, make_tool
from portico.errors import BackendTimeout, BackendUnavailable, InvalidArguments, RemoteError
from portico.events import Event, EventBus, ToolCalled
from portico.testing import FakeBackend
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.lifecycle.supervisor import Upstream

ECHO: Raw = {
    "name": "echo",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}
TOOL = make_tool("s", ECHO, name="say")


class House:
    """A pipeline over one fake server."""

    def __init__(self, **timeouts: float) -> None:
        self.bus = EventBus()
        self.backend = FakeBackend([ECHO])
        self.upstream = Upstream("s", self.backend, self.bus)
        self.calls = CallPipeline({"s": self.upstream}, timeouts, self.bus)
        self.called: list[ToolCalled] = []
        self.bus.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        if isinstance(event, ToolCalled):
            self.called.append(event)

    async def call(
        self, arguments: Any, tool: Tool = TOOL, origin: CallContext | None = None
    ) -> Raw:
        async with asyncio.timeout(20):
            return await self.calls.call(tool, arguments, origin or CallContext())


async def test_the_server_s_answer_is_returned_untouched():
    house = House()
    answer = {
        "content": [{"type": "odd", "x": 1}],
        "structuredContent": {"n": 2**60},
        "_meta": {"a": 1},
        "new": [],
    }
    house.backend.on_call("echo", lambda arguments: answer)
    assert await house.call({"text": "hi"}) is answer


async def test_the_server_is_asked_by_its_own_name_with_whatever_the_client_sent_beside():
    house = House()
    house.backend.on_call("echo", lambda arguments: {"content": []})
    await house.call(
        {"text": "hi"},
        origin=CallContext(extra={"_meta": {"progressToken": 7}, "requestState": "s"}),
    )
    assert house.backend.requests == [
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
    house = House()
    with pytest.raises(InvalidArguments, match=why):
        await house.call(arguments)
    assert house.backend.connections == 0


async def test_wrong_arguments_never_reach_the_server():
    house = House()
    with pytest.raises(InvalidArguments):
        await house.call({"text": [3]})
    assert house.backend.connections == 0
    assert house.called == []


@pytest.mark.parametrize(
    ("answer", "ok"), [({"content": []}, True), ({"content": [], "isError": True}, False)]
)
async def test_a_call_is_told_with_how_it_went(answer: Raw, ok: bool):
    house = House()
    house.backend.on_call("echo", lambda arguments: answer)
    await house.call({"text": "hi"})
    (told,) = house.called
    assert (told.tool, told.tool_hash, told.ok) == ("s.say", TOOL.hash, ok)
    assert told.seconds >= 0


async def test_a_protocol_error_of_the_server_is_passed_on_as_it_is():
    house = House()

    def refuse(arguments: Raw) -> Raw:
        raise RemoteError(-32099, "no", {"why": "because"})

    house.backend.on_call("echo", refuse)
    with pytest.raises(RemoteError) as caught:
        await house.call({"text": "hi"})
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        -32099,
        "no",
        {"why": "because"},
    )
    assert [told.ok for told in house.called] == [False]


async def test_a_server_that_does_not_answer_is_given_up_after_its_time():
    house = House(s=0.01)

    async def never(arguments: Raw) -> Raw:
        await asyncio.sleep(20)
        return {}

    house.backend.on_call("echo", never)
    with pytest.raises(BackendTimeout):
        await house.call({"text": "hi"})
    assert [told.ok for told in house.called] == [False]


async def test_a_call_that_is_taken_back_is_told_as_that():
    house = House()
    asked = asyncio.Event()

    async def never(arguments: Raw) -> Raw:
        asked.set()
        await asyncio.sleep(20)
        return {}

    house.backend.on_call("echo", never)
    caller = Caller("session", "client", "profile")
    calling = asyncio.create_task(house.call({"text": "hi"}, origin=CallContext(caller)))
    await asyncio.wait_for(asked.wait(), 20)
    calling.cancel()
    await asyncio.wait({calling}, timeout=20)
    assert [(told.ok, told.cancelled, told.caller) for told in house.called] == [
        (False, True, caller)
    ]


async def test_a_server_that_is_down_says_why_and_since_when():
    house = House()
    house.backend.refuses = BackendUnavailable("out of paper")
    with pytest.raises(
        BackendUnavailable, match=r"known but unavailable since \d\d:\d\d:\d\d: out of paper"
    ):
        await house.call({"text": "hi"})


async def test_a_server_that_does_not_run_here_is_unavailable():
    house = House()
    with pytest.raises(BackendUnavailable, match="elsewhere is not running here"):
        await house.call({}, make_tool("elsewhere", {"name": "t"}))


async def test_other_requests_go_the_same_way_without_being_told_as_calls():
    house = House()
    house.backend.on("prompts/get", lambda params, ask: {"messages": [params]})
    assert await house.calls.request("s", "prompts/get", {"name": "p"}) == {
        "messages": [{"name": "p"}]
    }
    assert house.called == []


async def test_arguments_that_a_server_wants_as_headers_are_given_as_headers_too():
    house = House()
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    tool = make_tool(
        "s", {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}
    )
    asks: list[RequestOptions] = []

    def remember(params: Raw, ask: RequestOptions) -> Raw:
        asks.append(ask)
        return {"content": []}

    house.backend.on("tools/call", remember)
    await house.call({"region": "eu"}, tool)
    await house.call({"text": "hi"})
    assert [dict(ask.headers) for ask in asks] == [{"Mcp-Param-Region": "eu"}, {}]


async def test_a_header_that_no_header_can_be_is_left_out():
    house = House()
    properties = {"region": {"type": "string", "x-mcp-header": "no\r\nheader"}}
    tool = make_tool(
        "s", {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}
    )
    house.backend.on(
        "tools/call", lambda params, ask: {"content": [], "headers": dict(ask.headers)}
    )
    assert (await house.call({"region": "eu"}, tool))["headers"] == {}


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
    monkeypatch.setattr("portico.calls.pipeline.time.perf_counter", lambda: clock[0])
    await CallPipeline({"s": upstream}, {}, bus).call(make_tool("s", definition), {})
    await upstream.stop()
    assert [event.seconds for event in heard if isinstance(event, ToolCalled)] == [1]
