"""Every client era and transport with every upstream era and transport: it lists, calls, pages,
errs and cancels."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from tests.fixtures.everything.server import build
from tests.interaction.conftest import Exposed, Matrix
from tests.interaction.upstreams import CORNERS, FILLERS, Corner

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIMEOUT_S = 240.0
OFFERED = build(fillers=FILLERS).world.tools


@dataclass(frozen=True)
class Pair:
    """A client of one kind before an upstream of one kind."""

    client: Client
    server: str
    exposed: Exposed
    upstream: Corner

    async def call(self, tool: str, progress: Any = None, **arguments: Any) -> CallToolResult:
        name, given = f"{self.server}__{tool}", arguments
        if self.exposed == "meta":
            name, given = "call_tool", {"name": f"{self.server}.{tool}", "arguments": arguments}
        async with asyncio.timeout(TIMEOUT_S):
            return await self.client.call_tool(name, given, progress_callback=progress)

    async def counted(self) -> dict[str, int]:
        """Return how the calls of `slow` ended, as the upstream counted them."""
        counted = (await self.call("cancellations")).structured_content
        assert isinstance(counted, dict)
        return counted

    async def until(self, wanted: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        async with asyncio.timeout(TIMEOUT_S):
            while not wanted(counted := await self.counted()):
                pass
        return counted


@pytest.fixture(params=CORNERS, ids=lambda corner: f"to_{corner.name}")
def upstream(request: pytest.FixtureRequest) -> Corner:
    return request.param


@pytest.fixture(params=CORNERS, ids=lambda corner: f"from_{corner.name}")
def client_corner(request: pytest.FixtureRequest) -> Corner:
    return request.param


@pytest.fixture
def pair(matrix: Matrix, client_corner: Corner, upstream: Corner) -> Pair:
    return Pair(matrix.clients[client_corner, "full"], upstream.name, "full", upstream)


@pytest.fixture(params=["full", "meta"])
def either(
    request: pytest.FixtureRequest, matrix: Matrix, client_corner: Corner, upstream: Corner
) -> Pair:
    """The same pair at both endpoints."""
    return Pair(
        matrix.clients[client_corner, request.param], upstream.name, request.param, upstream
    )


def text(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def list_names(client: Client) -> tuple[list[str], int]:
    """Every name in order, and on how many pages."""
    names: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        cursor, pages = page.next_cursor, pages + 1
    return names, pages


async def test_the_upstream_is_reached_in_its_own_era(matrix: Matrix, upstream: Corner) -> None:
    status = next(
        status for status in matrix.gateway.list_statuses() if status.name == upstream.name
    )
    assert (status.state, status.reason) == ("ready", "")
    assert status.initialize_info is not None
    assert status.initialize_info.era == upstream.era
    assert status.kind == upstream.transport


async def test_every_tool_of_the_upstream_is_listed_in_its_order(pair: Pair) -> None:
    names, pages = await list_names(pair.client)
    prefix = f"{pair.server}__"
    assert [name.removeprefix(prefix) for name in names if name.startswith(prefix)] == list(OFFERED)
    assert pages > 1


async def test_a_full_listing_over_several_pages_has_everything_once(
    matrix: Matrix, client_corner: Corner
) -> None:
    names, pages = await list_names(matrix.clients[client_corner, "full"])
    assert pages == 2
    assert len(names) == len(set(names)) == len(CORNERS) * len(OFFERED)
    assert names == (await list_names(matrix.clients[client_corner, "full"]))[0]


async def test_a_cursor_that_was_not_given_out_is_refused_with_advice(
    matrix: Matrix, client_corner: Corner
) -> None:
    with pytest.raises(MCPError, match="Ask again without a cursor") as refused:
        await matrix.clients[client_corner, "full"].list_tools(cursor="made up")
    assert refused.value.code == -32602


async def test_a_call_answers_what_the_upstream_answered(either: Pair) -> None:
    answered = await either.call(
        "echo", message="hello", nothing=None, deep={"list": [1, None, "two"]}
    )
    assert not answered.is_error
    content = answered.structured_content
    assert isinstance(content, dict)
    assert content["arguments"] == {
        "message": "hello",
        "nothing": None,
        "deep": {"list": [1, None, "two"]},
    }
    assert (content["nothing"], content["list"]) == (None, [None, 1, {"also": None}])


async def test_the_upstream_meets_a_client_of_its_own_era(either: Pair) -> None:
    known = (await either.call("whoami")).structured_content
    assert isinstance(known, dict)
    keys = {key.removeprefix("io.modelcontextprotocol/") for key in known["meta"] or {}}
    if either.upstream.era == "modern":
        assert known["protocolVersion"] == "2026-07-28"
        assert {"protocolVersion", "clientCapabilities"} <= keys
    else:
        assert known["protocolVersion"] == "2025-11-25"
        assert keys.isdisjoint({"protocolVersion", "clientCapabilities", "clientInfo"})


async def test_a_failed_tool_is_a_result_that_says_so(either: Pair) -> None:
    failed = await either.call("fail", message="out of paper")
    assert failed.is_error
    assert text(failed) == "out of paper"
    assert failed.structured_content == {"reason": "out of paper", "detail": None}


@pytest.mark.parametrize("data", [{"deep": [1, None]}, [], "", 0, False], ids=repr)
async def test_a_protocol_error_keeps_code_message_and_data(either: Pair, data: Any) -> None:
    call = either.call("raise_code", code=-32055, message="no such moon", data=data)
    if either.exposed == "meta":
        # A model reads results and rarely sees protocol errors.
        answered = await call
        assert answered.is_error
        assert "no such moon" in text(answered)
        reported = (answered.meta or {})["portico/error"]
        found = (reported["code"], reported["message"], reported["data"])
    else:
        with pytest.raises(MCPError) as refused:
            await call
        found = (refused.value.code, refused.value.message, refused.value.data)
    assert found == (-32055, "no such moon", data)
    assert type(found[2]) is type(data)


async def test_progress_arrives_in_order_and_before_the_answer(either: Pair) -> None:
    received: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        received.append((done, total, message))

    await either.call("slow", progress, seconds=0.03, steps=3)
    assert received == [(step, 3, f"step {step}") for step in (1, 2, 3)]


async def test_a_cancelled_call_is_cancelled_at_the_upstream(either: Pair) -> None:
    before = await either.counted()
    running = asyncio.Event()

    async def progress(*_: Any) -> None:
        running.set()

    call = asyncio.create_task(either.call("slow", progress, seconds=60, steps=2_000))
    await asyncio.wait_for(running.wait(), TIMEOUT_S)
    call.cancel()
    await asyncio.wait({call}, timeout=TIMEOUT_S)
    assert call.cancelled()
    after = await either.until(lambda counted: counted["running"] == before["running"])
    assert after["cancelled"] == before["cancelled"] + 1
    assert after["finished"] == before["finished"]


async def test_resources_prompts_and_completion_reach_the_upstream(pair: Pair) -> None:
    uri = f"portico://backend/{pair.server}/resource/test://static-text"
    read = await pair.client.read_resource(uri)
    assert str(read.contents[0].uri) == uri
    got = await pair.client.get_prompt(
        f"{pair.server}__test_prompt_with_arguments", {"arg1": "one", "arg2": "two"}
    )
    assert "arg1='one'" in str(got.messages[0].content)
