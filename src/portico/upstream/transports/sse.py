"""Backend for MCP over the older HTTP+SSE transport."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.errors import PorticoError
from portico.upstream.backend import Connection, Era, Listener, Raw
from portico.upstream.transports.http_headers import redact_url


@dataclass
class SseBackend:
    """A server whose URL is an event stream."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    roots: tuple[Raw, ...] = ()
    max_message_bytes: int = 64 * 2**20
    diagnostic_data: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    kind = "sse"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Open the stream, wait for the message endpoint and perform the handshake."""
        # Imported late: a gateway that calls no HTTP server does not load the HTTP code.
        from portico.upstream.transports.sse_connection import SseConnection

        self.diagnostic_data.clear()
        connection = SseConnection(self, listener)
        try:
            await connection.open()
        except BaseException as error:
            if isinstance(error, PorticoError):
                self.diagnostic_data["last_error"] = error.message
            await asyncio.shield(connection.close())
            raise
        return connection

    def diagnostics(self) -> Mapping[str, Any]:
        """Return url, era, number of messages sent and the last error."""
        return {
            "url": redact_url(self.url),
            "era": "legacy",
            "last_error": "",
            **self.diagnostic_data,
        }
