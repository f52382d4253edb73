"""Backend for MCP over Streamable HTTP, in either protocol era."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.errors import PorticoError
from portico.upstream.backend import Connection, Era, Listener, Raw
from portico.upstream.protocol.envelope import LEGACY_VERSIONS
from portico.upstream.protocol.handshake import ProtocolSetting
from portico.upstream.transports.http_headers import redact_url


@dataclass
class HttpBackend:
    """A server with a URL."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    protocol: ProtocolSetting = "auto"
    roots: tuple[Raw, ...] = ()
    max_message_bytes: int = 64 * 2**20
    diagnostic_data: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    kind = "http"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Detect the era and perform the handshake."""
        # Imported late: a gateway that calls no HTTP server does not load the HTTP code.
        from portico.upstream.transports.http_connection import HttpConnection
        from portico.upstream.transports.http_exchange import HttpExchange

        self.diagnostic_data.clear()
        exchange = HttpExchange(self.name, self.url, self.headers, self.max_message_bytes)
        connection = HttpConnection(self.name, exchange, listener, self.roots)
        try:
            await connection.open(self.protocol, era)
        except BaseException as error:
            if isinstance(error, PorticoError):
                self.diagnostic_data["last_error"] = error.message
            await asyncio.shield(connection.close())
            raise
        self.diagnostic_data.update(connection=connection, exchange=exchange)
        return connection

    def diagnostics(self) -> Mapping[str, Any]:
        """Return url, era, session, number of messages sent and the last error."""
        connection = self.diagnostic_data.get("connection")
        exchange = self.diagnostic_data.get("exchange")
        diagnostics: dict[str, Any] = {
            "url": redact_url(self.url),
            "last_error": self.diagnostic_data.get("last_error", ""),
        }
        if connection is not None and exchange is not None:
            diagnostics |= {
                "era": connection.initialize_info.era,
                "session": connection.has_session,
                "requests": exchange.sent_count,
                "last_error": connection.last_error,
            }
            version = connection.initialize_info.protocol_version
            if connection.initialize_info.era == "legacy" and version not in LEGACY_VERSIONS:
                diagnostics["note"] = (
                    f"it answered the handshake with a version we do not know: {version}"
                )
        return diagnostics
