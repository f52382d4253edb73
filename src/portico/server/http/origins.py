"""Requests of web pages: for the gateway's own hosts, and from its own pages where something is
changed."""

from collections.abc import Mapping

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.server.http.auth import make_problem_refusal


class PrefixRoute(BaseRoute):
    """Matches every path under a prefix such as `/api`, whatever its characters."""

    def __init__(self, prefix: str, app: ASGIApp) -> None:
        self._prefix = prefix
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == self._prefix or path.startswith(f"{self._prefix}/"):
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
        refused = await self._security.validate_request(Request(_leave_out_own_origin(scope)))
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
    if b"origin" in headers and not _is_own_origin(headers):
        advice = "Only the gateway's own pages, and programs, change something here."
        return make_problem_refusal(403, "the request is of another page (its Origin)", advice, {})
    return None


def _leave_out_own_origin(scope: Scope) -> Scope:
    """Return the scope of a request, without its Origin where that is the host it is for.

    Whether that host is accepted is checked; its pages then are the gateway's own.
    """
    if not _is_own_origin(dict(scope["headers"])):
        return scope
    return {**scope, "headers": [item for item in scope["headers"] if item[0] != b"origin"]}


def _is_own_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the Origin of a request is the host it is for."""
    origin = headers.get(b"origin", b"").partition(b"://")[2]
    return bool(origin) and origin.lower() == headers.get(b"host", b"").lower()
