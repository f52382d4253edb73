"""The task of one request, which outlives that request if the client has to be asked something.

The modern era has no elicitation within a request: the request is answered with it, and the next
one brings the responses. The task continues from one request to the next, wherever the elicitation
came up: in a plain call, a script, or a step of a workflow.
"""

import asyncio
import itertools
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

import anyio
from mcp_types import methods as spec
from pydantic import ValidationError

from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, BackendUnavailable, RemoteError
from portico.server.requests.client_relay import ClientRelay
from portico.upstream.backend import CallAlreadyEnded, Raw
from portico.upstream.protocol.envelope import INPUT_RESPONSES, LATEST_LEGACY_VERSION

ELICITATION_BATCH_S = 0.02
"""Seconds that an elicitation waits for others, so that the client gets all of them at once."""
MAX_ELICITATIONS = 64
"""Maximum number of concurrent elicitations of one request."""


@dataclass(slots=True, eq=False)
class _PendingElicitation:
    method: str
    params: Raw
    response: "asyncio.Future[Raw]"


class RequestTask:
    """The task of one request and its pending elicitations."""

    def __init__(
        self,
        relay: ClientRelay,
        work: Coroutine[Any, Any, Mapping[str, Any]],
        elicitation_timeout_s: float,
    ) -> None:
        self.relay = relay
        self._elicitation_timeout_s = elicitation_timeout_s
        self._elicitations: dict[str, _PendingElicitation] = {}
        self._numbers = itertools.count(1)
        self._wakeup: asyncio.Future[None] | None = None
        relay.set_elicit_handler(self._elicit)
        self._task = asyncio.create_task(work, name="handle a request")
        self._task.add_done_callback(self._on_done)

    async def wait(self) -> Raw | None:
        """Wait for elicitations and return them by key; None when the task is done.

        If cancelled, it cancels the task and returns when that has ended too.
        """
        try:
            while not self._task.done():
                if not self._elicitations:
                    self._wakeup = asyncio.get_running_loop().create_future()
                    await self._wakeup
                    continue
                await asyncio.wait({self._task}, timeout=ELICITATION_BATCH_S)
                if self._elicitations and not self._task.done():
                    return {
                        key: {"method": elicitation.method, "params": elicitation.params}
                        for key, elicitation in self._elicitations.items()
                    }
        except asyncio.CancelledError:
            await self.cancel()
            raise
        return None

    def get_result(self) -> Mapping[str, Any]:
        """Return the result of the task, or raise its exception."""
        if self._task.cancelled():
            raise BackendUnavailable("the call was ended: the gateway is shutting down")
        return self._task.result()

    async def cancel(self) -> None:
        """Cancel the task and wait for its end."""
        self._task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self._task})

    def cancel_soon(self) -> "asyncio.Task[Any]":
        """Cancel the task and return it without waiting."""
        self._task.cancel()
        return self._task

    def validate_responses(self, responses: Any) -> dict[str, Raw]:
        """Return the responses to pending elicitations; raises RemoteError if one is invalid."""
        if responses is None:
            return {}
        if not isinstance(responses, Mapping):
            raise RemoteError(INVALID_PARAMS, f"{INPUT_RESPONSES} is an object of answers")
        known = cast("Mapping[str, Any]", responses)
        answers = {key: known[key] for key in self._elicitations if key in known}
        for key, answer in answers.items():
            method = self._elicitations[key].method
            try:
                spec.validate_client_result(method, LATEST_LEGACY_VERSION, answer)
            except ValidationError:
                raise RemoteError(
                    INVALID_PARAMS, f"{INPUT_RESPONSES}.{key} is not an answer to {method}"
                ) from None
        return answers

    def deliver_responses(self, responses: Mapping[str, Raw]) -> None:
        """Hand the responses to the waiting elicitations."""
        for key, response in responses.items():
            elicitation = self._elicitations.pop(key, None)
            if elicitation is not None and not elicitation.response.done():
                elicitation.response.set_result(response)

    async def _elicit(self, method: str, params: Raw) -> Raw:
        """Send an elicitation to the client and wait for the response; raises RemoteError."""
        if self._task.done():
            raise CallAlreadyEnded
        if len(self._elicitations) >= MAX_ELICITATIONS:
            raise RemoteError(
                INTERNAL_ERROR,
                f"{MAX_ELICITATIONS} questions of this call wait for an answer already",
            )
        key = f"question-{next(self._numbers)}"
        elicitation = _PendingElicitation(
            method, params, asyncio.get_running_loop().create_future()
        )
        self._elicitations[key] = elicitation
        self._wake()
        try:
            async with asyncio.timeout(self._elicitation_timeout_s):
                return await elicitation.response
        except TimeoutError:
            raise RemoteError(
                INTERNAL_ERROR,
                f"the client did not answer {method} within {self._elicitation_timeout_s:g} s",
            ) from None
        finally:
            self._elicitations.pop(key, None)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: nobody may be waiting for the task any more
        self.relay.end()
        for elicitation in self._elicitations.values():
            if not elicitation.response.done():
                elicitation.response.set_exception(CallAlreadyEnded())
        self._wake()

    def _wake(self) -> None:
        wakeup = self._wakeup
        self._wakeup = None
        if wakeup is not None and not wakeup.done():
            wakeup.set_result(None)
