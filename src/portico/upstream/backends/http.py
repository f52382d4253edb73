"""Backends for MCP over HTTP: Streamable HTTP in either era, and the older HTTP+SSE.

Their transports are imported late: a gateway that calls no HTTP server does not load the HTTP code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.errors import PorticoError
from portico.upstream.backend import Connection, Era, Listener, Raw
from portico.upstream.protocol.envelope import LEGACY_VERSIONS
from portico.upstream.protocol.handshake import ProtocolSetting
from portico.upstream.request_credentials import RequestCredentials
from portico.upstream.transports.http_headers import redact_url


@dataclass
class HttpBackend:
    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    protocol: ProtocolSetting = "auto"
    roots: tuple[Raw, ...] = ()
    max_message_bytes: int = 64 * 2**20
    credentials: RequestCredentials | None = field(default=None, repr=False)
    _transport: Any = field(default=None, init=False, repr=False)
    _failure: str = field(default="", init=False, repr=False)

    kind = "http"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        self._failure = ""
        self._transport = None
        transport = self._make_transport(listener)
        try:
            await transport.open(self.protocol, era)
        except BaseException as error:
            if isinstance(error, PorticoError):
                self._failure = error.message
            await transport.session.abandon()
            raise
        self._transport = transport
        return transport.session

    def diagnostics(self) -> Mapping[str, Any]:
        """Return url, era, session, number of messages sent and the last error."""
        diagnostics: dict[str, Any] = {"url": redact_url(self.url), "last_error": self._failure}
        transport = self._transport
        if transport is None:
            return diagnostics
        info = transport.session.initialize_info
        diagnostics |= {
            "era": info.era,
            "session": transport.session_id is not None,
            "requests": transport.exchange.sent_count,
            "last_error": transport.session.last_error,
        }
        if info.era == "legacy" and info.protocol_version not in LEGACY_VERSIONS:
            diagnostics["note"] = (
                f"it answered the handshake with a version we do not know: {info.protocol_version}"
            )
        return diagnostics

    def _make_transport(self, listener: Listener) -> Any:
        from portico.upstream.transports.http_transport import HttpTransport

        return HttpTransport(self, listener)


@dataclass
class SseBackend(HttpBackend):
    """A server whose URL is an event stream; handshake era only."""

    kind = "sse"

    def _make_transport(self, listener: Listener) -> Any:
        from portico.upstream.transports.sse_transport import SseTransport

        return SseTransport(self, listener)
