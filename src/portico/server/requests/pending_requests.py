"""Requests that wait for their client to come back with an answer.

A modern client is asked by the answer to its request, and answers with its next one: until then the
work is parked. So many and no more, of one caller fewer; who does not come back in time finds it
gone, and its server is told.
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
    """A gateway's, for all its doors. One event loop's own."""

    def __init__(
        self,
        elicitation_timeout_s: float = ELICITATION_TIMEOUT_S,
        max_pending: int = MAX_PENDING,
        *,
        key: bytes | None = None,
        caller_share: int = CALLER_SHARE,
    ) -> None:
        """`key` signs what clients carry; without one, what was asked before a restart cannot be answered after it."""
        self.signer = StateSigner(elicitation_timeout_s, key)
        self._caller_share = caller_share
        self.configure(elicitation_timeout_s, max_pending)
        self._pending: dict[str, _PendingRequest] = {}
        self._cancelled_tasks: set[asyncio.Task[Any]] = set()

    def configure(self, elicitation_timeout_s: float, max_pending: int) -> None:
        """Go by these from now on; what is parked stays for the time that it was given."""
        self.elicitation_timeout_s = self.signer.ttl_s = elicitation_timeout_s
        self._max_pending = max_pending
        self._max_per_owner = max(1, max_pending // self._caller_share)

    def __len__(self) -> int:
        return len(self._pending)

    async def run(
        self, task: RequestTask, owner: str, make_binding: Callable[[], bytes]
    ) -> Mapping[str, Any]:
        """What a request is answered with: what its work came to, or the questions that it has for
        its client."""
        asked = await task.wait()
        if asked is None:
            return task.get_result()
        if (full := self._find_exceeded_limit(owner)) is not None:
            await task.cancel()
            raise Overloaded(
                f"{full}; this call had a question too and was cancelled",
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
        return {"resultType": "input_required", "inputRequests": asked, REQUEST_STATE: state}

    async def resume(
        self,
        name: str,
        responses: Any,
        ctx: ServerRequestContext[Any, Any],
        make_binding: Callable[[], bytes],
    ) -> Mapping[str, Any]:
        """Take up what was parked, with the answers that a request brings; as `see_through`."""
        parked = self._pending.get(name)
        if parked is None:
            raise make_used_state_error()
        answers = parked.task.validate_responses(responses)
        del self._pending[name]
        parked.timer.cancel()
        parked.task.relay.attach(ctx)
        parked.task.deliver_responses(answers)
        return await self.run(parked.task, parked.owner, make_binding)

    async def cancel_owner(self, owner: str) -> None:
        """A client has gone, and will not come back for what is its own."""
        for name in [name for name, parked in self._pending.items() if parked.owner == owner]:
            self._cancel(name)
        await self._wait_for_cancelled()

    async def close(self) -> None:
        """End everything that waits."""
        for name in list(self._pending):
            self._cancel(name)
        await self._wait_for_cancelled()

    def _find_exceeded_limit(self, owner: str) -> str | None:
        if len(self._pending) >= self._max_pending:
            return f"{len(self._pending):,} calls already wait for their clients' answers"
        if sum(parked.owner == owner for parked in self._pending.values()) >= self._max_per_owner:
            return f"{self._max_per_owner:,} calls of this client already wait for its answers"
        return None

    def _cancel(self, name: str) -> None:
        if (parked := self._pending.pop(name, None)) is None:
            return
        parked.timer.cancel()
        ending = parked.task.cancel_soon()
        self._cancelled_tasks.add(ending)
        ending.add_done_callback(self._cancelled_tasks.discard)

    async def _wait_for_cancelled(self) -> None:
        if self._cancelled_tasks:
            await asyncio.wait(self._cancelled_tasks)
