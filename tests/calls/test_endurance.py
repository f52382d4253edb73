"""Thousands of calls leave nothing behind, and identical ones at the same moment are one."""

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from portico.callers import Caller
from portico.calls.cache import ResultCache
from portico.calls.call_recorder import CallRecorder
from portico.calls.pipeline import CallContext, CallPipeline, CallSettings
from portico.catalog.tool import make_tool
from portico.config import BackendConfig, CacheConfig
from portico.config.backend import ServerLimits
from portico.errors import PorticoError
from portico.events import EventBus
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream

TIMEOUT_S = 240.0
INPUT: Raw = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
READ = make_tool("s", {"name": "read", "inputSchema": INPUT, "annotations": {"readOnlyHint": True}})
WRITE = make_tool("s", {"name": "write", "inputSchema": INPUT})


def build_pipeline() -> tuple[CallPipeline, FakeBackend]:
    backend, bus = FakeBackend(), EventBus()
    for name in ("read", "write"):
        backend.on_call(
            name, lambda arguments: {"content": [], "structuredContent": {"n": arguments["n"]}}
        )
    upstream = Upstream("s", backend, bus)
    cache = ResultCache({"s": CacheConfig(ttl_s=3_600)}, max_entries=50)
    servers = {"s": BackendConfig(command="x", limits=ServerLimits(concurrency=4))}
    calls = CallPipeline({"s": upstream}, CallSettings(servers), CallRecorder(bus), cache=cache)
    return calls, backend


async def some(calls: CallPipeline, backend: FakeBackend, count: int) -> None:
    """Calls of every kind: kept, asked, repaired, refused, taken back."""

    async def one(tool: Any, arguments: Any, number: int) -> None:
        try:
            await calls.call(tool, arguments, CallContext(Caller(f"session {number % 5}")))
        except PorticoError:
            assert arguments == {}

    async with asyncio.timeout(TIMEOUT_S):
        for start in range(0, count, 10):
            tasks = [
                asyncio.create_task(one(tool, arguments, number))
                for number in range(start, start + 10)
                for tool, arguments in (
                    (READ, {"n": number % 100}),
                    (READ, {"n": str(number % 100)}),
                    (READ, {}),
                )
            ]
            tasks.append(asyncio.create_task(one(WRITE, {"n": start}, start)))
            tasks[0].cancel()
            await asyncio.wait(tasks)
    backend.requests.clear()


def alive() -> Counter[str]:
    gc.collect()
    return Counter(type(thing).__name__ for thing in gc.get_objects())


@pytest.mark.slow
async def test_calls_of_every_kind_leave_no_object_behind():
    calls, backend = build_pipeline()
    await some(calls, backend, 300)
    alive()  # what is made once, by calling and by counting, is there from now on
    await some(calls, backend, 300)
    before = alive()
    await some(calls, backend, 1_200)
    left = {name: more for name, more in (alive() - before).items() if more > 20}
    assert left == {}


async def test_any_number_of_identical_calls_at_once_reach_the_server_once():
    calls, backend = build_pipeline()
    free = asyncio.Event()

    async def answer(arguments: Raw) -> Raw:
        await free.wait()
        return {"content": [], "structuredContent": arguments}

    backend.on_call("read", answer)
    asking = [asyncio.create_task(calls.call(READ, {"n": 1})) for _ in range(500)]
    async with asyncio.timeout(TIMEOUT_S):
        asking[0].cancel()  # the caller that began it may leave
        await asyncio.wait({asking[0]})
        free.set()
        answers = await asyncio.gather(*asking[1:])
    assert [one["structuredContent"] for one in answers] == [{"n": 1}] * 499
    assert len(backend.requests) == 1
