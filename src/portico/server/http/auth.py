"""Authentication over HTTP: unambiguous Host and Origin headers, and the bearer token.

REST requests that change something are also refused if they come from a web page other than the
gateway's own.
"""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.server.http.auth_failures import AuthFailureLimiter
from portico.server.http.callers import identify_network
from portico.server.sessions import IDENTITY_KEY

_SALT = secrets.token_bytes(32)
_PORT = re.compile(rb"^(?:\[[^]]*\]|[^:\[]*):(.*)$", re.DOTALL)


def _check_host_and_origin(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the error status for a Host or Origin that is ambiguous, else None.

    The SDK checks the names in these headers.
    """
    fields = list(headers)
    for header, status in ((b"host", 421), (b"origin", 403)):
        values = [value for name, value in fields if name == header]
        if len(values) > 1:
            return 400
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
        "Vary": "Authorization",
        **headers,
    }
    return JSONResponse({**body, "advice": advice}, status, all_headers, "application/problem+json")


class ApiRoute(BaseRoute):
    """Matches every path under `/api`, whatever its characters; the MCP routes are tried before."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == "/api" or path.startswith("/api/"):
            return Match.FULL, {}
        return Match.NONE, {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class HostOriginMiddleware:
    """Refuses requests for another host or of a foreign web page; for `/mcp` the SDK does so."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings) -> None:
        self._app = app
        self._security = TransportSecurityMiddleware(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = await self._security.validate_request(Request(scope))
        if refused is None:
            await self._app(scope, receive, send)
            return
        advice = "gateway.allowed_hosts and gateway.allowed_origins name who else may come in."
        await make_problem_refusal(refused.status_code, bytes(refused.body).decode(), advice, {})(
            scope, receive, send
        )


class SameOriginMiddleware:
    """Refuses requests that change something and have an Origin other than the gateway itself.

    A page on another port of this machine is another origin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = None
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            refused = _refuse_foreign_origin(scope)
        await (refused or self._app)(scope, receive, send)


def _refuse_foreign_origin(scope: Scope) -> Response | None:
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"")
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2].lower() != host.lower():
        advice = "Only the gateway's own pages, and programs, change something here."
        return make_problem_refusal(403, "the request is of another page (its Origin)", advice, {})
    return None


class BearerAuthMiddleware:
    """Refuses requests with an ambiguous Host or Origin, or without the right bearer token."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        make_refusal: RefusalFactory = _make_plain_refusal,
        failure_limiter: AuthFailureLimiter | None = None,
    ) -> None:
        """`failure_limiter` counts wrong tokens; it can be shared with other applications."""
        self._app = app
        self._failure_limiter = failure_limiter or AuthFailureLimiter()
        self._make_refusal = make_refusal
        self._expected_token = token.encode() if token is not None else None
        # Stands for the token in events and keys, where the token itself must not appear.
        self._identity = hashlib.blake2b(
            self._expected_token or b"", key=_SALT, digest_size=16
        ).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Whitespace around field values is not part of them (RFC 9110 §5.5); the parser leaves
        # the trailing part.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        if (status := _check_host_and_origin(scope["headers"])) is not None:
            detail = "Host or Origin is given twice, or what follows its colon is no port"
            refused = self._make_refusal(
                status, detail, "Send each once, as in http://127.0.0.1:8420.", {}
            )
            await refused(scope, receive, send)
            return
        wait_s = self._check_token(scope)
        if wait_s is not None:
            await self._refuse_token(wait_s)(scope, receive, send)
            return
        if self._expected_token is not None:
            scope[IDENTITY_KEY] = self._identity
        await self._app(scope, receive, send)

    def is_authorized(self, scope: Scope) -> bool:
        """Return whether a request has the token, or none is required."""
        return self._check_token(scope) is None

    def _check_token(self, scope: Scope) -> float | None:
        """Return None if the token is right, else the seconds to wait before the next one is
        checked."""
        if self._expected_token is None:
            return None
        header = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
        scheme, _, token = header.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            return 0.0
        peer = identify_network(scope.get("client"))
        is_right = not self._failure_limiter.get_wait_s(peer) and hmac.compare_digest(
            token.strip(), self._expected_token
        )
        if is_right and self._expected_token:
            self._failure_limiter.record_success(peer)
            return None
        return self._failure_limiter.record_failure(peer)

    def _refuse_token(self, wait_s: float) -> Response:
        if wait_s:
            headers = {"Retry-After": str(math.ceil(wait_s))}
            return self._make_refusal(
                429,
                "too many wrong tokens came from this address",
                "Wait, and send another.",
                headers,
            )
        return self._make_refusal(
            401,
            "unauthorized",
            "Send the gateway's token: Authorization: Bearer …",
            {"WWW-Authenticate": 'Bearer realm="portico"'},
        )
