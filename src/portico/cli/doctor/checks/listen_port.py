"""Checks whether the gateway could listen on its port, and whether Portico already does."""

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
    """Try to listen; if the port is taken, find out whether by Portico."""
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
        return [
            DoctorFinding(
                "door.running",
                "note",
                f"a Portico serves on {host}:{port}",
                "`portico serve` need not be started again.",
                **at,
            )
        ]
    other_port = port + 1 if port < 65535 else 8420
    return [
        DoctorFinding(
            "door.port_taken",
            "broken",
            f"port {port} on {host} is taken by another program, so `portico serve` cannot start",
            f"Choose another one: portico serve --port {other_port}, or gateway: {{port: …}}.",
            **at,
        )
    ]


async def _is_portico(host: str, port: int) -> bool:
    """Return whether the listener identifies itself as Portico, or asks for a token as it does."""
    if host in WILDCARD_HOSTS:
        target = "127.0.0.1"
    else:
        target = host.strip("[]")
    request_head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Length: "
        f"{len(_INITIALIZE_REQUEST)}\r\nConnection: close\r\n\r\n"
    )
    response = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(target, port)
            try:
                writer.write(request_head.encode() + _INITIALIZE_REQUEST)
                while (
                    len(response) < _MAX_BYTES
                    and not _is_portico_response(response)
                    and (chunk := await reader.read(4_096))
                ):
                    response += chunk
            finally:
                writer.close()
    return _is_portico_response(response)


def _is_portico_response(response: bytes) -> bool:
    return (
        b'realm="portico"' in response.lower()
        or b'"name":"portico"' in response.lower().replace(b" ", b"")
    )
