"""What the matrix brought to light, one by one."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.protocol.notification_queue import MAX_QUEUED, NotificationQueue
from portico.upstream.transports.yield_budget import BUDGET_BYTES, YieldBudget
from tests.upstream.loopback import PATIENCE_S, Caller
from tests.upstream.raw_server import RawServer, conversation


async def test_half_a_surrogate_pair_costs_an_http_server_one_character_not_its_listing() -> None:
    async def listing(request: Request, frame: Raw) -> Response:
        said = f'{{"jsonrpc":"2.0","id":{frame["id"]},"result":{{"tools":[{{"name":"a","description":"x\\ud800y"}}]}}}}'
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
    async with asyncio.timeout(PATIENCE_S):
        await telling.flush()
    told = [params["data"] for _, params in caller.told]
    assert told == ["first", *range(10_000 - MAX_QUEUED, 10_000)]


async def test_whoever_reads_a_flood_lets_others_have_their_turn() -> None:
    had: list[int] = []
    turns, read = YieldBudget(), 0
    while read < 4 * BUDGET_BYTES:
        await turns.maybe_yield()
        asyncio.get_running_loop().call_soon(had.append, read)
        turns.spend(100)
        read += 100
        if not had:
            assert read < BUDGET_BYTES, "nobody else had a turn"
    assert len(had) > 1
