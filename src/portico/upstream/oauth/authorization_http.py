"""Requests to authorization servers: bounded in time and size, without redirects.

What a server says about where its authorization server is, is not trusted: an address must be
https, and not of this machine or a private network unless the server itself is there, or the
configuration names it.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from portico.errors import BackendUnavailable, PorticoError
from portico.json_text.json_codec import has_more_values
from portico.upstream.oauth.possession_proof import NONCE_WANTED, make_proof
from portico.upstream.transports.http_headers import parse_origin, redact_url

if TYPE_CHECKING:
    import httpx2

REQUEST_TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 256 * 1024
MAX_ANSWER_VALUES = 25_000
MAX_NONCE_CHARS = 1_000
_RESOLVE_TIMEOUT_S = 5.0


class AuthorizationUnavailable(BackendUnavailable):
    """An authorization server cannot be reached, or is in trouble; trying again may help."""

    may_have_begun = False
    was_sent = False


class SignInFailed(PorticoError):
    """Somebody could not be signed in, and trying the same again does not help."""

    kind = "sign_in_failed"


@dataclass(frozen=True)
class HttpAnswer:
    """Status, media type and body of a response."""

    status: int
    media_type: str
    body: bytes
    nonce: str = ""
    """What its `DPoP-Nonce` says."""


class AuthorizationHttp:
    """HTTP to all authorization servers of a gateway. For one event loop."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def get(self, url: str, trusted: "TrustedPlaces") -> HttpAnswer:
        return await self._send("GET", url, trusted, {"accept": "application/json"})

    async def post_form(
        self,
        url: str,
        trusted: "TrustedPlaces",
        form: Mapping[str, str],
        headers: Mapping[str, str],
        dpop_key: str = "",
    ) -> HttpAnswer:
        """Post a form; with a key, prove that it is here, again with a nonce if one is wanted."""
        headers = {"accept": "application/json", **headers}
        if not dpop_key:
            return await self._send("POST", url, trusted, headers, data=dict(form))
        proof = make_proof(dpop_key, "POST", url, time.time())
        proved = {**headers, "dpop": proof}
        answer = await self._send("POST", url, trusted, proved, data=dict(form))
        if answer.status in (400, 401) and answer.nonce and NONCE_WANTED.encode() in answer.body:
            proof = make_proof(dpop_key, "POST", url, time.time(), nonce=answer.nonce)
            proved = {**headers, "dpop": proof}
            answer = await self._send("POST", url, trusted, proved, data=dict(form))
        return answer

    async def post_json(
        self,
        url: str,
        trusted: "TrustedPlaces",
        value: Any,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        accept = {"accept": "application/json", **(headers or {})}
        return await self._send("POST", url, trusted, accept, json=value)

    async def ask_for_challenge(self, url: str) -> str:
        """Send a server a request without credentials; return its `WWW-Authenticate` header."""
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "portico", "version": "0"},
            },
        }
        client = await self._open()
        headers = {"accept": "application/json, text/event-stream"}
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT_S),
                client.stream("POST", url, json=message, headers=headers) as response,
            ):
                if response.status_code in (401, 403):
                    return response.headers.get("www-authenticate", "")
        except (OSError, TimeoutError, self._http_error()) as error:
            raise _make_unavailable(url, error) from error
        return ""

    async def close(self) -> None:
        client = self._client
        self._client = None
        if client is not None:
            await client.aclose()

    async def _send(
        self,
        method: str,
        url: str,
        trusted: "TrustedPlaces",
        headers: Mapping[str, str],
        **content: Any,
    ) -> HttpAnswer:
        await trusted.check(url)
        client = await self._open()
        # Nothing compressed: a small piece could become many megabytes at once.
        headers = {**headers, "accept-encoding": "identity"}
        body = bytearray()
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT_S),
                client.stream(method, url, headers=headers, **content) as response,
            ):
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise AuthorizationUnavailable(
                        f"{redact_url(url)} answered compressed, which was not asked for"
                    )
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise AuthorizationUnavailable(
                            f"{redact_url(url)} answered more than {MAX_ANSWER_BYTES} bytes"
                        )
        except (OSError, TimeoutError, self._http_error()) as error:
            raise _make_unavailable(url, error) from error
        if has_more_values(bytes(body), MAX_ANSWER_VALUES):
            raise AuthorizationUnavailable(
                f"{redact_url(url)} answered more than {MAX_ANSWER_VALUES:,} JSON values"
            )
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        nonce = response.headers.get("dpop-nonce", "")[:MAX_NONCE_CHARS]
        return HttpAnswer(response.status_code, media_type, bytes(body), nonce)

    async def _open(self) -> "httpx2.AsyncClient":
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_make_client)
            return self._client

    def _http_error(self) -> type[Exception]:
        import httpx2

        return httpx2.HTTPError


def _make_client() -> "httpx2.AsyncClient":
    """Make the client; in a thread, as reading the certificates takes a while."""
    import httpx2

    return httpx2.AsyncClient(
        follow_redirects=False,
        timeout=REQUEST_TIMEOUT_S,
        # A kept connection that its server has closed would fail a request that cannot be repeated.
        limits=httpx2.Limits(max_keepalive_connections=0),
    )


def _make_unavailable(url: str, error: BaseException) -> AuthorizationUnavailable:
    if isinstance(error, TimeoutError):
        reason = f"no answer within {REQUEST_TIMEOUT_S:g} s"
    else:
        reason = str(error) or type(error).__name__
    return AuthorizationUnavailable(
        f"{redact_url(url)} cannot be reached: {reason}", advice="Try again in a minute."
    )


@dataclass(frozen=True)
class TrustedPlaces:
    """To which addresses requests for one server may go."""

    server_url: str
    named: tuple[str, ...] = ()
    """URLs that the configuration names; their origins are allowed."""
    resolve: "Callable[[str, int], list[str]]" = lambda host, port: resolve_host(host, port)

    async def check(self, url: str) -> None:
        """Raise SignInFailed unless a request may be sent there."""
        parts = urlsplit(url)
        if not parts.hostname or parts.scheme not in ("http", "https"):
            raise SignInFailed(f"{redact_url(url)} is no address to sign in at")
        if parts.username is not None or parts.fragment:
            raise SignInFailed(f"{redact_url(url)} is no address to sign in at")
        if any(parse_origin(url) == parse_origin(one) for one in (self.server_url, *self.named)):
            return
        is_private = await self._is_private(url)
        if is_private and not await self._is_private(self.server_url):
            raise SignInFailed(
                f"{redact_url(url)} is an address of a private network, which a server on the "
                "internet may not name",
                advice="If it is right, name it in the configuration: `auth: {issuer: …}`.",
            )
        if parts.scheme == "http" and not is_private:
            raise SignInFailed(f"{redact_url(url)} is not https: nobody signs in there")

    async def _is_private(self, url: str) -> bool:
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                addresses = await asyncio.to_thread(
                    self.resolve, parts.hostname or "", parts.port or 443
                )
        except (OSError, TimeoutError, UnicodeError):
            return False  # a proxy may know it; without one the request itself fails
        return any(not ipaddress.ip_address(one).is_global for one in addresses)


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host; blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]).partition("%")[0] for entry in found]
