"""Lets others have their turn while one server floods us.

What has already arrived is read without waiting, so whoever reads a flood would never give up the
event loop.
"""

import asyncio

BUDGET_BYTES = 8 * 1024
"""What may be read in one turn: bytes, and for each message as many more as its handling is worth.
"""
MESSAGE_OVERHEAD_BYTES = 1024


class YieldBudget:
    """How much one reader has read since others had their turn."""

    __slots__ = ("_spent_bytes",)

    def __init__(self) -> None:
        self._spent_bytes = 0

    def spend(self, size: int) -> None:
        """A message of so many bytes was handled."""
        self._spent_bytes += size + MESSAGE_OVERHEAD_BYTES

    async def maybe_yield(self) -> None:
        """Wait for the others if this turn is over."""
        if self._spent_bytes >= BUDGET_BYTES:
            self._spent_bytes = 0
            await asyncio.sleep(0)
