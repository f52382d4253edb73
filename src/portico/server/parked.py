"""Requests that wait for their client to come back with an answer.

A modern client is asked by the answer to its request, and answers with its next one: until then the work is parked. So
many and no more, of one caller fewer; who does not come back in time finds it gone, and its server is told.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from portico.errors import Overloaded
from portico.server.handling import Handling
from portico.server.seal import Seal, used_up
from portico.upstream.envelope import REQUEST_STATE

QUESTION_S = 600.0
QUESTIONS = 256
SHARE = 4
"""One caller may hold a fourth of the places."""
RETRY_S = 5.0


@dataclass(frozen=True, eq=False)
class _Parked:
    handling: Handling
    owner: str
    timer: asyncio.TimerHandle


class Parking:
    """A gateway's, for all its doors. One event loop's own."""

    def __init__(
        self,
        question_s: float = QUESTION_S,
        questions: int = QUESTIONS,
        *,
        key: bytes | None = None,
        share: int = SHARE,
    ) -> None:
        """`key` signs what clients carry; without one, what was asked before a restart cannot be answered after it."""
        self.seal = Seal(question_s, key)
        self._share = share
        self.configure(question_s, questions)
        self._parked: dict[str, _Parked] = {}
        self._ending: set[asyncio.Task[Any]] = set()

    def configure(self, question_s: float, questions: int) -> None:
        """Go by these from now on; what is parked stays for the time that it was given."""
        self.question_s = self.seal.ttl_s = question_s
        self._most, self._most_each = questions, max(1, questions // self._share)

    def __len__(self) -> int:
        return len(self._parked)

    async def see_through(self, handling: Handling, owner: str, bound: Callable[[], bytes]) -> Mapping[str, Any]:
        """What a request is answered with: what its work came to, or the questions that it has for its client."""
        asked = await handling.outcome()
        if asked is None:
            return handling.result()
        if (full := self._full(owner)) is not None:
            await handling.cancel()
            raise Overloaded(
                f"{full}; this call had a question too and was cancelled",
                advice="Answer or give up some of those first, then call again.",
                retry_after_s=RETRY_S,
            )
        handling.relay.detach()
        name = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(self.question_s, self._give_up, name)
        self._parked[name] = _Parked(handling, owner, timer)
        state = self.seal.close("parked", name, bound())
        return {"resultType": "input_required", "inputRequests": asked, REQUEST_STATE: state}

    async def go_on(
        self, name: str, responses: Any, ctx: ServerRequestContext[Any, Any], bound: Callable[[], bytes]
    ) -> Mapping[str, Any]:
        """Take up what was parked, with the answers that a request brings; as `see_through`."""
        parked = self._parked.get(name)
        if parked is None:
            raise used_up()
        answers = parked.handling.checked(responses)
        del self._parked[name]
        parked.timer.cancel()
        parked.handling.relay.attach(ctx)
        parked.handling.answer(answers)
        return await self.see_through(parked.handling, parked.owner, bound)

    async def forget(self, owner: str) -> None:
        """A client has gone, and will not come back for what is its own."""
        for name in [name for name, parked in self._parked.items() if parked.owner == owner]:
            self._give_up(name)
        await self._ended()

    async def close(self) -> None:
        """End everything that waits."""
        for name in list(self._parked):
            self._give_up(name)
        await self._ended()

    def _full(self, owner: str) -> str | None:
        if len(self._parked) >= self._most:
            return f"{len(self._parked):,} calls already wait for their clients' answers"
        if sum(parked.owner == owner for parked in self._parked.values()) >= self._most_each:
            return f"{self._most_each:,} calls of this client already wait for its answers"
        return None

    def _give_up(self, name: str) -> None:
        if (parked := self._parked.pop(name, None)) is None:
            return
        parked.timer.cancel()
        ending = parked.handling.drop()
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _ended(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)
