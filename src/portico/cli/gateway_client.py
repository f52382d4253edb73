"""REST client for the gateway that runs at the configured address, if there is one."""

import http.client
import json
from dataclasses import dataclass
from typing import Any, cast

from portico.config import Config
from portico.errors import PorticoError

WILDCARD_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104 - to be recognised, not to be bound
LOOKUP_TIMEOUT_S = 2.0
MAX_BYTES = 4 * 1024**2
MAX_PAGES = 10


@dataclass(frozen=True)
class GatewayResponse:
    """Status and JSON body of a response."""

    status: int
    body: dict[str, Any]


def build_gateway_url(config: Config) -> str:
    """Return the address of a running gateway; empty if it cannot be known."""
    settings = config.gateway
    if not settings.port or not settings.api:
        return ""
    if settings.host in WILDCARD_HOSTS:
        host = "127.0.0.1"
    else:
        host = settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def send_request(config: Config, method: str, path: str, timeout: float) -> GatewayResponse | None:
    """Send a request; None if nothing listens.

    Raises PorticoError if what listens does not answer like a gateway.
    """
    url = build_gateway_url(config)
    if not url:
        return None
    token = config.gateway.token
    if token:
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
    else:
        headers = {}
    if method != "GET":
        # A web page cannot send this without permission (CORS).
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(
        url.removeprefix("http://"), timeout=min(LOOKUP_TIMEOUT_S, timeout)
    )
    try:
        connection.connect()
    except OSError:
        return None
    try:
        connection.sock.settimeout(timeout)
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        data = reply.read(MAX_BYTES)
        return GatewayResponse(reply.status, _parse_object(data))
    except TimeoutError:
        raise PorticoError(
            f"the gateway at {url} did not answer within {timeout:g} s",
            advice="See its log, or ask again.",
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PorticoError(
            f"what listens at {url} does not answer as a gateway does: {error}",
            advice="Is it another program? gateway.port says where the gateway is.",
        ) from None
    finally:
        connection.close()


def fetch_servers(config: Config) -> dict[str, dict[str, Any]]:
    """Return the servers of the running gateway; empty if there is none or it refuses."""
    found: dict[str, dict[str, Any]] = {}
    path: str | None = "/api/v1/servers?page_size=100&max_tokens=20000"
    try:
        for _ in range(MAX_PAGES):
            if path:
                reply = send_request(config, "GET", path, LOOKUP_TIMEOUT_S)
            else:
                reply = None
            if reply is None or reply.status != 200:
                break
            cards = cast("list[dict[str, Any]]", reply.body.get("servers", []))
            found |= {str(card["server"]): card for card in cards}
            path = reply.body.get("next")
    except (PorticoError, KeyError, TypeError):
        return found
    return found


def _parse_object(data: bytes) -> dict[str, Any]:
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError("no JSON object")
    return cast("dict[str, Any]", body)
