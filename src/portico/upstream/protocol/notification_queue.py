"""Queue of a call's notifications to its caller: in order, and only the newest of a flood.

Callers may be slow; a response on the same wire must not wait for thousands of notifications.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from portico.upstream.backend import Raw, Relay

MAX_QUEUED = 100
"""Queued notifications; above that, the oldest is dropped."""
BURST = 100
"""Notifications that are sent without delay."""
PACE_S = 0.02
"""Seconds between notifications after the burst, until the response has arrived."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class NotificationQueue:
    """Notifications of one call."""

    __slots__ = ("_is_flushing", "_queue", "_sent_count", "_spawn", "_task")

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._queue: deque[tuple[Relay, str, Raw]] = deque(maxlen=MAX_QUEUED)
        self._task: asyncio.Task[None] | None = None
        self._sent_count = 0
        self._is_flushing = False

    def put(self, relay: Relay, method: str, params: Raw) -> None:
        """Queue a notification and start sending."""
        self._queue.append((relay, method, params))
        if self._task is None or self._task.done():
            self._task = self._spawn(self._send_all())

    async def flush(self) -> None:
        """Wait until everything has been sent; call it before the response."""
        self._is_flushing = True
        if self._task is not None:
            await asyncio.wait({self._task})

    def stop(self) -> None:
        """Drop what is queued and stop sending."""
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
