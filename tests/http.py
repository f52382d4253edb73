"""A client of a gateway that is served over HTTP."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import httpx2

TIMEOUT_S = 240.0


@asynccontextmanager
async def open_client(
    url: str, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client of the gateway whose MCP address is `url`."""
    root = url.removesuffix("/mcp")
    async with httpx2.AsyncClient(
        base_url=root, timeout=TIMEOUT_S, headers=dict(headers or {})
    ) as http:
        yield http
