"""Authentication over HTTP: unambiguous Host and Origin headers, and the bearer credential, which
decides the principal of the request (`auth/authenticator.py`).

REST requests that change something are also refused if they come from a web page other than the
gateway's own.

Shared capacity is divided among callers (`CallerQuota`): never by the name a client gives itself,
which is free to choose. The holder of a key is one caller, from wherever it comes. Who shares the
gateway's token, or needs none, is told apart by network: all programs of this machine on loopback
are one caller, and all clients behind one proxy.
"""

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.auth.authenticator import Authenticator
from portico.auth.token_verifier import WRONG_TOKEN, Rejection
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Principal
from portico.server.http.auth_failures import AuthFailureLimiter
from portico.server.http.resource_metadata import ResourceMetadata

_IPV6_NETWORK_BITS = 64
"""Prefix of one subscriber, who can use any address in it."""
_SINGLE_HEADERS = (b"host", b"origin", b"authorization", b"mcp-protocol-version", b"mcp-session-id")
_PORT = re.compile(rb"^(?:\[[^]]*\]|[^:\[]*):(.*)$", re.DOTALL)


def identify_caller(scope: Any) -> str:
    """Return the caller of an HTTP request from its ASGI scope; empty without one (stdio)."""
    if not isinstance(scope, Mapping):
        return ""
    principal: Principal = scope.get(PRINCIPAL_KEY, LOCAL_USER)
    if principal.is_shared:
        return f"{principal.id}@{identify_network(scope.get('client'))}"
    return principal.id


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

    def try_acquire(self, caller: str) -> bool:
        """Count one more for a caller, if it may have one more; return whether it was counted."""
        held = self._counts.get(caller, 0)
        reserved = min(self._reserved, self.limit // 4)
        if self.count >= self.limit or held >= self.limit - reserved:
            return False
        self.count += 1
        self._counts[caller] = held + 1
        return True

    def release(self, caller: str) -> None:
        self.count -= 1
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]


def _check_headers(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the error status for headers that are ambiguous, else None.

    The SDK checks the names in Host and Origin. Of the others, each reader would take another one.
    """
    fields = list(headers)
    counts = Counter(name for name, _ in fields)
    if any(counts[name] > 1 for name in _SINGLE_HEADERS):
        return 400
    for header, status in ((b"host", 421), (b"origin", 403)):
        values = [value for name, value in fields if name == header]
        for value in values:
            port = _PORT.match(value if header == b"host" else value.partition(b"://")[2])
            if port is not None and not port[1].isdigit():
                return status
    return None


RefusalFactory = Callable[[int, str, str, Mapping[str, str]], Response]
"""Builds a response from status, detail, advice and headers."""


def _make_plain_refusal(
    status: int, detail: str, advice: str, headers: Mapping[str, str]
) -> Response:
    return JSONResponse({"error": detail, "advice": advice}, status, headers)


def make_problem_refusal(
    status: int, detail: str, advice: str, headers: Mapping[str, str]
) -> Response:
    """Build a refusal in the form that the REST API uses (RFC 9457)."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    all_headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Authorization, Cookie, X-Portico-Proof",
        **headers,
    }
    return JSONResponse({**body, "advice": advice}, status, all_headers, "application/problem+json")


class BearerAuthMiddleware:
    """Refuses requests with an ambiguous Host or Origin, or without a credential where one is
    required, and those that their credential does not open."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        make_refusal: RefusalFactory = _make_plain_refusal,
        failure_limiter: AuthFailureLimiter | None = None,
        can_open: Callable[[Principal, Scope], bool] = lambda *_: True,
        metadata: ResourceMetadata | None = None,
        find_session: Callable[[Scope], Principal | None] = lambda _: None,
    ) -> None:
        """`failure_limiter` counts wrong credentials; it can be shared with other applications.

        `can_open` says whether a principal may make a request at all, `metadata` where clients
        without a token are sent. `find_session` returns the principal of a request without a bearer
        credential by other means.
        """
        self._find_session = find_session
        self._app = app
        self._authenticator = authenticator
        self._failure_limiter = failure_limiter or AuthFailureLimiter()
        self._make_refusal = make_refusal
        self._can_open = can_open
        self._metadata = metadata or ResourceMetadata()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Whitespace around field values is not part of them (RFC 9110 §5.5); the parser leaves
        # the trailing part.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await (await self._check(scope) or self._app)(scope, receive, send)

    async def is_authorized(self, scope: Scope) -> bool:
        """Return whether a request may see the whole gateway."""
        if not self._authenticator.is_required:
            return True
        principal = await self._authenticate(scope)
        return isinstance(principal, Principal) and not principal.profiles

    async def _check(self, scope: Scope) -> Response | None:
        """Put the principal into the scope; return a refusal instead if it may not come in."""
        if (status := _check_headers(scope["headers"])) is not None:
            detail = (
                "a header is given twice, or what follows the colon of Host or Origin is no port"
            )
            advice = "Send Host, Origin, Authorization, Mcp-Session-Id and the version once each."
            return self._make_refusal(status, detail, advice, {})
        principal = LOCAL_USER
        if self._authenticator.is_required:
            authenticated = await self._authenticate(scope)
            if not isinstance(authenticated, Principal):
                return self._refuse_credential(scope, authenticated)
            principal = authenticated
        scope[PRINCIPAL_KEY] = principal
        if self._can_open(principal, scope):
            return None
        return self._refuse_principal(scope, principal)

    async def _authenticate(self, scope: Scope) -> Principal | Rejection | float:
        """Return the principal of a request, or why its credential is refused, or the seconds to
        wait until a credential of this peer is checked again; 0 where there is none."""
        header = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
        scheme, _, credential = header.partition(b" ")
        credential = credential.strip()
        if scheme.lower() != b"bearer" or not credential:
            return self._find_session(scope) or 0.0
        peer = identify_network(scope.get("client"))
        if self._failure_limiter.get_wait_s(peer):
            return self._failure_limiter.record_failure(peer)
        verdict: Principal | Rejection | None = self._authenticator.authenticate(credential)
        if verdict is None:
            verdict = await self._authenticator.verify(credential)
        if isinstance(verdict, Principal):
            self._failure_limiter.record_success(peer)
        elif verdict.is_forged:
            return self._failure_limiter.record_failure(peer) or verdict
        return verdict

    def _refuse_credential(self, scope: Scope, refused: Rejection | float) -> Response:
        if isinstance(refused, float) and refused:
            headers = {"Retry-After": str(math.ceil(refused))}
            return self._make_refusal(
                429,
                "too many wrong tokens came from this address",
                "Wait, and send another.",
                headers,
            )
        rejection = refused if isinstance(refused, Rejection) else None
        if rejection is not None and rejection.status == 403:
            advice = "Its issuer would have to give it more."
            return self._make_refusal(
                403, rejection.reason, advice, self._challenge(scope, rejection)
            )
        if rejection is not None and rejection.status == 503:
            advice = "The gateway's log says why. Try again later."
            return self._make_refusal(503, rejection.reason, advice, {"Retry-After": "5"})
        if self._authenticator.problem:
            return self._make_refusal(
                503,
                "keys cannot be checked now",
                "The gateway's log says why. Try again later.",
                {"Retry-After": "5"},
            )
        advice = "Send a key or the gateway's token: Authorization: Bearer …"
        if rejection is not None and rejection.reason != WRONG_TOKEN:
            advice = f"The token was refused: {rejection.reason}."
        return self._make_refusal(401, "unauthorized", advice, self._challenge(scope, rejection))

    def _refuse_principal(self, scope: Scope, principal: Principal) -> Response:
        """Refuse what a valid credential does not open."""
        advice = "It is read-only."
        headers = {"Cache-Control": "no-store"}
        if principal.profiles:
            opened = ", ".join(f"/mcp/p/{profile}" for profile in principal.profiles)
            advice = f"It opens {opened}."
            if principal.expires_at is not None:
                rejection = Rejection("the token opens other profiles", 403)
                headers |= self._challenge(scope, rejection)
        return self._make_refusal(403, "this credential does not open that", advice, headers)

    def _challenge(self, scope: Scope, rejection: Rejection | None) -> dict[str, str]:
        challenge = self._metadata.make_challenge(scope, rejection)
        return {"WWW-Authenticate": challenge} if challenge else {}
