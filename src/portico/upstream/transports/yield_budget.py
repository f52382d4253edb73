"""Yields to other tasks while one server floods the gateway.

Data that has already arrived is read without waiting, so the reader of a flood would never yield to
the event loop.
"""

import asyncio

BUDGET_BYTES = 8 * 1024
"""Bytes that may be read before yielding, including the overhead of each message."""
MESSAGE_OVERHEAD_BYTES = 1024


class YieldBudget:
    """Bytes that one reader has read since it last yielded."""

    __slots__ = ("_spent_bytes",)

    def __init__(self) -> None:
        self._spent_bytes = 0

    def spend(self, size: int) -> None:
        """Count a handled message of `size` bytes."""
        self._spent_bytes += size + MESSAGE_OVERHEAD_BYTES

    async def maybe_yield(self) -> None:
        """Yield to the event loop if the budget is spent."""
        if self._spent_bytes >= BUDGET_BYTES:
            self._spent_bytes = 0
            await asyncio.sleep(0)
