"""Streamable HTTP against servers nobody here wrote, in both eras."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Literal

import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Connection, Era, RequestOptions
from portico.upstream.backends.http import HttpBackend
from tests.upstream.loopback_server import (
    TEST_TIMEOUT_S,
    Caller,
    RecordingListener,
    advance_clock,
    get_soon,
    serve,
)

Protocol = Literal["legacy", "modern"]
ERAS: tuple[Protocol, ...] = ("legacy", "modern")


class Answer(BaseModel):
    colour: str


class Workshop:
    """An SDK server whose tools can be watched from the test."""

    def __init__(self) -> None:
        self.server = MCPServer("workshop", instructions="Be gentle.")
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()
        tool = self.server.tool

        @tool()
        async def echo(text: str) -> str:
            """Say it again."""
            return text

        @tool()
        async def work(ctx: Context) -> str:
            """Report progress and log."""
            await ctx.report_progress(1, 2, "half")
            await ctx.info("working")  # type: ignore[deprecated]
            await ctx.report_progress(2, 2)
            return "done"

        @tool()
        async def hang() -> str:
            """Never return."""
            self.started.put_nowait("hang")
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.put_nowait("hang")
            return ""

        @tool()
        async def grow(ctx: Context) -> str:
            """Change the list of tools."""
            self.server.add_tool(echo, name="echo_again")
            await ctx.notify_tools_changed()
            await ctx.session.send_tool_list_changed()
            return "grown"

        @tool()
        async def ask_colour(ctx: Context) -> str:
            """Ask the user."""
            reply = await ctx.elicit("Which colour?", Answer)
            return reply.data.colour if reply.action == "accept" else reply.action

        @tool()
        async def fail() -> str:
            """Fail."""
            raise ValueError("on purpose")

    def app(self, **options: Any) -> Any:
        return self.server.streamable_http_app(**options)


@contextlib.asynccontextmanager
async def connected(
    url: str,
    listener: RecordingListener | None = None,
    protocol: Literal["auto", "legacy", "modern"] = "auto",
    era: Era | None = None,
) -> AsyncGenerator[Connection, None]:
    connection = await HttpBackend("workshop", url, protocol=protocol).connect(
        listener or RecordingListener(), era
    )
    try:
        yield connection
    finally:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await connection.close()


@pytest.fixture(params=["stream", "json"])
def answers(request: pytest.FixtureRequest) -> dict[str, bool]:
    """How the server words its answers."""
    return {"json_response": request.param == "json"}


@pytest.mark.parametrize("protocol", ERAS)
async def test_it_lists_and_calls(protocol: Protocol, answers: dict[str, bool]):
    async with (
        serve(Workshop().app(**answers)) as base,
        connected(f"{base}/mcp", protocol=protocol) as connection,
    ):
        assert connection.initialize_info.era == protocol
        assert connection.initialize_info.instructions == "Be gentle."
        assert connection.initialize_info.server_info["name"] == "workshop"
        tools = (await connection.request("tools/list"))["tools"]
        assert "echo" in {tool["name"] for tool in tools}
        called = await connection.request(
            "tools/call", {"name": "echo", "arguments": {"text": "grüß"}}
        )
        assert called["content"][0]["text"] == "grüß"


async def test_a_server_of_both_eras_is_met_in_the_newer_one_and_a_remembered_era_is_kept():
    async with serve(Workshop().app()) as base:
        async with connected(f"{base}/mcp") as connection:
            assert (
                connection.initialize_info.era,
                connection.initialize_info.protocol_version,
            ) == (
                "modern",
                "2026-07-28",
            )
        async with connected(f"{base}/mcp", era="legacy") as connection:
            assert (
                connection.initialize_info.era,
                connection.initialize_info.protocol_version,
            ) == (
                "legacy",
                "2025-11-25",
            )


@pytest.mark.parametrize("protocol", ERAS)
async def test_many_requests_at_once_get_their_own_answers(
    protocol: Protocol, answers: dict[str, bool]
):
    async with (
        serve(Workshop().app(**answers)) as base,
        connected(f"{base}/mcp", protocol=protocol) as connection,
    ):
        calls = [
            connection.request("tools/call", {"name": "echo", "arguments": {"text": str(number)}})
            for number in range(50)
        ]
        texts = [result["content"][0]["text"] for result in await asyncio.gather(*calls)]
        assert texts == [str(number) for number in range(50)]


@pytest.mark.parametrize("protocol", ERAS)
async def test_an_error_arrives_with_its_code_and_data(protocol: Protocol):
    async with (
        serve(Workshop().app()) as base,
        connected(f"{base}/mcp", protocol=protocol) as connection,
    ):
        with pytest.raises(RemoteError) as caught:
            await connection.request("no/such/method")
        assert caught.value.code == -32601
        failed = await connection.request("tools/call", {"name": "fail", "arguments": {}})
        assert failed["isError"] is True


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.parametrize("protocol", ERAS)
async def test_progress_comes_back_under_the_callers_token_and_before_the_result(
    protocol: Protocol,
):
    caller = Caller()
    params = {
        "name": "work",
        "arguments": {},
        "_meta": {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "debug"},
    }
    async with (
        serve(Workshop().app()) as base,
        connected(f"{base}/mcp", protocol=protocol) as connection,
    ):
        await connection.request("tools/call", params, RequestOptions(relay=caller))
    progress = [
        params for method, params in caller.notifications if method == "notifications/progress"
    ]
    assert [(one["progressToken"], one["progress"]) for one in progress] == [
        ("mine", 1),
        ("mine", 2),
    ]
    assert [
        params["data"]
        for method, params in caller.notifications
        if method == "notifications/message"
    ] == ["working"]


async def test_an_elicitation_reaches_the_caller_and_its_answer_the_server():
    caller = Caller({"elicitation/create": {"action": "accept", "content": {"colour": "green"}}})
    async with (
        serve(Workshop().app()) as base,
        connected(f"{base}/mcp", protocol="legacy") as connection,
    ):
        result = await connection.request(
            "tools/call", {"name": "ask_colour", "arguments": {}}, RequestOptions(relay=caller)
        )
        assert result["content"][0]["text"] == "green"
        assert (await get_soon(caller.requests))[1]["message"] == "Which colour?"


async def test_an_elicitation_without_a_caller_is_refused_clearly():
    async with (
        serve(Workshop().app()) as base,
        connected(f"{base}/mcp", protocol="legacy") as connection,
    ):
        with pytest.raises(
            RemoteError, match="elicitation/create is not available outside a client's call"
        ):
            await connection.request("tools/call", {"name": "ask_colour", "arguments": {}})


@pytest.mark.parametrize("protocol", ERAS)
async def test_a_cancelled_call_is_cancelled_at_the_server(protocol: Protocol):
    workshop = Workshop()
    async with (
        serve(workshop.app()) as base,
        connected(f"{base}/mcp", protocol=protocol) as connection,
    ):
        call = asyncio.create_task(
            connection.request("tools/call", {"name": "hang", "arguments": {}})
        )
        await get_soon(workshop.started)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await get_soon(workshop.cancelled) == "hang"
        assert await connection.request("tools/list")


@pytest.mark.parametrize("protocol", ERAS)
async def test_a_call_that_takes_too_long_times_out_on_both_sides(protocol: Protocol):
    workshop = Workshop()
    async with (
        serve(workshop.app()) as base,
        connected(f"{base}/mcp", protocol=protocol) as connection,
    ):
        call = asyncio.create_task(
            connection.request(
                "tools/call", {"name": "hang", "arguments": {}}, RequestOptions(timeout=60)
            )
        )
        await get_soon(workshop.started)
        advance_clock(60)
        with pytest.raises(BackendTimeout, match="workshop did not answer tools/call within 60 s"):
            await call
        assert await get_soon(workshop.cancelled) == "hang"


@pytest.mark.parametrize("protocol", ERAS)
async def test_a_changed_list_is_announced(protocol: Protocol):
    listener = RecordingListener()
    async with (
        serve(Workshop().app()) as base,
        connected(f"{base}/mcp", listener, protocol) as connection,
    ):

        async def announced() -> tuple[str, dict[str, Any]]:
            # Our ear opens in the background; a change before that is said to nobody.
            while True:
                await connection.request("tools/call", {"name": "grow", "arguments": {}})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        return await listener.notifications.get()

        async with asyncio.timeout(TEST_TIMEOUT_S):
            method, params = await announced()
        assert method == "notifications/tools/list_changed"
        assert "_meta" not in params


async def test_closing_ends_everything_of_ours():
    workshop = Workshop()
    async with serve(workshop.app()) as base:
        backend = HttpBackend("workshop", f"{base}/mcp", protocol="legacy")
        listener = RecordingListener()
        connection = await backend.connect(listener)
        assert backend.diagnostics()["session"] is True
        hanging = asyncio.create_task(
            connection.request("tools/call", {"name": "hang", "arguments": {}})
        )
        await get_soon(workshop.started)
        await connection.close()
        await connection.close()
        with pytest.raises(BackendUnavailable, match="workshop"):
            await hanging
        with pytest.raises(BackendUnavailable, match="closed"):
            await connection.request("tools/list")
        assert [task for task in asyncio.all_tasks() if "Http" in repr(task.get_coro())] == []
        assert listener.losses.empty()


async def test_fastmcp_serves_the_same_wire():
    server = FastMCP("quick")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    variants: tuple[dict[str, Any], ...] = ({}, {"stateless_http": True, "json_response": True})
    for options in variants:
        async with serve(server.http_app(**options)) as base:
            for protocol in ERAS:
                async with connected(f"{base}/mcp", protocol=protocol) as connection:
                    result = await connection.request(
                        "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}
                    )
                    assert result["structuredContent"] == {"result": 5}
