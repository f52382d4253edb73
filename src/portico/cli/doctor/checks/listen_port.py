"""Whether the gateway could listen where it should, and who listens there already."""

import asyncio
import contextlib

import orjson

from portico.cli.commands.serve import bind_socket
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.cli.gateway_client import WILDCARD_HOSTS
from portico.config import Config
from portico.errors import ConfigError, PorticoError

_RESPONSE_TIMEOUT_S = 3.0
_MAX_BYTES = 16_384
_INITIALIZE_REQUEST = orjson.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "portico-doctor", "version": "1"},
        },
    }
)


async def check(config: Config, locations: ConfigLocations) -> list[DoctorFinding]:
    """Try to listen; where somebody does already, find out whether that is a Portico."""
    host = config.gateway.host
    port = config.gateway.port
    if port == 0:
        return []
    at = locations.locate("gateway", "port")
    try:
        bind_socket(host, port).close()
        return []
    except ConfigError as error:
        return [
            DoctorFinding(
                "door.host",
                "broken",
                error.message,
                error.advice,
                **locations.locate("gateway", "host"),
            )
        ]
    except PorticoError as error:
        if "already in use" not in error.message:
            return [
                DoctorFinding("door.port_forbidden", "broken", error.message, error.advice, **at)
            ]
    if await _is_portico(host, port):
        said = f"a Portico serves on {host}:{port}"
        return [
            DoctorFinding(
                "door.running", "note", said, "`portico serve` need not be started again.", **at
            )
        ]
    return [
        DoctorFinding(
            "door.port_taken",
            "broken",
            f"port {port} on {host} is taken by another program, so `portico serve` cannot start",
            f"Choose another one: portico serve --port {port + 1 if port < 65535 else 8420}, or gateway: {{port: …}}.",
            **at,
        )
    ]


async def _is_portico(host: str, port: int) -> bool:
    """Whether who listens there introduces itself as Portico, or guards its door as one does."""
    if host in WILDCARD_HOSTS:
        target = "127.0.0.1"
    else:
        target = host.strip("[]")
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(_INITIALIZE_REQUEST)}\r\nConnection: close\r\n\r\n"
    )
    said = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(target, port)
            try:
                writer.write(head.encode() + _INITIALIZE_REQUEST)
                while (
                    len(said) < _MAX_BYTES
                    and not _is_portico_response(said)
                    and (chunk := await reader.read(4_096))
                ):
                    said += chunk
            finally:
                writer.close()
    return _is_portico_response(said)


def _is_portico_response(response: bytes) -> bool:
    return (
        b'realm="portico"' in response.lower()
        or b'"name":"portico"' in response.lower().replace(b" ", b"")
    )
