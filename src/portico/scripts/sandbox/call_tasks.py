"""Calls of a running script. None outlives it: unfinished calls are cancelled and awaited."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class CallTaskGroup:
    """Tasks of one script's calls; leaving `async with` ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self,
        call: Coroutine[Any, Any, Any],
        on_done: Callable[[asyncio.Task[Any]], None] | None = None,
    ) -> asyncio.Task[Any]:
        """Start a call at once; `on_done` is called with its task unless the group was closed."""
        task = asyncio.create_task(call, name="a script's call")
        self._tasks.add(task)

        def handle_done(task: asyncio.Task[Any]) -> None:
            is_tracked = task in self._tasks
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # retrieved, because nobody may await it
            if is_tracked and on_done is not None:
                on_done(task)

        task.add_done_callback(handle_done)
        return task

    async def close(self) -> int:
        """Cancel and await unfinished calls; returns their number."""
        running = self._tasks
        self._tasks = set()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        return len(running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
