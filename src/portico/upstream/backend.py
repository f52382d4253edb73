"""Contract of a backend: `Backend` opens a `Connection` to one server.

`Backend` describes how a server is reached; `Connection` is one open conversation with it. Both
carry raw JSON-RPC dicts: no typed model stands between the upstream's wire and the client's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from portico.errors import INTERNAL_ERROR, RemoteError

Era = Literal["legacy", "modern"]
"""`legacy`: initialize handshake, 2024-11-05 … 2025-11-25. `modern`: envelope of 2026-07-28."""

Raw = dict[str, Any]


@dataclass(frozen=True)
class InitializeInfo:
    """Protocol version, capabilities and identity that an upstream reported."""

    era: Era
    protocol_version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    server_info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""


class CallAlreadyEnded(RemoteError):
    """An upstream's request arrived after the call it belongs to had ended.

    Where the client has other calls in flight, the request may belong to one of those.
    """

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the call that this question belongs to is over")


class Relay(Protocol):
    """Channel back to the caller whose request an upstream is processing.

    `notify` never raises, however the delivery fails; `request` raises PorticoError only.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Client capabilities as the caller declared them: `sampling`, `elicitation`, `roots` and
        `extensions`."""
        ...

    @property
    def client_key(self) -> str:
        """Identifier of the client; two relays of one client session share it."""
        ...

    async def notify(self, method: str, params: Raw) -> None:
        """Pass a notification (progress, log message) to the caller."""
        ...

    async def request(self, method: str, params: Raw) -> Raw:
        """Send a request (sampling, elicitation, roots) to the client and return its raw result."""
        ...

    async def pause(self) -> None:
        """Record that the upstream ended its stream before it answered, and is being resumed."""
        ...


class Listener(Protocol):
    """Receives an upstream's messages outside any request."""

    def on_notification(self, method: str, params: Raw) -> None:
        """Handle a notification that belongs to no request in flight."""
        ...

    def on_lost(self, reason: str) -> None:
        """Handle the end of a connection on which `close` was not called."""
        ...


class IgnoringListener:
    """Ignores all messages, for a server that is only tried."""

    def on_notification(self, method: str, params: Raw) -> None:
        return

    def on_lost(self, reason: str) -> None:
        return


@dataclass(frozen=True, slots=True)
class RequestOptions:
    timeout: float | None = None
    relay: Relay | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Extra HTTP headers (`Mcp-Param-*`); other transports ignore them."""
    total_timeout: float | None = None
    """Seconds in all, whatever progress is reported; each report restarts `timeout`."""


NO_OPTIONS = RequestOptions()


class Connection(Protocol):
    """One open conversation with an upstream.

    A connection that can detect activity sets its attribute `has_activity` whenever it receives
    anything from its server; the health checker counts that as a sign of life.
    """

    @property
    def initialize_info(self) -> InitializeInfo: ...

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request and return its raw result.

        Raises RemoteError (the upstream refused), BackendTimeout, BackendUnavailable (the
        connection is closed). Cancelling the awaiting task sends a cancellation to the upstream.
        """
        ...

    async def notify(self, method: str, params: Raw | None = None) -> None: ...

    async def close(self) -> None:
        """Close the connection and what it holds: process, sockets, tasks. Idempotent."""
        ...


class Backend(Protocol):
    """A server's address and means of connecting to it."""

    @property
    def kind(self) -> str: ...

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Open a connection and perform the handshake. `era` is the last known one, if any."""
        ...

    def diagnostics(self) -> Mapping[str, Any]:
        """Return facts about the last connection: pid, last stderr lines, noise count etc."""
        ...
