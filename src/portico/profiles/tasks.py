"""`tasks/get`, `tasks/update` and `tasks/cancel`: a client's calls that go on as tasks.

A client knows a task by the ticket that its call was answered with. Whether the tool may be used is
asked with every request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.server_task import is_terminal, to_client_state
from portico.calls.task_tickets import HeldTask, is_ticket
from portico.errors import INVALID_PARAMS, PorticoError, RemoteError, UnknownName
from portico.meta_tools.call_tool import CallTool
from portico.upstream.backend import Raw

TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
FINISH_S = 30.0
"""Seconds that a result may take on its way through the pipeline, once its server has it."""


class ProfileTasks:
    """The tasks of one view's clients."""

    def __init__(self, call_tool: CallTool, call_pipeline: CallPipeline) -> None:
        self._call_tool = call_tool
        self._call_pipeline = call_pipeline
        self._handlers: Mapping[str, Callable[[HeldTask, Raw, CallContext], Awaitable[Raw]]] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def handle(self, method: str, params: Raw, context: CallContext) -> Raw:
        """Answer a request about a task; raises RemoteError for one that is not the caller's."""
        ticket = params.get("taskId")
        try:
            if not isinstance(ticket, str) or not is_ticket(ticket):
                raise UnknownName("there is no such task: its id was not issued here")
            held = await self._call_tool.find_task(ticket, context)
        except UnknownName as error:
            raise RemoteError(INVALID_PARAMS, f"Task not found: {error.message}") from error
        return await self._handlers[method](held, params, context)

    async def read(self, ticket: str, context: CallContext) -> Raw:
        """Return the result of a call that goes on, or what to read it by later."""
        return await self._call_tool.read_task(ticket, context)

    async def _get(self, held: HeldTask, params: Raw, context: CallContext) -> Raw:
        task = held.task
        if not held.work.done():
            await task.refresh()
            if is_terminal(task.state):
                await asyncio.wait({held.work}, timeout=FINISH_S)
        state = to_client_state(task.state, held.ticket)
        if not held.work.done():
            # What came in is on its way through the pipeline; the next request gets it.
            if is_terminal(state):
                state["status"] = "working"
            return state
        if state.get("status") == "cancelled":
            return state
        return {**state, **_describe_end(held)}

    async def _update(self, held: HeldTask, params: Raw, context: CallContext) -> Raw:
        responses = params.get("inputResponses")
        if not isinstance(responses, dict):
            raise RemoteError(INVALID_PARAMS, "tasks/update takes an object of inputResponses")
        await self._call_pipeline.send_about_task(
            held.task, "tasks/update", context, lambda: held.task.update(responses)
        )
        return {}

    async def _cancel(self, held: HeldTask, params: Raw, context: CallContext) -> Raw:
        if not held.work.done():
            await self._call_pipeline.send_about_task(
                held.task, "tasks/cancel", context, held.task.cancel
            )
        return {}


def _describe_end(held: HeldTask) -> Raw:
    """Return the fields by which a task has ended."""
    try:
        result: Any = held.work.result()
    except PorticoError as error:
        data = error.data if isinstance(error, RemoteError) and error.has_data else None
        described: Raw = {"code": error.code, "message": str(error)}
        if data is not None:
            described["data"] = data
        return {"status": "failed", "error": described}
    return {"status": "completed", "result": {"resultType": "complete", **result}}
