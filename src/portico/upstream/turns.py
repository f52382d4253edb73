"""Lets others have their turn while one server floods us.

What has already arrived is read without waiting, so whoever reads a flood would never give up the event loop.
"""

import asyncio

TURN = 8 * 1024
"""What may be read in one turn: bytes, and for each message as many more as its handling is worth."""
MESSAGE = 1024


class Turns:
    """How much one reader has read since others had their turn."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, size: int) -> None:
        """A message of so many bytes was handled."""
        self._spent += size + MESSAGE

    async def taken(self) -> None:
        """Wait for the others if this turn is over."""
        if self._spent >= TURN:
            self._spent = 0
            await asyncio.sleep(0)
