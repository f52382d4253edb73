"""What a backend is: something that can be connected to and asked.

`Backend` is the description of one server (how to reach it); `Connection` is one live conversation with it. Both carry
raw JSON-RPC dicts: no typed model stands between the upstream's wire and the client's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from portico.errors import INTERNAL_ERROR, RemoteError

Era = Literal["legacy", "modern"]
"""`legacy`: the initialize handshake, 2024-11-05 … 2025-11-25. `modern`: the per-request envelope, 2026-07-28.
"""

Raw = dict[str, Any]


@dataclass(frozen=True)
class InitializeInfo:
    """How an upstream introduced itself."""

    era: Era
    protocol_version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    server_info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""


class CallAlreadyEnded(RemoteError):
    """A question came for a call that is over: where its client has others under way, it may be
    about one of those."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the call that this question belongs to is over")


class Relay(Protocol):
    """The way back to the caller whose request an upstream is working on.

    Telling never raises, however the way to the client fails; asking raises PorticoError and
    nothing else.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the caller's client can be asked, as it declared it: `sampling`, `elicitation`,
        `roots`."""
        ...

    @property
    def client_key(self) -> str:
        """Who is at the other end; two relays of one client session share it."""
        ...

    async def notify(self, method: str, params: Raw) -> None:
        """Pass a notification (progress, log message) to the caller."""
        ...

    async def request(self, method: str, params: Raw) -> Raw:
        """Ask the caller's client (sampling, elicitation, roots) and return its raw result."""
        ...

    async def pause(self) -> None:
        """The upstream ended its stream before it answered, and is being asked to go on."""
        ...


class Listener(Protocol):
    """Hears what an upstream says outside any request."""

    def on_notification(self, method: str, params: Raw) -> None:
        """A notification that belongs to no request in flight."""
        ...

    def on_lost(self, reason: str) -> None:
        """The conversation ended without `close` having been called."""
        ...


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of one request."""

    timeout: float | None = None
    relay: Relay | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Extra HTTP headers (`Mcp-Param-*`); other transports ignore them."""
    total_timeout: float | None = None
    """Seconds in all, whatever progress is reported; `timeout` begins anew with each report."""

    def compute_deadline(self, started: float, last_activity: float) -> float | None:
        """When a request that began at `started` and last gave a sign of life at `now` is given up."""
        ends = (
            None if self.timeout is None else last_activity + self.timeout,
            None if self.total_timeout is None else started + self.total_timeout,
        )
        return min((end for end in ends if end is not None), default=None)


NO_OPTIONS = RequestOptions()


class Connection(Protocol):
    """One live conversation with an upstream.

    One that can tell sets its attribute `spoke` whenever anything is heard of its server: whoever
    looks after it takes that for a sign of life.
    """

    @property
    def initialize_info(self) -> InitializeInfo: ...

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request, return its raw result.

        Raises RemoteError (the upstream said no), BackendTimeout, BackendUnavailable (the
        conversation is over). Cancelling the awaiting task tells the upstream that the request is
        cancelled.
        """
        ...

    async def notify(self, method: str, params: Raw | None = None) -> None: ...

    async def close(self) -> None:
        """End the conversation and everything it holds: process, sockets, tasks. Idempotent."""
        ...


class Backend(Protocol):
    """How to reach one server."""

    @property
    def kind(self) -> str: ...

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Open a conversation and introduce ourselves. `era` is what worked last time, if known."""
        ...

    def diagnostics(self) -> Mapping[str, Any]:
        """What is known about the last conversation: pid, last stderr lines, noise count …"""
        ...
