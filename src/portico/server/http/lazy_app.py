"""An ASGI application that is built on its first request, so that an unused one costs nothing."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class LazyApp:
    """Builds an application once; requests that arrive meanwhile wait for it."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """`make` runs in a thread, because it may import much; if it fails, the next request
        retries."""
        self._make = make
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._lock:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._make)
        await self._app(scope, receive, send)
