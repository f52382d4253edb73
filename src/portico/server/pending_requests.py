"""Rounds of a request: elicitations of a server out, the client's answers in.

A legacy client is asked on the stream of its request. A modern client gets an elicitation as the
answer to its request, and answers it with its next one. What a modern server asks is passed on, and
its own state is signed into the `requestState` that the client carries, with the handle of the
instance if one was issued. For a legacy server, and for what a script or workflow calls, the task
is pending here until the client comes back. Pending requests are bounded, in all and for each
caller. A task whose client does not come back in time is cancelled, also at its server.
"""

import asyncio
import itertools
import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

import anyio
from mcp_types import methods as spec
from pydantic import ValidationError

from portico.calls.elicitation import parse_input_requests
from portico.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BackendUnavailable,
    Overloaded,
    RemoteError,
)
from portico.profiles.state_handles import add_handle, take_handle
from portico.server.client_relay import (
    ClientRelay,
    find_missing_capability,
    list_input_requests,
    make_missing_capability_error,
)
from portico.server.request import Handler, Request
from portico.server.state_signer import (
    StateSigner,
    compute_binding,
    make_used_state_error,
)
from portico.upstream.backend import CallAlreadyEnded, Raw
from portico.upstream.protocol.envelope import (
    INPUT_RESPONSES,
    LATEST_LEGACY_VERSION,
    REQUEST_STATE,
)

ELICITATION_TIMEOUT_S = 600.0
MAX_PENDING = 256
CALLER_SHARE = 4
"""One caller may hold a fourth of the places."""
RETRY_AFTER_S = 5.0
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
        self.relay.is_ended = True
        for elicitation in self._elicitations.values():
            if not elicitation.response.done():
                elicitation.response.set_exception(CallAlreadyEnded())
        self._wake()

    def _wake(self) -> None:
        wakeup = self._wakeup
        self._wakeup = None
        if wakeup is not None and not wakeup.done():
            wakeup.set_result(None)


@dataclass(frozen=True, eq=False)
class _PendingRequest:
    task: RequestTask
    owner: str
    timer: asyncio.TimerHandle


class PendingRequests:
    """Pending requests of all endpoints of a gateway. For one event loop."""

    def __init__(
        self,
        elicitation_timeout_s: float = ELICITATION_TIMEOUT_S,
        max_pending: int = MAX_PENDING,
        *,
        key: bytes | None = None,
        caller_share: int = CALLER_SHARE,
    ) -> None:
        """`key` signs request states; without one, they are invalid after a restart."""
        self.signer = StateSigner(elicitation_timeout_s, key)
        self._caller_share = caller_share
        self.configure(elicitation_timeout_s, max_pending)
        self._pending: dict[str, _PendingRequest] = {}
        self._cancelled_tasks: set[asyncio.Task[Any]] = set()

    def configure(self, elicitation_timeout_s: float, max_pending: int) -> None:
        """Apply new limits; pending requests keep their timeout."""
        self.elicitation_timeout_s = self.signer.ttl_s = elicitation_timeout_s
        self._max_pending = max_pending
        self._max_per_owner = max(1, max_pending // self._caller_share)

    def __len__(self) -> int:
        return len(self._pending)

    async def run_rounds(self, request: Request, call_next: Handler) -> Mapping[str, Any]:
        """Answer a request of several rounds with its result, or with an elicitation.

        Raises RemoteError if its `requestState` was not issued to this caller for this request, and
        Overloaded if too many requests are pending.
        """
        handle = ""
        if (state := request.params.get(REQUEST_STATE)) is not None:
            verified = self.signer.verify(state, _compute_binding(request))
            if verified.kind == "parked":
                return await self._resume(verified.value, request)
            handle, _, state = verified.value.partition("\n")
            request.params = {**request.params, REQUEST_STATE: state}
            if handle and take_handle(request.params)[0] is None:
                request.params = add_handle(request.params, handle)
        result = self._call_and_sign(request, call_next, handle)
        if not request.relay.capabilities:
            # Without elicitation nothing has to outlive this request.
            return await result
        task = RequestTask(request.relay, result, self.elicitation_timeout_s)
        return await self._wait(task, request)

    async def _call_and_sign(
        self, request: Request, call_next: Handler, handle: str
    ) -> Mapping[str, Any]:
        result = await call_next(request)
        await request.relay.flush()
        if result.get("resultType") != "input_required":
            return result
        for method, params in list_input_requests(result):
            if missing := find_missing_capability(request.relay.capabilities, method, params):
                raise make_missing_capability_error(missing)
        parse_input_requests(result)
        if (state := result.get(REQUEST_STATE)) is None:
            return result
        value = f"{take_handle(result)[0] or handle}\n{state}"
        signed = self.signer.sign("wrapped", value, _compute_binding(request))
        return {**result, REQUEST_STATE: signed}

    async def _wait(self, task: RequestTask, request: Request) -> Mapping[str, Any]:
        """Return the result of a task, or the elicitation it has for its client."""
        input_requests = await task.wait()
        if input_requests is None:
            return task.get_result()
        owner = request.caller.owner
        if (exceeded := self._find_exceeded_limit(owner)) is not None:
            await task.cancel()
            raise Overloaded(
                f"{exceeded}; this call had a question too and was cancelled",
                advice="Answer or give up some of those first, then call again.",
                retry_after_s=RETRY_AFTER_S,
            )
        task.relay.detach()
        name = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(
            self.elicitation_timeout_s, self._cancel, name
        )
        self._pending[name] = _PendingRequest(task, owner, timer)
        return {
            "resultType": "input_required",
            "inputRequests": input_requests,
            REQUEST_STATE: self.signer.sign("parked", name, _compute_binding(request)),
        }

    async def _resume(self, name: str, request: Request) -> Mapping[str, Any]:
        """Resume a pending request with the responses that a new request brings."""
        pending = self._pending.get(name)
        if pending is None:
            raise make_used_state_error()
        answers = pending.task.validate_responses(request.params.get(INPUT_RESPONSES))
        del self._pending[name]
        pending.timer.cancel()
        pending.task.relay.attach(request.ctx)
        pending.task.deliver_responses(answers)
        return await self._wait(pending.task, request)

    async def cancel_owner(self, owner: str) -> None:
        """Cancel the pending requests of a client that has disconnected."""
        for name in [name for name, pending in self._pending.items() if pending.owner == owner]:
            self._cancel(name)
        await self._wait_for_cancelled()

    async def close(self) -> None:
        """Cancel all pending requests."""
        for name in list(self._pending):
            self._cancel(name)
        await self._wait_for_cancelled()

    def _find_exceeded_limit(self, owner: str) -> str | None:
        if len(self._pending) >= self._max_pending:
            return f"{len(self._pending):,} calls already wait for their clients' answers"
        if sum(pending.owner == owner for pending in self._pending.values()) >= self._max_per_owner:
            return f"{self._max_per_owner:,} calls of this client already wait for its answers"
        return None

    def _cancel(self, name: str) -> None:
        if (pending := self._pending.pop(name, None)) is None:
            return
        pending.timer.cancel()
        task = pending.task.cancel_soon()
        self._cancelled_tasks.add(task)
        task.add_done_callback(self._cancelled_tasks.discard)

    async def _wait_for_cancelled(self) -> None:
        if self._cancelled_tasks:
            await asyncio.wait(self._cancelled_tasks)


def _compute_binding(request: Request) -> bytes:
    return compute_binding(request.caller, request.method, request.params)
