"""Admission control: a client's request runs now, waits in a queue, or is refused with a time to
retry.

Only requests that may take long need a slot: calls, and whatever else is forwarded to a server.
Requests answered from memory need none (handshake, ping, lists, searches): they end before the next
request is read, so slots would protect nothing, and an agent that finds the gateway busy can still
search. Notifications, and with them cancellations, are never delayed: they free slots. A request
that was answered with an elicitation (`input_required`) holds no slot while the client decides: its
answer is another request.

Tools that scripts and workflows call take no slot of their own: their script holds one, and waiting
for more meanwhile could deadlock. They are bounded by `code.parallel`, `workflow.parallel` and each
server's own limits, which are fair to callers too.
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
"""Retry time for requests that arrive during shutdown."""
RATE_LIMITED_TOOLS = frozenset(
    {tool_definitions.SEARCH_TOOLS, tool_definitions.BROWSE_TOOLS, tool_definitions.DESCRIBE_TOOLS}
)
"""Meta-tools that are answered from memory; they cost a search, so they count against the rate."""


@dataclass(frozen=True, slots=True)
class AdmissionTicket:
    """One request as admission control counts it."""

    client_key: str
    """Identifies the client that the request counts against."""
    requirement: Requirement
    calls_meta_tool: bool = False
    """Whether it calls a meta-tool, whose refusals are results that a model reads."""


def classify_request(method: str, tool: str = "") -> Requirement:
    """Return what a request requires to run; `tool` is the meta-tool that it calls."""
    if method in UNLIMITED_METHODS:
        return "nothing"
    if tool in RATE_LIMITED_TOOLS:
        return "rate"
    return "place"


def make_ticket(
    ctx: ServerRequestContext[Any, Any], caller: Caller, meta_tools: Collection[str]
) -> AdmissionTicket:
    """Build the ticket of a request; `meta_tools` are those that are listed in its profile."""
    tool = ""
    if ctx.method == "tools/call":
        name: Any = (ctx.params or {}).get("name")
        if isinstance(name, str) and name in meta_tools:
            tool = name
    return AdmissionTicket(
        _identify_client(ctx, caller), classify_request(ctx.method, tool), bool(tool)
    )


def _identify_client(ctx: ServerRequestContext[Any, Any], caller: Caller) -> str:
    """Return the session, or without one the token, name and network address of the client.

    Not its connection: clients open several, and a flood opens many.
    """
    if caller.session:
        return caller.session
    scope: Any = getattr(ctx.request, "scope", None)
    if isinstance(scope, Mapping) and (address := scope.get("client")):
        return f"{caller.owner}@{address[0]}"
    return caller.owner


class AdmissionControl:
    """Counts the requests of all endpoints. For one event loop."""

    def __init__(
        self, limits: LimitsConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wait_s = limits.wait_s
        self._clock = clock
        self.limiter = FairLimiter(*_to_limits(limits), clock=clock)
        self.rejected_count = 0
        self.is_draining = False
        """The gateway is shutting down: no request that needs a slot is admitted."""

    async def drain(self, timeout_s: float) -> bool:
        """Admit no more requests and wait up to `timeout_s` for the running ones; return whether
        all ended."""
        self.is_draining = True
        deadline = self._clock() + timeout_s
        while (empty := not self.limiter.running) is False and self._clock() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return empty

    def configure(self, limits: LimitsConfig) -> None:
        """Apply new limits. Running requests stay, queued ones keep their place."""
        self._wait_s = limits.wait_s
        self.limiter.configure(*_to_limits(limits))

    async def run(
        self, ticket: AdmissionTicket, handler: Callable[[float], Awaitable[T]]
    ) -> T | dict[str, Any]:
        """Run a request when it is admitted; `handler` gets the seconds it was queued. Raises
        Overloaded."""
        if ticket.requirement == "nothing":
            return await handler(0.0)
        queued_s = 0.0
        try:
            if self.is_draining and ticket.requirement == "place":
                raise LimitExceeded("it is about to end", _SHUTDOWN_RETRY_S)
            if ticket.requirement == "rate":
                self.limiter.take_rate_token(ticket.client_key)
            elif not self.limiter.try_acquire(ticket.client_key):
                queued_at = self._clock()
                await self.limiter.acquire(ticket.client_key, self._wait_s)
                queued_s = self._clock() - queued_at
        except LimitExceeded as refused:
            self.rejected_count += 1
            error = _to_overloaded(refused)
            if ticket.calls_meta_tool:
                return make_error_result(error)
            raise error from None
        if ticket.requirement == "rate":
            return await handler(0.0)
        try:
            return await handler(queued_s)
        finally:
            self.limiter.release(ticket.client_key)


def _to_limits(limits: LimitsConfig) -> tuple[Limit, Limit]:
    per_caller = Limit(
        limits.caller_requests, limits.caller_rate_per_s, limits.caller_burst, limits.caller_waiting
    )
    return Limit(limits.requests, queue=limits.waiting), per_caller


def _to_overloaded(refused: LimitExceeded) -> Overloaded:
    retry_after_s = refused.retry_after_s
    return Overloaded(
        f"the gateway is busy: {refused.reason}",
        advice=f"Nothing was begun. Try again in {retry_after_s:g} s, or ask for less at once.",
        retry_after_s=retry_after_s,
    )
