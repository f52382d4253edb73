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
from collections.abc import Callable, Mapping
from typing import Any, Literal

from portico.config.limits import LimitsConfig
from portico.errors import Overloaded
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded
from portico.meta_tools import tool_definitions
from portico.rendering.tool_result import make_error_result
from portico.server.request import Handler, Request

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


def classify_request(method: str, tool: str = "") -> Requirement:
    """Return what a request requires to run; `tool` is the meta-tool that it calls."""
    if method in UNLIMITED_METHODS:
        return "nothing"
    if tool in RATE_LIMITED_TOOLS:
        return "rate"
    return "place"


def _identify_client(request: Request) -> str:
    """Return the token, name and network address of a client without a session.

    Not its connection: clients open several, and a flood opens many.
    """
    owner = request.caller.owner
    scope: Any = getattr(request.ctx.request, "scope", None)
    if isinstance(scope, Mapping) and (address := scope.get("client")):
        return f"{owner}@{address[0]}"
    return owner


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
        while self.limiter.running and self._clock() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return not self.limiter.running

    def configure(self, limits: LimitsConfig) -> None:
        """Apply new limits. Running requests stay, queued ones keep their place."""
        self._wait_s = limits.wait_s
        self.limiter.configure(*_to_limits(limits))

    async def admit(self, request: Request, call_next: Handler) -> Mapping[str, Any]:
        """Middleware: run a request when it is admitted.

        Raises Overloaded, or for a meta-tool returns that as a result, which its model reads.
        """
        tool = ""
        if request.method == "tools/call":
            name: Any = request.params.get("name")
            if isinstance(name, str) and name in request.settings.enabled_meta_tools:
                tool = name
        requirement = classify_request(request.method, tool)
        if requirement == "nothing":
            return await call_next(request)
        client = request.caller.session or _identify_client(request)
        try:
            request.queued_s = await self.acquire(client, requirement)
        except Overloaded as error:
            if tool:
                return make_error_result(error)
            raise
        try:
            return await call_next(request)
        finally:
            self.release(client, requirement)

    async def acquire(self, client: str, requirement: Requirement) -> float:
        """Wait until a request of `client` may run; return the seconds it was queued.

        Raises Overloaded. To be followed by `release`.
        """
        try:
            if requirement == "rate":
                self.limiter.take_rate_token(client)
                return 0.0
            if self.is_draining:
                raise LimitExceeded("it is about to end", _SHUTDOWN_RETRY_S)
            if self.limiter.try_acquire(client):
                return 0.0
            queued_at = self._clock()
            await self.limiter.acquire(client, self._wait_s)
            return self._clock() - queued_at
        except LimitExceeded as refused:
            self.rejected_count += 1
            wait_s = refused.retry_after_s
            raise Overloaded(
                f"the gateway is busy: {refused.reason}",
                advice=f"Nothing was begun. Try again in {wait_s:g} s, or ask for less at once.",
                retry_after_s=wait_s,
            ) from None

    def release(self, client: str, requirement: Requirement) -> None:
        """Give back what `acquire` took."""
        if requirement == "place":
            self.limiter.release(client)


def _to_limits(limits: LimitsConfig) -> tuple[Limit, Limit]:
    per_caller = Limit(
        limits.caller_requests, limits.caller_rate_per_s, limits.caller_burst, limits.caller_waiting
    )
    return Limit(limits.requests, queue=limits.waiting), per_caller
