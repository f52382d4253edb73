"""What a server reports during a call, on its way to the caller: in order, and of a flood only the
newest.

A caller takes a report as slowly as it likes; the answer that waits on the same wire must not wait
for thousands.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from portico.upstream.backend import Raw, Relay

MAX_QUEUED = 100
"""Reports that wait for a caller who does not take them; of more, the oldest is dropped."""
BURST = 100
PACE_S = 0.02
"""Reports that are told as they come, and the pause before each after that, until the answer has
come."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class NotificationQueue:
    """The reports of one call."""

    __slots__ = ("_is_flushing", "_queue", "_sent_count", "_spawn", "_task")

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._queue: deque[tuple[Relay, str, Raw]] = deque(maxlen=MAX_QUEUED)
        self._task: asyncio.Task[None] | None = None
        self._sent_count = 0
        self._is_flushing = False

    def put(self, relay: Relay, method: str, params: Raw) -> None:
        """Put a report on its way."""
        self._queue.append((relay, method, params))
        if self._task is None or self._task.done():
            self._task = self._spawn(self._send_all())

    async def flush(self) -> None:
        """Wait until everything has been told: an answer comes last."""
        self._is_flushing = True
        if self._task is not None:
            await asyncio.wait({self._task})

    def stop(self) -> None:
        """Nobody listens any more."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def _send_all(self) -> None:
        while self._queue:
            if self._sent_count >= BURST and not self._is_flushing:
                await asyncio.sleep(PACE_S)
            relay, method, params = self._queue.popleft()
            self._sent_count += 1
            await relay.notify(method, params)
