"""The shared way to build a gateway, or its call pipeline, for a test.

async with open_gateway({"mail": FakeBackend(...)}) as gateway:
    assert await gateway.call_text("call_tool", name="mail.send") == "sent"

`run_gateway` is the gateway without a client, `PipelineUnderTest` the call pipeline alone (no
catalog, no client; much quicker to build), and `ContextHolder` keeps any of them open for the
length of a fixture.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from portico.calls.call_recorder import CallRecorder
from portico.calls.pipeline import CallContext, CallPipeline, CallSettings
from portico.catalog.tool import Tool
from portico.config import Config
from portico.events import Event, EventBus, ToolCalled
from portico.gateway import GatewayRuntime
from portico.storage.manifests import ManifestStore
from portico.testing import FakeBackend, connect
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream

T = TypeVar("T")
TIMEOUT_S = 240.0
"""Bounds every wait of a test; far longer than anything takes, even on a busy machine."""


@dataclass
class GatewayUnderTest:
    """A running gateway, one client of it, and every event since it was listed."""

    runtime: GatewayRuntime
    client: Client
    events: list[Event] = field(default_factory=list[Event])

    @property
    def tool_calls(self) -> list[ToolCalled]:
        return [event for event in self.events if isinstance(event, ToolCalled)]

    async def call(self, name: str, /, **arguments: Any) -> CallToolResult:
        """Call a tool by the name under which the client lists it."""
        return await asyncio.wait_for(self.client.call_tool(name, arguments), TIMEOUT_S)

    async def call_text(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that must succeed; returns the text of its result."""
        result = await self.call(name, **arguments)
        assert not result.is_error, result.content
        return join_text(result)

    async def call_error(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that must fail; returns the text of the error."""
        result = await self.call(name, **arguments)
        assert result.is_error, result.content
        return join_text(result)


class PipelineUnderTest:
    """The call pipeline over one fake server, with every event of its bus."""

    def __init__(
        self,
        tools: Iterable[Mapping[str, Any]] = (),
        *,
        server: str = "s",
        settings: Mapping[str, Any] | None = None,
        max_call_s: float = 600,
        **options: Any,
    ) -> None:
        """`settings` are those of the server in the configuration; by default it has no limits."""
        self.bus = EventBus()
        own = {"command": "x", "limits": {"concurrency": 0}, **(settings or {})}
        servers = Config.model_validate({"servers": {server: own}}).servers
        self.backend = FakeBackend(tools)
        self.upstream = Upstream(server, self.backend, self.bus)
        self.calls = CallPipeline(
            {server: self.upstream},
            CallSettings(servers, max_call_s),
            CallRecorder(self.bus),
            **options,
        )
        self.events: list[Event] = []
        self.bus.subscribe(self.events.append)

    @property
    def tool_calls(self) -> list[ToolCalled]:
        return [event for event in self.events if isinstance(event, ToolCalled)]

    @property
    def received(self) -> list[Any]:
        """The arguments of every call that reached the server."""
        requests = self.backend.requests
        return [params["arguments"] for method, params in requests if method == "tools/call"]

    async def call(
        self, tool: Tool, arguments: Any = None, context: CallContext | None = None
    ) -> Raw:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.calls.call(tool, arguments, context or CallContext())


@asynccontextmanager
async def run_gateway(
    backends: Mapping[str, Any] | None = None,
    config: Config | None = None,
    *,
    data_dir: Path | None = None,
    encoded: bool = False,
) -> AsyncGenerator[GatewayRuntime]:
    """Run a gateway whose servers are listed; it persists nothing unless it has a `data_dir`.

    With `encoded`, every tool also has its vector: from then on only use changes a ranking.
    """
    config = config or Config()
    manifests = ManifestStore(None)
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": data_dir})
        manifests = None
    async with GatewayRuntime(config, backends=backends, manifests=manifests) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        if encoded:
            await wait_until_encoded(gateway)
        yield gateway


@asynccontextmanager
async def open_gateway(
    backends: Mapping[str, Any] | None = None,
    config: Config | None = None,
    *,
    data_dir: Path | None = None,
    encoded: bool = False,
    **client: Any,
) -> AsyncGenerator[GatewayUnderTest]:
    """Run a gateway and connect a client. `client` goes to `portico.testing.connect`."""
    async with (
        run_gateway(backends, config, data_dir=data_dir, encoded=encoded) as gateway,
        connect(gateway, **client) as connected,
    ):
        opened = GatewayUnderTest(gateway, connected)
        gateway.bus.subscribe(opened.events.append)
        yield opened


class ContextHolder:
    """Keeps contexts open until `close`, each entered and left in one task, as anyio demands."""

    def __init__(self) -> None:
        self._held: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    async def hold(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context and return what it yields."""
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        leave = asyncio.Event()
        task = asyncio.create_task(_hold(context, entered, leave))
        self._held.append((leave, task))
        await asyncio.wait({entered, task}, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            await task
            raise TimeoutError(f"{context} was not entered within {TIMEOUT_S:g} s")
        return entered.result()

    async def close(self) -> None:
        """Leave all contexts in reverse order, then raise the first failure."""
        failures: list[BaseException] = []
        while self._held:
            leave, task = self._held.pop()
            leave.set()
            done, _ = await asyncio.wait({task}, timeout=TIMEOUT_S)
            if not done:
                task.cancel()
                await asyncio.wait({task}, timeout=TIMEOUT_S)
                failures.append(TimeoutError("a context was not left in time"))
            elif error := task.exception():
                failures.append(error)
        if failures:
            raise failures[0]


async def wait_until_encoded(gateway: GatewayRuntime) -> None:
    """Wait until every listed tool has its vector."""
    encoding = gateway.catalog.start_encoding()
    if encoding is not None:
        await asyncio.wait_for(encoding, TIMEOUT_S)


async def wait_until(condition: Callable[[], bool], timeout: float = TIMEOUT_S) -> None:
    """Wait for a condition; raises TimeoutError if it does not hold in time."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def join_text(result: CallToolResult) -> str:
    """Return the text blocks of a result, joined by line breaks."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def _hold(
    context: AbstractAsyncContextManager[Any], entered: "asyncio.Future[Any]", leave: asyncio.Event
) -> None:
    async with context as value:
        entered.set_result(value)
        await leave.wait()
