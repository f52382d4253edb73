"""An application that is made when it is first asked: what nobody uses takes no memory and no time
at the start."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class LazyApp:
    """Stands for an application; whoever comes while it is made waits for it."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """`make` runs in a thread, because it may load a great deal; where it fails, the next request tries again."""
        self._make = make
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._lock:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._make)
        await self._app(scope, receive, send)
