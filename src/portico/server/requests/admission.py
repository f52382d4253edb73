"""Whether a client's request is begun now, waits for its turn, or is turned away with advice when
to come again.

Only what may take long needs a place: calls, and whatever else goes on to a server. What we answer
from memory needs none (handshake, ping, lists, our own searching): it is over before the next
request is looked at, so places would protect nothing, and an agent that finds the gateway busy must
still be able to look around. Notifications, and with them cancellations, are never held up: they
make room. A request that was answered with a question to its client (`input_required`) holds no
place while the client thinks: its answer is another request.

Tools that scripts and workflows call take no place of their own: their script has one, and waiting
for more while it holds that could never end. What bounds them is `code.parallel`,
`workflow.parallel` and each server's own limits, where callers take turns too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mcp.server.context import ServerRequestContext

from portico.access import Caller
from portico.config.limits import LimitsConfig
from portico.errors import Overloaded
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded
from portico.meta_tools import tool_definitions
from portico.rendering.tool_result import make_error_result

T = TypeVar("T")
Requirement = Literal["nothing", "rate", "place"]

UNLIMITED_METHODS = frozenset(
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
_POLL_S = 0.02
_SHUTDOWN_RETRY_S = 5.0
"""When whoever comes while the gateway ends may find it, or another, again."""
RATE_LIMITED_TOOLS = frozenset(
    {tool_definitions.SEARCH_TOOLS, tool_definitions.BROWSE_TOOLS, tool_definitions.DESCRIBE_TOOLS}
)
"""Meta-tools that are answered from memory; they cost a search, so they count for a client's rate.
"""


@dataclass(frozen=True, slots=True)
class AdmissionTicket:
    """One request at the door."""

    client_key: str
    """What tells its client from others."""
    requirement: Requirement
    calls_meta_tool: bool = False
    """Whether it calls a tool of ours, whose refusals are results that a model reads."""


def classify_request(method: str, tool: str = "") -> Requirement:
    """What a request has to have before it is begun; `tool` is the one of ours that it calls."""
    if method in UNLIMITED_METHODS:
        return "nothing"
    if tool in RATE_LIMITED_TOOLS:
        return "rate"
    return "place"


def make_ticket(
    ctx: ServerRequestContext[Any, Any], caller: Caller, meta_tools: Collection[str]
) -> AdmissionTicket:
    """A request as the door counts it; `ours` are the tools of our own that are listed here."""
    if ctx.method == "tools/call":
        tool: Any = (ctx.params or {}).get("name")
    else:
        tool = None
    by_tool = isinstance(tool, str) and tool in meta_tools
    return AdmissionTicket(
        _identify_client(ctx, caller),
        classify_request(ctx.method, tool if by_tool else ""),
        by_tool,
    )


def _identify_client(ctx: ServerRequestContext[Any, Any], caller: Caller) -> str:
    """A session where there is one; else all that is known: the token, the name, and the machine it
    comes from.

    Not its connection: clients open several, and a flood opens many.
    """
    if caller.session:
        return caller.session
    scope: Any = getattr(ctx.request, "scope", None)
    if isinstance(scope, Mapping):
        address: Any = scope.get("client")
    else:
        address = None
    if address:
        return f"{caller.owner}@{address[0]}"
    return caller.owner


class AdmissionControl:
    """The one place where all doors count what clients have under way. One event loop's own."""

    def __init__(
        self, limits: LimitsConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wait_s = limits.wait_s
        self._clock = clock
        self.limiter = FairLimiter(*_to_limits(limits), clock=clock)
        self.rejected_count = 0
        self.is_draining = False
        """The gateway is about to end: nothing that may take long is begun any more."""

    async def drain(self, timeout_s: float) -> bool:
        """Let in nobody more, and wait until all who are in have gone, but not longer; whether they
        have."""
        self.is_draining = True
        deadline = self._clock() + timeout_s
        while (empty := not self.limiter.running) is False and self._clock() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return empty

    def configure(self, limits: LimitsConfig) -> None:
        """Go by these from now on; who is inside stays, who waits keeps its turn."""
        self._wait_s = limits.wait_s
        self.limiter.configure(*_to_limits(limits))

    async def run(
        self, ticket: AdmissionTicket, handler: Callable[[float], Awaitable[T]]
    ) -> T | dict[str, Any]:
        """The answer to a request when it is its turn; `answer` is told how long it waited. Raises
        Overloaded."""
        if ticket.requirement == "nothing":
            return await handler(0.0)
        waited = 0.0
        try:
            if self.is_draining and ticket.requirement == "place":
                raise LimitExceeded("it is about to end", _SHUTDOWN_RETRY_S)
            if ticket.requirement == "rate":
                self.limiter.take_rate_token(ticket.client_key)
            elif not self.limiter.try_acquire(ticket.client_key):
                arrived = self._clock()
                await self.limiter.acquire(ticket.client_key, self._wait_s)
                waited = self._clock() - arrived
        except LimitExceeded as refused:
            self.rejected_count += 1
            error = _to_overloaded(refused)
            if ticket.calls_meta_tool:
                return make_error_result(error)
            raise error from None
        if ticket.requirement == "rate":
            return await handler(0.0)
        try:
            return await handler(waited)
        finally:
            self.limiter.release(ticket.client_key)


def _to_limits(limits: LimitsConfig) -> tuple[Limit, Limit]:
    each = Limit(
        limits.caller_requests, limits.caller_rate_per_s, limits.caller_burst, limits.caller_waiting
    )
    return Limit(limits.requests, queue=limits.waiting), each


def _to_overloaded(refused: LimitExceeded) -> Overloaded:
    after = refused.retry_after_s
    return Overloaded(
        f"the gateway is busy: {refused.reason}",
        advice=f"Nothing was begun. Try again in {after:g} s, or ask for less at once.",
        retry_after_s=after,
    )
