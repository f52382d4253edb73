"""Test support: a scripted backend, and a real client connected to a gateway.

fake = FakeBackend(tools=[{"name": "echo", "inputSchema": {"type": "object"}}])
fake.on_call("echo", lambda arguments: {"content": [{"type": "text", "text": str(arguments)}]})
async with (
    gateway_over({"fake": fake}) as gateway,
    connect(gateway, transport="http", era="modern") as client,
):
    await client.call_tool("call_tool", {"name": "fake.echo", "arguments": {}})
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from mcp.client import Client

from portico.config import Config, Trust
from portico.errors import METHOD_NOT_FOUND, BackendTimeout, RemoteError
from portico.gateway import GatewayRuntime
from portico.server.http.app import make_app, make_server
from portico.server.stdio import open_pipe_streams
from portico.storage.manifests import ManifestStore
from portico.upstream.backend import (
    NO_OPTIONS,
    Connection,
    Era,
    InitializeInfo,
    Listener,
    Raw,
    RequestOptions,
)
from portico.upstream.protocol.envelope import LATEST_LEGACY_VERSION, MODERN_VERSION

Transport = Literal["memory", "http", "stdio"]
Handler = Callable[[Raw], Raw | Awaitable[Raw]]


class FakeBackend:
    """A server made of a listing and of handlers. All requests are recorded in `requests`."""

    kind = "fake"

    def __init__(
        self,
        tools: Iterable[Mapping[str, Any]] = (),
        *,
        resources: Iterable[Mapping[str, Any]] = (),
        templates: Iterable[Mapping[str, Any]] = (),
        prompts: Iterable[Mapping[str, Any]] = (),
        era: Era = "legacy",
        capabilities: Mapping[str, Any] | None = None,
        instructions: str = "",
        trust: Trust = "always",
    ) -> None:
        """`trust` as in the configuration: `first` holds back what changes after it was listed."""
        self.trust: Trust = trust
        self.listing: dict[str, list[Any]] = {
            "tools": list(tools),
            "resources": list(resources),
            "resourceTemplates": list(templates),
            "prompts": list(prompts),
        }
        declared = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        version = MODERN_VERSION if era == "modern" else LATEST_LEGACY_VERSION
        info = {"name": "fake", "version": "1"}
        self.initialize_info = InitializeInfo(
            era, version, declared if capabilities is None else capabilities, info, instructions
        )
        self.requests: list[tuple[str, Raw]] = []
        self.connections = 0
        self.connected = 0
        self.refuses: Exception | None = None
        """If set, `connect` raises it."""
        self._handlers: dict[str, Callable[[Raw, RequestOptions], Raw | Awaitable[Raw]]] = {}
        self._calls: dict[str, Handler] = {}
        self._listeners: list[Listener] = []

    def on(
        self, method: str, handler: Callable[[Raw, RequestOptions], Raw | Awaitable[Raw]]
    ) -> None:
        """Answer a method with a function of its params and options."""
        self._handlers[method] = handler

    def on_call(self, tool: str, handler: Handler) -> None:
        """Answer calls of a tool with a function of its arguments."""
        self._calls[tool] = handler

    def change(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Replace the listed tools and send `list_changed`."""
        self.listing["tools"] = list(tools)
        self.say("notifications/tools/list_changed")

    def say(self, method: str, params: Raw | None = None) -> None:
        """Send a notification that belongs to no request."""
        for listener in self._listeners:
            listener.on_notification(method, params or {})

    def die(self, reason: str = "the test ended it") -> None:
        """Break every connection."""
        listeners = self._listeners
        self._listeners = []
        for listener in listeners:
            listener.on_lost(reason)

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Open a connection; raises `refuses` if it is set."""
        self.connections += 1
        if self.refuses is not None:
            raise self.refuses
        self._listeners.append(listener)
        self.connected += 1
        return _FakeConnection(self, listener)

    def diagnostics(self) -> Mapping[str, Any]:
        """Return how many connections are open."""
        return {"connected": self.connected}

    async def answer(self, method: str, params: Raw, options: RequestOptions) -> Raw:
        """Answer one request; raises RemoteError for an unknown method."""
        self.requests.append((method, params))
        if handler := self._handlers.get(method):
            return await _resolve(handler(params, options))
        for listed, key in _LISTS.items():
            if method == listed:
                return {key: self.listing[key]}
        if method == "tools/call" and (call := self._calls.get(params["name"])):
            return await _resolve(call(params.get("arguments") or {}))
        raise RemoteError(METHOD_NOT_FOUND, f"the fake has no answer to {method}")


_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


async def _resolve(outcome: Raw | Awaitable[Raw]) -> Raw:
    if isinstance(outcome, dict):
        return outcome
    return await outcome


class _FakeConnection:
    def __init__(self, backend: FakeBackend, listener: Listener) -> None:
        self._backend = backend
        self._listener = listener
        self._open = True

    @property
    def initialize_info(self) -> InitializeInfo:
        return self._backend.initialize_info

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        try:
            async with asyncio.timeout(options.timeout):
                return await self._backend.answer(method, params or {}, options)
        except TimeoutError as error:
            raise BackendTimeout(f"the fake did not answer {method} in time") from error

    async def notify(self, method: str, params: Raw | None = None) -> None:
        self._backend.requests.append((method, params or {}))

    async def close(self) -> None:
        if self._open:
            self._open = False
            self._backend.connected -= 1


@asynccontextmanager
async def gateway_over(
    backends: Mapping[str, Any] | None = None, config: Config | None = None, *, listed: bool = True
) -> AsyncGenerator[GatewayRuntime]:
    """Run a gateway over these backends; it persists nothing.

    By default it yields when every server has been listed or has failed.
    """
    async with GatewayRuntime(
        config or Config(), backends=backends, manifests=ManifestStore(None)
    ) as gateway:
        if listed:
            await asyncio.wait_for(gateway.wait_until_listed(), 60)
        yield gateway


@asynccontextmanager
async def connect(
    gateway: GatewayRuntime,
    transport: Transport = "memory",
    era: Era = "modern",
    profile: str | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """Connect a real client to a gateway. `options` go to the SDK's `Client` (callbacks and so
    on)."""
    options.setdefault("mode", "legacy" if era == "legacy" else "auto")
    endpoint = gateway.get_endpoint(profile)
    if transport == "memory":
        async with Client(endpoint.server, **options) as client:
            yield client
    elif transport == "http":
        async with (
            serve_http(gateway) as url,
            Client(url + (f"/p/{profile}" if profile else ""), **options) as client,
        ):
            yield client
    else:
        to_server = os.pipe()
        to_client = os.pipe()
        streams = open_pipe_streams(
            os.fdopen(to_server[0], "rb", 0), os.fdopen(to_client[1], "wb", 0)
        )  # pyright: ignore
        async with streams as (received, sending):
            served = asyncio.create_task(
                endpoint.server.run(
                    received, sending, endpoint.server.create_initialization_options()
                )
            )
            wire: Any = open_pipe_streams(
                os.fdopen(to_client[0], "rb", 0), os.fdopen(to_server[1], "wb", 0)
            )  # pyright: ignore
            async with Client(wire, **options) as client:
                yield client
            await asyncio.wait_for(served, 10)


@asynccontextmanager
async def serve_http(gateway: GatewayRuntime, **options: Any) -> AsyncGenerator[str]:
    """Serve the gateway on a free port of this machine; yields the URL of the default endpoint."""
    options.setdefault("publish", gateway.bus.publish)
    server = make_server(make_app(gateway.get_endpoints(), **options), "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 15)
