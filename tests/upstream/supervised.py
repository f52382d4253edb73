"""A server under supervision, for one test each: made, asked, waited for."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil

from portico.events import EventBus
from portico.testing import FakeBackend
from portico.upstream.backend import Connection, Era, Listener
from portico.upstream.lifecycle.server_lifecycle import UpstreamOptions
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.transports.stdio import StdioBackend
from tests.upstream.scripted import TEST_TIMEOUT_S

ECHO = {"name": "echo", "description": "Repeats.", "inputSchema": {"type": "object"}}
ANSWER: dict[str, Any] = {"content": [{"type": "text", "text": "echoed"}]}


def fake(**options: Any) -> FakeBackend:
    backend = FakeBackend([ECHO], **options)
    backend.on_call("echo", lambda _: ANSWER)
    return backend


class Slow(FakeBackend):
    """A server whose start takes until `gate` is set."""

    def __init__(self) -> None:
        super().__init__([ECHO])
        self.on_call("echo", lambda _: ANSWER)
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.cancelled = 0

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().connect(listener, era)


@asynccontextmanager
async def upstream(backend: Any, **options: Any) -> AsyncGenerator[Upstream]:
    watched = Upstream("server", backend, EventBus(), UpstreamOptions(**options))
    try:
        yield watched
    finally:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.stop()
        if isinstance(backend, StdioBackend):
            backend.guard.close()


async def call(watched: Upstream, name: str = "echo", session: str = "") -> str:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        result = await watched.request(
            "tools/call", {"name": name, "arguments": {}}, session=session
        )
    return result["content"][0]["text"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - what is awaited is another process's doing
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it may also end between the two looks
        return False
