"""An application that is made when it is first asked: what nobody uses takes no memory and no time at the start."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class Late:
    """Stands for an application; whoever comes while it is made waits for it."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """`make` runs in a thread, because it may load a great deal; where it fails, the next request tries again."""
        self._make = make
        self._made: ASGIApp | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            async with self._making:
                if self._made is None:
                    self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)
