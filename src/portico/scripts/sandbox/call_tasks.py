"""The calls a script has under way. None outlives it: what nobody waits for is cancelled, and
waited for."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class CallTaskGroup:
    """One script's calls, each a task; `async with` ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self,
        call: Coroutine[Any, Any, Any],
        on_done: Callable[[asyncio.Task[Any]], None] | None = None,
    ) -> asyncio.Task[Any]:
        """Begin a call at once; `done` hears how it went, unless the script is over before."""
        task = asyncio.create_task(call, name="a script's call")
        self._tasks.add(task)

        def handle_done(task: asyncio.Task[Any]) -> None:
            here = task in self._tasks
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # whoever wants it has it; nobody may want it any more
            if here and on_done is not None:
                on_done(task)

        task.add_done_callback(handle_done)
        return task

    async def close(self) -> int:
        """Cancel what still runs and wait for it; how many that were."""
        left = self._tasks
        self._tasks = set()
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return len(left)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
