"""FastMCP as a gateway over many HTTP servers, in front of them its BM25 search or its code mode.

A file to be run with the Python of FastMCP's own environment; it imports nothing of this
repository.

    python benchmarks/peering/fastmcp_gateway.py --port N {bm25,code} SERVERS.json      ({name:
    url})

At its best: a client that stays connected for every server that can be reached at the start (its
default connects for every request), a cache of each server's listing (else every search and every
call lists all servers again), and a limit to how long a server may take to say hello (else a silent
one holds up every listing for ever).
"""

import argparse
import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

CONNECT_S = 2.0
RESULTS = 5
LARGEST_LISTING = 50_000_000


def with_cached_listing(proxy: Any) -> Any:
    """The proxy of one server, with its listings kept for five minutes and nothing else kept."""
    from fastmcp.server.middleware.caching import ResponseCachingMiddleware

    off: Any = {"enabled": False}
    others = ("list_resources", "list_prompts", "read_resource", "get_prompt", "call_tool")
    settings: dict[str, Any] = {f"{name}_settings": off for name in others}
    proxy.add_middleware(ResponseCachingMiddleware(max_item_size=LARGEST_LISTING, **settings))
    return proxy


async def serve(options: argparse.Namespace) -> None:
    from fastmcp import Client, FastMCP
    from fastmcp.server import create_proxy

    servers: dict[str, str] = json.loads(options.servers.read_bytes())
    gateway: Any = FastMCP("gateway")
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            name: Client(url, mode="legacy", init_timeout=CONNECT_S)
            for name, url in servers.items()
        }
        # All at once, and each from this task, which is the one that closes them again.
        connecting = {
            name: asyncio.ensure_future(client.__aenter__()) for name, client in clients.items()
        }
        await asyncio.wait(connecting.values(), timeout=2 * CONNECT_S)
        for name, client in clients.items():
            done = connecting[name]
            if done.done() and not done.cancelled() and done.exception() is None:
                stack.push_async_exit(client.__aexit__)
                gateway.mount(with_cached_listing(create_proxy(client, name=name)), namespace=name)
            else:
                done.cancel()
                later = Client(servers[name], mode="legacy", init_timeout=CONNECT_S)
                gateway.mount(with_cached_listing(create_proxy(later, name=name)), namespace=name)
        gateway.add_transform(transform(options.kind))
        quiet = {"access_log": False, "timeout_graceful_shutdown": 1}
        await gateway.run_async(
            "http",
            show_banner=False,
            host="127.0.0.1",
            port=options.port,
            log_level="error",
            uvicorn_config=quiet,
        )


def transform(kind: str) -> Any:
    if kind == "code":
        from fastmcp.experimental.transforms.code_mode import CodeMode

        return CodeMode()
    from fastmcp.server.transforms.search import BM25SearchTransform

    return BM25SearchTransform(max_results=RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("kind", choices=("bm25", "code"))
    parser.add_argument("servers", type=Path)
    options = parser.parse_args()
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(options))
    else:
        uvloop.run(serve(options))


if __name__ == "__main__":
    main()
