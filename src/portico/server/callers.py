"""What tells the callers over HTTP apart where what they share is divided: their token and their network address.

Never the name a client gives itself: that is free to choose. Everybody who comes from one address with one token is
one caller: all programs of this machine on loopback, all clients behind one proxy. Only identities can tell them
apart.
"""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from portico.server.sessions import IDENTITY

_IPV6_NETWORK_BITS = 64
"""What one subscriber is given: whoever has it can choose any address in it."""


def caller_of(scope: Any) -> str:
    """The caller of an HTTP request, from its ASGI scope; empty where there is none (stdio)."""
    if not isinstance(scope, Mapping):
        return ""
    return f"{scope.get(IDENTITY, '')}@{network_of(scope.get('client'))}"


def network_of(peer: tuple[str, int] | None) -> str:
    """The network a connection comes from: an IPv4 address, or the /64 of an IPv6 address."""
    return _network(peer[0]) if peer else ""


@lru_cache(maxsize=4_096)
def _network(address: str) -> str:
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
    """Counts what callers hold of something that has so many places; each leaves some places for the others."""

    def __init__(self, most: int, left_for_others: int) -> None:
        """`left_for_others` of many places; of few a quarter."""
        self.most = most
        self.count = 0
        self._left = left_for_others
        self._held: dict[str, int] = {}

    def has_room(self, caller: str) -> bool:
        """Whether a caller may have one more."""
        left = min(self._left, self.most // 4)
        return self.count < self.most and self._held.get(caller, 0) < self.most - left

    def enter(self, caller: str) -> None:
        """Count one more of a caller."""
        self.count += 1
        self._held[caller] = self._held.get(caller, 0) + 1

    def leave(self, caller: str) -> None:
        """Count one less of a caller."""
        self.count -= 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
