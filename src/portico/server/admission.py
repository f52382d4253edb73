"""Whether a client's request is begun now, waits for its turn, or is turned away with advice when to come again.

Only what may take long needs a place: calls, and whatever else goes on to a server. What we answer from memory needs
none (handshake, ping, lists, our own searching): it is over before the next request is looked at, so places would
protect nothing, and an agent that finds the gateway busy must still be able to look around. Notifications, and with
them cancellations, are never held up: they make room. A request that was answered with a question to its client
(`input_required`) holds no place while the client thinks: its answer is another request.

Tools that scripts and workflows call take no place of their own: their script has one, and waiting for more while it
holds that could never end. What bounds them is `code.parallel`, `workflow.parallel` and each server's own limits, where
callers take turns too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mcp.server.context import ServerRequestContext

from portico.access import Caller
from portico.config.limits import Limits
from portico.disclosure import metatools
from portico.disclosure.answer import refusal
from portico.errors import Overloaded
from portico.execution.turns import Limit, TurnedAway, Turns

T = TypeVar("T")
Need = Literal["nothing", "rate", "place"]

FREE = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "subscriptions/listen",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "logging/setLevel",
    }
)
"""Methods that are answered from memory."""
_LOOK_S = 0.02
_ENDING_S = 5.0
"""When whoever comes while the gateway ends may find it, or another, again."""
LOOKING = frozenset({metatools.SEARCH, metatools.BROWSE, metatools.DESCRIBE})
"""Meta-tools that are answered from memory; they cost a search, so they count for a client's rate."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request at the door."""

    who: str
    """What tells its client from others."""
    need: Need
    by_tool: bool = False
    """Whether it calls a tool of ours, whose refusals are results that a model reads."""


def needed(method: str, tool: str = "") -> Need:
    """What a request has to have before it is begun; `tool` is the one of ours that it calls."""
    if method in FREE:
        return "nothing"
    return "rate" if tool in LOOKING else "place"


def visit(ctx: ServerRequestContext[Any, Any], caller: Caller, ours: Collection[str]) -> Visit:
    """A request as the door counts it; `ours` are the tools of our own that are listed here."""
    tool: Any = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
    by_tool = isinstance(tool, str) and tool in ours
    return Visit(_who(ctx, caller), needed(ctx.method, tool if by_tool else ""), by_tool)


def _who(ctx: ServerRequestContext[Any, Any], caller: Caller) -> str:
    """A session where there is one; else all that is known: the token, the name, and the machine it comes from.

    Not its connection: clients open several, and a flood opens many.
    """
    if caller.session:
        return caller.session
    scope: Any = getattr(ctx.request, "scope", None)
    address: Any = scope.get("client") if isinstance(scope, Mapping) else None
    return f"{caller.owner}@{address[0]}" if address else caller.owner


class Admission:
    """The one place where all doors count what clients have under way. One event loop's own."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._wait_s = limits.wait_s
        self._clock = clock
        self.turns = Turns(*_as_turns(limits), clock=clock)
        self.turned_away = 0
        self.ending = False
        """The gateway is about to end: nothing that may take long is begun any more."""

    async def drained(self, seconds: float) -> bool:
        """Let in nobody more, and wait until all who are in have gone, but not longer; whether they have."""
        self.ending = True
        deadline = self._clock() + seconds
        while (empty := not self.turns.running) is False and self._clock() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        return empty

    def configure(self, limits: Limits) -> None:
        """Go by these from now on; who is inside stays, who waits keeps its turn."""
        self._wait_s = limits.wait_s
        self.turns.configure(*_as_turns(limits))

    async def answered(self, visit: Visit, answer: Callable[[float], Awaitable[T]]) -> T | dict[str, Any]:
        """The answer to a request when it is its turn; `answer` is told how long it waited. Raises Overloaded."""
        if visit.need == "nothing":
            return await answer(0.0)
        waited = 0.0
        try:
            if self.ending and visit.need == "place":
                raise TurnedAway("it is about to end", _ENDING_S)
            if visit.need == "rate":
                self.turns.pass_by(visit.who)
            elif not self.turns.enter_now(visit.who):
                arrived = self._clock()
                await self.turns.enter(visit.who, self._wait_s)
                waited = self._clock() - arrived
        except TurnedAway as refused:
            self.turned_away += 1
            error = _overloaded(refused)
            if visit.by_tool:
                return refusal(error)
            raise error from None
        if visit.need == "rate":
            return await answer(0.0)
        try:
            return await answer(waited)
        finally:
            self.turns.leave(visit.who)


def _as_turns(limits: Limits) -> tuple[Limit, Limit]:
    each = Limit(limits.caller_requests, limits.caller_rate_per_s, limits.caller_burst, limits.caller_waiting)
    return Limit(limits.requests, queue=limits.waiting), each


def _overloaded(refused: TurnedAway) -> Overloaded:
    after = refused.retry_after_s
    return Overloaded(
        f"the gateway is busy: {refused.why}",
        advice=f"Nothing was begun. Try again in {after:g} s, or ask for less at once.",
        retry_after_s=after,
    )
