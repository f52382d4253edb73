"""Identification of HTTP callers, among whom shared capacity is divided: by token and network.

Never by the name a client gives itself, which is free to choose. All requests from one address with
one token are one caller: all programs of this machine on loopback, all clients behind one proxy.
"""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from portico.server.sessions import IDENTITY_KEY

_IPV6_NETWORK_BITS = 64
"""Prefix of one subscriber, who can use any address in it."""


def identify_caller(scope: Any) -> str:
    """Return the caller of an HTTP request from its ASGI scope; empty without one (stdio)."""
    if not isinstance(scope, Mapping):
        return ""
    return f"{scope.get(IDENTITY_KEY, '')}@{identify_network(scope.get('client'))}"


def identify_network(peer: tuple[str, int] | None) -> str:
    """Return the network of a peer: an IPv4 address, or the /64 of an IPv6 address."""
    if peer:
        return _normalize_address(peer[0])
    return ""


@lru_cache(maxsize=4_096)
def _normalize_address(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if ip.version == 4:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((int(ip), _IPV6_NETWORK_BITS), strict=False))


class CallerQuota:
    """Counts how much of a limited capacity each caller holds, with a reserve for the others."""

    def __init__(self, limit: int, reserved: int) -> None:
        """One caller may hold all but `reserved` of `limit`; the reserve is at most a quarter."""
        self.limit = limit
        self.count = 0
        self._reserved = reserved
        self._counts: dict[str, int] = {}

    def has_capacity(self, caller: str) -> bool:
        """Return whether a caller may acquire one more."""
        reserved = min(self._reserved, self.limit // 4)
        return self.count < self.limit and self._counts.get(caller, 0) < self.limit - reserved

    def acquire(self, caller: str) -> None:
        """Count one more for a caller."""
        self.count += 1
        self._counts[caller] = self._counts.get(caller, 0) + 1

    def release(self, caller: str) -> None:
        """Count one less for a caller."""
        self.count -= 1
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]
