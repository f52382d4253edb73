"""Draining connections: they get no new requests, finish pending ones, and are closed."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from portico.upstream.lifecycle.instances import Instance

logger = logging.getLogger(__name__)


class Draining:
    """Connections of one server that are being closed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._close_tasks: set[asyncio.Task[None]] = set()
        self._instances: set[Instance] = set()

    def close(self, instance: Instance, reason: str = "") -> "asyncio.Task[None]":
        """Close an instance now; its pending requests fail with `reason`."""
        instance.end_reason = instance.end_reason or reason
        return self._start_task(instance.connection.close())

    def drain(self, instance: Instance, timeout: float, reason: str) -> "asyncio.Task[None]":
        """Close an instance when its pending requests are done, or after `timeout` seconds."""
        if not instance.pending_calls or timeout <= 0:
            return self.close(instance, reason)
        instance.idle_event = asyncio.Event()
        self._instances.add(instance)
        return self._start_task(
            self._close_when_idle(instance, instance.idle_event, timeout, reason)
        )

    def abort(self) -> None:
        """Close all draining instances without further waiting."""
        for instance in self._instances:
            if instance.idle_event is not None:
                instance.idle_event.set()

    async def wait_closed(self) -> None:
        """Wait until all closing tasks are done."""
        while self._close_tasks:
            await asyncio.wait(set(self._close_tasks))

    async def _close_when_idle(
        self, instance: Instance, idle: asyncio.Event, timeout: float, reason: str
    ) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await idle.wait()
        finally:
            self._instances.discard(instance)
        instance.end_reason = instance.end_reason or reason
        await instance.connection.close()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        # A separate task: the caller may be cancelled, and `wait_closed` waits for all of them.
        task = asyncio.create_task(work, name=f"close {self._name}")
        self._close_tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._close_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s did not close cleanly: %r", self._name, error)
