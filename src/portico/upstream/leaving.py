"""Conversations on their way out: no new request reaches them, they finish what they were asked, and are closed."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from portico.upstream.instances import Instance

logger = logging.getLogger(__name__)


class Leaving:
    """What one server is leaving behind."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closing: set[asyncio.Task[None]] = set()
        self._draining: set[Instance] = set()

    def close(self, instance: Instance, reason: str = "") -> "asyncio.Task[None]":
        """Close one now; whoever still waits for it is told the reason."""
        instance.ended = instance.ended or reason
        return self._begin(instance.connection.close())

    def drain(self, instance: Instance, seconds: float, reason: str) -> "asyncio.Task[None]":
        """Close one as soon as it has answered what it was asked, or when its time is up."""
        if not instance.calls or seconds <= 0:
            return self.close(instance, reason)
        instance.idle = asyncio.Event()
        self._draining.add(instance)
        return self._begin(self._drained(instance, instance.idle, seconds, reason))

    def hurry(self) -> None:
        """Nobody's time is left."""
        for instance in self._draining:
            if instance.idle is not None:
                instance.idle.set()

    async def gone(self) -> None:
        """Wait until all are closed."""
        while self._closing:
            await asyncio.wait(set(self._closing))

    async def _drained(self, instance: Instance, idle: asyncio.Event, seconds: float, reason: str) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await idle.wait()
        finally:
            self._draining.discard(instance)
        instance.ended = instance.ended or reason
        await instance.connection.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        # A task of its own: whoever asked for it may be cancelled, and `gone` waits for all of them.
        task = asyncio.create_task(work, name=f"clear away {self._name}")
        self._closing.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s did not close cleanly: %r", self._name, error)
