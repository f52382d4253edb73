"""One request at work, which may have to be asked of its client and then outlives the request that
began it.

The modern era has no questions in the middle of a request: the request is answered with them, and
the next one brings the answers. The work itself is a task that goes on from one request to the
next, wherever in it the question came up: a plain call, a script, a step of a workflow.
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
"""How long a question waits for others, so that the client is asked once for all of them."""
MAX_ELICITATIONS = 64
"""Questions of one request at the same time."""


@dataclass(slots=True, eq=False)
class _PendingElicitation:
    method: str
    params: Raw
    response: "asyncio.Future[Raw]"


class RequestTask:
    """The work on one request."""

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
        self._task = asyncio.create_task(work, name="work on a request")
        self._task.add_done_callback(self._on_done)

    async def wait(self) -> Raw | None:
        """Wait until the client has to be asked: the questions by their keys. None when the work is
        done.

        Cancelled, it returns when the work has ended too.
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
                        key: {"method": one.method, "params": one.params}
                        for key, one in self._elicitations.items()
                    }
        except asyncio.CancelledError:
            await self.cancel()
            raise
        return None

    def get_result(self) -> Mapping[str, Any]:
        """What the work came to; raises what it raised."""
        if self._task.cancelled():
            raise BackendUnavailable("the call was ended: the gateway is shutting down")
        return self._task.result()

    async def cancel(self) -> None:
        """End the work, and return when it has ended."""
        self._task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self._task})

    def cancel_soon(self) -> "asyncio.Task[Any]":
        """End the work without waiting; what there is to wait for."""
        self._task.cancel()
        return self._task

    def validate_responses(self, responses: Any) -> dict[str, Raw]:
        """The answers to what is asked, as far as they are there; raises RemoteError where one is
        no answer."""
        if responses is None:
            return {}
        if not isinstance(responses, Mapping):
            raise RemoteError(INVALID_PARAMS, f"{INPUT_RESPONSES} is an object of answers")
        given = cast("Mapping[str, Any]", responses)
        answers = {key: given[key] for key in self._elicitations if key in given}
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
        """Hand these to whoever asked."""
        for key, answer in responses.items():
            question = self._elicitations.pop(key, None)
            if question is not None and not question.response.done():
                question.response.set_result(answer)

    async def _elicit(self, method: str, params: Raw) -> Raw:
        """Ask the client with the next answer it gets; raises RemoteError."""
        if self._task.done():
            raise CallAlreadyEnded
        if len(self._elicitations) >= MAX_ELICITATIONS:
            raise RemoteError(
                INTERNAL_ERROR,
                f"{MAX_ELICITATIONS} questions of this call wait for an answer already",
            )
        key = f"question-{next(self._numbers)}"
        question = _PendingElicitation(method, params, asyncio.get_running_loop().create_future())
        self._elicitations[key] = question
        self._wake()
        try:
            async with asyncio.timeout(self._elicitation_timeout_s):
                return await question.response
        except TimeoutError:
            raise RemoteError(
                INTERNAL_ERROR,
                f"the client did not answer {method} within {self._elicitation_timeout_s:g} s",
            ) from None
        finally:
            self._elicitations.pop(key, None)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more
        self.relay.end()
        for question in self._elicitations.values():
            if not question.response.done():
                question.response.set_exception(CallAlreadyEnded())
        self._wake()

    def _wake(self) -> None:
        turn = self._wakeup
        self._wakeup = None
        if turn is not None and not turn.done():
            turn.set_result(None)
