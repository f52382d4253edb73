"""Trace one warm request through a server: which functions and files of its package it passes.

The server runs in this process on a plain event loop; the request comes from a plain HTTP client,
so that only the server's own package is counted. What stands behind a gateway is a process of its
own.
"""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from benchmarks import programs

WARM_UP_REQUESTS = 5
TRACED_REQUESTS = 25
PROTOCOL_VERSION = "2025-06-18"
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": PROTOCOL_VERSION,
}
WRITES = frozenset({"write", "writelines", "send", "sendall"})
"""System calls that hand bytes on: where the stack is deepest, the upstream is written to."""


@dataclass(frozen=True)
class Trace:
    """Describes what one request passed in its server's own package."""

    functions: int
    files: int
    frames: int
    """Frames of the package on the stack when bytes are written."""


class Tracer:
    """Counts the functions that are entered in one package; for `sys.setprofile`."""

    def __init__(self, package: Path) -> None:
        self._prefix = f"{package}/"
        self._functions: set[tuple[str, int]] = set()
        self._frames = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note an entered function, or how deep the stack is at a write."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._prefix):
            if code.co_name.startswith("<"):  # a comprehension or a lambda
                return
            self._functions.add((code.co_filename, code.co_firstlineno))
        elif event == "c_call" and getattr(argument, "__name__", "") in WRITES:
            self._frames = max(self._frames, self._count_frames(frame))

    def get_trace(self) -> Trace:
        """Return what was counted."""
        files = {file for file, _ in self._functions}
        return Trace(len(self._functions), len(files), self._frames)

    def _count_frames(self, frame: FrameType | None) -> int:
        count = 0
        while frame is not None:
            count += frame.f_code.co_filename.startswith(self._prefix)
            frame = frame.f_back
        return count


async def trace_portico() -> Trace:
    """Trace `call_tool` through the gateway to a stdio server."""
    import portico
    from portico.config import Config
    from portico.testing import gateway_over, serve_http

    command = programs.command("upstream")
    server = {"command": command[0], "args": command[1:]}
    config = Config.model_validate({"servers": {"echo": server}})
    arguments = {"name": "echo.echo", "arguments": {"text": "hello"}}
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_over(None, config))
        url = await stack.enter_async_context(serve_http(gateway))
        call = await _open_session(url, "call_tool", arguments)
        return await _trace_warm(call, portico.__file__)


async def trace_fastmcp() -> Trace:
    """Trace a call through FastMCP's proxy, over one connection that is kept open, to a stdio
    server."""
    import fastmcp
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    from fastmcp.server import create_proxy

    command = programs.command("upstream")
    async with AsyncExitStack() as stack:
        transport = StdioTransport(command[0], command[1:])
        client = await stack.enter_async_context(Client(transport))
        app = create_proxy(client, name="echo").http_app()
        url = await stack.enter_async_context(_serve(app))
        call = await _open_session(f"{url}/mcp", "echo", {"text": "hello"})
        return await _trace_warm(call, fastmcp.__file__)


async def trace_sdk() -> Trace:
    """Trace a call of a tool on the SDK's low-level server."""
    import mcp
    import mcp_types as types
    from mcp.server.lowlevel import Server

    tool = types.Tool(name="echo", input_schema={"type": "object"})

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="hello")])

    server = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_serve(server.streamable_http_app()))
        call = await _open_session(f"{url}/mcp", "echo", {})
        return await _trace_warm(call, mcp.__file__)


async def trace_starlette() -> Trace:
    """Trace one request to one route."""
    import starlette
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Request) -> JSONResponse:
        return JSONResponse(await request.json())

    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_serve(app))

        async def call() -> None:
            await asyncio.to_thread(_post, f"{url}/", {}, {})

        return await _trace_warm(call, starlette.__file__)


async def _trace_warm(call: Callable[[], Awaitable[None]], init_file: str | None) -> Trace:
    """Return the trace with the fewest functions: background work may fall into one or another."""
    for _ in range(WARM_UP_REQUESTS):
        await call()
    traces: list[Trace] = []
    for _ in range(TRACED_REQUESTS):
        tracer = Tracer(Path(init_file or "").parent)
        sys.setprofile(tracer)
        try:
            await call()
        finally:
            sys.setprofile(None)
        traces.append(tracer.get_trace())
    return min(traces, key=lambda trace: trace.functions)


async def _open_session(
    url: str, tool: str, arguments: dict[str, Any]
) -> Callable[[], Awaitable[None]]:
    """Initialize an MCP session over HTTP; return a function that calls `tool` in it."""
    headers = dict(HEADERS)
    info = {
        "protocolVersion": PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "trace", "version": "1"},
    }
    _, session = await asyncio.to_thread(_post, url, _make_request("initialize", info), headers)
    if session:
        headers["Mcp-Session-Id"] = session
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await asyncio.to_thread(_post, url, initialized, headers)

    async def call() -> None:
        params = {"name": tool, "arguments": arguments}
        text, _ = await asyncio.to_thread(_post, url, _make_request("tools/call", params), headers)
        if "hello" not in text:
            raise RuntimeError(f"the call was answered with {text[:300]}")

    return call


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[str, str | None]:
    """POST JSON; return the response's text and its session id. Runs in a thread, so it is not
    traced."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode(), response.headers.get("Mcp-Session-Id")


def _make_request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@asynccontextmanager
async def _serve(app: Any) -> AsyncGenerator[str]:
    """Serve an ASGI application on a free port; yield its URL."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on", loop="asyncio")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        if serving.done():
            await serving
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving
