"""Requests that wait for their client to come back with the answer to an elicitation.

A modern client gets an elicitation as the answer to its request, and answers it with its next one:
until then the task is pending. Their number is bounded, in all and for each caller. A task whose
client does not come back in time is cancelled, also at its server.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from portico.errors import Overloaded
from portico.server.requests.request_task import RequestTask
from portico.server.requests.state_signer import StateSigner, make_used_state_error
from portico.upstream.protocol.envelope import REQUEST_STATE

ELICITATION_TIMEOUT_S = 600.0
MAX_PENDING = 256
CALLER_SHARE = 4
"""One caller may hold a fourth of the places."""
RETRY_AFTER_S = 5.0


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

    async def run(
        self, task: RequestTask, owner: str, make_binding: Callable[[], bytes]
    ) -> Mapping[str, Any]:
        """Return the result of a task, or the elicitation it has for its client.

        Raises Overloaded if too many requests are pending.
        """
        input_requests = await task.wait()
        if input_requests is None:
            return task.get_result()
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
        state = self.signer.sign("parked", name, make_binding())
        return {
            "resultType": "input_required",
            "inputRequests": input_requests,
            REQUEST_STATE: state,
        }

    async def resume(
        self,
        name: str,
        responses: Any,
        ctx: ServerRequestContext[Any, Any],
        make_binding: Callable[[], bytes],
    ) -> Mapping[str, Any]:
        """Resume a pending request with the responses that a new request brings; else like
        `run`."""
        pending = self._pending.get(name)
        if pending is None:
            raise make_used_state_error()
        answers = pending.task.validate_responses(responses)
        del self._pending[name]
        pending.timer.cancel()
        pending.task.relay.attach(ctx)
        pending.task.deliver_responses(answers)
        return await self.run(pending.task, pending.owner, make_binding)

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
