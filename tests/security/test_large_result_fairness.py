"""Work on large results is shared fairly by caller: nobody waits for another's slow or many
readings."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from portico.callers import Caller
from portico.results.store import ResultStore
from portico.storage.data_files import ResultFiles
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import Message, RawHttp, call, raw_http

T = TypeVar("T")
TIMEOUT_S = 240.0
ROWS = json.dumps(
    [{"number": n, "title": f"Issue {n}", "note": "words about it " * 5} for n in range(8_000)]
)
SOME = json.dumps([{"number": n, "title": f"Issue {n}"} for n in range(1_500)])
READINGS = 6
SLOW = "[?contains(title, 'Issue 7999')].number"


@asynccontextmanager
async def two(era: Era = "legacy") -> AsyncGenerator[tuple[RawHttp, RawHttp]]:
    backend = FakeBackend([tool("rows"), tool("some")])
    backend.on_call("rows", lambda _: text(ROWS))
    backend.on_call("some", lambda _: text(SOME))
    async with (
        asyncio.timeout(2 * TIMEOUT_S),
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, era) as busy,
        raw_http(url, era) as polite,
    ):
        yield busy, polite


async def large(client: RawHttp, name: str) -> str:
    """The id of a large result of this client's."""
    found = re.search(r"portico://result/([\w-]+)", str(await call(client, "call_tool", name=name)))
    assert found is not None
    return found[1]


def begin(client: RawHttp, result_id: str) -> "list[asyncio.Task[Message]]":
    """Many slow readings of one client's, all at once."""
    return [
        asyncio.create_task(call(client, "read_result", result_id=result_id, path=SLOW))
        for _ in range(READINGS)
    ]


async def done_before(readings: "list[asyncio.Task[Message]]", asked: Awaitable[Message]) -> int:
    """Return how many of the readings were over when something else that was asked after the first
    of them
    was."""
    await asyncio.wait(readings, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT_S)
    answer = await asked
    over = sum(reading.done() for reading in readings)
    assert not answer["result"].get("isError"), answer
    for reading in await asyncio.gather(*readings):
        assert "7999" in str(reading)
    return over


async def test_one_client_s_many_slow_readings_hold_up_no_other_s_slow_one() -> None:
    async with two() as (busy, polite):
        theirs, mine = await large(busy, "s.rows"), await large(polite, "s.rows")
        over = await done_before(
            begin(busy, theirs), call(polite, "read_result", result_id=mine, path=SLOW)
        )
        assert over < READINGS - 1, "it did not stand behind all of them"


async def test_one_client_s_many_slow_readings_hold_up_no_other_s_large_answer() -> None:
    async with two() as (busy, polite):
        theirs = await large(busy, "s.rows")
        over = await done_before(begin(busy, theirs), call(polite, "call_tool", name="s.rows"))
        assert over < READINGS - 1


@pytest.mark.parametrize("arguments", [{}, {"grep": "Issue 7"}, {"path": "[3].title"}], ids=str)
async def test_what_is_quickly_read_waits_for_no_slow_reading(arguments: Message) -> None:
    async with two() as (busy, polite):
        theirs = await large(busy, "s.rows")
        mine = await large(polite, "s.rows" if not arguments else "s.some")
        over = await done_before(
            begin(busy, theirs), call(polite, "read_result", result_id=mine, **arguments)
        )
        assert over < READINGS - 1


ANN, BOB = Caller("ann"), Caller("bob")


class Slow:
    """Work in a thread that waits to be let go, and counts how much of it there is at once."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        self.now = self.most = 0

    def __call__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.release()
        self.go_on.wait(TIMEOUT_S)
        self.now -= 1


async def test_a_client_that_leaves_keeps_its_place_until_its_work_has_ended(
    tmp_path: Path,
) -> None:
    store, slow, ran = ResultStore(ResultFiles(tmp_path)), Slow(), list[str]()

    async def work(caller: Caller, name: str) -> None:
        async with store.acquire_slot(caller, 2**30):
            ran.append(name)
            await store.run_in_thread(caller, slow)

    async with asyncio.timeout(TIMEOUT_S):
        left = asyncio.create_task(work(ANN, "left"))
        await asyncio.to_thread(slow.begun.acquire, timeout=TIMEOUT_S)
        left.cancel()
        await asyncio.wait({left})
        tasks = [asyncio.create_task(work(ANN, "again")), asyncio.create_task(work(BOB, "other"))]
        await asyncio.to_thread(slow.begun.acquire, timeout=TIMEOUT_S)
        assert ran == ["left", "other"], (
            "a thread that nobody waits for still takes its caller's place"
        )
        slow.go_on.set()
        await asyncio.gather(*tasks)
    assert ran == ["left", "other", "again"]
    assert slow.most == 2
