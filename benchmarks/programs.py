"""The programs measured beside Portico: the echo server itself, a byte relay (the floor), and
FastMCP's proxy.

A file to be run, not a module (`python -P benchmarks/programs.py --stdio upstream`), so that it
works from any folder; each program imports only what it needs. With `--port N` it listens there and
its target is a URL (a relay's: a port), with `--stdio` it serves one client and its target is a
command.

    upstream                 a server on the SDK's low-level class, one tool `echo` (`--delay-ms`:
    it thinks)
    plain                    the same tool in a few lines: as little server as there can be
    relay TARGET             copies bytes both ways, understands nothing
    fastmcp TARGET           create_proxy with its defaults: a session for every request
    fastmcp-shared TARGET    create_proxy over a client that is already connected
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

MODERN = "2026-07-28"
KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection: one that both close at the same time loses a
request."""
_HERE = os.path.abspath(__file__)


def command(
    program: str, *target: str, port: int | None = None, era: str = "legacy", delay_ms: float = 0
) -> list[str]:
    """The command line of one of these programs."""
    endpoint = ["--stdio"] if port is None else ["--port", str(port)]
    delay = ["--delay-ms", str(delay_ms)] if delay_ms else []
    return [sys.executable, "-P", _HERE, "--era", era, *delay, *endpoint, program, *target]


async def upstream(options: argparse.Namespace) -> None:
    """A server as anyone would write it, with its SDK's defaults."""
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to say back."}},
        "required": ["text"],
    }
    tool = types.Tool(name="echo", description="Says it back.", input_schema=schema)

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if options.delay_ms:
            await asyncio.sleep(options.delay_ms / 1000)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=str((params.arguments or {})["text"]))]
        )

    server = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    if options.port is None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    else:
        import uvicorn

        config = uvicorn.Config(
            server.streamable_http_app(),
            port=options.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        await uvicorn.Server(config).serve()


async def plain(options: argparse.Namespace) -> None:
    """Nothing but the answers."""
    import json

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = {"name": "echo", "description": "Says it back.", "inputSchema": schema}
    info = {"name": "plain", "version": "1"}
    meta = {"io.modelcontextprotocol/serverInfo": info}
    known: dict[str, dict[str, Any]] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": info,
        },
        "server/discover": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}},
        "tools/list": {"tools": [tool]},
        "ping": {},
    }

    def answered(body: bytes) -> bytes | None:
        asked = json.loads(body)
        if "id" not in asked:
            return None
        method = asked.get("method")
        if method == "tools/call":
            result = {"content": [{"type": "text", "text": asked["params"]["arguments"]["text"]}]}
        elif method in known:
            result = known[method]
        else:
            error = {"code": -32601, "message": "no such method"}
            return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode()
        if options.era == "modern":
            result = {**result, "resultType": "complete", "_meta": meta}
            if method in ("tools/list", "server/discover"):
                result |= {"ttlMs": 60_000, "cacheScope": "private"}
        return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()

    if options.port is None:
        for line in sys.stdin.buffer:
            if (answer := answered(line)) is not None:
                sys.stdout.buffer.write(answer + b"\n")
                sys.stdout.buffer.flush()
        return
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = answered(body) if scope["method"] == "POST" else None
        status = (
            200 if answer is not None else 202 if scope["method"] in ("POST", "DELETE") else 405
        )
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer or b"")).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer or b""})

    config = uvicorn.Config(
        app,
        port=options.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    await uvicorn.Server(config).serve()


async def relay(options: argparse.Namespace) -> None:
    """Bytes in, bytes out."""
    if options.port is None:
        await _relay_pipes(options.target)
    else:
        await _relay_sockets(options.port, int(options.target[0]))


class _Copy(asyncio.Protocol):
    """Writes what arrives to the other side; what arrives before there is one waits."""

    def __init__(self, other: asyncio.WriteTransport | None = None) -> None:
        self.other = other
        self.own: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.own = transport

    def join(self, other: asyncio.WriteTransport) -> None:
        self.other = other
        other.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


class _Accepted(_Copy):
    """A client's connection, which opens one to the server."""

    def __init__(self, to_port: int) -> None:
        super().__init__()
        self._to_port = to_port

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        there, _ = await loop.create_connection(lambda: _Copy(self.own), "127.0.0.1", self._to_port)
        self.join(there)


async def _relay_sockets(port: int, to_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: _Accepted(to_port), "127.0.0.1", port
    )
    await server.serve_forever()


async def _relay_pipes(target: list[str]) -> None:
    loop = asyncio.get_running_loop()
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*target, stdin=pipe, stdout=pipe)
    stdin: Any = child.stdin
    stdout: Any = child.stdout
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(os.dup(1), "wb", 0))
    await loop.connect_read_pipe(lambda: _Copy(stdin.transport), os.fdopen(os.dup(0), "rb", 0))
    while chunk := await stdout.read(65_536):
        out.write(chunk)
    await child.wait()


async def fastmcp(options: argparse.Namespace) -> None:
    """The proxy as its documentation says: a target, nothing else."""
    from fastmcp.server import create_proxy

    await _serve_proxy(create_proxy(_target(options), name="proxy"), options)


async def fastmcp_shared(options: argparse.Namespace) -> None:
    """The proxy over one client that stays connected: every request shares its session."""
    from fastmcp import Client
    from fastmcp.server import create_proxy

    async with Client(
        _target(options), mode=MODERN if options.era == "modern" else "legacy"
    ) as client:
        await _serve_proxy(create_proxy(client, name="proxy"), options)


def _target(options: argparse.Namespace) -> Any:
    from fastmcp.client.transports import StdioTransport

    target: list[str] = options.target
    return target[0] if options.port is not None else StdioTransport(target[0], target[1:])


async def _serve_proxy(proxy: Any, options: argparse.Namespace) -> None:
    if options.port is None:
        await proxy.run_async("stdio", show_banner=False, log_level="ERROR")
    else:
        quiet = {
            "access_log": False,
            "timeout_graceful_shutdown": 1,
            "timeout_keep_alive": KEEP_ALIVE_S,
        }
        await proxy.run_async(
            "http",
            show_banner=False,
            host="127.0.0.1",
            port=options.port,
            log_level="error",
            uvicorn_config=quiet,
        )


PROGRAMS: dict[str, Callable[[argparse.Namespace], Awaitable[None]]] = {
    "upstream": upstream,
    "plain": plain,
    "relay": relay,
    "fastmcp": fastmcp,
    "fastmcp-shared": fastmcp_shared,
}


def _fastest_runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int)
    where.add_argument("--stdio", action="store_true")
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--era", choices=("legacy", "modern"), default="legacy")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("target", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    async def run() -> None:
        await PROGRAMS[options.program](options)

    # A stdio server as people write it runs on asyncio's own loop; everything else here gets the
    # faster one, as uvicorn would have chosen, so that neither the floor nor a peer looks worse
    # than it can be.
    plain = options.program == "upstream" and options.port is None
    (asyncio.run if plain else _fastest_runner())(run())


if __name__ == "__main__":
    main()
