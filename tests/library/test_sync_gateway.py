"""The gateway without an event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from portico import PorticoError, SyncGateway, UnknownName
from portico.library.sync_gateway import wait_for_result


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def gateway(**servers: Any) -> SyncGateway:
    return SyncGateway(servers={"mine": [add], **servers}, in_memory=True)


def test_every_method_works_without_an_event_loop():
    with gateway() as mine:
        assert mine.ready(60)
        assert mine.search("sum of numbers")[0].name == "mine.add"
        assert "a: integer" in mine.describe("mine.add")
        assert mine.tool("add").name == "mine.add"
        assert "1 tool" in mine.browse()
        assert mine.call("mine.add", {"a": 1, "b": 2}).text == "3"
        assert mine.run_code("(await mine.add(a=1, b=2))['result']").text.startswith("3")
        assert not mine.run_workflow(
            [{"id": "s", "tool": "mine.add", "arguments": {"a": 1, "b": 2}}]
        ).is_error
        assert next(tool["name"] for tool in mine.tools("mcp")) == "search_tools"
        assert mine.offers("call_tool")
        assert mine.handle("mcp", {"name": "browse_tools", "arguments": {}})["content"]
        assert mine.handle_all("openai", []) == []
        assert [server.name for server in mine.servers()] == ["mine"]
        assert mine.warnings == ()
        with pytest.raises(UnknownName):
            mine.read_result("no-such-result")


def test_errors_are_raised_in_the_calling_thread():
    with gateway() as mine, pytest.raises(UnknownName) as error:
        mine.call("mine.ad")
    assert "mine.add" in error.value.nearest


def test_many_threads_share_one():
    with gateway() as mine, ThreadPoolExecutor(8) as pool:
        sums = list(
            pool.map(lambda number: mine.call("mine.add", {"a": number, "b": 1}).text, range(40))
        )
    assert sums == [str(number + 1) for number in range(40)]


async def test_it_may_be_used_where_a_loop_runs():
    with gateway() as mine:
        assert mine.call("mine.add", {"a": 1, "b": 2}).text == "3"


def test_a_tool_may_use_its_own_gateway_from_a_thread_but_not_on_the_loop():
    def twice(a: int) -> str:
        """Double a number."""
        return mine.call("mine.add", {"a": a, "b": a}).text

    async def never(a: int) -> str:
        """Wait for its own loop."""
        return mine.call("mine.add", {"a": a, "b": a}).text

    mine = gateway(more=[twice, never])
    with mine:
        assert mine.call("more.twice", {"a": 4}).text == "8"
        assert "own event loop" in mine.call("more.never", {"a": 4}).text


def test_nothing_is_left_when_it_is_closed_and_closing_ends_what_is_under_way():
    begun = threading.Event()
    before = threading.active_count()

    async def forever() -> str:
        """Never end."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    mine = gateway(slow=[forever]).open()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(mine.call, "slow.forever")
        assert begun.wait(30)
        mine.close()
        with pytest.raises(PorticoError):
            call.result(30)
    mine.close()
    assert threading.active_count() <= before
    with pytest.raises(PorticoError, match="not open"):
        mine.search("add")


def test_it_can_be_opened_again_but_not_twice():
    mine = gateway()
    with mine, pytest.raises(PorticoError, match="open already"):
        mine.open()
    with mine:
        assert mine.call("mine.add", {"a": 1, "b": 2}).text == "3"


def test_several_threads_may_close_it_while_others_use_it():
    mine = gateway().open()
    begun = threading.Barrier(6, timeout=60)

    def use() -> str:
        begun.wait()
        try:
            for _ in range(10_000):
                mine.call("mine.add", {"a": 1, "b": 2})
        except PorticoError as error:
            return error.message
        return "it was never closed"

    def end() -> None:
        begun.wait()
        mine.close()
        # Nothing of it is left for the second caller, either.
        assert not any(thread.name == "portico gateway" for thread in threading.enumerate())

    with ThreadPoolExecutor(6) as pool:
        using, ending = [pool.submit(use) for _ in range(4)], [pool.submit(end) for _ in range(2)]
        for one in ending:
            one.result(60)
        assert {one.result(60) for one in using} <= {
            "the gateway is not open",
            "the gateway was closed meanwhile",
        }


def test_a_request_on_a_stopping_loop_does_not_wait_forever():
    loop = asyncio.new_event_loop()
    threading.Timer(0.1, loop.close).start()  # it never ran, so that nobody takes what is asked
    with pytest.raises(PorticoError, match="closed meanwhile"):
        wait_for_result(loop, asyncio.sleep(0))
