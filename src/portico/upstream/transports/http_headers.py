"""Addresses, request heads and MCP's routing headers of HTTP requests. Pure."""

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import LATEST_LEGACY_VERSION, MODERN_VERSION
from portico.upstream.transports.proxy import DEFAULT_PORTS

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
FIRST_VERSION_WITH_HEADER = "2025-06-18"

_NAME_PARAMS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_URL_CHARACTERS = "%/:?#[]@!$&'()*+,;=~-._"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRINTABLE_ASCII = re.compile(r"[\x20-\x7e]*")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_BASE64_WRAPPED = re.compile(r"=\?base64\?.*\?=")


def parse_address(url: str) -> SplitResult:
    """Parse a URL; raise BackendUnavailable if it cannot be connected to."""
    try:
        address = urlsplit(url)
        if address.scheme in ("http", "https") and _format_host(address) and address.port != 0:
            return address
    except ValueError:
        pass
    error = BackendUnavailable(
        f"{redact_url(url)} is not an address that can be connected to",
        advice="A url looks like https://host:port/path; check the one in the configuration.",
    )
    error.retryable = False
    raise error


def parse_origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port, which credentials are bound to."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme.lower(),
            (parts.hostname or "").lower(),
            parts.port or DEFAULT_PORTS.get(parts.scheme.lower()),
        )
    except ValueError:
        return "", "", None


def redact_url(url: str) -> str:
    """Return a URL that may be shown: without user, password and query values."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        query = "?…" if parts.query else ""
        return f"{parts.scheme}://{_format_host(parts)}{port}{parts.path}{query}"
    except ValueError:
        return "(a malformed url)"


def render_request_head(method: str, address: SplitResult, *layers: Mapping[str, str]) -> bytes:
    """Render request line and headers, up to `content-length`; later layers override earlier."""
    port = f":{address.port}" if address.port else ""
    headers = {"host": f"{_format_host(address)}{port}"}
    if address.username is not None:
        pair = f"{unquote(address.username)}:{unquote(address.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    for layer in layers:
        headers.update((name.lower(), value) for name, value in layer.items())
    query = f"?{address.query}" if address.query else ""
    target = quote(f"{address.path or '/'}{query}", safe=_URL_CHARACTERS)
    return f"{method} {target} HTTP/1.1\r\n".encode() + render_header_lines(headers)


def render_header_lines(headers: Mapping[str, str]) -> bytes:
    """Render headers; raise BackendUnavailable for names or values that HTTP forbids."""
    lines: list[bytes] = []
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None or _HEADER_VALUE.fullmatch(value) is None:
            error = BackendUnavailable(
                f"the header {name!r} cannot be sent: it has characters that HTTP forbids",
                advice="Check the header's name and value in the configuration; "
                "a stray line break is the usual cause.",
            )
            error.retryable = False
            raise error
        lines.append(f"{name}: {value}\r\n".encode("latin-1"))
    return b"".join(lines)


def encode_param_header(value: str) -> str:
    """Encode a value for `Mcp-Name` and `Mcp-Param-*`: base64 unless it is plain ASCII."""
    if (
        _PRINTABLE_ASCII.fullmatch(value)
        and value == value.strip()
        and not _BASE64_WRAPPED.fullmatch(value)
    ):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def make_routing_headers(method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the headers that repeat a modern request's version, method and target."""
    headers = {VERSION_HEADER: MODERN_VERSION, "mcp-method": method}
    name = (params or {}).get(_NAME_PARAMS.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = encode_param_header(name)
    return headers


def make_handshake_headers(version: str, session: str | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    if version >= FIRST_VERSION_WITH_HEADER:
        # A modern version in this header would select the modern protocol at the server.
        headers[VERSION_HEADER] = LATEST_LEGACY_VERSION if version >= MODERN_VERSION else version
    if session:
        headers[SESSION_HEADER] = session
    return headers


def get_negotiated_version(result: Raw) -> str:
    version = result.get("protocolVersion")
    if isinstance(version, str) and _PRINTABLE_ASCII.fullmatch(version):
        return version
    return LATEST_LEGACY_VERSION


def _format_host(address: SplitResult) -> str:
    host = address.hostname or ""
    if ":" in host:
        return f"[{host}]"
    if host.isascii():
        return host
    return host.encode("idna").decode()
