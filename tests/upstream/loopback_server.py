"""Real servers on a loopback port, and the two ends a conversation is watched from."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvicorn

from portico.upstream.backend import Raw

TEST_TIMEOUT_S = 240.0
T = TypeVar("T")


@asynccontextmanager
async def serve(app: Any, **options: Any) -> AsyncGenerator[str, None]:
    """An ASGI application under a URL without a path."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,  # longer than clients keep an idle connection
        ws="none",
        **options,
    )
    config.load()
    server = uvicorn.Server(config)
    # What `Server.serve` does, without taking the signals from pytest.
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    running = asyncio.create_task(server.main_loop())
    try:
        yield f"{'https' if config.is_ssl else 'http'}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await running
            await server.shutdown()


@asynccontextmanager
async def serve_bytes(answer: Callable[[bytes], bytes]) -> AsyncGenerator[str, None]:
    """A server below HTTP: answers each request's bytes with bytes, then hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class RecordingListener:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.notifications: asyncio.Queue[tuple[str, Raw]] = asyncio.Queue()
        self.losses: asyncio.Queue[str] = asyncio.Queue()

    def on_notification(self, method: str, params: Raw) -> None:
        self.notifications.put_nowait((method, params))

    def on_lost(self, reason: str) -> None:
        self.losses.put_nowait(reason)


class Caller:
    """The client at the far end of a call: records notifications and answers requests."""

    def __init__(self, answers: dict[str, Raw] | None = None, origin: str = "client") -> None:
        self.client_key = origin
        self.capabilities: Raw = {}
        self.notifications: list[tuple[str, Raw]] = []
        self.requests: asyncio.Queue[tuple[str, Raw]] = asyncio.Queue()
        self._answers = answers or {}

    async def notify(self, method: str, params: Raw) -> None:
        self.notifications.append((method, params))

    async def request(self, method: str, params: Raw) -> Raw:
        self.requests.put_nowait((method, params))
        if method not in self._answers:
            await asyncio.Event().wait()
        return self._answers[method]

    async def pause(self) -> None:
        """Nothing is held open for it."""


def advance_clock(seconds: float) -> None:
    """Put the running loop's clock forward: what is due by then is due now. No machine is too busy
    for such time."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # pyright: ignore[reportAttributeAccessIssue]


async def run_pending_callbacks() -> None:
    """Let all callbacks that are due run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def get_soon(queue: "asyncio.Queue[T]") -> T:
    """The next item of a queue, within the test's timeout."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return await queue.get()
