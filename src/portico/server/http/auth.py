"""Who may come in over HTTP: requests addressed in one clear way, for this host, with the right
bearer token.

To REST, requests that change something also come from no web page but the gateway's own.
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
    """The status of a request whose Host or Origin could be read in two ways; the SDK checks the
    names in them."""
    given = list(headers)
    for header, status in ((b"host", 421), (b"origin", 403)):
        values = [value for name, value in given if name == header]
        if len(values) > 1:
            return 400
        for value in values:
            port = _PORT.match(value if header == b"host" else value.partition(b"://")[2])
            if port is not None and not port[1].isdigit():
                return status
    return None


RefusalFactory = Callable[[int, str, str, Mapping[str, str]], Response]
"""Status, what is wrong, what to do about it, and headers."""


def _make_plain_refusal(
    status: int, detail: str, advice: str, headers: Mapping[str, str]
) -> Response:
    return JSONResponse({"error": detail, "advice": advice}, status, headers)


def make_problem_refusal(
    status: int, detail: str, advice: str, headers: Mapping[str, str]
) -> Response:
    """The same as the API refuses (RFC 9457)."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    around = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Authorization",
        **headers,
    }
    return JSONResponse({**body, "advice": advice}, status, around, "application/problem+json")


class ApiRoute(BaseRoute):
    """Everything under `/api`, whatever characters are in it; the doors are tried before."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http":
            path = scope["path"]
        else:
            path = ""
        return (Match.FULL if path == "/api" or path.startswith("/api/") else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class HostOriginMiddleware:
    """Lets requests through that are for this host and of no strange page; the SDK does so for the
    doors."""

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
    """Lets requests that change something through only from the gateway's own pages, and from no
    page at all.

    A page of another port of this machine is another site.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            refused = None
        else:
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
    """Lets requests through that are addressed in one clear way and have the right bearer token."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        make_refusal: RefusalFactory = _make_plain_refusal,
        failure_limiter: AuthFailureLimiter | None = None,
    ) -> None:
        """`guard` counts wrong tokens, those of other applications too."""
        self._app = app
        self._failure_limiter = failure_limiter or AuthFailureLimiter()
        self._make_refusal = make_refusal
        if token is not None:
            self._expected_token = token.encode()
        else:
            self._expected_token = None
        # Who came in by which token, where the token itself must not be: this goes into events and
        # keys.
        self._identity = hashlib.blake2b(
            self._expected_token or b"", key=_SALT, digest_size=16
        ).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Field values are without the blanks around them (RFC 9110 §5.5); the parser leaves those
        # at the end.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        if (status := _check_host_and_origin(scope["headers"])) is not None:
            wrong = "Host or Origin is given twice, or what follows its colon is no port"
            refused = self._make_refusal(
                status, wrong, "Send each once, as in http://127.0.0.1:8420.", {}
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
        """Whether a request has the token, or none is asked for."""
        return self._check_token(scope) is None

    def _check_token(self, scope: Scope) -> float | None:
        """Check the token of a request: None where it is right, else how long to wait before the
        next is looked at."""
        if self._expected_token is None:
            return None
        given = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
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
