"""Requests to other servers whose answers are JSON: bounded in time and size, and to public
addresses only where a stranger named the address."""

import asyncio
import ipaddress
import json
import socket
from typing import Any

import httpx2

from portico.errors import PorticoError

TIMEOUT_S = 10.0
_UNICAST_IPV6 = ipaddress.IPv6Network("2000::/3")
MAX_BYTES = 512 * 1024
JSON_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


class RequestFailed(PorticoError):
    """A server did not answer with what was asked of it. It may later."""

    kind = "unavailable"
    retryable = True


async def fetch_json(
    http: httpx2.AsyncClient, request: httpx2.Request, *, max_bytes: int = MAX_BYTES
) -> tuple[int, Any]:
    """Return status and body of an answer, which is None where it is no JSON. Redirects are not
    followed. Raises RequestFailed where there is no answer, or one of more than `max_bytes`."""
    place = request.url.host
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reply = await http.send(request, stream=True, follow_redirects=False)
            try:
                body = await _read(reply, max_bytes)
            finally:
                await reply.aclose()
    except TimeoutError:
        raise RequestFailed(f"{place} did not answer within {TIMEOUT_S:g} s") from None
    except httpx2.HTTPError as error:
        raise RequestFailed(f"{place} cannot be reached: {type(error).__name__}") from error
    if body is None:
        raise RequestFailed(f"{place} answered with more than {max_bytes:,} bytes")
    try:
        return reply.status_code, json.loads(body)
    except (ValueError, RecursionError):
        return reply.status_code, None


async def _read(reply: httpx2.Response, max_bytes: int) -> bytes | None:
    """Return the body; None if there is more. A compressed one is read as it is: nothing asked
    for one, and unpacked it could have any size."""
    received = bytearray()
    async for part in reply.aiter_raw():
        received += part
        if len(received) > max_bytes:
            return None
    return bytes(received)


async def build_public_request(http: httpx2.AsyncClient, url: str) -> httpx2.Request:
    """Return a GET request for a URL that a stranger chose, to an address that was checked.

    The name is resolved here, and the request goes to the address found: a name that leads
    elsewhere when it is asked for again changes nothing. Raises RequestFailed for a host with an
    address that is not public.
    """
    target = httpx2.URL(url)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                target.host, target.port or 443, type=socket.SOCK_STREAM
            )
    except (OSError, TimeoutError, UnicodeError):
        raise RequestFailed(f"{target.host} cannot be found") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(address) for address in addresses):
        raise RequestFailed(f"{target.host} is no public address")
    headers = {**JSON_HEADERS, "Host": target.netloc.decode("ascii")}
    return http.build_request(
        "GET",
        target.copy_with(host=addresses[0]),
        headers=headers,
        extensions={"sni_hostname": target.host},
    )


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the Internet: not of this machine or its network, nor
    one of IPv6 that stands for one of IPv4."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        is_plain = ip in _UNICAST_IPV6 and ip.sixtofour is None and ip.teredo is None
        if not is_plain:
            return False
    return ip.is_global and not ip.is_multicast
