"""The middleware that follows a task which a server makes of a call, so that everything above it
gets the task's result like any other; and the calls whose task an earlier process began."""

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

from portico.calls.call import Call, Handler
from portico.calls.dispatcher import Dispatcher
from portico.calls.elicitation import LabelledRelay
from portico.calls.result_masking import ValueMasking
from portico.calls.running_task import RunningTask
from portico.calls.server_task import check_state, is_task, parse_task_id
from portico.upstream.backend import Connection, Raw

CANCELLATION_TIMEOUT_S = 10.0
"""Seconds that a server may take to hear that nobody waits for its task any more."""


class TaskFollower:
    def __init__(self, dispatcher: Dispatcher, masking: ValueMasking) -> None:
        self._dispatcher = dispatcher
        self._masking = masking
        self.is_closing = False
        """Whether the gateway ends: tasks are left to their servers."""
        self._cancellations: set[asyncio.Task[None]] = set()

    async def follow(self, call: Call, call_next: Handler[Call]) -> Raw:
        """Middleware: return the result of a call, also where its server makes a task of it."""
        result = await call_next(call)
        if not is_task(result):
            return result
        task = RunningTask(call, parse_task_id(result), check_state(result), self._send)
        return await self._run(task)

    async def resume(self, call: Call) -> Raw:
        """Return the result of a task that an earlier process began."""
        if call.context.relay is not None:
            call.relay = LabelledRelay(call.server, call.context.relay)
        return await self._run(RunningTask(call, call.resumed_task, {}, self._send))

    async def close(self) -> None:
        """Leave the tasks to their servers from now on."""
        self.is_closing = True
        if self._cancellations:
            await asyncio.wait(self._cancellations, timeout=CANCELLATION_TIMEOUT_S)

    async def _run(self, task: RunningTask) -> Raw:
        call = task.call
        upstream = self._dispatcher.get_upstream(call.server)
        key = upstream.select_key(call.context.caller)
        # A task of an earlier process has lost a server that is a process of the gateway.
        begun_on: Connection | None = None
        if not call.resumed_task:
            begun_on = upstream.get_connection(key)
        task.has_connection_changed = lambda: (
            upstream.backend.kind == "stdio" and upstream.get_connection(key) is not begun_on
        )
        if call.decision is not None and call.decision.mask:
            task.mask_state = partial(self._masking.mask, kinds=call.decision.mask)
        if call.context.on_task is not None:
            call.context.on_task(task)
        try:
            with upstream.in_use(key), call.context.pause_clock():
                return self._dispatcher.check_result(call, await task.wait_for_result())
        except asyncio.CancelledError:
            # Whoever has a ticket may still ask for it.
            if not (self.is_closing or task.is_handed_out or call.resumed_task):
                self._spawn_cancellation(task)
            raise

    async def _send(self, call: Call, method: str, params: Raw) -> Raw:
        found = await self._dispatcher.send_about_task(call, method, params)
        inner = found.get("result")
        if "error" in found or (isinstance(inner, dict) and inner.get("isError")):
            return await self._masking.mask_configured(found)
        return found

    def _spawn_cancellation(self, task: RunningTask) -> None:
        """Tell the server that nobody waits any more, without keeping the caller."""

        async def cancel() -> None:
            with contextlib.suppress(Exception):  # it ends by its own lifetime then
                await asyncio.wait_for(task.cancel(), CANCELLATION_TIMEOUT_S)

        work: Coroutine[Any, Any, None] = cancel()
        cancellation = asyncio.create_task(work, name=f"cancel a task of {task.call.server}")
        self._cancellations.add(cancellation)
        cancellation.add_done_callback(self._cancellations.discard)
