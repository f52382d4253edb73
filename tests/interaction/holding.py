"""Keeps a context open across tests: entered and left in one task of its own, as anyio's scopes
want it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 60.0


class Holder:
    """Holds contexts until `close`, which leaves them in reverse order."""

    def __init__(self) -> None:
        self._held: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    async def hold(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context; what it yields."""
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        leave = asyncio.Event()
        task = asyncio.create_task(_hold(context, entered, leave))
        self._held.append((leave, task))
        await asyncio.wait({entered, task}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            await task
            raise TimeoutError(f"{context} was not entered within {PATIENCE_S:g} s")
        return entered.result()

    async def close(self) -> None:
        """Leave them all; the first failure is raised when all are left."""
        failures: list[BaseException] = []
        while self._held:
            leave, task = self._held.pop()
            leave.set()
            done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
            if not done:
                task.cancel()
                await asyncio.wait({task}, timeout=PATIENCE_S)
                failures.append(TimeoutError("a context was not left in time"))
            elif error := task.exception():
                failures.append(error)
        if failures:
            raise failures[0]


async def _hold(
    context: AbstractAsyncContextManager[Any], entered: "asyncio.Future[Any]", leave: asyncio.Event
) -> None:
    async with context as value:
        entered.set_result(value)
        await leave.wait()
