"""Faults that the matrix found, one by one."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.protocol.jsonrpc import MAX_QUEUED, NotificationQueue
from portico.upstream.transports.message_streams import YIELD_BUDGET_BYTES, YieldBudget
from tests.upstream.loopback_server import TEST_TIMEOUT_S, Caller
from tests.upstream.raw_server import RawServer, conversation


async def test_half_a_surrogate_pair_costs_an_http_server_one_character_not_its_listing() -> None:
    async def listing(request: Request, frame: Raw) -> Response:
        tools = '[{"name":"a","description":"x\\ud800y"}]'
        said = f'{{"jsonrpc":"2.0","id":{frame["id"]},"result":{{"tools":{tools}}}}}'
        return Response(said, media_type="application/json")

    async with conversation(RawServer(tools_list=listing)) as (connection, _):
        found = await connection.request("tools/list")
    assert found["tools"] == [{"name": "a", "description": "x\N{REPLACEMENT CHARACTER}y"}]


async def test_a_page_is_still_no_answer() -> None:
    async def page(request: Request, frame: Raw) -> Response:
        return Response('<script>{"a": 1}</script>', media_type="text/html")

    async with conversation(RawServer(tools_list=page)) as (connection, _):
        with pytest.raises(BackendUnavailable, match="not JSON"):
            await connection.request("tools/list")


class Slow(Caller):
    """A client that takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = asyncio.Event()

    async def notify(self, method: str, params: Raw) -> None:
        await self.takes.wait()
        await super().notify(method, params)


async def test_of_a_flood_of_reports_a_slow_caller_gets_the_newest_and_then_the_answer() -> None:
    caller: Any = Slow()
    telling = NotificationQueue(lambda work: asyncio.create_task(work))
    telling.put(caller, "notifications/message", {"data": "first"})
    await asyncio.sleep(0)  # the first is on its way
    for number in range(10_000):
        telling.put(caller, "notifications/message", {"data": number})
    caller.takes.set()
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await telling.flush()
    reported = [params["data"] for _, params in caller.notifications]
    assert reported == ["first", *range(10_000 - MAX_QUEUED, 10_000)]


async def test_a_client_that_reads_a_flood_lets_others_have_their_turn() -> None:
    had: list[int] = []
    turns, read = YieldBudget(), 0
    while read < 4 * YIELD_BUDGET_BYTES:
        asyncio.get_running_loop().call_soon(had.append, read)
        if turns.spend(100):
            await asyncio.sleep(0)
        read += 100
        if not had:
            assert read < YIELD_BUDGET_BYTES, "nobody else had a turn"
    assert len(had) > 1
