"""Asks the gateway that runs beside this command, by REST at the configured address; there may be
none."""

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
    """What it answered."""

    status: int
    body: dict[str, Any]


def build_gateway_url(config: Config) -> str:
    """Where it would be; empty where nobody can know."""
    settings = config.gateway
    if not settings.port or not settings.api:
        return ""
    if settings.host in WILDCARD_HOSTS:
        host = "127.0.0.1"
    else:
        host = settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def send_request(config: Config, method: str, path: str, timeout: float) -> GatewayResponse | None:
    """Its answer; None where nobody is there. Raises PorticoError where somebody is, who does not
    answer in REST."""
    there = build_gateway_url(config)
    if not there:
        return None
    token = config.gateway.token
    if token:
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
    else:
        headers = {}
    if method != "GET":
        headers["Content-Type"] = "application/json"  # no page could send this without leave
    connection = http.client.HTTPConnection(
        there.removeprefix("http://"), timeout=min(LOOKUP_TIMEOUT_S, timeout)
    )
    try:
        connection.connect()
    except OSError:
        return None
    try:
        connection.sock.settimeout(timeout)
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        read = reply.read(MAX_BYTES)
        return GatewayResponse(reply.status, _parse_object(read))
    except TimeoutError:
        raise PorticoError(
            f"the gateway at {there} did not answer within {timeout:g} s",
            advice="See its log, or ask again.",
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PorticoError(
            f"what listens at {there} does not answer as a gateway does: {error}",
            advice="Is it another program? gateway.port says where the gateway is.",
        ) from None
    finally:
        connection.close()


def fetch_servers(config: Config) -> dict[str, dict[str, Any]]:
    """The servers of the gateway that runs, as it shows them; none where there is none, or it does
    not tell."""
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
