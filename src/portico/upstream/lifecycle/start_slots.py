"""Limits how many servers are started for calls at the same time, in the whole gateway.

A start holds its slot for its first seconds only: a few servers that never answer must not block
the others until they time out.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import BackendBusy

SLOT_S = 5.0
"""Seconds after which a running start frees its slot."""


class StartSlots:
    """A semaphore for starts."""

    def __init__(self, limit: int = 16, *, slot_s: float = SLOT_S) -> None:
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._slot_s = slot_s

    @asynccontextmanager
    async def acquire(self, name: str, timeout: float) -> AsyncGenerator[None]:
        """Acquire a start slot within `timeout` seconds, else raise BackendBusy.

        Released on exit or after `slot_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise BackendBusy(
                f"{name} was not started within {timeout:g} s: as many as may be ({self._limit}) "
                "are being started",
                advice="Try again shortly, or raise limits.call_starts.",
            ) from None
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(self._slot_s, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
