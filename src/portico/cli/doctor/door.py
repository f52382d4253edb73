"""Whether the gateway could listen where it should, and who listens there already."""

import asyncio
import contextlib

import orjson

from portico.cli.beside import EVERYWHERE
from portico.cli.doctor.finding import Finding, Places
from portico.cli.serve import bound
from portico.config import Config
from portico.errors import ConfigError, PorticoError

_ASK_S = 3.0
_MOST_BYTES = 16_384
_HELLO = orjson.dumps(
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


async def check(config: Config, places: Places) -> list[Finding]:
    """Try to listen; where somebody does already, find out whether that is a Portico."""
    host, port = config.gateway.host, config.gateway.port
    if port == 0:
        return []
    at = places.at("gateway", "port")
    try:
        bound(host, port).close()
        return []
    except ConfigError as error:
        return [Finding("door.host", "broken", error.message, error.advice, **places.at("gateway", "host"))]
    except PorticoError as error:
        if "already in use" not in error.message:
            return [Finding("door.port_forbidden", "broken", error.message, error.advice, **at)]
    if await _is_portico(host, port):
        said = f"a Portico serves on {host}:{port}"
        return [Finding("door.running", "note", said, "`portico serve` need not be started again.", **at)]
    return [
        Finding(
            "door.port_taken",
            "broken",
            f"port {port} on {host} is taken by another program, so `portico serve` cannot start",
            f"Choose another one: portico serve --port {port + 1 if port < 65535 else 8420}, or gateway: {{port: …}}.",
            **at,
        )
    ]


async def _is_portico(host: str, port: int) -> bool:
    """Whether who listens there introduces itself as Portico, or guards its door as one does."""
    target = "127.0.0.1" if host in EVERYWHERE else host.strip("[]")
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(_HELLO)}\r\nConnection: close\r\n\r\n"
    )
    said = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ASK_S):
            reader, writer = await asyncio.open_connection(target, port)
            try:
                writer.write(head.encode() + _HELLO)
                while len(said) < _MOST_BYTES and not _introduced(said) and (chunk := await reader.read(4_096)):
                    said += chunk
            finally:
                writer.close()
    return _introduced(said)


def _introduced(said: bytes) -> bool:
    return b'realm="portico"' in said.lower() or b'"name":"portico"' in said.lower().replace(b" ", b"")
