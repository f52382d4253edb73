"""HTTP proxies of the environment: which one an address is reached through, and the way through.

`http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in small or capital letters, as curl and
Python read them; networks in `no_proxy` (10.0.0.0/8) too. Addresses of this machine never go
through a proxy, which could read what was meant to stay here.
"""

import asyncio
import base64
import ipaddress
import ssl
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_ANSWER_BYTES = 16 * 1024


class ProxyError(Exception):
    """The proxy cannot be used; the message has no credentials."""


@dataclass(frozen=True)
class Proxy:
    """A proxy that speaks HTTP."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)
    """The value of `Proxy-Authorization`; empty without credentials."""

    def __str__(self) -> str:
        return _join_authority(self.host, self.port)

    @property
    def header(self) -> bytes:
        """The header line with its credentials, if it has any."""
        if not self.authorization:
            return b""
        return f"proxy-authorization: {self.authorization}\r\n".encode()


def find_proxy_url(address: SplitResult) -> str | None:
    """Return the proxy of the environment for an address, with its credentials; None: direct."""
    host = (address.hostname or "").lower()
    proxies = getproxies_environment()
    url = proxies.get(address.scheme) or proxies.get("all")
    if not url or is_loopback(host):
        return None
    port = address.port or DEFAULT_PORTS[address.scheme]
    if any(_excludes(item, host, port) for item in proxies.get("no", "").lower().split(",")):
        return None
    return url if "://" in url else f"http://{url}"


def find_proxy(address: SplitResult) -> Proxy | None:
    """Return the proxy for an address; raises ProxyError if it is one that is not supported."""
    url = find_proxy_url(address)
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ProxyError(
                f"the proxy that the environment names is {parts.scheme}://…, and only http:// "
                "proxies are supported (NO_PROXY names hosts to reach without)"
            )
        proxy = Proxy(parts.hostname, parts.port or 80)
    except ValueError:
        raise ProxyError("the proxy that the environment names is no address") from None
    if parts.username is None:
        return proxy
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(proxy.host, proxy.port, basic)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _excludes(item: str, host: str, port: int) -> bool:
    """Return whether an item of `no_proxy` names a host: a domain, an address or a network."""
    name, _, item_port = item.strip().rpartition(":")
    if item_port.isdigit() and name and ":" not in name:
        if int(item_port) != port:
            return False
    else:
        name = item.strip()
    domain = name.removeprefix("*").removeprefix(".")
    if name == "*" or (domain and (host == domain or host.endswith(f".{domain}"))):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False  # a name


def _join_authority(host: str, port: int) -> str:
    if ":" in host:
        host = f"[{host}]"
    elif not host.isascii():
        host = host.encode("idna").decode()
    return f"{host}:{port}"


async def connect(
    address: SplitResult, protocol: asyncio.Protocol, context: ssl.SSLContext | None
) -> Proxy | None:
    """Connect to an address, encrypted with a context, and return the proxy that was used.

    Raises ProxyError, OSError and UnicodeError.
    """
    loop = asyncio.get_running_loop()
    host = address.hostname or ""
    port = address.port or DEFAULT_PORTS[address.scheme]
    proxy = find_proxy(address)
    if proxy is None:
        await loop.create_connection(lambda: protocol, host, port, ssl=context)
    elif context is None:
        await _connect_to_proxy(proxy, protocol)
    else:
        tunnel = await _open_tunnel(proxy, host, port)
        transport = await loop.start_tls(tunnel, protocol, context, server_hostname=host)
        protocol.connection_made(cast(asyncio.Transport, transport))
    return proxy


def to_proxied_request(request: bytes, proxy: Proxy, address: SplitResult) -> bytes:
    """Return a rendered request as a proxy expects it, with the whole URL and its credentials."""
    port = address.port or DEFAULT_PORTS[address.scheme]
    origin = f"{address.scheme}://{_join_authority(address.hostname or '', port)}"
    method, _, rest = request.partition(b" ")
    line, _, rest = rest.partition(b"\r\n")
    return b"%s %s%s\r\n%s%s" % (method, origin.encode(), line, proxy.header, rest)


async def _connect_to_proxy(proxy: Proxy, protocol: asyncio.Protocol) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_connection(lambda: protocol, proxy.host, proxy.port)
        return transport
    except OSError as error:
        reason = error.strerror or str(error)
        raise ProxyError(f"the proxy {proxy} cannot be reached: {reason}") from None


async def _open_tunnel(proxy: Proxy, host: str, port: int) -> asyncio.Transport:
    tunnel = _TunnelRequest()
    transport = await _connect_to_proxy(proxy, tunnel)
    target = _join_authority(host, port)
    head = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n".encode()
    transport.write(head + proxy.header + b"\r\n")
    try:
        status = await tunnel.status
        if not 200 <= status < 300:
            raise ProxyError(f"the proxy {proxy} refuses it (HTTP {status})")
    except BaseException:
        transport.abort()
        raise
    return transport


class _TunnelRequest(asyncio.Protocol):
    """Waits for the proxy's answer to CONNECT; what follows belongs to the target."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answer = b""

    def data_received(self, data: bytes) -> None:
        if self.status.done():
            return
        self._answer += data
        head, end, _ = self._answer.partition(b"\r\n\r\n")
        if end:
            words = head.split(b"\r\n")[0].split()
            if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit():
                self.status.set_result(int(words[1]))
            else:
                self._fail("what the proxy answered is not HTTP")
        elif len(self._answer) > MAX_ANSWER_BYTES:
            self._fail("the proxy's answer has no end")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the proxy closed the connection")

    def _fail(self, reason: str) -> None:
        if not self.status.done():
            self.status.set_exception(ProxyError(reason))
